//! How many processes an attempt has and may have, and what they hold.

/// Processes that an attempt may have at one time: its own, the one that is single-stepped, and some to spare.
pub(super) const MOST_PROCESSES: usize = 64;

/// How many processes there are, and what they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub processes: usize,
    /// Resident bytes of all of them together.
    pub bytes: usize,
}
