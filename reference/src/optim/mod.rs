//! Optimisers as graphs, and schedules of the learning rate as functions of the step.
//!
//! What changes from step to step, the learning rate and the corrections of the moments, are inputs: a graph knows no
//! step number, so one graph serves every step.

mod adamw;
mod clip;
mod schedule;

pub use adamw::{AdamW, Rates, Updated};
pub use clip::{clip, clip_factor, norm};
pub use schedule::{Schedule, Shape};
