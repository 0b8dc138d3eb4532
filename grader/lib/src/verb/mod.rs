//! The verbs, one file each; [`crate::cli`] says what they are called.

mod doctor;
mod graph;
mod hint;
mod list;
mod report;
mod reset;
mod score;
mod watch;

pub(crate) use doctor::doctor;
pub(crate) use graph::{GraphFile, graph};
pub(crate) use hint::hint;
pub(crate) use list::{before, first_screen, list, so_far, what_next};
pub(crate) use report::{report, verify_report};
pub(crate) use reset::{Consent, reset};
pub(crate) use score::{replay, rubric, score};
pub(crate) use watch::watch;
