//! The most bytes of a card's memory that are taken at once, from a moment on, and what the driver says of them.
//!
//! A watermark belongs to whoever began it: nobody else can name it, and no call sets it back. It begins with a pool
//! that keeps nothing, so that whatever is taken from then on is asked of the driver, whose free memory is the less by
//! it. The pool keeps what is freed meanwhile and hands it out again for the same size only; so what the driver lacks
//! is at least what was taken at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::CudaError;
use super::memory::Pool;
use crate::device;
use crate::error::DeviceError;

/// Bytes that a pool has handed out, counted as buffers or not, and their watermarks.
#[derive(Debug, Default)]
pub(super) struct Taken {
    now: usize,
    most: BTreeMap<u64, usize>, // of each watermark that is held, by its number
    begun: u64,
}

/// See the module's head.
pub(super) struct Watermark {
    pool: Arc<Pool>,
    number: u64,
    begin: usize, // bytes taken then
    free: usize,  // what the driver called free then
}

impl Taken {
    /// Counts bytes that are handed out.
    pub fn add(&mut self, bytes: usize) {
        self.now += bytes;
        self.most.values_mut().for_each(|most| *most = (*most).max(self.now));
    }

    /// Counts bytes that are freed.
    pub fn remove(&mut self, bytes: usize) {
        self.now -= bytes;
    }

    /// The number of a new watermark, and what is taken when it begins.
    fn begin(&mut self) -> (u64, usize) {
        self.begun += 1;
        self.most.insert(self.begun, self.now);
        (self.begun, self.now)
    }
}

impl Pool {
    /// Begins to count. Nothing may be in use any more of what was freed.
    pub(super) fn watermark(self: &Arc<Self>) -> Result<Watermark, CudaError> {
        self.trim()?;
        let free = self.free_bytes()?;
        let (number, begin) = self.state().taken.begin();
        Ok(Watermark { pool: Arc::clone(self), number, begin, free })
    }
}

impl device::Watermark for Watermark {
    fn bytes(&self) -> u64 {
        let most = self.pool.state().taken.most.get(&self.number).copied().unwrap_or_default();
        most.saturating_sub(self.begin) as u64
    }

    fn driver_bytes(&self) -> Result<Option<u64>, DeviceError> {
        let free = self.pool.free_bytes()?;
        Ok(Some(self.free.saturating_sub(free) as u64))
    }
}

impl Drop for Watermark {
    fn drop(&mut self) {
        self.pool.state().taken.most.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watermark_is_the_most_since_it_began_whoever_else_counts() {
        let mut taken = Taken::default();
        taken.add(100);
        let (outer, begin) = taken.begin();
        taken.add(50);
        taken.remove(120);
        let (inner, later) = taken.begin();
        taken.add(40);
        let above = |number, begin: usize| taken.most[&number] - begin;
        assert_eq!((above(outer, begin), above(inner, later)), (50, 40));
    }
}
