//! Challenge E's row in the table of courses, and how an attempt at it is handed in.

use challenges::loss::{Chunked, HINTS, Solution, solution_text};

use super::{facts, items, work};
use crate::attempts::Attempts;
use crate::course::{Backend, Course};
use crate::device::Processor;
use crate::gather::{Child, Source};
use crate::stub::Language;

/// Challenge E.
pub(crate) const COURSE: Course = Course {
    name: "loss",
    part: None,
    backend: Backend::Cpu,
    language: Language::Rust,
    items: |effort| items(effort, Backend::Cpu),
    work: |child, attempts, source, item| work_on(child, attempts, source, item, Backend::Cpu),
    facts: |seen| facts(seen, Backend::Cpu),
    step_through: |_, _, _| Err("a plan is not single-stepped".into()),
    ranks: 1,
    memory_limit: 6 << 30, // the weight of the published size in f32, and what is drawn for it
    solution: solution_text,
    hints: HINTS,
    takes: Some("graph"),
    together: &[
        &["loss.bytes.chunked", "loss.bytes.whole", "loss.bytes.rows"],
        &["loss.policy.bytes.chunked", "loss.policy.bytes.whole", "loss.policy.bytes.rows"],
        &["loss.over_whole", "loss.timed.whole", "loss.timed.chunked"],
    ],
    follow: None,
};

/// Challenge E, its chunks on a card.
pub(crate) const ON_A_CARD: Course = Course {
    backend: Backend::Cuda,
    items: |effort| items(effort, Backend::Cuda),
    work: |child, attempts, source, item| work_on(child, attempts, source, item, Backend::Cuda),
    facts: |seen| facts(seen, Backend::Cuda),
    memory_limit: 12 << 30, // of host memory: a model of 1B as it is drawn, beside the driver
    together: &[
        &[
            "loss.bytes.chunked",
            "loss.bytes.whole",
            "loss.bytes.rows",
            "loss.bytes.driver.chunked",
            "loss.bytes.driver.whole",
        ],
        &[
            "loss.policy.bytes.chunked",
            "loss.policy.bytes.whole",
            "loss.policy.bytes.rows",
            "loss.policy.bytes.driver.chunked",
            "loss.policy.bytes.driver.whole",
        ],
        &["loss.over_whole", "loss.timed.whole", "loss.timed.chunked"],
    ],
    ..COURSE
};

/// Does one item on a back end.
fn work_on(child: &mut Child, attempts: &Attempts, source: Source, item: &str, backend: Backend) {
    let attempt = attempts.loss_attempt(source);
    match attempt.and_then(|attempt| Ok((attempt, Processor::of(child, backend)?))) {
        Ok((attempt, on)) => work(child, on, attempt, attempts.companion_graph(source), item),
        Err(reason) => child.impossible(item, &reason),
    }
}

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
