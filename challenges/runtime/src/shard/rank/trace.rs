//! When a rank did what in its last step, by the clock.
//!
//! ```text
//! operations    a line of a pipeline's schedule: from when its message was there to its end
//! events        programs: gathers that are waited for, forwards, backwards, the update. A gather that is started
//!               early is there from the start of the program that it runs beside to that program's end
//! ```
//!
//! A rank waits between two operations, for a different rank or for a [permit](Semaphore).

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use reference::schedule::Span;

/// The operations of a rank in its last step.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Operations, in the order of the schedule.
    pub operations: Vec<Interval>,
    /// Programs, in the order in which they began.
    pub events: Vec<Event>,
}

/// From when to when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The beginning.
    pub begin: Instant,
    /// The end.
    pub end: Instant,
}

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The number of its piece.
    pub piece: usize,
    /// The kind of work.
    pub kind: EventKind,
    /// When.
    pub when: Interval,
}

/// The kind of a program's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Puts whole parts together.
    Gather,
    /// Computes a piece's y, or what its backward reads.
    Forward,
    /// Computes gradients.
    Backward,
    /// Changes what is trained.
    Update,
}

impl Interval {
    /// From a beginning to now.
    pub(super) fn since(begin: Instant) -> Self {
        Self { begin, end: Instant::now() }
    }

    /// Seconds from an instant to its beginning, and to its end; 0 for what was before.
    pub fn span(self, origin: Instant) -> Span {
        let seconds = |at: Instant| at.saturating_duration_since(origin).as_secs_f64();
        Span { start: seconds(self.begin), end: seconds(self.end) }
    }
}

impl Trace {
    /// Notes a program that has just ended.
    pub(super) fn record(&mut self, piece: usize, kind: EventKind, begin: Instant) {
        self.events.push(Event { piece, kind, when: Interval::since(begin) });
    }
}

/// How many ranks may compute at the same time, where there are more of them than cores: an operation then takes what
/// it takes on a core of its own, and only the order of operations, not the time between them, is that of as many
/// cores.
///
/// For the stages of a pipeline alone: ranks that gather within an operation would wait for one that has no permit.
#[derive(Debug)]
pub struct Semaphore {
    free: Mutex<usize>,
    changed: Condvar,
}

impl Semaphore {
    /// So many at a time, at least one.
    pub fn new(at_once: usize) -> Self {
        Self { free: Mutex::new(at_once.max(1)), changed: Condvar::new() }
    }

    /// Waits for a permit, which lasts until it is dropped.
    pub(super) fn acquire(&self) -> Permit<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free =
            self.changed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Permit(self)
    }
}

/// The permission of a rank to compute.
pub(super) struct Permit<'t>(&'t Semaphore);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.changed.notify_one();
    }
}
