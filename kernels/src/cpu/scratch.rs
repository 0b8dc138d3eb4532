//! Memory of the threads, beside that of a run: registers of a pass, copies of a product's factors, blocks of
//! attention.
//!
//! Each thread has a place, as long as the step needs that needs most of all plans that were prepared on the device. It
//! grows when a plan is prepared and never during a run. A thread holds its place only while it computes, and never
//! waits meanwhile, so there is always one that is free; all executables of a device share them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Cpu;
use crate::buffer::Buffer;
use crate::error::DeviceError;

/// A place for each thread.
pub(super) struct Scratch {
    places: Vec<Mutex<Buffer>>,
    bytes: AtomicU64,
}

/// A place that a thread holds.
pub(super) struct Held<'a>(MutexGuard<'a, Buffer>);

impl Scratch {
    /// Places without memory.
    pub fn new(threads: usize) -> Self {
        let places = (0..threads).map(|_| Mutex::new(Buffer::empty("scratch"))).collect();
        Self { places, bytes: AtomicU64::new(0) }
    }

    /// Gives each place at least so many bytes.
    pub fn grow(&self, bytes: usize) -> Result<(), DeviceError> {
        for place in &self.places {
            let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
            let before = place.bytes() as u64;
            if place.bytes() < bytes {
                *place = Buffer::empty("scratch"); // the old one first, so that both are never there together
                let new = Buffer::new("scratch", bytes).inspect_err(|_| {
                    self.bytes.fetch_sub(before, Relaxed);
                });
                *place = new?;
                self.bytes.fetch_add(bytes as u64 - before, Relaxed);
            }
        }
        Ok(())
    }

    /// What all places take.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// The calling thread's place, or another that is free.
    pub fn of_this_thread(&self, cpu: &Cpu) -> Held<'_> {
        let own = cpu.pool.as_ref().and_then(rayon::ThreadPool::current_thread_index).unwrap_or(0);
        let (before, after) = self.places.split_at(own.min(self.places.len() - 1));
        for place in after.iter().chain(before) {
            match place.try_lock() {
                Ok(held) => return Held(held),
                Err(std::sync::TryLockError::Poisoned(held)) => return Held(held.into_inner()),
                Err(std::sync::TryLockError::WouldBlock) => {}
            }
        }
        Held(after[0].lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Held<'_> {
    /// All of it, beginning with a cache line.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.0.view_mut::<u8>()
    }
}
