//! What it is worth.
//!
//! ```text
//! a command              program (what it is started as) -> cli, options -> verb/ -> score; attempts: what is handed
//! in what can be graded     courses: the table of all, by key, name, letter, step; course: what one is
//!   a challenge's folder nf4/, fsdp/, graph/, issues/, loss/: course, checks, guards, bench, evidence
//!   what these share     table, step_under_test, oracles, calls; compare: a compiled graph against its meaning; fair
//! an attempt's text      workbook (found and built), screen, stub; ptx: the texts whose PTX is kept
//! gather                 gather/, pace; step, timing, random: what measurements share
//! evidence, rubric       evidence, verdict -> rubric -> scorecard
//! report                 live, report/, figure/, terminal; progress, date: what is remembered
//! a report held to       verify/, expected, scorecard_file: is it what its own samples make of it
//! ```
//!
//! *Gather* runs an attempt in a child process and writes down what happened; *evidence* turns that into
//! facts; the *rubric* turns facts into points; a *report* shows them. The four know each other only through
//! what they hand on, so each can be checked alone, and a report can be computed again from its own samples.
//!
//! The command line is [`Attempts::run`]. The package `grader` (`grader/program`) is this one linked with the
//! solutions: the workbook's program, and what a user's own crate depends on.

#![warn(clippy::print_stdout, clippy::print_stderr)] // `terminal` prints

mod attempts;
mod beside;
mod calls;
mod cli;
mod compare;
mod course;
pub mod courses;
mod date;
mod device;
#[cfg(test)]
mod every_course;
mod evidence;
mod expected;
pub mod fair;
pub mod figure;
#[doc(hidden)]
pub mod fixture;
mod fsdp;
mod gather;
mod graph;
mod issues;
mod live;
mod loss;
mod nf4;
mod options;
mod oracles;
mod pace;
mod program;
mod progress;
pub mod ptx;
mod random;
pub mod report;
pub mod rubric;
mod score;
pub mod scorecard;
mod scorecard_file;
mod screen;
#[allow(clippy::print_stdout)] // the process that is stepped through answers on its own pipe
mod step;
mod step_under_test;
pub mod stub;
mod table;
mod terminal;
pub mod timing;
#[cfg(test)]
mod toy;
mod unwound;
mod verb;
mod verdict;
mod verify;
mod workbook;

pub use attempts::Attempts;
pub use graph::trial;
pub use verify::{About, Finding, Verified, fixture as verified_fixture, verify};

#[cfg(test)]
extern crate solutions as _;

/// The JSON schema of a scorecard: what `--json` prints.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(scorecard::Scorecard).to_value()
}

#[global_allocator]
static BYTES: kernels::bytes::Counting = kernels::bytes::Counting; // a `Vec` in an attempt counts
