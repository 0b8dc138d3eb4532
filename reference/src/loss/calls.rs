//! How often the oracle was asked.
//!
//! An attempt at challenge E that answers by asking the oracle is always right and teaches nothing. Whatever of this
//! module gives a step's whole answer counts its calls here; a grader compares the count before and after a step.

use std::sync::atomic::{AtomicU64, Ordering};

static CALLS: AtomicU64 = AtomicU64::new(0);

/// Calls of this process so far to any public function of a [`Policy`](super::Policy) that computes a loss.
pub fn oracle_calls() -> u64 {
    CALLS.load(Ordering::SeqCst)
}

/// Counts one call, of whatever thread.
pub(super) fn count() {
    CALLS.fetch_add(1, Ordering::SeqCst);
}
