//! What a run carries along: what it may still take, who writes its texts, and what its clock shows.
//!
//! The engine counts its own steps. What a single step builds is counted by a [`Meter`]: every string, list and number
//! that grows with the input is announced before it is made ([`Meter::charge`], [`Meter::grow`]), so nothing is ever
//! allocated that is not paid for. It goes down with each call as `cx`; no part of it belongs to a thread or a process.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::time::Instant;

use super::Host;
use super::clock::Clock;
use super::error::Error;
use super::limits::{Limit, Limits};
use super::python::value::Space;

/// How often the clock is read: once in so many charges.
const CHARGES_A_LOOK: u32 = 64;

/// A run's meter, and what the run asks of its host.
pub(crate) struct Context<'h> {
    meter: Meter,
    /// Writes texts and numbers.
    pub(crate) host: &'h dyn Host,
    /// What `strftime_now` writes.
    pub(crate) clock: Clock,
}

impl<'h> Context<'h> {
    pub(crate) fn new(limits: &Limits, host: &'h dyn Host, clock: Clock) -> Context<'h> {
        Context { meter: Meter::new(limits), host, clock }
    }
}

/// A context pays like its meter: values that need no host are built by what only counts.
impl Deref for Context<'_> {
    type Target = Meter;

    fn deref(&self) -> &Meter {
        &self.meter
    }
}

/// Counts what a run takes.
pub(crate) struct Meter {
    limits: Limits,
    left: Cell<usize>,
    /// The limit that `left` counts.
    budget: Cell<Limit>,
    /// How long the text may become to which is added now, and by which limit.
    end: Cell<(usize, Limit)>,
    charges: Cell<u32>,
    deadline: Option<Instant>,
    /// Every namespace of the run.
    spaces: RefCell<Vec<Rc<Space>>>,
}

impl Meter {
    /// Starts to count a render.
    fn new(limits: &Limits) -> Meter {
        Meter::of(limits, limits.work_bytes, Limit::Work)
    }

    /// Starts to count variables that are given.
    pub(crate) fn variables(limits: &Limits) -> Meter {
        Meter::of(limits, limits.value_bytes, Limit::Variables)
    }

    fn of(limits: &Limits, bytes: usize, budget: Limit) -> Meter {
        Meter {
            limits: *limits,
            left: Cell::new(bytes),
            budget: Cell::new(budget),
            end: Cell::new((limits.value_bytes, Limit::Value)),
            charges: Cell::new(0),
            deadline: Instant::now().checked_add(limits.time),
            spaces: RefCell::default(),
        }
    }

    /// The error of exceeding a limit.
    #[cold]
    pub(crate) fn exceeded(&self, limit: Limit) -> Error {
        self.limits.exceeded(limit)
    }

    /// Remembers a namespace until the run ends: its fields are then dropped one namespace at a time, so neither a long
    /// chain of namespaces nor one that holds itself outlives the run or runs the stack out.
    pub(crate) fn remember(&self, space: &Rc<Space>) {
        self.spaces.borrow_mut().push(space.clone());
    }

    /// Pays for `bytes` that are about to be built, or read where that is not bound by what was built.
    #[inline]
    pub(crate) fn charge(&self, bytes: usize) -> Result<(), Error> {
        if bytes > self.limits.value_bytes {
            return Err(self.too_large());
        }
        let Some(left) = self.left.get().checked_sub(bytes) else {
            self.left.set(0); // whoever cannot pass the error on leaves it to the next charge
            return Err(self.exceeded(self.budget.get()));
        };
        self.left.set(left);
        self.charges.set(self.charges.get().wrapping_add(1));
        if self.charges.get() % CHARGES_A_LOOK == 0 { self.in_time() } else { Ok(()) }
    }

    #[cold]
    fn too_large(&self) -> Error {
        self.exceeded(if self.budget.get() == Limit::Variables { Limit::Variables } else { Limit::Value })
    }

    /// Pays for `bytes` that are about to be added to `text`, which is built piece by piece.
    #[inline]
    pub(crate) fn grow(&self, text: &str, bytes: usize) -> Result<(), Error> {
        self.charge(bytes)?;
        let (end, limit) = self.end.get();
        if text.len().saturating_add(bytes) > end { Err(self.exceeded(limit)) } else { Ok(()) }
    }

    /// What may still be paid for.
    pub(crate) fn left(&self) -> usize {
        self.left.get()
    }

    /// Pays for `count` values of `bytes` each that are about to be built.
    pub(crate) fn charge_each(&self, count: usize, bytes: usize) -> Result<(), Error> {
        self.charge(count.saturating_mul(bytes))
    }

    /// Does `work`, which adds to a text of `length` bytes that may become `most` long.
    pub(crate) fn appending<T>(&self, length: usize, most: usize, work: impl FnOnce() -> T) -> T {
        let end = length.saturating_add(self.limits.value_bytes);
        let before = self.end.replace(if most < end { (most, Limit::Output) } else { (end, Limit::Value) });
        let done = work();
        self.end.set(before);
        done
    }

    /// Refuses values that are nested deeper than allowed.
    pub(crate) fn nest(&self, depth: usize) -> Result<(), Error> {
        if depth <= self.limits.depth { Ok(()) } else { Err(self.exceeded(Limit::Depth)) }
    }

    /// Refuses to go on for longer than allowed.
    pub(crate) fn in_time(&self) -> Result<(), Error> {
        if self.deadline.is_some_and(|deadline| Instant::now() > deadline) {
            self.left.set(0);
            self.budget.set(Limit::Time);
            return Err(self.exceeded(Limit::Time));
        }
        Ok(())
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        for space in self.spaces.take() {
            space.fields.take();
        }
    }
}
