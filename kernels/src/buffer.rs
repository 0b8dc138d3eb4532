//! Device memory as a program sees it: bytes with a tag, aligned to a cache line, on the host or on a card.

#![allow(unsafe_code)] // the two typed views

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use half::{bf16, f16};

use crate::cuda::Allocation;
use crate::error::DeviceError;

/// Bytes on a device. Freed, and no longer counted, when dropped.
#[derive(Debug)]
pub struct Buffer {
    storage: Storage,
    bytes: usize,
    tag: &'static str,
    version: u64, // another one after everything that may have written to it
    _counted: Option<Counted>,
}

/// Bytes of a device's buffers, by what they are for: those that are there, and those that were when it was most.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<Bytes>);

#[derive(Debug, Default)]
struct Bytes {
    live: BTreeMap<&'static str, u64>,
    total: u64,
    at_peak: BTreeMap<&'static str, u64>,
    peak: u64,
}

/// A buffer's bytes in a tally, as long as it is there.
#[derive(Debug)]
struct Counted {
    tally: Arc<Tally>,
    tag: &'static str,
    bytes: u64,
}

impl Tally {
    /// Bytes that are there, and the most that were.
    pub fn bytes(&self) -> [u64; 2] {
        let all = self.locked();
        [all.total, all.peak]
    }

    /// The most bytes that were there at once, by tag.
    pub fn at_peak(&self) -> BTreeMap<&'static str, u64> {
        self.locked().at_peak.clone()
    }

    fn count(self: &Arc<Self>, tag: &'static str, bytes: u64) -> Counted {
        let mut all = self.locked();
        *all.live.entry(tag).or_default() += bytes;
        all.total += bytes;
        if all.total > all.peak {
            all.peak = all.total;
            all.at_peak = all.live.clone();
        }
        Counted { tally: Arc::clone(self), tag, bytes }
    }

    fn locked(&self) -> MutexGuard<'_, Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut all = self.tally.locked();
        all.total -= self.bytes;
        if let Some(live) = all.live.get_mut(self.tag) {
            *live -= self.bytes;
        }
    }
}

/// A number that no buffer had before as its version: names contents, and counts nothing.
fn new_version() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Relaxed) + 1
}

#[derive(Debug)]
enum Storage {
    Host(Vec<Line>),
    Cuda(Allocation),
    Paper,
}

/// Bytes as numbers.
///
/// # Panics
/// If they are not aligned to a number, or do not fill the last one.
pub fn cast<T: Plain>(bytes: &[u8]) -> &[T] {
    // SAFETY: any bits are a `T`.
    let (before, numbers, after) = unsafe { bytes.align_to::<T>() };
    assert!(before.is_empty() && after.is_empty(), "whole numbers of {} bytes", size_of::<T>());
    numbers
}

/// Bytes as numbers, to be written.
///
/// # Panics
/// If they are not aligned to a number, or do not fill the last one.
pub fn cast_mut<T: Plain>(bytes: &mut [u8]) -> &mut [T] {
    // SAFETY: any bits are a `T`.
    let (before, numbers, after) = unsafe { bytes.align_to_mut::<T>() };
    assert!(before.is_empty() && after.is_empty(), "whole numbers of {} bytes", size_of::<T>());
    numbers
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
    /// Zeroed bytes in host memory, if there are so many.
    pub(crate) fn new(tag: &'static str, bytes: usize) -> Result<Self, DeviceError> {
        let mut lines = Vec::new();
        let count = bytes.div_ceil(size_of::<Line>());
        lines.try_reserve_exact(count).map_err(|_| DeviceError::Memory { tag, bytes })?;
        lines.resize(count, Line([0; 64]));
        Ok(Self { storage: Storage::Host(lines), bytes, tag, version: new_version(), _counted: None })
    }

    /// The same, counted by a device.
    pub(crate) fn counted(self, tally: &Arc<Tally>) -> Self {
        Self { _counted: Some(tally.count(self.tag, self.bytes as u64)), ..self }
    }

    /// No bytes, which takes no memory.
    pub(crate) fn empty(tag: &'static str) -> Self {
        Self { storage: Storage::Host(Vec::new()), bytes: 0, tag, version: new_version(), _counted: None }
    }

    /// A card's memory.
    pub(crate) fn cuda(allocation: Allocation) -> Self {
        let (bytes, tag) = (allocation.bytes(), allocation.tag());
        Self { storage: Storage::Cuda(allocation), bytes, tag, version: new_version(), _counted: None } // its pool counts
    }

    /// Bytes that are counted and not there.
    pub(crate) fn on_paper(tag: &'static str, bytes: usize) -> Self {
        Self { storage: Storage::Paper, bytes, tag, version: new_version(), _counted: None }
    }

    /// What names its contents: as long as it stays the same, so do they. Never 0, and never another buffer's.
    pub(crate) fn version(&self) -> u64 {
        self.version
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
    ///
    /// # Panics
    /// If the bytes are not the host's: only the device that made a buffer reads it.
    pub fn view<T: Plain>(&self) -> &[T] {
        let Storage::Host(lines) = &self.storage else { panic!("buffer {} is not the host's", self.tag) };
        let count = self.bytes / size_of::<T>();
        // SAFETY: the lines hold at least `bytes` bytes, aligned to 64; any bits are a `T`.
        unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), count) }
    }

    /// The same, to be written.
    ///
    /// # Panics
    /// As for [`Self::view`].
    pub fn view_mut<T: Plain>(&mut self) -> &mut [T] {
        self.version = new_version();
        let Storage::Host(lines) = &mut self.storage else { panic!("buffer {} is not the host's", self.tag) };
        let count = self.bytes / size_of::<T>();
        // SAFETY: as in `view`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), count) }
    }

    /// Its bytes, where they are the host's; `None` if they are a card's.
    pub fn host(&self) -> Option<&[u8]> {
        self.on_host().ok().map(|()| self.view())
    }

    /// Whether the bytes are in host memory.
    pub(crate) fn on_host(&self) -> Result<(), DeviceError> {
        match self.storage {
            Storage::Host(_) => Ok(()),
            Storage::Cuda(_) | Storage::Paper => {
                Err(DeviceError::Elsewhere { tag: self.tag, device: "the CPU" })
            }
        }
    }

    /// Whether the bytes are counted and not there.
    pub(crate) fn is_on_paper(&self) -> Result<(), DeviceError> {
        match self.storage {
            Storage::Paper => Ok(()),
            Storage::Host(_) | Storage::Cuda(_) => {
                Err(DeviceError::Elsewhere { tag: self.tag, device: "paper" })
            }
        }
    }

    /// The card's memory behind it.
    pub(crate) fn on_card(&self) -> Result<&Allocation, DeviceError> {
        match &self.storage {
            Storage::Cuda(allocation) => Ok(allocation),
            Storage::Host(_) | Storage::Paper => {
                Err(DeviceError::Elsewhere { tag: self.tag, device: "the GPU" })
            }
        }
    }

    /// The same, to be written.
    pub(crate) fn on_card_mut(&mut self) -> Result<&mut Allocation, DeviceError> {
        self.version = new_version();
        match &mut self.storage {
            Storage::Cuda(allocation) => Ok(allocation),
            Storage::Host(_) | Storage::Paper => {
                Err(DeviceError::Elsewhere { tag: self.tag, device: "the GPU" })
            }
        }
    }

    /// Whether it has so many bytes from one on.
    pub(crate) fn has(&self, first: usize, bytes: usize) -> Result<(), DeviceError> {
        if first.checked_add(bytes).is_some_and(|end| end <= self.bytes) {
            return Ok(());
        }
        Err(DeviceError::Range { tag: self.tag, buffer: self.bytes, first, bytes })
    }

    /// Whether a copy to or from `host` bytes fits exactly.
    pub(crate) fn same_length(&self, host: usize) -> Result<(), DeviceError> {
        if self.bytes == host {
            return Ok(());
        }
        Err(DeviceError::Length { tag: self.tag, buffer: self.bytes, host })
    }
}
