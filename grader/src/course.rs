//! The challenges that this version can grade, each behind the same few functions.

use std::path::PathBuf;

use crate::Attempts;
use crate::evidence::Seen;
use crate::gather::{Child, Effort, Item, Source};
use crate::rubric::Facts;

/// What the grader needs to know of a challenge.
pub(crate) struct Course {
    /// `nf4`.
    pub name: &'static str,
    /// Its items, in order.
    pub items: fn(&Effort) -> Vec<Item>,
    /// Does one item in a child.
    pub work: fn(&mut Child, &Attempts, Source, &str),
    /// What was seen, as facts.
    pub facts: fn(&Seen<'_>) -> Facts,
    /// The watched process's side of single-stepping.
    pub step_through: fn(&Attempts, Source) -> Result<(), String>,
    /// Bytes that a child may hold.
    pub memory_limit: usize,
    /// The solution's text.
    pub solution: &'static str,
    /// The hints' text.
    pub hints: &'static str,
}

/// Every challenge that is built, in the published order.
pub(crate) static COURSES: [Course; 1] = [Course {
    name: "nf4",
    items: crate::nf4::items,
    work: |child, attempts, source, item| crate::nf4::work(child, attempts.nf4_attempt(source), item),
    facts: crate::nf4::facts,
    step_through: |attempts, source| crate::nf4::step_through(attempts.nf4_attempt(source)),
    memory_limit: crate::nf4::MEMORY_LIMIT,
    solution: challenges::nf4::SOLUTION,
    hints: challenges::nf4::HINTS,
}];

/// A built challenge, by name or letter.
pub(crate) fn find(name: &str) -> Option<&'static Course> {
    let rubric = crate::rubric::RUBRICS
        .iter()
        .find(|rubric| rubric.name == name.to_lowercase() || rubric.letter == name.to_uppercase())?;
    COURSES.iter().find(|course| course.name == rubric.name)
}

impl Course {
    /// The reader's file, relative to the workbook's root.
    pub fn exercise(&self) -> PathBuf {
        ["challenges", "src", self.name, "exercise.rs"].iter().collect()
    }

    /// The published letter.
    pub fn letter(&self) -> &'static str {
        crate::rubric::find(self.name).map_or("", |rubric| rubric.letter)
    }
}
