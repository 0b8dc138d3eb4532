//! Vision's row in the table of courses, and how an attempt at it is handed in.

use challenges::issues::vision::{HINTS, Solution, Vision, solution_text};

use super::{facts, items, work};
use crate::attempts::Attempts;
use crate::course::{Backend, Course};
use crate::gather::Source;
use crate::stub::Language;

/// The part of challenge D that reads images.
pub(crate) const COURSE: Course = Course {
    name: "issues",
    part: Some("vision"),
    backend: Backend::Cpu,
    language: Language::Rust,
    items,
    work: |child, attempts, source, item| match attempts.vision_attempt(source) {
        Ok(attempt) => work(child, attempt, item),
        Err(reason) => child.impossible(item, &reason),
    },
    facts,
    step_through: |_, _, _| Err("a processor of images is not single-stepped".into()),
    ranks: 1,
    memory_limit: 2 << 30,
    solution: solution_text,
    hints: HINTS,
    takes: None,
    together: &[
        &["issues.images.all", "issues.images.same", "issues.images.largest"],
        &["issues.mixed.all", "issues.mixed.same", "issues.mixed.slots", "issues.mixed.features"],
        &["issues.completions.all", "issues.completions.same", "issues.completions.images"],
    ],
    follow: None,
};

impl Attempts {
    /// Hands in an attempt at the part of challenge D that reads images.
    #[must_use]
    pub fn vision(self, attempt: impl Vision + 'static) -> Self {
        self.with::<Box<dyn Vision>>(COURSE.key(), Box::new(attempt))
    }

    fn vision_attempt(&self, source: Source) -> Result<&dyn Vision, String> {
        match source {
            Source::Own => COURSE.required::<Box<dyn Vision>>(self).map(AsRef::as_ref),
            Source::Solution => Ok(&Solution),
        }
    }
}
