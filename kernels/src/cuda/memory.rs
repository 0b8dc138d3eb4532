//! Device memory, through a pool that counts.
//!
//! The driver takes its time over an allocation (it may wait for the whole card), so freed memory is kept and
//! handed out again to who asks for the same size. What is counted is what is in use, by tag, and its peak:
//! the numbers that a score is made of. Plain allocations only: no managed memory, no overcommitment.
//!
//! Memory that was freed may be handed out again at once. On one stream that is safe, since work runs in the
//! order in which it was queued; whoever uses another stream keeps the memory until that stream is done. Copies
//! between host and card are queued on the GPU's stream, too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUdeviceptr};

use super::driver::check;
use super::error::CudaError;
use super::order::Stream;
use super::probe::{Context, Gpu};
use super::watermark::Taken;

/// Sizes are rounded up to this, the driver's own alignment, in bytes.
const GRAIN: usize = 512;

/// Bytes in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Now.
    pub current: usize,
    /// The most at once since the pool was made or [`Gpu::reset_peak`].
    pub peak: usize,
    /// Ever handed out.
    pub total: u64,
    /// Now, and the most at once, by tag.
    pub tags: BTreeMap<&'static str, (usize, usize)>,
}

#[derive(Debug)]
pub(super) struct Pool {
    pub context: Arc<Context>,
    stream: Arc<Stream>, // the GPU's own
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    free: BTreeMap<usize, Vec<CUdeviceptr>>, // by rounded size
    usage: Usage,
    pub taken: Taken,
}

/// Bytes of device memory; freed, and no longer counted, when dropped.
#[derive(Debug)]
pub struct Allocation {
    address: CUdeviceptr,
    bytes: usize,
    tag: &'static str,
    is_counted: bool, // not what the device holds for itself
    pool: Arc<Pool>,
}

impl Pool {
    pub fn new(context: Arc<Context>, stream: Arc<Stream>) -> Self {
        Self { context, stream, state: Mutex::default() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory with whatever was in it.
    pub fn take(self: &Arc<Self>, tag: &'static str, bytes: usize) -> Result<Allocation, CudaError> {
        let mut allocation = self.hold(tag, bytes)?;
        allocation.is_counted = true;
        let usage = &mut self.state().usage;
        usage.current += bytes;
        usage.peak = usage.peak.max(usage.current);
        usage.total += bytes as u64;
        let (current, peak) = usage.tags.entry(tag).or_default();
        *current += bytes;
        *peak = (*peak).max(*current);
        Ok(allocation)
    }

    /// The same, for the device itself: no buffer, and not counted as one.
    fn hold(self: &Arc<Self>, tag: &'static str, bytes: usize) -> Result<Allocation, CudaError> {
        self.context.enter()?;
        if isize::try_from(bytes).is_err() {
            return Err(CudaError::Memory { tag, asked: bytes, free: self.free_bytes()? });
        }
        let kept = self.state().free.get_mut(&rounded(bytes)).and_then(Vec::pop);
        let address = match kept {
            Some(address) => address,
            None => self.ask(tag, bytes)?,
        };
        self.state().taken.add(bytes);
        Ok(Allocation { address, bytes, tag, is_counted: false, pool: Arc::clone(self) })
    }

    /// From the driver; when it has none left, once more after giving back what is kept.
    fn ask(&self, tag: &'static str, bytes: usize) -> Result<CUdeviceptr, CudaError> {
        let ask = || {
            let mut address = 0;
            // SAFETY: the driver writes one address.
            check("cuMemAlloc_v2", unsafe { sys::cuMemAlloc_v2(&raw mut address, rounded(bytes)) })?;
            Ok(address)
        };
        let out_of_memory = |error: &CudaError| matches!(error, CudaError::Driver { code: 2, .. });
        match ask() {
            Err(error) if out_of_memory(&error) => {
                self.trim()?;
                ask().map_err(|error| match self.free_bytes() {
                    Ok(free) if out_of_memory(&error) => CudaError::Memory { tag, asked: bytes, free },
                    _ => error,
                })
            }
            answer => answer,
        }
    }

    /// Gives back what is kept.
    pub(super) fn trim(&self) -> Result<(), CudaError> {
        let kept = std::mem::take(&mut self.state().free);
        for address in kept.into_values().flatten() {
            // SAFETY: the address came from cuMemAlloc_v2 and nobody holds it any more.
            check("cuMemFree_v2", unsafe { sys::cuMemFree_v2(address) })?;
        }
        Ok(())
    }

    pub(super) fn free_bytes(&self) -> Result<usize, CudaError> {
        self.context.enter()?;
        let (mut free, mut all) = (0, 0);
        // SAFETY: the driver writes two numbers.
        check("cuMemGetInfo_v2", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut all) })?;
        Ok(free)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = self.context.enter().and_then(|()| self.trim()); // at the end there is nobody to tell
    }
}

fn rounded(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(GRAIN)
}

impl Allocation {
    /// Its address on the card.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What it is for.
    pub fn tag(&self) -> &'static str {
        self.tag
    }

    /// Copies from the host to `at` bytes from its beginning, after everything queued on the GPU's stream, and waits.
    pub fn write(&mut self, at: usize, from: &[u8]) -> Result<(), CudaError> {
        self.within(at, from.len());
        self.pool.context.enter()?;
        let stream = self.pool.stream.handle();
        // SAFETY: the range lies inside the allocation; the host's bytes are there until the stream is done.
        check("cuMemcpyHtoDAsync_v2", unsafe {
            sys::cuMemcpyHtoDAsync_v2(self.address + at as u64, from.as_ptr().cast(), from.len(), stream)
        })?;
        self.pool.stream.sync()
    }

    /// Copies to the host from `at` bytes from its beginning, after everything queued on the GPU's stream, and waits.
    pub fn read(&self, at: usize, to: &mut [u8]) -> Result<(), CudaError> {
        self.within(at, to.len());
        self.pool.context.enter()?;
        let stream = self.pool.stream.handle();
        // SAFETY: the range lies inside the allocation; the host's bytes are there until the stream is done.
        check("cuMemcpyDtoHAsync_v2", unsafe {
            sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), self.address + at as u64, to.len(), stream)
        })?;
        self.pool.stream.sync()
    }

    /// Queues a fill of `count` 16-bit words from byte `at` on.
    pub fn fill(&mut self, stream: &Stream, at: usize, word: u16, count: usize) -> Result<(), CudaError> {
        self.within(at, count.saturating_mul(2));
        assert!(at % 2 == 0, "a fill of words begins at a word");
        self.pool.context.enter()?;
        // SAFETY: the range lies inside the allocation and begins at a word.
        check("cuMemsetD16Async", unsafe {
            sys::cuMemsetD16Async(self.address + at as u64, word, count, stream.handle())
        })
    }

    /// Queues a fill of the whole with a 32-bit word.
    pub fn fill_words(&mut self, stream: &Stream, word: u32) -> Result<(), CudaError> {
        self.pool.context.enter()?;
        // SAFETY: as many whole words as lie inside the allocation, which is aligned for them.
        check("cuMemsetD32Async", unsafe {
            sys::cuMemsetD32Async(self.address, word, self.bytes / 4, stream.handle())
        })
    }

    /// Queues a copy of `bytes` from byte `from_at` of another allocation to byte `at` of this one.
    pub fn copy(
        &mut self,
        stream: &Stream,
        at: usize,
        from: &Allocation,
        from_at: usize,
        bytes: usize,
    ) -> Result<(), CudaError> {
        self.within(at, bytes);
        from.within(from_at, bytes);
        self.pool.context.enter()?;
        // SAFETY: both ranges lie inside their allocations.
        check("cuMemcpyDtoDAsync_v2", unsafe {
            sys::cuMemcpyDtoDAsync_v2(
                self.address + at as u64,
                from.address + from_at as u64,
                bytes,
                stream.handle(),
            )
        })
    }

    fn within(&self, at: usize, bytes: usize) {
        let end = at.checked_add(bytes);
        assert!(
            end.is_some_and(|end| end <= self.bytes),
            "bytes {at}..+{bytes} of {}, which has {}",
            self.tag,
            self.bytes
        );
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        state.free.entry(rounded(self.bytes)).or_default().push(self.address);
        state.taken.remove(self.bytes);
        if !self.is_counted {
            return;
        }
        state.usage.current -= self.bytes;
        if let Some((current, _)) = state.usage.tags.get_mut(self.tag) {
            *current -= self.bytes;
        }
    }
}

impl Gpu {
    /// Device memory with whatever was in it; `tag` says what for.
    pub fn reserve(&self, tag: &'static str, bytes: usize) -> Result<Allocation, CudaError> {
        self.inner.pool.take(tag, bytes)
    }

    /// The same, filled with zeros.
    pub fn zeroed(&self, tag: &'static str, bytes: usize) -> Result<Allocation, CudaError> {
        let allocation = self.reserve(tag, bytes)?;
        // SAFETY: the range is the allocation.
        check("cuMemsetD8Async", unsafe {
            sys::cuMemsetD8Async(allocation.address, 0, bytes.max(1), self.stream().handle())
        })?;
        Ok(allocation)
    }

    /// Device memory that the device holds for itself, with whatever was in it: no buffer, and not counted as one.
    pub(super) fn hold(&self, tag: &'static str, bytes: usize) -> Result<Allocation, CudaError> {
        self.inner.pool.hold(tag, bytes)
    }

    /// Makes the memory that plans share as large as one of them needs. What was queued over the old one runs to its
    /// end in it: memory is handed out again in the order of the stream.
    pub(super) fn grow_scratch(&self, bytes: usize) -> Result<(), CudaError> {
        let mut scratch = self.inner.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes > 0 && scratch.as_ref().is_none_or(|scratch| scratch.bytes() < bytes) {
            *scratch = None; // first, so that both are never there together
            *scratch = Some(Arc::new(self.hold("scratch", bytes)?));
        }
        Ok(())
    }

    /// The memory that plans share.
    pub(super) fn scratch(&self) -> Option<Arc<Allocation>> {
        self.inner.scratch.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bytes from the host in device memory.
    pub fn uploaded(&self, tag: &'static str, bytes: &[u8]) -> Result<Allocation, CudaError> {
        let mut allocation = self.reserve(tag, bytes.len())?;
        allocation.write(0, bytes)?;
        Ok(allocation)
    }

    /// What is in use.
    pub fn usage(&self) -> Usage {
        self.inner.pool.state().usage.clone()
    }

    /// Makes the present the peak.
    pub fn reset_peak(&self) {
        let usage = &mut self.inner.pool.state().usage;
        usage.peak = usage.current;
        usage.tags.values_mut().for_each(|(current, peak)| *peak = *current);
    }

    /// Bytes of the card's memory that nobody uses.
    pub fn free_bytes(&self) -> Result<usize, CudaError> {
        self.inner.pool.free_bytes()
    }
}
