//! How often a graph was compiled, by whomever.
//!
//! What a session compiles is in its own [counters](crate::session::Counters). An attempt at challenge C may compile
//! behind its session's back, in any of its eight steps and on any thread, and then no counter of a session moves. So
//! every compilation of the process counts here as well, as calls of the oracles and of the solutions do in theirs:
//! this is a guard's measure, and a grader compares it before and after a run with what the session has counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static CALLS: AtomicU64 = AtomicU64::new(0);

/// Compilations of this process so far, of any session or none, finished or failed: calls of
/// [`compile`](crate::compile::compile) and of [`compile_with_policy`](crate::compile::compile_with_policy).
pub fn compilations() -> u64 {
    CALLS.load(Relaxed)
}

/// Counts one compilation, of whatever thread.
pub(crate) fn count() {
    CALLS.fetch_add(1, Relaxed);
}
