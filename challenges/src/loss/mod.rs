//! (E) `loss`: chunked backprop that never holds the logits.
//!
//! With 128,256 entries in the vocabulary, the last product of a model makes of 16,384 tokens 8.4 GB of logits in f32,
//! and as much again for their gradient, for one number and the gradient of some hidden states. None of it is needed at
//! once: a row of logits is needed to make that row's part of the loss, and its gradient is needed to make that row's
//! part of the other gradients. So rows are taken chunk by chunk, and a chunk's logits are gone before the next one's
//! are there.
//!
//! ```text
//! for each chunk of rows:  z = hidden W^T (+ b)  ->  values of rows  ->  dz = seed d(value)/dz  ->  dhidden = dz W
//!                          in f32, never all                                                     dW += dz^T hidden
//! ```
//!
//! **What is given.** A [`Problem`]: the shapes, and a [`Loss`] as two graphs - what is computed of each row by itself,
//! and what all rows make together. The loss is anybody's; its derivative is what [`reference::grad`] makes of it.
//! **What comes out.** A [`plan::ChunkPlan`]: which rows are taken together, and graphs for what is done with them. The
//! machine of [`run`] compiles it by challenge C and runs it. **What it means.** The same as if all rows were one
//! chunk, for every chunk size.
//!
//! Source: Wijmans et al., "Cut Your Losses in Large-Vocabulary Language Models" (2024), for what is lost when logits
//! are kept; Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018), for E.1.

use reference::graph::{Error, Graph, Tensor};
use reference::loss::Policy;

use linked::{Linked, counted, linked};

pub use runtime::loss::{Chunked, Cost, Loss, Problem, Sampled, Trains};
pub use runtime::loss::{groups, losses, plan, problem, run, sequences};

linked!(warpbook_loss -> Linked<dyn Chunked>);

counted! {
    Chunked, warpbook_loss;

    fn log_sum_exp(&self, hidden: &Tensor, weight: &Tensor, stretch: usize) -> Tensor;
    fn cut(&self, counts: &[bool], size: usize) -> Vec<Vec<usize>>;
    fn forward(&self, problem: &Problem) -> Result<Graph, Error>;
    fn backward(&self, problem: &Problem) -> Result<Graph, Error>;
    fn seeds(&self, problem: &Problem) -> Result<Graph, Error>;
    fn shift(&self, labels: &[i32], length: usize) -> Vec<i32>;
    fn policy(&self, policy: &Policy, sampled: &Sampled) -> Result<Loss, Error>;
    fn size(&self, costs: &[Cost], rows: usize, budget: usize) -> Option<usize>;
}

/// The solution's text: what an exercise is derived from, and the last page of the lesson.
pub fn solution_text() -> &'static str {
    warpbook_loss().text
}

/// Hints from small to large, chosen by the step that failed.
pub const HINTS: &str = include_str!("hints.toml");
