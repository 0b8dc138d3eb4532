//! The memory that a call takes besides its arguments, wherever it lies.
//!
//! The allocator counts the heap and nothing else. Memory in a `static`, in a thread-local variable or on a stack is
//! not allocated, but the system gives it to the process page by page, when it is first written. So the anonymous pages
//! of the process are counted before and after the call (`/proc/PID/smaps_rollup`, `Anonymous` and `Swap`; see
//! proc(5)). Growth beyond the heap's peak is memory outside the heap, and counts as well.
//!
//! A page counts once: memory that an earlier call wrote to is not seen. So a footprint begins before the first call of
//! the process. Stacks are written to in advance, as deep as a thread may use them, and large pages are turned off
//! (prctl(2), `PR_SET_THP_DISABLE`), because one of them is larger than all that is counted. On other systems than
//! Linux only the heap is counted.

use std::hint::black_box;

use kernels::Cpu;
use kernels::bytes::Peak;

/// Working memory of a fused pass: what a thread may hold at most.
pub(crate) const BYTES_PER_THREAD: f64 = 64.0 * 1024.0;

/// Bytes of a stack that a call may use without notice.
const STACK_BYTES: usize = BYTES_PER_THREAD as usize;

/// Pages that the C library and the thread pool may write to during any call: 16 KiB.
const SLACK_BYTES: usize = 16 << 10;

/// Memory that is counted from its beginning on.
pub(super) struct Footprint {
    peak: Peak,
    anonymous: Option<usize>, // anonymous bytes of the process at that time
}

impl Footprint {
    /// Begins to count; `None` while too many peaks are counted already.
    pub fn begin(cpu: &Cpu) -> Option<Self> {
        cpu.each_thread(write_to_stack);
        write_to_stack();
        anonymous_bytes(); // the first reading allocates
        let anonymous = anonymous_bytes();
        Some(Self { peak: Peak::begin()?, anonymous })
    }

    /// The peak of the heap, and what the process got beyond it.
    pub fn bytes(&self) -> usize {
        let heap = self.peak.bytes();
        let grown =
            self.anonymous.zip(anonymous_bytes()).map_or(0, |(before, now)| now.saturating_sub(before));
        heap + grown.saturating_sub(heap + SLACK_BYTES)
    }
}

/// Makes threads that start from now on, and pages that are written to, use small pages.
pub(super) fn use_small_pages() {
    #[cfg(target_os = "linux")]
    {
        _ = nix::sys::prctl::set_thp_disable(true); // a kernel without it has no large pages
    }
}

/// Writes to as much of the present thread's stack as it may use.
#[inline(never)]
#[expect(clippy::large_stack_arrays, reason = "a thread's stack has 2 MiB at least")]
fn write_to_stack() {
    black_box(&mut [1_u8; STACK_BYTES]);
}

/// Bytes of memory that belong to this process only and are backed by no file; `None` where the system does not say.
fn anonymous_bytes() -> Option<usize> {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let of = |name: &str| -> Option<usize> {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some((of("Anonymous:")? + of("Swap:").unwrap_or(0)) * 1024)
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(target_os = "linux")]
    fn written_pages_are_counted() {
        let before = super::anonymous_bytes().expect("Linux says");
        let pages = std::hint::black_box(vec![1_u8; 64 << 20]);
        let after = super::anonymous_bytes().expect("Linux says");
        assert!(after > before + (32 << 20), "{before} before, {after} after");
        drop(pages);
    }
}
