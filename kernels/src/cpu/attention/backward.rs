//! The gradients of an attention. With G the gradient of O, for every block that the mask leaves:
//!
//! ```text
//! P  = e^(s - L)               dP = G V^T            D  = sum_d G O
//! ds = P (dP - D)              dS = slope(S, ds)
//! dV += P^T G                  dQ += scale dS K      dK += scale dS^T Q
//! ```
//!
//! Keys go by in order, for each the heads that they serve, for each the queries: every sum has one order, whatever
//! the work is cut into. Time where the forward pass takes 6.4 ms (see `forward.rs`): 10.4 ms on one thread, 5.4 ms on
//! two; as four products and a pass from a kept P 14.2 ms on one.

use std::sync::atomic::Ordering::Relaxed;

use super::super::engine::floats;
use super::super::lanes::{self, PARTIAL};
use super::super::product::{Matrix, Shape, multiply_here};
use super::{AttentionCall, Block, BlockMask, Map, MapMemory, Rows, packed};
use crate::cpu::Cpu;
use crate::error::DeviceError;
use crate::plan::Attention;

/// What the gradients are computed from, and where they go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gradients {
    pub output: Rows,
    pub lse: Rows, // the last stride is not used
    pub grad: Rows,
    pub wrt_q: Option<Rows>,
    pub wrt_k: Option<Rows>,
    pub wrt_v: Option<Rows>,
}

/// A thread's blocks: (queries, keys) each, and two rows of `width`.
struct BlockBuffers<'a> {
    scores: &'a mut [f32],
    p: &'a mut [f32],
    ds: &'a mut [f32],
    rows: [&'a mut [f32]; 2],
    rest: &'a mut [u8], // for programs
}

/// How many f32 a thread's blocks take.
pub(super) fn sizes(attention: &Attention) -> [usize; 5] {
    let lanes = Attention::BLOCK[0] * Attention::BLOCK[1];
    [lanes, lanes, lanes, attention.width, attention.width]
}

impl Cpu {
    /// Computes the gradients that are asked for.
    ///
    /// # Safety
    /// As for [`Cpu::attention`].
    pub(in super::super) unsafe fn attention_grad(
        &self,
        work: &AttentionCall,
        to: &Gradients,
        memory: &mut MapMemory,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller's; every unit of work has its own rows of what it writes.
        let map = unsafe { Map::of(self, work, memory)? };
        let (batch, groups) = (work.attention.batch, work.attention.groups);
        let of_keys = to.wrt_k.is_some() || to.wrt_v.is_some();
        if to.wrt_q.is_some() && of_keys && self.is_enough(batch * groups) {
            let columns = [0, work.columns()];
            let unit = |n: usize| unsafe { self.keys(work, &map, [n / groups, n % groups], columns, to) };
            return self.each_of(batch * groups, unit);
        }
        if of_keys {
            let (columns, to) = (work.columns(), Gradients { wrt_q: None, ..*to });
            let unit = |n: usize| {
                let (group, column) = (n / columns, n % columns);
                let place = [group / groups, group % groups];
                // SAFETY: as above.
                unsafe { self.keys(work, &map, place, [column, column + 1], &to) }
            };
            self.each_of(batch * groups * columns, unit)?;
        }
        if to.wrt_q.is_some() {
            let (heads, rows) = (work.attention.heads, work.rows());
            let to = Gradients { wrt_k: None, wrt_v: None, ..*to };
            let unit = |n: usize| {
                let (head, row) = (n / rows, rows - 1 - n % rows);
                // SAFETY: as above.
                unsafe { self.rows(work, &map, [head / heads, head % heads, row], &to) }
            };
            self.each_of(batch * heads * rows, unit)?;
        }
        Ok(())
    }

    /// Whether so many units keep the threads busy well enough that five products in them take less time than seven in
    /// smaller ones.
    fn is_enough(&self, units: usize) -> bool {
        units.div_ceil(self.threads) * self.threads * 5 <= units * 7
    }

    /// Some blocks of keys of one head, against the queries that they serve.
    unsafe fn keys(
        &self,
        work: &AttentionCall,
        map: &Map,
        [batch, group]: [usize; 2],
        [first, after]: [usize; 2],
        to: &Gradients,
    ) -> Result<(), DeviceError> {
        let heads = group * work.share()..(group + 1) * work.share();
        // SAFETY: the caller's.
        for column in first..after {
            unsafe { work.empty_keys([batch, group], &work.keys_of(column), to) };
        }
        for (head, row) in heads.clone().flat_map(|head| (0..work.rows()).map(move |row| (head, row))) {
            unsafe { work.empty_queries(&Block { batch, head, ..work.queries_of(row) }, to) };
        }
        for column in first..after {
            for head in heads.clone() {
                for row in 0..work.rows() {
                    // SAFETY: as above.
                    unsafe { self.pair(work, map, [batch, head, row, column], to)? };
                }
            }
        }
        Ok(())
    }

    /// One block of queries, against all keys.
    unsafe fn rows(
        &self,
        work: &AttentionCall,
        map: &Map,
        [batch, head, row]: [usize; 3],
        to: &Gradients,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller's.
        unsafe { work.empty_queries(&Block { batch, head, ..work.queries_of(row) }, to) };
        (0..work.columns())
            .try_for_each(|column| unsafe { self.pair(work, map, [batch, head, row, column], to) })
    }

    /// One block.
    unsafe fn pair(
        &self,
        work: &AttentionCall,
        map: &Map,
        [batch, head, row, column]: [usize; 4],
        to: &Gradients,
    ) -> Result<(), DeviceError> {
        let block = work.block(batch, head, row, column);
        let mask = map.at(&block, [row, column]);
        if mask == BlockMask::Empty {
            return Ok(());
        }
        work.blocks.fetch_add(1, Relaxed);
        let mut scratch = self.scratch.of_this_thread(self);
        let mut rest = scratch.bytes();
        let [scores, p, ds, one, other] = sizes(work.attention).map(|size| floats(&mut rest, size));
        let mut buffers = BlockBuffers { scores, p, ds, rows: [one, other], rest };
        // SAFETY: the caller's; the parts of the scratch are as long as a block.
        unsafe {
            work.probabilities(&block, mask, to, &mut buffers)?;
            work.add_to_values(&block, to, &mut buffers);
            if to.wrt_q.is_some() || to.wrt_k.is_some() {
                work.slopes(&block, to, &mut buffers)?;
                work.add_to_queries_and_keys(&block, to, &mut buffers);
            }
        }
        Ok(())
    }
}

impl AttentionCall<'_> {
    /// The keys of a block, without queries.
    fn keys_of(&self, column: usize) -> Block {
        let [_, keys] = Attention::BLOCK;
        let key = column * keys;
        let keys = keys.min(self.attention.keys - key);
        Block { batch: 0, head: 0, query: 0, queries: 0, key, keys }
    }

    /// The queries of a block, without keys.
    fn queries_of(&self, row: usize) -> Block {
        let [queries, _] = Attention::BLOCK;
        let query = row * queries;
        let queries = queries.min(self.attention.queries - query);
        Block { batch: 0, head: 0, query, queries, key: 0, keys: 0 }
    }

    /// Zeros where a block's keys have their gradients, in a group that may serve no head.
    unsafe fn empty_keys(&self, [batch, group]: [usize; 2], block: &Block, to: &Gradients) {
        let keys = block.keys;
        for (rows, width) in [(to.wrt_k, self.attention.depth), (to.wrt_v, self.attention.width)] {
            // SAFETY: the caller's: these rows are this thread's.
            let empty = |rows: Rows| unsafe { zero(rows.matrix(batch, group, block.key), keys, width) };
            rows.into_iter().for_each(empty);
        }
    }

    /// Zeros where a block's queries have their gradients.
    unsafe fn empty_queries(&self, block: &Block, to: &Gradients) {
        let Some(rows) = to.wrt_q else { return };
        // SAFETY: the caller's: these rows are this thread's.
        unsafe {
            let matrix = rows.matrix(block.batch, block.head, block.query);
            zero(matrix, block.queries, self.attention.depth);
        }
    }

    /// P, with the scores beside it.
    unsafe fn probabilities(
        &self,
        block: &Block,
        mask: BlockMask<'_>,
        to: &Gradients,
        buffers: &mut BlockBuffers,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller's.
        unsafe { self.scores(block, buffers.scores) };
        let (scores, p) = (buffers.scores.as_mut_ptr(), buffers.p.as_mut_ptr());
        unsafe { self.rescore(block, mask, scores, p, buffers.rest)? };
        let lse = unsafe { to.lse.matrix(block.batch, block.head, block.query) };
        for query in 0..block.queries {
            let mut sum = [0.0];
            let p = &mut buffers.p[query * block.keys..][..block.keys];
            // SAFETY: as above.
            match unsafe { lse.row(query, &mut sum)[0] } {
                f32::NEG_INFINITY => p.fill(0.0), // a query that sees no key
                lse => lanes::exp_and_sum(self.unit, p, lse, &mut [0.0; PARTIAL]),
            }
        }
        Ok(())
    }

    /// dV += P^T G
    unsafe fn add_to_values(&self, block: &Block, to: &Gradients, buffers: &mut BlockBuffers) {
        let Some(rows) = to.wrt_v else { return };
        let shape =
            Shape { m: block.keys, n: self.attention.width, k: block.queries, factor: 1.0, add: true };
        let p = packed(buffers.p.as_mut_ptr(), block.keys).read();
        // SAFETY: the caller's.
        unsafe {
            let g = to.grad.matrix(block.batch, block.head, block.query).read();
            let rows = rows.matrix(block.batch, block.head / self.share(), block.key);
            multiply_here(shape, rows, p.transposed(), g);
        }
    }

    /// dS, in `buffers.ds`.
    unsafe fn slopes(
        &self,
        block: &Block,
        to: &Gradients,
        buffers: &mut BlockBuffers,
    ) -> Result<(), DeviceError> {
        let width = self.attention.width;
        let shape = Shape { m: block.queries, n: block.keys, k: width, factor: 1.0, add: false };
        // SAFETY: the caller's.
        let [_, _, v] = unsafe { self.tensors(block) };
        let [grad, output] =
            [to.grad, to.output].map(|rows| unsafe { rows.matrix(block.batch, block.head, block.query) });
        let ds = packed(buffers.ds.as_mut_ptr(), block.keys);
        unsafe { multiply_here(shape, ds, grad.read(), v.transposed()) };
        for query in 0..block.queries {
            let [one, other] = &mut buffers.rows;
            // SAFETY: as above.
            let (g, o) = unsafe { (grad.row(query, one), output.row(query, other)) };
            let mut parts = [0.0; PARTIAL];
            lanes::dot(self.unit, g, o, &mut parts);
            let delta = lanes::joined(parts, |a, b| a + b);
            let at = query * block.keys;
            lanes::slope(
                self.unit,
                &buffers.p[at..][..block.keys],
                delta,
                &mut buffers.ds[at..][..block.keys],
            );
        }
        let Some(slope) = &self.programs.slope else { return Ok(()) };
        let ds = buffers.ds.as_mut_ptr();
        // SAFETY: as above.
        unsafe { self.apply(slope, block, &[buffers.scores.as_mut_ptr(), ds], ds, buffers.rest) }
    }

    /// dQ += scale dS K, dK += scale dS^T Q
    unsafe fn add_to_queries_and_keys(&self, block: &Block, to: &Gradients, buffers: &mut BlockBuffers) {
        let Attention { depth, scale, .. } = *self.attention;
        let ds: Matrix<*const f32> = packed(buffers.ds.as_mut_ptr(), block.keys).read();
        // SAFETY: the caller's.
        let [q, k, _] = unsafe { self.tensors(block) };
        if let Some(rows) = to.wrt_q {
            let shape = Shape { m: block.queries, n: depth, k: block.keys, factor: scale, add: true };
            unsafe {
                multiply_here(shape, rows.matrix(block.batch, block.head, block.query), ds, k);
            }
        }
        if let Some(rows) = to.wrt_k {
            let shape = Shape { m: block.keys, n: depth, k: block.queries, factor: scale, add: true };
            let group = block.head / self.share();
            // SAFETY: as above.
            unsafe {
                multiply_here(shape, rows.matrix(block.batch, group, block.key), ds.transposed(), q);
            }
        }
    }
}

/// Zeros in the first rows of a matrix.
unsafe fn zero(to: Matrix<*mut f32>, rows: usize, width: usize) {
    // SAFETY: the caller's.
    (0..rows).for_each(|row| unsafe { to.write(row, std::iter::repeat_n(0.0, width)) });
}
