//! Sequence classification's row in the table of courses, and how an attempt at it is handed in.

use challenges::issues::classify::{Classify, HINTS, Solution, solution_text};

use super::{facts, items, work};
use crate::attempts::Attempts;
use crate::course::{Backend, Course};
use crate::gather::Source;
use crate::stub::Language;

/// The part of challenge D that classifies sequences.
pub(crate) const COURSE: Course = Course {
    name: "issues",
    part: Some("classify"),
    backend: Backend::Cpu,
    language: Language::Rust,
    items,
    work: |child, attempts, source, item| match attempts.classify_attempt(source) {
        Ok(attempt) => work(child, attempt, item),
        Err(reason) => child.impossible(item, &reason),
    },
    facts,
    step_through: |_, _, _| Err("a classifier is not single-stepped".into()),
    ranks: 1,
    memory_limit: 2 << 30,
    solution: solution_text,
    hints: HINTS,
    takes: None,
    together: &[
        &["issues.classifier.batches", "issues.classifier.loss", "issues.classifier.gradient"],
        &[
            "issues.classifier.training",
            "issues.classifier.losses.attempt",
            "issues.classifier.losses.oracle",
        ],
        &["issues.classifier.accuracy", crate::issues::LAST_CONFUSION],
    ],
    follow: None,
};

impl Attempts {
    /// Hands in an attempt at the part of challenge D that classifies sequences.
    #[must_use]
    pub fn classify(self, attempt: impl Classify + 'static) -> Self {
        self.with::<Box<dyn Classify>>(COURSE.key(), Box::new(attempt))
    }

    fn classify_attempt(&self, source: Source) -> Result<&dyn Classify, String> {
        match source {
            Source::Own => COURSE.required::<Box<dyn Classify>>(self).map(AsRef::as_ref),
            Source::Solution => Ok(&Solution),
        }
    }
}
