//! The plan of a chunked loss: what is done with which rows, as data.

use std::fmt;

use reference::graph::{Error, Graph};

use super::{Chunked, Problem};

/// Everything that a machine has to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The rows of each chunk.
    pub chunks: Vec<Vec<usize>>,
    /// What is computed of each chunk first, if seeds depend on the values of all rows.
    pub first: Option<Graph>,
    /// From the values to the seeds.
    pub seeds: Graph,
    /// What is computed of each chunk, with its gradient.
    pub each: Graph,
    /// From the values to the loss.
    pub whole: Graph,
}

impl Plan {
    /// An attempt's plan for the rows that count, at most `size` at a time.
    ///
    /// A loss whose gradient asks for the values of rows, such as one of whole sequences, gets two passes over the
    /// chunks: the first for the values, the second for the gradient. One whose rows simply add up gets one pass. The
    /// second is not always needed: behind a frozen head the first could keep the gradient of each row's one value, to
    /// be multiplied by its seed, and a chunk of whole sequences or pairs could compute its own seeds. No plan does
    /// that yet.
    pub fn new(
        attempt: &dyn Chunked,
        problem: &Problem,
        counts: &[bool],
        size: usize,
    ) -> Result<Self, Error> {
        problem.loss.check()?;
        let seeds = attempt.seeds(problem)?;
        let first = if asks_for_values(&seeds, problem) { Some(attempt.forward(problem)?) } else { None };
        Ok(Self {
            chunks: attempt.cut(counts, size),
            first,
            seeds,
            each: attempt.backward(problem)?,
            whole: problem.loss.whole.clone(),
        })
    }

    /// The rows of the largest chunk.
    pub fn largest(&self) -> usize {
        self.chunks.iter().map(Vec::len).max().unwrap_or(0)
    }
}

/// Whether a seed is computed from the values of rows.
fn asks_for_values(seeds: &Graph, problem: &Problem) -> bool {
    let needed = seeds.ancestors(seeds.outputs().iter().map(|(_, id)| *id));
    problem.loss.values().filter_map(|name| seeds.find_input(name)).any(|id| needed.contains(&id))
}

/// The chunks in a line, then the graphs.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: usize = self.chunks.iter().map(Vec::len).sum();
        writeln!(f, "{rows} rows in {} chunks of at most {}", self.chunks.len(), self.largest())?;
        let graphs = self.first.iter().chain([&self.seeds, &self.each, &self.whole]);
        graphs.into_iter().try_for_each(|graph| writeln!(f, "\n{graph}"))
    }
}
