//! What a schedule has to do and what that costs: times, units of memory, the wire between ranks, the buffer for
//! dequantised weights.
//!
//! *Memory.* What a rank holds for a micro-batch of a stage is counted in units, of which the caller decides what one
//! is (a byte, the activations of a layer):
//!
//! ```text
//! from                held                                  until
//! the start of F      held.forward                          the end of B
//! the start of R      held.recompute                        the end of B
//! the end of B        held.weight, a part of the above      the end of W
//! ```
//!
//! So `held.forward` is all activations where nothing is recomputed, and the stage's input alone where it is; and
//! `held.weight` is what W still reads after B has run: inputs of the trained products and gradients of their outputs.
//! Messages that arrived and wait, and the buffer for dequantised weights, are not in the count: the former are bounded
//! by what the neighbour holds, the latter is constant.
//!
//! *The buffer.* A rank keeps the dequantised weights of at most [`Buffer::chunks`] of its chunks. `D` puts a chunk's
//! weights in; where there is no room, the chunk whose `D` is longest ago goes out. If [`Buffer::reads`] says so, they
//! also go out when that many operations have read them. Every operation with F, R or B reads once.

use super::{Error, Kind, Shape};

/// Largest number of units that one operation may hold: sums over all of a rank's operations stay within 64 bits.
const MOST_UNITS: u64 = 1 << 40;

/// How long each part of an operation takes on one stage, in any one unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Times {
    /// F.
    pub forward: f64,
    /// B.
    pub backward: f64,
    /// W.
    pub weight: f64,
    /// R.
    pub recompute: f64,
    /// D.
    pub dequantize: f64,
}

/// What a rank holds for one micro-batch of a stage, in units of memory; when, the top of `schedule/workload.rs` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Held {
    /// From F to the end of B.
    pub forward: u64,
    /// From R to the end of B.
    pub recompute: u64,
    /// From the end of B to the end of W; at most the sum of the former two.
    pub weight: u64,
}

/// One stage of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    /// How long each part of an operation takes.
    pub times: Times,
    /// What is held for a micro-batch.
    pub held: Held,
    /// Whether activations are computed again: each micro-batch needs an R before its B.
    pub recomputed: bool,
    /// Whether weights are trained: each micro-batch needs a W after its B.
    pub trained: bool,
}

/// A rank's buffer for dequantised weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// How many chunks it holds, at least 1.
    pub chunks: usize,
    /// How many operations read a chunk's weights before they go, at least 1; `None` if only a later D evicts them.
    pub reads: Option<usize>,
}

/// When an operation that sends is over, and how ranks that both wait go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sends {
    /// A send never waits; a receive waits until the message is there.
    Asynchronous,
    /// A send waits for its receive; what a rank sends after an operation and what it receives for the next one are
    /// posted together, in either order (`batch_isend_irecv` of `torch.distributed`).
    Paired,
    /// A send waits for its receive, and a rank does one after the other: what it sends after an operation, then what
    /// it receives for the next one; forward before backward.
    Blocking,
}

impl std::fmt::Display for Sends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Asynchronous => "asynchronous",
            Self::Paired => "paired",
            Self::Blocking => "blocking",
        })
    }
}

/// What a schedule has to do, and what it costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The stages: one that stands for all, or one for each.
    pub stages: Vec<Stage>,
    /// Time from the end of an operation to the arrival of its result on another rank; no rank is busy with it.
    pub latency: f64,
    /// The buffer for dequantised weights; `None` if there is nothing to dequantise.
    pub buffer: Option<Buffer>,
    /// Units that each rank may hold; `None` if there is no cap.
    pub cap: Option<u64>,
    /// How ranks send.
    pub sends: Sends,
}

impl Workload {
    /// All stages alike, no latency, nothing to dequantise, no cap, asynchronous sends.
    pub fn uniform(stage: Stage) -> Self {
        Self { stages: vec![stage], latency: 0.0, buffer: None, cap: None, sends: Sends::Asynchronous }
    }

    /// The costs of a stage.
    pub(super) fn stage(&self, stage: usize) -> &Stage {
        if self.stages.len() == 1 { &self.stages[0] } else { &self.stages[stage] }
    }

    /// Whether a stage needs such an operation for each micro-batch.
    pub fn asks(&self, kind: Kind, stage: usize) -> bool {
        match kind {
            Kind::Dequantize => self.buffer.is_some(),
            Kind::Forward | Kind::Backward => true,
            Kind::Recompute => self.stage(stage).recomputed,
            Kind::Weight => self.stage(stage).trained,
        }
    }

    /// How long one part of an operation takes.
    pub fn time(&self, kind: Kind, stage: usize) -> f64 {
        let times = &self.stage(stage).times;
        match kind {
            Kind::Dequantize => times.dequantize,
            Kind::Forward => times.forward,
            Kind::Recompute => times.recompute,
            Kind::Backward => times.backward,
            Kind::Weight => times.weight,
        }
    }

    /// Time from the end of an operation of one stage to the arrival of its result at another.
    pub(super) fn hop(&self, shape: Shape, from: usize, to: usize) -> f64 {
        if shape.home(from).0 == shape.home(to).0 { 0.0 } else { self.latency }
    }

    /// Fails where a number makes no sense: a time that is negative or not finite, more units than 2^40 an operation, W
    /// that keeps more than there is, an empty buffer, not one stage and not one for each of the shape's.
    pub fn check(&self, shape: Shape) -> Result<(), Error> {
        if self.stages.len() != 1 && self.stages.len() != shape.stages() {
            let expected = format!("one, or one for each of {} stages", shape.stages());
            return Err(Error::setting("stages", self.stages.len(), expected));
        }
        time("latency", self.latency)?;
        if self.buffer.is_some_and(|buffer| buffer.chunks == 0 || buffer.reads == Some(0)) {
            return Err(Error::setting("buffer", "0", "at least one chunk and one read"));
        }
        self.stages.iter().try_for_each(Stage::check)
    }
}

impl Stage {
    fn check(&self) -> Result<(), Error> {
        let Times { forward, backward, weight, recompute, dequantize } = self.times;
        time("time of F", forward)?;
        time("time of B", backward)?;
        time("time of W", weight)?;
        time("time of R", recompute)?;
        time("time of D", dequantize)?;
        units("units of F", self.held.forward, MOST_UNITS)?;
        units("units of R", self.held.recompute, MOST_UNITS)?;
        units("units of W", self.held.weight, self.held_by_backward())
    }

    /// Units of a micro-batch while B runs.
    pub(super) fn held_by_backward(&self) -> u64 {
        self.held.forward + if self.recomputed { self.held.recompute } else { 0 }
    }

    /// Units of a micro-batch between B and W.
    pub(super) fn held_by_weight(&self) -> u64 {
        if self.trained { self.held.weight } else { 0 }
    }
}

fn time(what: &'static str, found: f64) -> Result<(), Error> {
    if found.is_finite() && found >= 0.0 {
        return Ok(());
    }
    Err(Error::setting(what, found, "a finite number of at least 0"))
}

fn units(what: &'static str, found: u64, most: u64) -> Result<(), Error> {
    if found > most { Err(Error::setting(what, found, format!("at most {most}"))) } else { Ok(()) }
}
