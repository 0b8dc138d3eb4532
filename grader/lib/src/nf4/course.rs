//! Challenge A's row in the table of courses, and how an attempt at it is handed in.

use challenges::nf4::{HINTS, Nf4, Solution, solution_text};

use super::{facts, items, library, step_through, total_speedup, work};
use crate::attempts::Attempts;
use crate::course::{Backend, Course};
use crate::gather::Source;
use crate::scorecard::Measurement;
use crate::stub::Language;

/// Challenge A on a CPU.
pub(crate) const COURSE: Course = Course {
    name: "nf4",
    part: None,
    backend: Backend::Cpu,
    language: Language::Rust,
    items,
    work: |child, attempts, source, item| match attempts.nf4_attempt(source) {
        Ok(attempt) => work(child, attempt, item),
        Err(reason) => child.impossible(item, &reason),
    },
    facts,
    step_through: |attempts, source, as_timed| step_through(attempts.nf4_attempt(source)?, as_timed),
    ranks: 1,
    memory_limit: 3 << 30, // three matrices of the largest case, inputs and outputs, beside the attempt's own
    solution: solution_text,
    hints: HINTS,
    takes: None,
    together: &[
        &["nf4.working_bytes", "nf4.peak_bytes", "nf4.launches"],
        &["nf4.graph_weights", "nf4.graph_weights_equal", "nf4.graph_breaks", "nf4.graph_launches"],
        &["nf4.vector_instructions", "nf4.instructions"],
        &["nf4.streamed_bytes", "nf4.streaming_stores", "nf4.unfenced_stores"],
        &["nf4.timed_elements", "nf4.timed_vector_instructions", "nf4.timed_streamed_bytes"],
    ],
    follow: Some(|numbers, machine, folder| {
        let total = total_speedup(numbers).map(|(value, interval)| {
            ("nf4.speedup".to_owned(), Measurement { value, unit: "x".into(), interval, samples: vec![] })
        });
        total.into_iter().chain(library::times(numbers, machine, folder)).collect()
    }),
};

impl Attempts {
    /// Hands in an attempt at challenge A.
    #[must_use]
    pub fn nf4(self, attempt: impl Nf4 + 'static) -> Self {
        self.with::<Box<dyn Nf4>>(COURSE.key(), Box::new(attempt))
    }

    /// The attempt at A.
    fn nf4_attempt(&self, source: Source) -> Result<&dyn Nf4, String> {
        match source {
            Source::Own => COURSE.required::<Box<dyn Nf4>>(self).map(AsRef::as_ref),
            Source::Solution => Ok(&Solution),
        }
    }

    /// The attempt at A that belongs to an attempt at another challenge: the solution's is the solution.
    pub(crate) fn companion_nf4(&self, source: Source) -> Option<&dyn Nf4> {
        match source {
            Source::Own => self.own::<Box<dyn Nf4>>(&COURSE.key()).map(AsRef::as_ref),
            Source::Solution => Some(&Solution),
        }
    }
}
