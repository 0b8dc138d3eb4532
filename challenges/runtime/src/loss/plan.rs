//! The plan of a chunked loss: what is done with which rows, as data.

use std::fmt;

use reference::graph::{Builder, Dtype, Error, Graph};

use super::groups::{self, Groups};
use super::problem::row_dim;
use super::{Chunked, Problem};

/// Everything that a machine has to know.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkPlan {
    /// The rows of each chunk.
    pub chunks: Vec<Vec<usize>>,
    /// What is computed of them.
    pub graphs: Graphs,
}

/// What is computed, whatever the rows: the same for every batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Graphs {
    /// How often the logits of a chunk are computed.
    pub passes: Passes,
    /// From the values to the seeds.
    pub seeds: Graph,
    /// What is computed of each chunk, with its gradient.
    pub each: Graph,
    /// From the values to the loss.
    pub whole: Graph,
}

/// How often the logits of a chunk are computed. A loss whose rows simply add up knows its seeds beforehand; one of
/// whole sequences computes them from values: within a chunk that has all that a seed asks for, or else from the values
/// of all rows, when the first logits are gone.
#[derive(Clone, Debug, PartialEq)]
pub enum Passes {
    /// Once, with its seeds.
    One,
    /// Once, with a seed of 1 for this value: the gradient of a hidden state is its row's seed times what that gives,
    /// and the graph multiplies it by the seed when that is known.
    OneThenScale {
        /// The value.
        value: String,
        /// Inputs: `unscaled` (N, H) in the problem's type, `seed.VALUE` f32 (N). Output: `hidden.grad`.
        scale: Graph,
    },
    /// Once, by this graph in the place of [`Graphs::each`]: no chunk splits a group of rows whose seeds ask for each
    /// other's values, so the graph computes the seeds between a chunk's values and its gradients.
    OneByGroups(Graph),
    /// Twice: first by this graph for the values, then for the gradient.
    Two(Graph),
}

impl Passes {
    /// How often the product with the weight is computed for each row.
    pub fn products(&self) -> usize {
        match self {
            Self::One | Self::OneThenScale { .. } | Self::OneByGroups(_) => 1,
            Self::Two(_) => 2,
        }
    }

    /// What is compiled for chunks beside their gradient, or in its place.
    pub fn graph(&self) -> Option<&Graph> {
        match self {
            Self::One => None,
            Self::OneThenScale { scale: graph, .. } | Self::OneByGroups(graph) | Self::Two(graph) => {
                Some(graph)
            }
        }
    }
}

impl ChunkPlan {
    /// An attempt's plan for the rows that count, at most `size` at a time, cut anywhere.
    ///
    /// # Errors
    /// As [`Graphs::new`].
    pub fn new(
        attempt: &dyn Chunked,
        problem: &Problem,
        counts: &[bool],
        size: usize,
    ) -> Result<Self, Error> {
        Ok(Self { chunks: attempt.cut(counts, size), graphs: Graphs::new(attempt, problem)? })
    }

    /// The rows of the largest chunk.
    pub fn largest(&self) -> usize {
        self.chunks.iter().map(Vec::len).max().unwrap_or(0)
    }
}

impl Graphs {
    /// An attempt's graphs for chunks that are cut anywhere.
    ///
    /// # Errors
    /// If a graph is not sound.
    pub fn new(attempt: &dyn Chunked, problem: &Problem) -> Result<Self, Error> {
        problem.loss.check()?;
        let seeds = attempt.seeds(problem)?;
        let passes = match scaled_value(problem) {
            _ if !asks_for_values(&seeds, problem) => Passes::One,
            Some(value) => Passes::OneThenScale { scale: scale(problem, &value)?, value },
            None => Passes::Two(attempt.forward(problem)?),
        };
        Ok(Self { passes, seeds, each: attempt.backward(problem)?, whole: problem.loss.whole.clone() })
    }

    /// Groups of rows, and the graphs for chunks that split none, in one pass, where a second one is needed otherwise.
    ///
    /// # Errors
    /// If a graph is not sound.
    pub fn by_groups(&self, problem: &Problem) -> Result<Option<(Groups, Self)>, Error> {
        let Passes::Two(_) = self.passes else { return Ok(None) };
        let Some(groups) = Groups::of(problem, &self.seeds) else { return Ok(None) };
        let graph = groups::by_groups(problem, &self.each, &self.seeds, groups.rows())?;
        let in_one_pass = |graph| Self { passes: Passes::OneByGroups(graph), ..self.clone() };
        Ok(graph.map(|graph| (groups, in_one_pass(graph))))
    }

    /// What is compiled for chunks.
    pub fn of_chunks(&self) -> impl Iterator<Item = &Graph> {
        let each = (!matches!(self.passes, Passes::OneByGroups(_))).then_some(&self.each);
        self.passes.graph().into_iter().chain(each)
    }
}

/// Whether a seed is computed from the values of rows.
fn asks_for_values(seeds: &Graph, problem: &Problem) -> bool {
    let needed = seeds.ancestors(seeds.outputs().iter().map(|(_, id)| *id));
    problem.loss.values().filter_map(|name| seeds.find_input(name)).any(|id| needed.contains(&id))
}

/// The one value that the loss asks for, if the gradient of a hidden state is that value's seed times what a seed of 1
/// gives: nothing is trained that rows share. With f16 states a gradient without its seed may be too large for the
/// type; with bf16 it is rounded once more.
fn scaled_value(problem: &Problem) -> Option<String> {
    let asked: Vec<&str> =
        problem.loss.values().filter(|name| problem.loss.whole.find_input(name).is_some()).collect();
    let trains = problem.trains;
    let shares = trains.weight || trains.bias && problem.bias;
    match asked[..] {
        [value] if trains.hidden && !shares && problem.dtype != Dtype::F16 => Some(value.to_owned()),
        _ => None,
    }
}

/// The gradient of each hidden state times its row's seed.
fn scale(problem: &Problem, value: &str) -> Result<Graph, Error> {
    let builder = Builder::new("scale");
    let tape = builder.tape();
    let gradient = tape.input("unscaled", problem.dtype, [row_dim(tape), problem.width.into()]);
    let seed = tape.input(&format!("seed.{value}"), Dtype::F32, [row_dim(tape)]);
    let seed = seed.reshape([row_dim(tape), 1.into()]).spread(gradient.shape());
    tape.output("hidden.grad", &(&gradient.cast(Dtype::F32) * &seed).cast(problem.dtype));
    builder.finish()
}

/// The chunks in a line, then the graphs.
impl fmt::Display for ChunkPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: usize = self.chunks.iter().map(Vec::len).sum();
        writeln!(f, "{rows} rows in {} chunks of at most {}", self.chunks.len(), self.largest())?;
        let Graphs { passes, seeds, each, whole } = &self.graphs;
        let graphs = passes.graph().into_iter().chain([seeds, each, whole]);
        graphs.into_iter().try_for_each(|graph| writeln!(f, "\n{graph}"))
    }
}
