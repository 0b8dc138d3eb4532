//! One step of an attempt among the solution's others, so that a step is judged for itself. A challenge implements its
//! trait for it by naming the step that each method belongs to.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::calls::call;
use crate::oracles;

/// Instead of a step's name: every step is the attempt's. Guards and measured runs call them all.
pub(crate) const EVERY: &str = "";

/// The attempt's step of that name; all others are the solution's. `A` is the challenge's trait.
pub(crate) struct StepUnderTest<'a, A: ?Sized> {
    /// The step's name, or [`EVERY`].
    pub step: &'a str,
    pub attempt: &'a A,
    pub solution: &'a A,
    /// How often the solution was called so far, by anyone.
    pub solution_calls: fn() -> u64,
    /// Calls to the solution that the attempt's own step made.
    pub asked: AtomicU64,
}

impl<A: ?Sized> StepUnderTest<'_, A> {
    /// The step's own writer; where calls are shown, what it is called with is reported.
    pub fn of<T>(&self, step: &str, message: impl Fn() -> String, run: impl FnOnce(&A) -> T) -> T {
        if self.step == EVERY {
            return oracles::during(step, message, || run(self.attempt));
        }
        if self.step != step {
            return run(self.solution);
        }
        call(&message);
        counted(self.solution_calls, &self.asked, || oracles::during(step, &message, || run(self.attempt)))
    }
}

/// Runs a step of an attempt, and adds to `asked` how often it called the solution.
pub(crate) fn counted<T>(solution_calls: fn() -> u64, asked: &AtomicU64, run: impl FnOnce() -> T) -> T {
    let before = solution_calls();
    let answer = run();
    asked.fetch_add(solution_calls() - before, Relaxed);
    answer
}
