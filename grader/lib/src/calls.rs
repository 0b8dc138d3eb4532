//! What `replay` shows beside an outcome: with what a step was called, in one stream with what the reader's code
//! prints.
//!
//! Off unless a child is asked for it. Only the first calls of a process are shown, and of each only so much: a check
//! of one element is read whole, one of a matrix shows how it begins.

use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::terminal::print;

static ARE_SHOWN: AtomicBool = AtomicBool::new(false);
static SO_FAR: AtomicUsize = AtomicUsize::new(0);

/// The command that runs one check alone.
pub fn replay_command(challenge: &str, check: &str, seed: u64) -> String {
    format!("cargo grader replay {challenge}:{check} --seed {seed:#x}")
}

/// Calls that are shown.
const CALLS: usize = 6;

/// Lines of a call that are shown.
const LINES: usize = 24;

/// Elements of a slice that are shown.
const ELEMENTS: usize = 24;

/// From now on calls are shown.
pub(crate) fn show() {
    ARE_SHOWN.store(true, Ordering::Relaxed);
}

/// Whether they are.
pub(crate) fn are_shown() -> bool {
    ARE_SHOWN.load(Ordering::Relaxed)
}

/// A step is about to be called, with what `message` says.
pub(crate) fn call(message: impl FnOnce() -> String) {
    if !are_shown() {
        return;
    }
    match SO_FAR.fetch_add(1, Ordering::Relaxed) {
        number if number < CALLS => print(&format!("> {}\n", capped(&message()))),
        CALLS => print("> (further calls are not shown)\n"),
        _ => {}
    }
}

/// The first lines of a text.
pub(crate) fn capped(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut shown = lines[..lines.len().min(LINES)].join("\n  ");
    if lines.len() > LINES {
        let _ = write!(shown, "\n  ... {} more lines", lines.len() - LINES);
    }
    shown
}

/// A slice as it begins, and how long it is: `[1, 2, 3]`, `[0, 1, .. of 4096]`.
pub(crate) fn few<T: Debug>(slice: &[T]) -> String {
    if slice.len() <= ELEMENTS {
        return format!("{slice:?}");
    }
    let begin: String = slice[..ELEMENTS].iter().fold(String::new(), |text, one| format!("{text}{one:?}, "));
    format!("[{begin}.. of {}]", slice.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_slices_are_shown_whole_and_large_ones_counted() {
        assert_eq!(few(&[1u8, 2]), "[1, 2]");
        assert_eq!(few::<u8>(&[]), "[]");
        let long: Vec<usize> = (0..100).collect();
        assert!(few(&long).starts_with("[0, 1, ") && few(&long).ends_with("23, .. of 100]"));
        assert_eq!(capped(&"x\n".repeat(25)).lines().last(), Some("  ... 1 more lines"));
    }
}
