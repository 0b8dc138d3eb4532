//! Device memory as a program sees it: bytes with a tag, aligned to a cache line.

#![allow(unsafe_code)] // the two typed views

use half::{bf16, f16};

/// Bytes on a device. Freed, and no longer counted, when dropped.
#[derive(Debug)]
pub struct Buffer {
    lines: Vec<Line>,
    bytes: usize,
    tag: &'static str,
}

/// A cache line: the unit that buffers are aligned to.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// A number type whose every bit pattern is a value, so that bytes may be read as it.
///
/// # Safety
/// No padding, no invalid bit pattern, alignment at most 64.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

// SAFETY: all of these are plain numbers.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}
// SAFETY: a transparent u16.
unsafe impl Plain for f16 {}
// SAFETY: a transparent u16.
unsafe impl Plain for bf16 {}

impl Buffer {
    /// Zeroed bytes in host memory.
    pub(crate) fn host(tag: &'static str, bytes: usize) -> Self {
        Self { lines: vec![Line([0; 64]); bytes.div_ceil(64)], bytes, tag }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What it is for.
    pub fn tag(&self) -> &'static str {
        self.tag
    }

    /// The contents as numbers; a last part that does not fill one is left out.
    pub fn view<T: Plain>(&self) -> &[T] {
        let count = self.bytes / size_of::<T>();
        // SAFETY: the lines hold at least `bytes` bytes, aligned to 64; any bits are a `T`.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), count) }
    }

    /// The same, to be written.
    pub fn view_mut<T: Plain>(&mut self) -> &mut [T] {
        let count = self.bytes / size_of::<T>();
        // SAFETY: as in `view`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), count) }
    }
}
