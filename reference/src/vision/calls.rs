//! How often an oracle of this module was asked, for a grader that compares the count before and after a step.

use std::sync::atomic::{AtomicU64, Ordering};

static CALLS: AtomicU64 = AtomicU64::new(0);

/// Calls of this process so far to any function of this module that answers what a step of challenge D asks.
pub fn oracle_calls() -> u64 {
    CALLS.load(Ordering::SeqCst)
}

/// Counts one call, of whatever thread.
pub(super) fn count() {
    CALLS.fetch_add(1, Ordering::SeqCst);
}
