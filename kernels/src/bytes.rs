//! Bytes, counted: a global allocator that knows what is live and what the peak was.
//!
//! A challenge's memory claims are measured, not declared: the program that runs an attempt installs
//! [`Counting`] as its global allocator, so a `Vec` in a reader's step counts like a device buffer. The
//! counts cover every thread of the process. A limit turns an allocation bomb into an orderly end of that
//! one process: the request is named on standard error and the process aborts, before the machine suffers.
//!
//! What is counted may depend on nothing that an attempt can do: a [`Peak`] belongs to whoever began it, nobody
//! else can name it, and no call sets it back. A limit can only be lowered.
//!
//! An address-space limit of the operating system would be simpler, but it also forbids the large
//! reservations that a CUDA driver makes, so it is never used.

#![allow(unsafe_code)] // `GlobalAlloc` is an unsafe trait: each method only forwards to `System`

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

/// The counting allocator; a program installs it with `#[global_allocator]`.
pub struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAKS: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];
static COUNTED: AtomicUsize = AtomicUsize::new(0); // a bit for each place of `PEAKS` that is taken
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Peaks that may be counted at the same time.
const PLACES: usize = 16;

/// What standard error says first when the limit ends the process.
pub const LIMIT_MESSAGE: &str = "memory limit: ";

/// Bytes allocated and not freed yet, in the whole process.
pub fn live() -> usize {
    LIVE.load(Relaxed)
}

/// The most that is live at once from its beginning on, as long as it is held.
#[derive(Debug)]
pub struct Peak {
    place: usize,
    begin: usize, // bytes live then
}

impl Peak {
    /// Begins to count; `None` while as many as there may be are counted already.
    pub fn begin() -> Option<Self> {
        let free = |taken: usize| Some(taken | (taken + 1)).filter(|taken| taken >> PLACES == 0);
        let before = COUNTED.fetch_update(SeqCst, SeqCst, free).ok()?;
        let place = (!before).trailing_zeros() as usize;
        let begin = live();
        PEAKS[place].store(begin, SeqCst);
        Some(Self { place, begin })
    }

    /// The most bytes that were live at once above those that were live when it began.
    pub fn bytes(&self) -> usize {
        PEAKS[self.place].load(SeqCst).saturating_sub(self.begin)
    }
}

impl Drop for Peak {
    fn drop(&mut self) {
        COUNTED.fetch_and(!(1 << self.place), SeqCst);
    }
}

/// From now on the process ends when more than `bytes` would be live. A limit that was set is never raised.
pub fn set_limit(bytes: usize) {
    LIMIT.fetch_min(bytes, Relaxed);
}

fn grow(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
    let mut counted = COUNTED.load(Relaxed);
    while counted != 0 {
        PEAKS[counted.trailing_zeros() as usize].fetch_max(live, Relaxed);
        counted &= counted - 1;
    }
    if live > LIMIT.load(Relaxed) {
        end(bytes, live - bytes);
    }
}

fn shrink(bytes: usize) {
    LIVE.fetch_sub(bytes, Relaxed);
}

/// Names the request and aborts. Writing to standard error takes no memory from this allocator.
#[cold]
fn end(bytes: usize, live: usize) -> ! {
    let limit = LIMIT.swap(usize::MAX, Relaxed);
    let _ = writeln!(
        std::io::stderr(),
        "{LIMIT_MESSAGE}{bytes} bytes were asked for while {live} were live; the limit is {limit}"
    );
    std::process::abort()
}

// SAFETY: every method forwards its arguments unchanged to `System`, which upholds the trait's contract;
// the counting around it neither touches the memory nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promise about `layout` is `System`'s requirement.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: the caller got `pointer` from this allocator, hence from `System`, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grow(size);
        // SAFETY: as in `dealloc`; `size` is the caller's promise.
        let moved = unsafe { System.realloc(pointer, layout, size) };
        shrink(if moved.is_null() { size } else { layout.size() });
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_counted_whoever_else_counts() {
        let outer = Peak::begin().expect("a place");
        grow(1000);
        let inner = Peak::begin().expect("a place");
        grow(500);
        shrink(1500);
        assert!(outer.bytes() >= 1500 && inner.bytes() >= 500);
        drop(inner);
        let again = Peak::begin().expect("a place");
        assert!(again.bytes() < 500 && outer.bytes() >= 1500, "nobody sets another's peak back");
    }

    #[test]
    fn peaks_end_and_make_room() {
        let held: Vec<Peak> = std::iter::from_fn(Peak::begin).collect();
        assert!(held.len() >= PLACES - 3 && held.len() <= PLACES, "{}", held.len());
        drop(held);
        assert!(Peak::begin().is_some());
    }

    #[test]
    fn a_limit_is_only_lowered() {
        set_limit(usize::MAX - 1);
        set_limit(usize::MAX);
        assert_eq!(LIMIT.load(Relaxed), usize::MAX - 1);
    }
}
