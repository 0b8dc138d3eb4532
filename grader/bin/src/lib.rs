//! The grader, linked with the solutions.
//!
//! The command line is [`Attempts::run`]. The workbook's own program hands in nothing and grades the
//! reader's exercise or the solution; a user's crate hands in its attempts and gets the same grader:
//!
//! ```no_run
//! # struct Mine;
//! # use challenges::nf4::{Absmax, Nf4, Output, Weight};
//! # impl Nf4 for Mine {
//! #     fn unpack(&self, _: &[u8], _: &mut [u8]) {}
//! #     fn look_up(&self, _: &[u8], _: &[f32; 16], _: &mut [f32]) {}
//! #     fn block(&self, _: &[u8], _: &[f32; 16], _: f32, _: &mut [f32]) {}
//! #     fn absmax(&self, _: &Absmax<'_>, _: usize) -> f32 { 0.0 }
//! #     fn dequantize(&self, _: &kernels::Cpu, _: &Weight<'_>, _: Output<'_>) {}
//! #     fn dequantize_fast(&self, _: &kernels::Cpu, _: &Weight<'_>, _: Output<'_>) {}
//! # }
//! fn main() -> std::process::ExitCode {
//!     grader::Attempts::new().nf4(Mine).run(std::env::args_os())
//! }
//! ```
//!
//! Kernels are handed in as a text: `Attempts::new().nf4_cuda(Attempt { name: "mine.cu".into(), text })`.

extern crate solutions as _; // nothing calls it by name: `challenges` declares what it defines

pub use grading::*;
