//! The steps of chunked losses: challenge E's contract.

use reference::graph::{Error, Graph, Tensor};
use reference::loss::Policy;

use super::problem::{Loss, Problem, Sampled};

// ANCHOR: loss-trait
/// The steps of challenge E, from small to large.
pub trait Chunked: Sync {
    /// E.1 - ln of the sum of e^z over the vocabulary, f32 (N, 1), with z = hidden weight^T, of `hidden` (N, H) and
    /// `weight` (V, H) of any one float. The product is in the operands' type and then cast to f32. No more than
    /// `stretch` entries of the vocabulary are there at a time. A row of minus infinities gives minus infinity; plus
    /// infinity or NaN in a row gives NaN.
    fn log_sum_exp(&self, hidden: &Tensor, weight: &Tensor, stretch: usize) -> Tensor;

    /// E.2 - which rows are taken together: those that count, each once and in order, at most `size` at a time. No
    /// chunk is empty, and there are no more chunks than needed.
    fn cut(&self, counts: &[bool], size: usize) -> Vec<Vec<usize>>;

    /// E.2 - the values of a chunk of rows as a graph. Inputs: `hidden` (N, H), `weight` (V, H) and, if the problem has
    /// one, `bias` (V), all of the problem's type, then those of the loss's `rows` but `logits`. Outputs: those of
    /// `rows`. N is the symbol [`ROWS`](super::problem::ROWS). The product has the problem's type; from there on
    /// everything is in f32.
    fn forward(&self, problem: &Problem) -> Result<Graph, Error>;

    /// E.3 - the same with its gradient, given `seed.NAME` f32 (N) for each output NAME: the gradient of the sum of all
    /// outputs, each times its seed. Further outputs, as far as the problem trains them: `hidden.grad` (N, H) in the
    /// problem's type; `weight.grad` (V, H) and `bias.grad` (V) in its `accumulate_dtype`, each the sum of an input of
    /// the same name and of what the chunk adds, added in f32.
    fn backward(&self, problem: &Problem) -> Result<Graph, Error>;

    /// E.4 - the gradient of the loss with respect to each row's values, times what is upstream. Inputs: those of the
    /// loss's `whole`, and `upstream` f32, as many as the loss has numbers. Outputs: `seed.NAME` f32 for each output
    /// NAME of `rows`, with as many rows as `whole` has - N, or for a loss of sequences a number - and no other. Of a
    /// value that `whole` does not ask for the seed is zeros.
    fn seeds(&self, problem: &Problem) -> Result<Graph, Error>;

    /// E.4 - the label of each position's next token: of `labels`, sequences of `length` one after the other, to the
    /// rows' labels; a sequence's last position has none, which is [`reference::loss::IGNORED`].
    fn shift(&self, labels: &[i32], length: usize) -> Vec<i32>;

    /// E.5 - a loss of the GRPO family for completions that were sampled. Inputs of `rows` beside `logits`: `labels`
    /// i32 (N), ignored where there is no token of a completion; `advantages` f32 (N), for each token that of its
    /// sequence; `old` and `reference` f32 (N), log-probabilities, if there are some. Inputs of `whole`: the outputs of
    /// `rows`, and of these those that it needs.
    fn policy(&self, policy: &Policy, sampled: &Sampled) -> Result<Loss, Error>;

    /// E.6 - how many rows a chunk has, if there are `rows` that count, so that no cost is above `budget` bytes;
    /// nothing if one row is too much. No more chunks than the budget asks for, and all of nearly the same size.
    fn size(&self, costs: &[Cost], rows: usize, budget: usize) -> Option<usize>;
}
// ANCHOR_END: loss-trait

/// The bytes that are alive during a part of a chunk's work: `fixed + row * n` for a chunk of n rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Whatever the chunk's size.
    pub fixed: usize,
    /// For each row.
    pub row: usize,
}

impl Cost {
    /// For a chunk of n rows.
    pub fn of(&self, n: usize) -> usize {
        self.fixed + self.row * n
    }
}
