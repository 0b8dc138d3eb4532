//! What a render may take: steps, bytes, time and depth.
//!
//! The engine counts its own steps. What a single step builds is counted here: every string, list
//! and number that grows with the input is announced before it is made, so nothing is ever allocated that is not paid for.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::error::{Error, Kind};
use super::python::value::Space;

/// What a template and a render of it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the template's source.
    pub source_bytes: usize,
    /// How deep values may be nested, given or built.
    pub depth: usize,
    /// Steps of the engine: statements, turns of loops, and expressions.
    pub steps: u64,
    /// Bytes that all values built during the render may take together.
    pub work_bytes: usize,
    /// Bytes of the text that comes out.
    pub output_bytes: usize,
    /// Time from start to end.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            source_bytes: 1 << 20,
            depth: 200,
            steps: 10_000_000,
            work_bytes: 1 << 30,
            output_bytes: 64 << 20,
            time: Duration::from_secs(10),
        }
    }
}

/// How often the clock is read: once in so many charges.
const CHARGES_A_LOOK: u32 = 64;

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    static DEPTH: Cell<usize> = const { Cell::new(200) };
    static CHARGES: Cell<u32> = const { Cell::new(0) };
    static SPACES: RefCell<Vec<Rc<Space>>> = const { RefCell::new(Vec::new()) };
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Counts on this thread until it is dropped.
pub(super) struct Meter(());

impl Meter {
    /// Starts to count against `limits`.
    pub(super) fn start(limits: &Limits) -> Meter {
        LEFT.set(limits.work_bytes);
        DEPTH.set(limits.depth);
        CHARGES.set(0);
        DEADLINE.set(Instant::now().checked_add(limits.time));
        Meter(())
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        LEFT.set(usize::MAX);
        DEPTH.set(Limits::default().depth);
        DEADLINE.set(None);
        let spaces = SPACES.with(|spaces| std::mem::take(&mut *spaces.borrow_mut()));
        for space in &spaces {
            space.fields.take();
        }
    }
}

/// Remembers a namespace until the render ends: its fields are then dropped one namespace at a time, so neither a long
/// chain of namespaces nor one that holds itself outlives the render or runs the stack out.
pub(super) fn remember(space: &Rc<Space>) {
    SPACES.with(|spaces| spaces.borrow_mut().push(space.clone()));
}

/// Pays for `bytes` that are about to be built, or read where that is not bound by what was built.
pub(super) fn charge(bytes: usize) -> Result<(), Error> {
    let Some(left) = LEFT.get().checked_sub(bytes) else {
        LEFT.set(0); // whoever cannot pass the error on leaves it to the next charge
        return Err(Error::new(Kind::Limit, "the render builds or reads more bytes than allowed"));
    };
    LEFT.set(left);
    CHARGES.set(CHARGES.get().wrapping_add(1));
    if CHARGES.get() % CHARGES_A_LOOK == 0 { in_time() } else { Ok(()) }
}

/// Refuses values that are nested deeper than allowed.
pub(super) fn nest(depth: usize) -> Result<(), Error> {
    if depth <= DEPTH.get() {
        return Ok(());
    }
    Err(Error::new(Kind::Limit, format!("a value is nested {depth} deep, more than {}", DEPTH.get())))
}

/// Refuses to go on for longer than allowed.
pub(super) fn in_time() -> Result<(), Error> {
    if DEADLINE.get().is_some_and(|deadline| Instant::now() > deadline) {
        LEFT.set(0);
        return Err(Error::new(Kind::Limit, "the render takes longer than allowed"));
    }
    Ok(())
}
