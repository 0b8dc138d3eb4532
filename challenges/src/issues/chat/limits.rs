//! What a render may take: steps, bytes, time and depth.
//!
//! The engine counts its own steps. What a single step builds is counted here: every string, list and number that grows with
//! the input is announced before it is made ([`charge`], [`grow`]), so nothing is ever allocated that is not paid for.

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
    /// Bytes that one text, list or dict may take, and all variables together.
    pub value_bytes: usize,
    /// Bytes that all values built during the render may take together, and what is read again and again.
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
            value_bytes: 64 << 20,
            work_bytes: 1 << 30,
            output_bytes: 64 << 20,
            time: Duration::from_secs(10),
        }
    }
}

/// How often the clock is read: once in so many charges.
const CHARGES_A_LOOK: u32 = 64;

/// Which limit was met, and so which sentence says it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    Source,
    Depth,
    Steps,
    Value,
    Variables,
    Work,
    Output,
    Time,
}

impl Limits {
    /// The error of exceeding one of them.
    pub(super) fn exceeded(&self, limit: Limit) -> Error {
        let (what, most, name) = match limit {
            Limit::Source => ("source", bytes_text(self.source_bytes), "source_bytes"),
            Limit::Depth => ("depth", self.depth.to_string(), "depth"),
            Limit::Steps => ("steps", self.steps.to_string(), "steps"),
            Limit::Value => ("a value", bytes_text(self.value_bytes), "value_bytes"),
            Limit::Variables => ("variables", bytes_text(self.value_bytes), "value_bytes"),
            Limit::Work => ("work", bytes_text(self.work_bytes), "work_bytes"),
            Limit::Output => ("output", bytes_text(self.output_bytes), "output_bytes"),
            Limit::Time => ("time", format!("{:?}", self.time), "time"),
        };
        let verb = if matches!(limit, Limit::Steps | Limit::Variables) { "exceed" } else { "exceeds" };
        Error::new(Kind::Limit, format!("{what} {verb} {most} (`Limits::{name}`)"))
    }
}

/// `16 MiB`, or the bytes where there is no whole unit.
fn bytes_text(bytes: usize) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole = units.into_iter().find(|(shift, _)| bytes > 0 && bytes % (1 << shift) == 0);
    whole.map_or_else(|| format!("{bytes} bytes"), |(shift, unit)| format!("{} {unit}", bytes >> shift))
}

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    /// What one value may take.
    static VALUE: Cell<usize> = const { Cell::new(usize::MAX) };
    /// How long the text may become to which is added now, and by which limit.
    static END: Cell<(usize, Limit)> = const { Cell::new((usize::MAX, Limit::Value)) };
    /// The limit that [`LEFT`] counts.
    static BUDGET: Cell<Limit> = const { Cell::new(Limit::Work) };
    static DEPTH: Cell<usize> = const { Cell::new(200) };
    static LIMITS: Cell<Option<Limits>> = const { Cell::new(None) };
    static CHARGES: Cell<u32> = const { Cell::new(0) };
    static SPACES: RefCell<Vec<Rc<Space>>> = const { RefCell::new(Vec::new()) };
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Counts on this thread until it is dropped.
pub(super) struct Meter(());

impl Meter {
    /// Starts to count a render.
    pub(super) fn start(limits: &Limits) -> Meter {
        Meter::of(limits, limits.work_bytes, Limit::Work)
    }

    /// Starts to count variables that are given.
    pub(super) fn variables(limits: &Limits) -> Meter {
        Meter::of(limits, limits.value_bytes, Limit::Variables)
    }

    fn of(limits: &Limits, budget: usize, name: Limit) -> Meter {
        LEFT.set(budget);
        BUDGET.set(name);
        VALUE.set(limits.value_bytes);
        END.set((limits.value_bytes, Limit::Value));
        DEPTH.set(limits.depth);
        LIMITS.set(Some(*limits));
        CHARGES.set(0);
        DEADLINE.set(Instant::now().checked_add(limits.time));
        Meter(())
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        LEFT.set(usize::MAX);
        VALUE.set(usize::MAX);
        END.set((usize::MAX, Limit::Value));
        DEPTH.set(Limits::default().depth);
        LIMITS.set(None);
        DEADLINE.set(None);
        let spaces = SPACES.with(|spaces| std::mem::take(&mut *spaces.borrow_mut()));
        for space in &spaces {
            space.fields.take();
        }
    }
}

/// The limits that count on this thread.
fn limits() -> Limits {
    LIMITS.get().unwrap_or_default()
}

/// The error of exceeding a limit of this thread.
#[cold]
pub(super) fn exceeded(limit: Limit) -> Error {
    limits().exceeded(limit)
}

/// Remembers a namespace until the render ends: its fields are then dropped one namespace at a time, so neither a long
/// chain of namespaces nor one that holds itself outlives the render or runs the stack out.
pub(super) fn remember(space: &Rc<Space>) {
    SPACES.with(|spaces| spaces.borrow_mut().push(space.clone()));
}

/// Pays for `bytes` that are about to be built, or read where that is not bound by what was built.
pub(super) fn charge(bytes: usize) -> Result<(), Error> {
    if bytes > VALUE.get() {
        return Err(exceeded(if BUDGET.get() == Limit::Variables { Limit::Variables } else { Limit::Value }));
    }
    let Some(left) = LEFT.get().checked_sub(bytes) else {
        LEFT.set(0); // whoever cannot pass the error on leaves it to the next charge
        return Err(exceeded(BUDGET.get()));
    };
    LEFT.set(left);
    CHARGES.set(CHARGES.get().wrapping_add(1));
    if CHARGES.get() % CHARGES_A_LOOK == 0 { in_time() } else { Ok(()) }
}

/// Pays for `bytes` that are about to be added to `text`, which is built piece by piece.
pub(super) fn grow(text: &str, bytes: usize) -> Result<(), Error> {
    charge(bytes)?;
    let (end, limit) = END.get();
    if text.len().saturating_add(bytes) > end { Err(exceeded(limit)) } else { Ok(()) }
}

/// What may still be paid for.
pub(super) fn left() -> usize {
    LEFT.get()
}

/// Pays for `count` values of `bytes` each that are about to be built.
pub(super) fn charge_each(count: usize, bytes: usize) -> Result<(), Error> {
    charge(count.saturating_mul(bytes))
}

/// Does `work`, which adds to a text of `length` bytes that may become `most` long.
pub(super) fn appending<T>(length: usize, most: usize, work: impl FnOnce() -> T) -> T {
    let end = length.saturating_add(VALUE.get());
    let before = END.replace(if most < end { (most, Limit::Output) } else { (end, Limit::Value) });
    let done = work();
    END.set(before);
    done
}

/// Refuses values that are nested deeper than allowed.
pub(super) fn nest(depth: usize) -> Result<(), Error> {
    if depth <= DEPTH.get() { Ok(()) } else { Err(exceeded(Limit::Depth)) }
}

/// Refuses to go on for longer than allowed.
pub(super) fn in_time() -> Result<(), Error> {
    if DEADLINE.get().is_some_and(|deadline| Instant::now() > deadline) {
        LEFT.set(0);
        BUDGET.set(Limit::Time);
        return Err(exceeded(Limit::Time));
    }
    Ok(())
}
