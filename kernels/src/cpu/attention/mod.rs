//! Attention on the CPU: blocks of queries against blocks of keys, so that the matrix of scores never is in memory.
//!
//! *Threads*: forward, a thread has a block of queries and goes along the keys. Backward, a thread has the keys of one
//! head and goes along the queries (five products a block); where there are too few heads for the threads, blocks of
//! keys and blocks of queries are work of their own, and what they share is computed twice (seven products). Either way
//! every sum is taken in one order: the bits do not depend on the number of threads.
//!
//! *Bytes*: one block of scores a thread, three backward, 64 KiB each, in the second-level cache; q, k, v and the
//! output once for each block that meets them.
//!
//! *Masks*: the mask is looked at block by block before the rest; see [`map`].
//!
//! Reading: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018); Dao, "FlashAttention-2" (2023),
//! for both passes; Dong et al., "Flex Attention" (2024), for the programs and the map of blocks.

#![allow(unsafe_code)] // threads write disjoint rows of one memory

mod backward;
mod bounds;
mod forward;
mod map;
mod programs;

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

pub(crate) use backward::Gradients;
pub(super) use map::{MapMemory, map_size};
pub(super) use programs::Programs;

use super::engine::{Binding, Pass, aligned_bytes, filled, pass_here};
use super::lanes;
use super::product::{Matrix, Shape, multiply_here};
use super::{Cpu, Vector};
use crate::error::DeviceError;
use crate::plan::Attention;
use map::{BlockMask, Map};
use programs::Scheduled;

/// A tensor (batch, head, row, column) of f32 somewhere in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    pub at: *mut f32,
    pub strides: [usize; 4],
}

// SAFETY: whoever makes one promises what `Cpu::attention` asks for.
unsafe impl Send for Rows {}
// SAFETY: as above.
unsafe impl Sync for Rows {}

impl Rows {
    /// The matrix of a head from a row on.
    ///
    /// # Safety
    /// The tensor has that row.
    unsafe fn matrix(self, batch: usize, head: usize, row: usize) -> Matrix<*mut f32> {
        let [of_batch, of_head, of_row, of_column] = self.strides;
        let start = batch * of_batch + head * of_head + row * of_row;
        // SAFETY: the caller's.
        Matrix { at: unsafe { self.at.add(start) }, column: of_column as isize, row: of_row as isize }
    }
}

impl Matrix<*mut f32> {
    /// One of its rows, copied to `to` if its elements are apart.
    ///
    /// # Safety
    /// The matrix has that row, `to` its length, and nothing else writes it meanwhile.
    unsafe fn row(self, row: usize, to: &mut [f32]) -> &[f32] {
        // SAFETY: the caller's.
        let start = unsafe { self.at.offset(row as isize * self.row) };
        if self.column == 1 {
            return unsafe { std::slice::from_raw_parts(start, to.len()) };
        }
        to.iter_mut()
            .enumerate()
            // SAFETY: as above.
            .for_each(|(i, to)| *to = unsafe { *start.offset(i as isize * self.column) });
        to
    }

    /// Writes one of its rows.
    ///
    /// # Safety
    /// The matrix has that row, and it is the caller's.
    unsafe fn write(self, row: usize, from: impl Iterator<Item = f32>) {
        // SAFETY: the caller's.
        let start = unsafe { self.at.offset(row as isize * self.row) };
        from.enumerate().for_each(|(i, x)| unsafe { *start.offset(i as isize * self.column) = x });
    }
}

/// A matrix of rows side by side.
fn packed(at: *mut f32, width: usize) -> Matrix<*mut f32> {
    Matrix { at, column: 1, row: width as isize }
}

/// Queries and keys that are computed at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    batch: usize,
    head: usize,
    query: usize, // the first one
    queries: usize,
    key: usize, // the first one
    keys: usize,
}

impl Block {
    fn lanes(&self) -> usize {
        self.queries * self.keys
    }
}

/// An attention on its memory.
pub(super) struct AttentionCall<'a> {
    pub attention: &'a Attention,
    pub programs: &'a Programs,
    pub q: Rows,
    pub k: Rows,
    pub v: Rows,
    pub extras: &'a [Binding],
    pub unit: Vector,
    pub blocks: &'a AtomicU64, // that were computed
}

/// Queries and keys of a block that is the last along each, or is not.
fn block_sizes(attention: &Attention, is_last: [bool; 2]) -> [usize; 2] {
    [0, 1].map(|dim| {
        let (most, all) = (Attention::BLOCK[dim], [attention.queries, attention.keys][dim]);
        if is_last[dim] { all - (all.div_ceil(most).max(1) - 1) * most } else { most.min(all) }
    })
}

/// Bytes that a thread needs for an attention, or for its gradients.
pub(super) fn block_bytes(attention: &Attention, programs: &Programs, is_grad: bool) -> usize {
    let blocks: usize = if is_grad {
        backward::sizes(attention).map(aligned_floats).iter().sum()
    } else {
        forward::sizes(attention).map(aligned_floats).iter().sum()
    };
    blocks.saturating_add(programs.bytes(attention.extras.len()))
}

/// Bytes of so many f32, in whole cache lines.
fn aligned_floats(count: usize) -> usize {
    aligned_bytes(count * size_of::<f32>())
}

impl AttentionCall<'_> {
    /// Blocks along the queries.
    fn rows(&self) -> usize {
        self.attention.queries.div_ceil(Attention::BLOCK[0])
    }

    /// Blocks along the keys.
    fn columns(&self) -> usize {
        self.attention.keys.div_ceil(Attention::BLOCK[1])
    }

    fn block(&self, batch: usize, head: usize, row: usize, column: usize) -> Block {
        let [queries, keys] = Attention::BLOCK;
        let (query, key) = (row * queries, column * keys);
        let queries = queries.min(self.attention.queries - query);
        Block { batch, head, query, queries, key, keys: keys.min(self.attention.keys - key) }
    }

    /// Heads of queries that a head of keys serves.
    fn share(&self) -> usize {
        self.attention.heads / self.attention.groups
    }

    /// The queries, the keys and the values of a block.
    unsafe fn tensors(&self, block: &Block) -> [Matrix<*const f32>; 3] {
        let group = block.head / self.share();
        // SAFETY: the block is inside the space.
        unsafe {
            [
                self.q.matrix(block.batch, block.head, block.query).read(),
                self.k.matrix(block.batch, group, block.key).read(),
                self.v.matrix(block.batch, group, block.key).read(),
            ]
        }
    }

    /// scale q . k: (queries, keys)
    unsafe fn scores(&self, block: &Block, to: &mut [f32]) {
        // SAFETY: as above.
        let [q, k, _] = unsafe { self.tensors(block) };
        let shape = Shape {
            m: block.queries,
            n: block.keys,
            k: self.attention.depth,
            factor: self.attention.scale,
            add: false,
        };
        // SAFETY: the caller's: `to` has the block's lanes.
        unsafe { multiply_here(shape, packed(to.as_mut_ptr(), block.keys), q, k.transposed()) }
    }

    /// What becomes of the scores by the programs and the mask: in `to`, where it may be the scores' own place.
    unsafe fn rescore(
        &self,
        block: &Block,
        mask: BlockMask<'_>,
        scores: *mut f32,
        to: *mut f32,
        memory: &mut [u8],
    ) -> Result<(), DeviceError> {
        let program =
            if mask == BlockMask::ScoreDependent { &self.programs.masked } else { &self.programs.score };
        // SAFETY: the caller's: two blocks apart, or one.
        match program {
            Some(program) => unsafe { self.apply(program, block, &[scores], to, memory)? },
            None if scores != to => unsafe { std::ptr::copy_nonoverlapping(scores, to, block.lanes()) },
            None => {}
        }
        if let BlockMask::Partial(allowed) = mask {
            // SAFETY: as above.
            let to = unsafe { std::slice::from_raw_parts_mut(to, block.lanes()) };
            let rows = allowed.chunks(block.keys.div_ceil(16)).zip(to.chunks_mut(block.keys));
            rows.for_each(|(allowed, row)| lanes::forbid(self.unit, allowed, row));
        }
        Ok(())
    }

    /// Runs a program on a block, in memory of the thread: `own` are its first inputs.
    unsafe fn apply(
        &self,
        scheduled: &Scheduled,
        block: &Block,
        own: &[*mut f32],
        to: *mut f32,
        mut memory: &mut [u8],
    ) -> Result<(), DeviceError> {
        let first = [block.batch, block.head, block.query, block.key];
        let of_block = |at: *mut f32| Binding { base: at.cast(), bytes: block.lanes() * 4, offset: 0 };
        let of_extra = |number: usize| {
            let strides = &self.attention.extras[number].strides;
            let moved = strides.iter().zip(first).map(|(stride, at)| stride * at).sum::<usize>();
            Binding { offset: self.extras[number].offset + moved, ..self.extras[number] }
        };
        let inputs = filled(&mut memory, own.len() + self.extras.len(), of_block(to));
        let all = own.iter().copied().map(of_block).chain((0..self.extras.len()).map(of_extra));
        inputs.iter_mut().zip(all).for_each(|(to, input)| *to = input);
        let launch = scheduled.launch(self.is_last(block));
        let pass = Pass { launch, origin: &first, inputs, outputs: &[of_block(to)] };
        // SAFETY: the caller's; extras were checked for the whole space.
        unsafe { pass_here(self.unit, pass, memory) }.map_err(|error| self.in_space(block, error))
    }

    /// Whether a block is the last along the queries, and along the keys.
    fn is_last(&self, block: &Block) -> [bool; 2] {
        [block.query + block.queries == self.attention.queries, block.key + block.keys == self.attention.keys]
    }

    /// An error's lane in the whole space.
    fn in_space(&self, block: &Block, mut error: DeviceError) -> DeviceError {
        if let DeviceError::RowIndex { lane, .. } | DeviceError::DivisionByZero { lane, .. } = &mut error {
            let (query, key) = (block.query + *lane / block.keys, block.key + *lane % block.keys);
            let [_, heads, queries, keys] = self.attention.space();
            *lane = ((block.batch * heads + block.head) * queries + query) * keys + key;
        }
        error
    }
}

impl Cpu {
    /// Runs `count` pieces of work on all threads; the error is that of the first piece that has one.
    fn each_of(
        &self,
        count: usize,
        body: impl Fn(usize) -> Result<(), DeviceError> + Sync + Send,
    ) -> Result<(), DeviceError> {
        let fault: Mutex<Option<(usize, DeviceError)>> = Mutex::new(None);
        let one = |n: usize| {
            let Err(error) = body(n) else { return };
            let mut fault = fault.lock().unwrap_or_else(PoisonError::into_inner);
            if fault.as_ref().is_none_or(|(first, _)| n < *first) {
                *fault = Some((n, error));
            }
        };
        match &self.pool {
            Some(pool) => pool.install(|| (0..count).into_par_iter().with_max_len(1).for_each(one)),
            None => (0..count).for_each(one),
        }
        let fault = fault.into_inner().unwrap_or_else(PoisonError::into_inner);
        fault.map_or(Ok(()), |(_, error)| Err(error))
    }
}
