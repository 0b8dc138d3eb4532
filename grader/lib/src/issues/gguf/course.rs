//! GGUF's row in the table of courses, and how an attempt at it is handed in.

use challenges::issues::gguf::{Gguf, HINTS, Solution, solution_text};

use super::{facts, items, work};
use crate::attempts::Attempts;
use crate::course::{Backend, Course};
use crate::gather::Source;
use crate::stub::Language;

/// The part of challenge D that writes GGUF files.
pub(crate) const COURSE: Course = Course {
    name: "issues",
    part: Some("gguf"),
    backend: Backend::Cpu,
    language: Language::Rust,
    items,
    work: |child, attempts, source, item| match attempts.gguf_attempt(source) {
        Ok(attempt) => work(child, attempt, item),
        Err(reason) => child.impossible(item, &reason),
    },
    facts,
    step_through: |_, _, _| Err("a file is not single-stepped".into()),
    ranks: 1,
    memory_limit: 2 << 30,
    solution: solution_text,
    hints: HINTS,
    takes: None,
    together: &[&["issues.gguf.files", "issues.gguf.tensors", "issues.gguf.equal", "issues.gguf.keys"]],
    follow: None,
};

impl Attempts {
    /// Hands in an attempt at the part of challenge D that writes GGUF files.
    #[must_use]
    pub fn gguf(self, attempt: impl Gguf + 'static) -> Self {
        self.with::<Box<dyn Gguf>>(COURSE.key(), Box::new(attempt))
    }

    fn gguf_attempt(&self, source: Source) -> Result<&dyn Gguf, String> {
        match source {
            Source::Own => COURSE.required::<Box<dyn Gguf>>(self).map(AsRef::as_ref),
            Source::Solution => Ok(&Solution),
        }
    }
}
