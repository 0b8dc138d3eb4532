//! Number and memory of the processes of an attempt.

/// Processes that an attempt may have at one time: its own, the one that is single-stepped, and some to spare.
pub(super) const MOST_PROCESSES: usize = 64;

/// The processes of an attempt, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub processes: usize,
    /// Resident bytes of all of them together.
    pub bytes: usize,
}
