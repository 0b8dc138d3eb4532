//! Whose steps a renderer and a parser take.
//!
//! A compiled template of either kind keeps the attempt that it was made with, and makes it this thread's while it works:
//! a filter of the engine and a field of a response are called from far below, where nobody hands anything down.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, LazyLock};

use super::{Chat, Solution};

/// An attempt, shared.
#[derive(Clone)]
pub struct Steps(Arc<dyn Chat>);

static SOLUTION: LazyLock<Steps> = LazyLock::new(|| Steps::new(Solution));

thread_local! {
    static CURRENT: RefCell<Option<Steps>> = const { RefCell::new(None) };
}

impl Steps {
    /// The steps of an attempt.
    pub fn new(attempt: impl Chat + 'static) -> Steps {
        Steps(Arc::new(attempt))
    }

    /// The attempt.
    pub fn chat(&self) -> &dyn Chat {
        self.0.as_ref()
    }

    /// Makes these the thread's until what is returned is dropped.
    pub(super) fn enter(&self) -> Entered {
        Entered(CURRENT.replace(Some(self.clone())))
    }
}

impl Default for Steps {
    /// The solution's.
    fn default() -> Steps {
        SOLUTION.clone()
    }
}

impl From<Arc<dyn Chat>> for Steps {
    fn from(attempt: Arc<dyn Chat>) -> Steps {
        Steps(attempt)
    }
}

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Steps(..)")
    }
}

/// Gives the thread back the steps that it had before.
#[must_use]
pub(super) struct Entered(Option<Steps>);

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// The thread's steps; outside of any work the solution's.
pub(super) fn current() -> Arc<dyn Chat> {
    CURRENT.with_borrow(|steps| steps.as_ref().unwrap_or(&SOLUTION).0.clone())
}
