//! Challenge B's row in the table of courses, and how an attempt at it is handed in.

use challenges::fsdp::{Fsdp, HINTS, Solution, solution_text};

use super::{facts, items, work};
use crate::attempts::Attempts;
use crate::course::{Backend, Course};
use crate::gather::Source;
use crate::stub::Language;

/// Challenge B. Its ranks are threads of one child: the transport that this version has between ranks is one of
/// threads, each with a device of its own, and one process counts the bytes and the calls of all of them.
pub(crate) const COURSE: Course = Course {
    name: "fsdp",
    part: None,
    backend: Backend::Cpu,
    language: Language::Rust,
    items,
    work: |child, attempts, source, item| match attempts.fsdp_attempt(source) {
        Ok(attempt) => work(child, attempt, attempts.companion_nf4(source), item),
        Err(reason) => child.impossible(item, &reason),
    },
    facts,
    step_through: |_, _, _| Err("what ranks do together is not single-stepped".into()),
    ranks: 1,
    memory_limit: 3 << 30, // two ranks of the timed model, and one that has all of it
    solution: solution_text,
    hints: HINTS,
    takes: Some("nf4"),
    together: &[],
    follow: None,
};

impl Attempts {
    /// Hands in an attempt at challenge B.
    #[must_use]
    pub fn fsdp(self, attempt: impl Fsdp + 'static) -> Self {
        self.with::<Box<dyn Fsdp>>(COURSE.key(), Box::new(attempt))
    }

    fn fsdp_attempt(&self, source: Source) -> Result<&dyn Fsdp, String> {
        match source {
            Source::Own => COURSE.required::<Box<dyn Fsdp>>(self).map(AsRef::as_ref),
            Source::Solution => Ok(&Solution),
        }
    }
}
