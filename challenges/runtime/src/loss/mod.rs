//! Losses in chunks of rows: the losses as graphs, what is planned for a problem, and the machine that runs it.
//!
//! What is done with a chunk is asked of an attempt: the steps of [`Chunked`], challenge E's contract.

mod contract;
pub mod groups;
pub mod losses;
pub mod plan;
pub mod problem;
pub mod run;
pub mod sequences;

pub use contract::{Chunked, Cost};
pub use problem::{Loss, Problem, Sampled, Trains};
