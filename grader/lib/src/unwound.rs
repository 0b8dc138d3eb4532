//! Catches what an attempt leaves instead of an answer: a hole or a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A call that ended without an answer.
#[derive(Debug, PartialEq)]
pub(crate) enum Unwound {
    /// A `todo!` was reached; its text.
    Hole(String),
    /// It panicked; the message and the place.
    Panic(String),
}

/// Runs a call that may panic. The panic's own message, which crosses threads, marks a hole. Only the hook of a child,
/// if one is set, knows the place.
pub(crate) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, Unwound> {
    *last() = None;
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        let said = payload.downcast_ref::<String>().map(String::as_str);
        let said =
            said.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("panicked without a message");
        if let Some(hole) = said.strip_prefix("not yet implemented") {
            return Unwound::Hole(hole.trim_start_matches(": ").to_owned());
        }
        let hook = last().take();
        Unwound::Panic(hook.unwrap_or_else(|| said.to_owned()))
    })
}

/// The message and the place of the last panic, which the hook of a child writes.
pub(crate) fn last() -> MutexGuard<'static, Option<String>> {
    static LAST: Mutex<Option<String>> = Mutex::new(None);
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}
