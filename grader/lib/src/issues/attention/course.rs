//! Attention's row in the table of courses, and how an attempt at it is handed in.

use challenges::issues::attention::{Attend, HINTS, Solution, solution_text};

use super::{facts, items, work};
use crate::attempts::Attempts;
use crate::course::{Backend, Course};
use crate::gather::Source;
use crate::stub::Language;

/// The part of challenge D that is one interface for attention.
pub(crate) const COURSE: Course = Course {
    name: "issues",
    part: Some("attention"),
    backend: Backend::Cpu,
    language: Language::Rust,
    items,
    work: |child, attempts, source, item| match attempts.attention_attempt(source) {
        Ok(attempt) => work(child, attempt, item),
        Err(reason) => child.impossible(item, &reason),
    },
    facts,
    step_through: |_, _, _| Err("attention's steps write graphs and are not single-stepped".into()),
    ranks: 1,
    memory_limit: 2 << 30,
    solution: solution_text,
    hints: HINTS,
    takes: None,
    together: &[
        &["issues.attention.same", "issues.attention.all"],
        &[
            "issues.attention.lengths",
            "issues.attention.lengths_right",
            "issues.attention.compilations",
            "issues.attention.buckets",
        ],
    ],
    follow: None,
};

impl Attempts {
    /// Hands in an attempt at the part of challenge D that is one interface for attention.
    #[must_use]
    pub fn attention(self, attempt: impl Attend + 'static) -> Self {
        self.with::<Box<dyn Attend>>(COURSE.key(), Box::new(attempt))
    }

    fn attention_attempt(&self, source: Source) -> Result<&dyn Attend, String> {
        match source {
            Source::Own => COURSE.required::<Box<dyn Attend>>(self).map(AsRef::as_ref),
            Source::Solution => Ok(&Solution),
        }
    }
}
