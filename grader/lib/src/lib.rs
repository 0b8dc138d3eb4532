//! What it is worth.
//!
//! ```text
//! a command              program (what it is started as) -> cli, options -> verb/ -> score; attempts: what is handed
//! in what can be graded     courses: the table of all, by key, name, letter, step; course: what one is
//!   a challenge's folder nf4/, fsdp/, graph/, issues/, loss/: course, checks, guards, bench, evidence
//!   what these share     table, step_under_test, oracles, calls; compare: a compiled graph against its meaning; fair
//! an attempt's text      workbook (found and built), screen, stub; ptx: the texts whose PTX is kept
//! gather                 gather/, pace; step, timing, random: what measurements share
//! evidence, rubric       evidence, verdict -> rubric -> the scorecard (package `scorecard`)
//! report                 live, report/, terminal; progress, date: what is remembered
//! a report held to       verify/, expected, judge: does it follow from its own samples
//! ```
//!
//! *Gather* runs an attempt in a child process and writes down what happened; *evidence* turns that into
//! facts; the *rubric* turns facts into points; a *report* shows them. The four know each other only through
//! what they hand on, so each can be checked alone, and a report can be computed again from its own samples.
//!
//! The command line is [`Attempts::run`]. The package `grader` (`grader/bin`) is this one linked with the
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
mod fsdp;
mod gather;
mod graph;
mod issues;
pub mod judge;
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
mod screen;
mod source;
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
pub use scorecard;
pub use verify::{About, Finding, Verified, verify};

#[cfg(test)]
extern crate self as grader; // as the fixtures of the tests name it
#[cfg(test)]
extern crate solutions as _;

// The tests' own package would link a second grader, so that its fixtures are compiled in by their path.
#[cfg(test)]
#[path = "../../../tests/src/fixture.rs"]
pub mod fixture;
#[cfg(test)]
#[path = "../../../tests/src/whole_report.rs"]
pub mod whole_report;

#[global_allocator]
static BYTES: kernels::bytes::Counting = kernels::bytes::Counting; // a `Vec` in an attempt counts
