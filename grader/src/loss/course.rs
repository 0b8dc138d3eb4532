//! Challenge E's row in the table of courses, and how an attempt at it is handed in.

use challenges::loss::{Chunked, HINTS, Solution, solution_text};

use super::{facts, items, work};
use crate::attempts::Attempts;
use crate::course::{Backend, Course, Takes};
use crate::gather::Source;

/// Challenge E.
pub(crate) const COURSE: Course = Course {
    name: "loss",
    part: None,
    backend: Backend::Cpu,
    items,
    work: |child, attempts, source, item| match attempts.loss_attempt(source) {
        Ok(attempt) => work(child, attempt, attempts.companion_graph(source), item),
        Err(reason) => child.impossible(item, &reason),
    },
    facts,
    step_through: |_, _, _| Err("a plan is not single-stepped".into()),
    ranks: 1,
    memory_limit: 6 << 30, // the weight of the published size in f32, and what is drawn for it
    solution: solution_text,
    hints: HINTS,
    takes: Some(Takes { course: "graph", hole: "C." }),
    together: &[
        &["loss.bytes.chunked", "loss.bytes.whole", "loss.bytes.rows"],
        &["loss.policy.bytes.chunked", "loss.policy.bytes.whole", "loss.policy.bytes.rows"],
        &["loss.over_whole", "loss.timed.whole", "loss.timed.chunked"],
    ],
    total: None,
};

impl Attempts {
    /// Hands in an attempt at challenge E.
    #[must_use]
    pub fn loss(self, attempt: impl Chunked + 'static) -> Self {
        self.with::<Box<dyn Chunked>>(COURSE.key(), Box::new(attempt))
    }

    fn loss_attempt(&self, source: Source) -> Result<&dyn Chunked, String> {
        match source {
            Source::Own => COURSE.required::<Box<dyn Chunked>>(self).map(AsRef::as_ref),
            Source::Solution => Ok(&Solution),
        }
    }
}
