//! Bytes, counted: a global allocator that knows what is live and what the peak was.
//!
//! A challenge's memory claims are measured, not declared: the program that runs an attempt installs
//! [`Counting`] as its global allocator, so a `Vec` in a reader's step counts like a device buffer. The
//! counts cover every thread of the process. A limit turns an allocation bomb into an orderly end of that
//! one process: the request is named on standard error and the process aborts, before the machine suffers.
//!
//! An address-space limit of the operating system would be simpler, but it also forbids the large
//! reservations that a CUDA driver makes, so it is never used.

#![allow(unsafe_code)] // `GlobalAlloc` is an unsafe trait: each method only forwards to `System`

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The counting allocator; a program installs it with `#[global_allocator]`.
pub struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// What standard error says first when the limit ends the process.
pub const LIMIT_MESSAGE: &str = "memory limit: ";

/// Bytes allocated and not freed yet, in the whole process.
pub fn live() -> usize {
    LIVE.load(Relaxed)
}

/// The largest [`live`] since the last [`reset_peak`].
pub fn peak() -> usize {
    PEAK.load(Relaxed)
}

/// Starts a new peak at what is live now, and returns that.
pub fn reset_peak() -> usize {
    let live = live();
    PEAK.store(live, Relaxed);
    live
}

/// From now on the process ends when more than `bytes` would be live.
pub fn set_limit(bytes: usize) {
    LIMIT.store(bytes, Relaxed);
}

fn grow(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(live, Relaxed);
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
