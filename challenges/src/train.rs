//! Training: the one loop's step, whichever way the loss is computed.
//!
//! A step is a graph of [`reference::llama::train`]: forward, backward and optimiser at once. Weights, adapter and the
//! optimiser's state are uploaded once and stay on the device; what a step updates, it updates in place. A batch is
//! what changes from step to step: tokens, labels, and the numbers of the schedule.
//!
//! With a chunked loss (challenge E) a step is three parts: the hidden states, the loss with their gradient chunk by
//! chunk, and the step of the model for that gradient, which computes the states once more.

use std::collections::BTreeMap;
use std::fmt;

use compiler::session::{self, DeviceTensor, Program, Session, Settings};
use kernels::{Callee, Device};
use reference::graph::interpret::Values;
use reference::graph::{self, Array, Graph};
use reference::loss::IGNORED;

use crate::graph::Compile;
use crate::loss::run::{self, Hidden, Job, Runner, Size};
use crate::loss::{Chunked, Problem};

pub mod chunked;
mod engine;
mod forecast;
mod microbatch;
pub mod scale;

pub use engine::{Engine, Machine, NotFinite};
pub use forecast::{Forecast, Forecaster};
pub use microbatch::{Logged, Microbatch};
pub use scale::LossScale;

/// Why a step was not made.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A graph does not compile or run.
    Session(session::Error),
    /// The chunked loss.
    Loss(run::Error),
    /// There is no such graph.
    Graph(graph::Error),
    /// More tokens than there is room for, or none.
    Room {
        /// Tokens that were given.
        got: usize,
        /// Tokens that there is room for.
        room: usize,
    },
    /// The batch lacks something.
    Batch {
        /// What is missing.
        name: &'static str,
    },
}

/// A model on a device, step by step.
pub struct Trainer<'a> {
    session: Session<'a>,
    parts: Parts<'a>,
}

enum Parts<'a> {
    Whole { step: Program },
    Chunked(Box<Chunks<'a>>),
}

/// The parts of a step whose loss is chunked.
struct Chunks<'a> {
    states: Program,
    update: Program,
    attempt: &'a dyn Chunked,
    runner: Runner<'a>,
    given: BTreeMap<String, DeviceTensor>,
    length: usize,
    size: Size,
}

/// A chunked loss of a model.
pub struct ChunkedLoss<'a> {
    /// The steps of challenge E.
    pub attempt: &'a dyn Chunked,
    /// Who compiles the chunks.
    pub passes: &'a dyn Compile,
    /// The loss and its shapes.
    pub problem: &'a Problem,
    /// From tokens to `hidden`.
    pub states: &'a Graph,
    /// The weight of the output layer, (V, H) in the problem's type.
    pub weight: &'a Array<f32>,
    /// Tokens of a sequence.
    pub length: usize,
    /// How large chunks are.
    pub size: Size,
}

impl<'a> Trainer<'a> {
    /// One whose loss is part of its step's graph. `start` is everything that does not change with the batch.
    ///
    /// # Errors
    /// If the graph cannot be loaded, or the device lacks the memory.
    pub fn whole(
        passes: &'a dyn Compile,
        device: &'a dyn Device,
        dequantizer: &'a dyn Callee,
        settings: Settings,
        step: &Graph,
        start: &Values<f32>,
    ) -> Result<Self, Error> {
        let mut session = session(passes, device, dequantizer, settings, start)?;
        let step = session.load(step).map_err(Error::Session)?;
        Ok(Self { session, parts: Parts::Whole { step } })
    }

    /// One whose loss is chunked; `step` is that of the model for a given gradient of its hidden states, `hidden.grad`.
    ///
    /// # Errors
    /// As [`Self::whole`].
    pub fn chunked(
        passes: &'a dyn Compile,
        device: &'a dyn Device,
        dequantizer: &'a dyn Callee,
        settings: Settings,
        step: &Graph,
        start: &Values<f32>,
        loss: &ChunkedLoss<'a>,
    ) -> Result<Self, Error> {
        let mut session = session(passes, device, dequantizer, settings, start)?;
        let states = session.load(loss.states).map_err(Error::Session)?;
        let update = session.load(step).map_err(Error::Session)?;
        let runner = Runner::new(device, loss.passes, loss.attempt, loss.problem);
        let given = BTreeMap::from([("weight".to_owned(), tensor(&session, loss.weight)?)]);
        let ChunkedLoss { attempt, length, size, .. } = *loss;
        let chunks = Chunks { states, update, attempt, runner, given, length, size };
        Ok(Self { session, parts: Parts::Chunked(Box::new(chunks)) })
    }

    /// A step; the loss before its update. `batch` is what `start` did not have.
    ///
    /// # Errors
    /// If an input is missing or does not fit, and what the session or the device says.
    pub fn step(&mut self, batch: &Values<f32>) -> Result<f64, Error> {
        let inputs = batch.iter().map(|(name, value)| Ok((name.clone(), tensor(&self.session, value)?)));
        let mut inputs: BTreeMap<String, DeviceTensor> = inputs.collect::<Result<_, Error>>()?;
        match &mut self.parts {
            Parts::Whole { step } => {
                let outputs = self.session.run(*step, &inputs).map_err(Error::Session)?;
                let loss = outputs.array("loss").map_err(Error::Session)?;
                Ok(loss.wide().first().copied().unwrap_or(f64::NAN))
            }
            Parts::Chunked(chunks) => {
                let hidden = self.session.run(chunks.states, &inputs).and_then(|out| out.tensor("hidden"));
                let (loss, gradient) = chunks.loss(&self.session, hidden.map_err(Error::Session)?, batch)?;
                inputs.insert("hidden.grad".into(), gradient);
                self.session.run(chunks.update, &inputs).map_err(Error::Session)?;
                Ok(loss)
            }
        }
    }

    /// Keeps tensors that are on the device already, such as [loaded weights](crate::weights::load), as if they had
    /// been in `start`.
    pub fn keep(&mut self, tensors: BTreeMap<String, DeviceTensor>) {
        for (name, tensor) in tensors {
            self.session.keep(&name, tensor);
        }
    }

    /// A tensor that steps update, as it is now; `None` if none has the name.
    pub fn kept(&self, name: &str) -> Option<&DeviceTensor> {
        self.session.kept(name)
    }

    /// The session that it runs in.
    pub fn session(&self) -> &Session<'a> {
        &self.session
    }
}

impl Chunks<'_> {
    /// The loss of a batch, and the gradient of its hidden states in their place.
    fn loss(
        &mut self,
        session: &Session<'_>,
        hidden: DeviceTensor,
        batch: &Values<f32>,
    ) -> Result<(f64, DeviceTensor), Error> {
        let DeviceTensor { shape, buffer } = hidden;
        let labels = batch.get("labels").ok_or(Error::Batch { name: "labels" })?;
        let labels = self.attempt.shift(labels.as_integers(), self.length);
        let counts: Vec<bool> = labels.iter().map(|label| *label != IGNORED).collect();
        let labels = tensor(session, &Array::integers(&[labels.len()], labels))?;
        self.given.insert("labels".into(), labels);
        let job = Job {
            hidden: Hidden::Donated(buffer),
            given: &self.given,
            counts: &counts,
            upstream: None,
            size: self.size,
            so_far: BTreeMap::new(),
        };
        let mut results = self.runner.run(job).map_err(Error::Loss)?;
        let gradient = results.gradients.remove("hidden.grad").ok_or(Error::Batch { name: "hidden.grad" })?;
        let loss = results.loss.first().map_or(f64::NAN, |loss| f64::from(*loss));
        Ok((loss, DeviceTensor { shape, buffer: gradient }))
    }
}

/// A session that keeps everything that does not change with the batch.
fn session<'a>(
    passes: &'a dyn Compile,
    device: &'a dyn Device,
    dequantizer: &'a dyn Callee,
    settings: Settings,
    start: &Values<f32>,
) -> Result<Session<'a>, Error> {
    let settings = Settings { donate: true, ..settings };
    let mut session = Session::new(passes, device, dequantizer, settings);
    for (name, value) in start {
        let tensor = tensor(&session, value)?;
        session.keep(name, tensor);
    }
    Ok(session)
}

fn tensor(session: &Session<'_>, value: &Array<f32>) -> Result<DeviceTensor, Error> {
    let made = DeviceTensor::new(session.device(), &value.shape, &value.to_memory());
    made.map_err(|error| Error::Session(session::Error::Device(error)))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Session(error) => error.fmt(f),
            Error::Loss(error) => error.fmt(f),
            Error::Graph(error) => error.fmt(f),
            Error::Room { got, room } => write!(f, "expected 1 to {room} tokens, found {got}"),
            Error::Batch { name } => write!(f, "the batch has no `{name}`"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Session(error) => Some(error),
            Error::Loss(error) => Some(error),
            Error::Graph(error) => Some(error),
            Error::Batch { .. } | Error::Room { .. } => None,
        }
    }
}
