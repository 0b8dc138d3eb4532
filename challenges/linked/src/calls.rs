//! How often a solution was asked.
//!
//! An attempt that answers by asking the workbook's solution is always right and teaches nothing. So the solutions
//! count their calls, as the oracles of the reference do; a grader compares the count before and after an attempt's
//! step. Calls that a solution makes to its own steps do not count.

use std::sync::atomic::{AtomicU64, Ordering};

/// The calls of one challenge's solution, by whatever thread of the process.
pub struct Calls(AtomicU64);

#[allow(clippy::new_without_default)] // a static
impl Calls {
    /// No call so far.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts a call.
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of calls so far.
    pub fn so_far(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
