//! Pipeline schedules: what each rank of a pipeline does, in which order, as a text grid that is a value.
//!
//! ```text
//! schedule ranks 2 chunks 1 micro_batches 3 placement looped
//! 0: F0 R0 F1 R1 B0 F2 R2 B1 W0 W1 B2 W2
//! 1: F0 R0 B0 F1 R1 B1 F2 R2 B2 W0 W1 W2
//! ```
//!
//! A model is cut into stages, each of which lies on a rank; a step's batch is cut into micro-batches. `F0` is the
//! forward of micro-batch 0 through the rank's stage, `B0` the gradient with respect to the stage's input, `W0` with
//! respect to its trained weights, `R0` computes again what the forward did not keep, and `D` dequantises the stage's
//! weights into a buffer. Letters together, as in `RBW0`, are one operation. A rank with several stages calls them
//! chunks: `F0.1` is micro-batch 0 in chunk 1. The grammar is at the top of `schedule/parse.rs`.
//!
//! A grid is read ([`Schedule::parse`]) or made ([`GENERATORS`]), checked ([`check()`]) against a [`Workload`], and
//! then simulated ([`Checked::simulate`]); nothing has to be run for any of that.
//!
//! ```text
//! operation, grid                 what a rank does; all that all ranks do, and its text; parse: the text, read
//! workload, buffer                what has to be done, and what it costs; the buffer for dequantised weights
//! check, deadlock, memory         whether it can be run; error: why not
//! simulate, picture, bound        when each operation runs, also as text; the time that no schedule undercuts
//! generate, list                  schedules that are known; one that comes of a rule
//! exhaustive                      the shortest of all, for a few ranks and micro-batches
//! ```
//!
//! Reading: Huang et al., "GPipe" (arXiv 1811.06965); Narayanan et al., "Efficient Large-Scale Language Model Training
//! on GPU Clusters Using Megatron-LM" (arXiv 2104.04473); Qi et al., "Zero Bubble Pipeline Parallelism" (arXiv
//! 2401.10241) and "Pipeline Parallelism with Controllable Memory" (arXiv 2405.15362).

mod bound;
mod buffer;
mod check;
mod deadlock;
mod error;
mod exhaustive;
mod generate;
mod grid;
mod list;
mod memory;
mod operation;
mod parse;
mod picture;
mod simulate;
#[cfg(test)]
mod tests;
mod workload;

pub use bound::bound;
pub use check::{Checked, check};
pub use error::{Error, Site};
pub use exhaustive::{Shortest, shortest};
pub use generate::{GENERATORS, Generator, gpipe, interleaved, one_f_one_b, zero_bubble};
pub use grid::{Placement, Schedule, Shape};
pub use list::{Rule, listed};
pub use operation::{Kind, Kinds, Operation};
pub use simulate::{Span, Timeline};
pub use workload::{Buffer, Held, Sends, Stage, Times, Workload};
