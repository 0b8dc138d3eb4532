//! Memory that operations have used and the next ones use again.
//!
//! A large allocation is fresh memory of the system, each page of which is cleared when it is first written: for 16 MiB
//! that takes as long as the copy itself. What a step of training copies has the same sizes in every step, so it finds
//! them here.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Buffers that nobody uses, the newest last.
pub(super) struct Spare {
    buffers: Mutex<VecDeque<Vec<u8>>>,
    most: usize,
}

impl Spare {
    /// At most so many buffers: the oldest goes first.
    pub(super) fn new(most: usize) -> Self {
        Self { buffers: Mutex::new(VecDeque::new()), most }
    }

    /// An empty buffer with room for so many bytes, and for at most twice as many if it was used before.
    pub(super) fn take(&self, bytes: usize) -> Vec<u8> {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |buffer: &Vec<u8>| (bytes..=2 * bytes).contains(&buffer.capacity());
        let found = buffers.iter().rposition(fits).and_then(|at| buffers.remove(at));
        drop(buffers);
        found.unwrap_or_else(|| Vec::with_capacity(bytes))
    }

    /// Takes a buffer back.
    pub(super) fn put(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.push_back(buffer);
        let oldest = if buffers.len() > self.most { buffers.pop_front() } else { None };
        drop(buffers);
        drop(oldest); // outside the lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_by_what_fits_it() {
        let spare = Spare::new(2);
        let buffer = spare.take(100);
        let address = buffer.as_ptr();
        spare.put(buffer);
        assert_ne!(spare.take(40).capacity(), 100, "less than half of it would be used");
        let again = spare.take(60);
        assert_eq!((again.as_ptr(), again.len()), (address, 0));
        assert!(spare.take(60).capacity() < 100, "it is taken");
    }

    #[test]
    fn the_oldest_goes_first() {
        let spare = Spare::new(2);
        for bytes in [1000, 100, 10] {
            spare.put(Vec::with_capacity(bytes));
        }
        let capacities: Vec<usize> =
            spare.buffers.lock().expect("unused").iter().map(Vec::capacity).collect();
        assert_eq!(capacities, [100, 10]);
    }
}
