//! Challenge A on CUDA: its row in the table of courses, and how kernels are handed in.

use std::path::Path;

use challenges::nf4::HINTS;
use challenges::nf4::cuda::{Attempt, solution_text};

use super::{facts, items, work};
use crate::attempts::Attempts;
use crate::course::{Backend, Course};
use crate::gather::Source;
use crate::stub::Language;

/// Challenge A on a GPU.
pub(crate) const COURSE: Course = Course {
    backend: Backend::Cuda,
    language: Language::Cuda,
    items,
    work: |child, attempts, source, item| match attempts.nf4_kernels(source, child.request.text.as_deref()) {
        Ok(attempt) => work(child, attempt, item),
        Err(reason) => child.impossible(item, &reason),
    },
    facts,
    step_through: |_, _, _| Err("a kernel is not single-stepped".into()),
    memory_limit: 6 << 30, // of host memory; the driver itself takes several hundred MiB
    solution: solution_text,
    hints: HINTS,
    together: &[
        &["nf4.working_bytes", "nf4.launches"],
        &["nf4.inline_ptx_executions", "nf4.plain_inline_ptx"],
        &["nf4.hinted_store_bytes", "nf4.hinted_load_bytes"],
    ],
    ..crate::nf4::COURSE
};

impl Attempts {
    /// Hands in an attempt at challenge A on CUDA: a text with the kernels of every step.
    #[must_use]
    pub fn nf4_cuda(self, attempt: Attempt) -> Self {
        self.with(COURSE.key(), attempt)
    }

    /// The kernels of A: the reader's text, what was handed in, or the solution.
    fn nf4_kernels(&self, source: Source, text: Option<&Path>) -> Result<Attempt, String> {
        if let Some(path) = text {
            let read = std::fs::read_to_string(path);
            let text = read.map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
            return Ok(Attempt { name: "exercise.cu".into(), text });
        }
        match source {
            Source::Own => COURSE.required::<Attempt>(self).cloned(),
            Source::Solution => Ok(Attempt::solution()),
        }
    }
}
