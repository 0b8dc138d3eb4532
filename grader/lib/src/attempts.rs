//! What a program hands in: its own attempts, by the courses' keys.

use std::any::Any;
use std::collections::BTreeMap;

/// A program's own attempts, one for each challenge it wants graded. Each challenge adds its own method, beside its
/// course.
#[derive(Default)]
pub struct Attempts {
    own: BTreeMap<String, Box<dyn Any>>,
}

impl Attempts {
    /// None: the workbook's exercise and solution are graded.
    pub fn new() -> Self {
        Self::default()
    }

    /// Hands in an attempt at the course of a key.
    pub(crate) fn with<T: Any>(mut self, key: String, attempt: T) -> Self {
        self.own.insert(key, Box::new(attempt));
        self
    }

    /// What was handed in at the course of a key, if anything was.
    pub(crate) fn own<T: Any>(&self, key: &str) -> Option<&T> {
        self.own.get(key)?.downcast_ref()
    }

    /// The keys of the courses that it hands in an attempt at.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &String> {
        self.own.keys()
    }
}
