//! What is seen of a graph that was compiled and is right.

use std::collections::BTreeSet;

use compiler::compile::Compiled;
use figures::memory::Buffer;
use reference::graph::{Array, Error, Graph, Id};
use serde::{Deserialize, Serialize};

use super::Meaning;
use crate::fair;

/// Bytes that an answer may have as JSON.
pub(crate) const MOST_BYTES: usize = 16 << 20;

/// A compiled graph.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Launches of a run.
    pub launches: usize,
    /// Bytes of the arena.
    pub arena_bytes: usize,
    /// How near the truth each output is.
    pub outputs: Vec<Output>,
    /// The plan as text.
    pub plan: String,
    /// Why neither the interpreter nor the compiled graph has results, if so.
    pub refused: Option<String>,
    /// What a drawing is made of, if one was asked for.
    pub drawn: Option<Drawn>,
}

/// An output beside the truth; of several ranks' the one that is farthest off.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub dtype: String,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// The largest error in units in the last place of the truth; `None` if its elements are whole numbers.
    pub ulps: Option<f64>,
    /// The largest error over the largest element; `None` if its elements are whole numbers.
    pub relative: Option<f64>,
    /// The same of the naive result.
    pub naive_relative: Option<f64>,
}

/// What a drawing of a plan is made of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Drawn {
    /// The graph that was lowered, as text.
    pub graph: String,
    /// Each launch: what it is, and the nodes that it computes.
    pub launches: Vec<(String, Vec<u32>)>,
    /// Each buffer of the arena: its first byte, its bytes, the first and the last launch that touch it.
    pub buffers: Vec<[usize; 4]>,
}

impl Answer {
    /// Of a graph that ran, on each rank.
    pub(super) fn new(
        graph: &Graph,
        compiled: &Compiled,
        results: &[&[Array<f32>]],
        Meaning { truth, naive }: &Meaning,
        drawn: bool,
    ) -> Self {
        let worst = |(i, (name, _)): (usize, &(String, _))| {
            let of = |rank: usize| Output::new(name, &results[rank][i], &naive[rank][i], &truth[rank][i]);
            let error = |output: &Output| output.relative.unwrap_or(0.0);
            (1..results.len()).map(of).fold(of(0), |a, b| if error(&b) > error(&a) { b } else { a })
        };
        Self {
            launches: compiled.plan().steps.len(),
            arena_bytes: compiled.arena.bytes,
            outputs: graph.outputs().iter().enumerate().map(worst).collect(),
            plan: compiled.plan().to_string(),
            refused: None,
            drawn: drawn.then(|| Drawn::new(compiled)),
        }
    }

    /// Of values for which the graph means nothing, and which were refused.
    pub(super) fn refused(meaning: &Error, refused: &str) -> Self {
        Self { refused: Some(format!("{meaning}; compiled: {refused}")), ..Self::default() }
    }
}

impl Output {
    fn new(name: &str, got: &Array<f32>, naive: &Array<f32>, truth: &Array<f64>) -> Self {
        let is_float = got.dtype.is_float();
        let ulps = |off: f64, truth: f64| fair::ulp(got.dtype, truth).map_or(0.0, |ulp| off / ulp);
        let largest =
            truth.wide().into_iter().filter(|x| x.is_finite()).fold(0.0_f64, |most, x| most.max(x.abs()));
        let relative =
            |of: &Array<f32>| if largest > 0.0 { most(of, truth, |off, _| off) / largest } else { 0.0 };
        Self {
            name: name.into(),
            dtype: got.dtype.name().into(),
            shape: got.shape.clone(),
            ulps: is_float.then(|| most(got, truth, ulps)),
            relative: is_float.then(|| relative(got)),
            naive_relative: is_float.then(|| relative(naive)),
        }
    }
}

/// The most of what is made of each error and its truth, where both are finite.
fn most(got: &Array<f32>, truth: &Array<f64>, of: impl Fn(f64, f64) -> f64) -> f64 {
    let pairs = got.wide().into_iter().zip(truth.wide()).filter(|(g, t)| g.is_finite() && t.is_finite());
    pairs.fold(0.0, |most, (g, t)| most.max(of((g - t).abs(), t)))
}

impl Drawn {
    fn new(compiled: &Compiled) -> Self {
        let steps = compiled.plan().steps.iter().zip(&compiled.nodes);
        let launches = steps.map(|(step, nodes)| (step.name(), nodes.iter().map(|id| id.0).collect()));
        let placed = compiled.lives.iter().zip(&compiled.arena.places);
        let buffers = placed.filter_map(|(life, place)| {
            let life = life.as_ref()?;
            Some([(*place)?, life.bytes, *life.parts.start(), *life.parts.end()])
        });
        Self { graph: compiled.graph.to_string(), launches: launches.collect(), buffers: buffers.collect() }
    }

    /// The nodes of each launch that the graph has.
    pub fn nodes(&self, graph: &Graph) -> Vec<BTreeSet<Id>> {
        let known = |id: &u32| (*id as usize) < graph.nodes().len();
        let of = |(_, nodes): &(String, Vec<u32>)| nodes.iter().copied().filter(known).map(Id).collect();
        self.launches.iter().map(of).collect()
    }

    /// The buffers as a figure takes them.
    pub fn buffers(&self) -> Vec<Buffer> {
        let last = self.launches.len();
        let one = |[place, bytes, first, end]: &[usize; 4]| Buffer {
            place: *place as f64,
            bytes: *bytes as f64,
            first: (*first).min(last),
            last: (*end).clamp((*first).min(last), last),
        };
        self.buffers.iter().map(one).collect()
    }
}
