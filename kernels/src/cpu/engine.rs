//! Tile programs on the CPU: threads over rows or lanes, a tile at a time, each operation a loop over the tile.
//!
//! A program that reduces runs row by row, since a row's sum has to be known before what uses it; any other one runs
//! over all lanes of the space as if they were one row, so that short rows cost nothing. A tile's registers stay in the
//! first-level cache: the memory traffic is that of the loads and stores alone. Sums do not depend on the number of
//! threads or on the vector unit.

#![allow(unsafe_code)] // threads write disjoint lanes of one memory

mod access;
mod launch;
mod loads;
mod machine;
mod memory;
mod operations;
mod stores;

use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

pub(crate) use launch::Launch;
pub(super) use memory::{aligned_bytes, filled, floats};

use self::machine::Machine;
use super::{Cpu, Vector};
use crate::error::DeviceError;

/// Lanes of a tile: 2 KiB a value, so that a dozen values stay in the first-level cache.
pub(crate) const TILE: usize = 512;

/// Where an input or output begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    /// The first byte, aligned to an element.
    pub base: *mut u8,
    /// Bytes from there on.
    pub bytes: usize,
    /// Elements before the first lane's, for [`Index::View`](crate::tile::Index::View).
    pub offset: usize,
}

// SAFETY: whoever makes a launch promises what `Cpu::pass` asks for.
unsafe impl Send for Binding {}
// SAFETY: as above.
unsafe impl Sync for Binding {}

/// A launch with everything that it runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass<'a> {
    pub launch: &'a Launch,
    /// What is added to a lane's index along each dimension when the program asks for it; zeros if empty.
    pub origin: &'a [usize],
    pub inputs: &'a [Binding],
    pub outputs: &'a [Binding],
}

/// Runs a program on the calling thread alone, in `memory` of [`Launch::machine_bytes`]: [`Cpu::pass`] for a part of
/// some larger work.
///
/// # Safety
/// As for [`Cpu::pass`].
pub(crate) unsafe fn pass_here(unit: Vector, pass: Pass, memory: &mut [u8]) -> Result<(), DeviceError> {
    let total = pass.launch.units();
    // SAFETY: the caller's promise.
    unsafe { Machine::new(pass, unit, memory).run(0, total) }
}

impl Cpu {
    /// Runs a program that passed its check, over a space of at least one dimension.
    ///
    /// # Safety
    /// Every element that the program touches lies in its binding's bytes; no two lanes store to one element; and what
    /// is stored is not loaded, but in place: by the lane that stores it, as the same type, and only so.
    pub(crate) unsafe fn pass(&self, pass: Pass) -> Result<(), DeviceError> {
        let launch = pass.launch;
        let total = launch.units();
        if total == 0 {
            return Ok(());
        }
        let fault = Mutex::new(None);
        let unit = if launch.reduces { 1 } else { TILE };
        let least = if launch.reduces { (PIECE_LANES / launch.cols).max(1) } else { PIECE_LANES };
        self.pieces(total, unit, least, |first, count| {
            let mut scratch = self.scratch.of_this_thread(self);
            // SAFETY: the caller's promise; pieces are disjoint.
            let done = unsafe { Machine::new(pass, self.vector(), scratch.bytes()).run(first, count) };
            if let Err(error) = done {
                fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        });
        match fault.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Cuts `total` units into pieces of a multiple of `unit`, at least `least` long, and runs them on all threads.
    fn pieces(&self, total: usize, unit: usize, least: usize, body: impl Fn(usize, usize) + Sync) {
        let share = total.div_ceil(self.threads * PIECES_PER_THREAD).max(least);
        let length = share.div_ceil(unit) * unit;
        let pieces = total.div_ceil(length);
        match &self.pool {
            Some(pool) if pieces > 1 => pool.install(|| {
                (0..pieces).into_par_iter().for_each(|i| body(i * length, length.min(total - i * length)));
            }),
            _ => body(0, total),
        }
    }
}

/// Pieces for each thread: more than one, so that a thread which is held up does not hold up the pass.
const PIECES_PER_THREAD: usize = 4;

/// Lanes that are worth a thread.
const PIECE_LANES: usize = 8 * 1024;
