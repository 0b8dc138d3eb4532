//! Tool calling's row in the table of courses, and how an attempt at it is handed in.

use std::sync::Arc;

use challenges::issues::chat::{Chat, HINTS, Solution, solution_text};

use super::{facts, items, work};
use crate::attempts::Attempts;
use crate::course::{Backend, Course};
use crate::gather::Source;
use crate::stub::Language;

/// The part of challenge D that calls tools.
pub(crate) const COURSE: Course = Course {
    name: "issues",
    part: Some("chat"),
    backend: Backend::Cpu,
    language: Language::Rust,
    items,
    work: |child, attempts, source, item| match attempts.chat_attempt(source) {
        Ok(attempt) => work(child, &attempt, item),
        Err(reason) => child.impossible(item, &reason),
    },
    facts,
    step_through: |_, _, _| Err("a parser is not single-stepped".into()),
    ranks: 1,
    memory_limit: 2 << 30,
    solution: solution_text,
    hints: HINTS,
    takes: None,
    together: &[&["issues.prompts.same", "issues.prompts.all"], &["issues.calls.same", "issues.calls.all"]],
    follow: None,
};

impl Attempts {
    /// Hands in an attempt at the part of challenge D that calls tools.
    #[must_use]
    pub fn chat(self, attempt: impl Chat + 'static) -> Self {
        self.with::<Arc<dyn Chat>>(COURSE.key(), Arc::new(attempt))
    }

    fn chat_attempt(&self, source: Source) -> Result<Arc<dyn Chat>, String> {
        match source {
            Source::Own => COURSE.required::<Arc<dyn Chat>>(self).cloned(),
            Source::Solution => Ok(Arc::new(Solution)),
        }
    }
}
