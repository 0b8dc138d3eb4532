//! Products stretch by stretch: each thread copies a stretch of either factor into memory of its own that its cache
//! holds, laid out as the library's kernel reads fastest, and has the kernel multiply it there.
//!
//! The library lays factors out as well, but a whole factor at each call, with a copy that transposes slowly: where a
//! large weight meets few rows, that is most of the time. A factor in f16 or bf16 is widened by the same copy. A result
//! in f16 or bf16 is summed block by block in f32 and rounded once. Factors that are both in bf16 go to the matrix
//! unit, where the processor has [one](super::amx).

#![allow(unsafe_code)] // reads and writes through the strides of matrices

use half::{bf16, f16};
use rayon::prelude::*;

use super::engine::{aligned_bytes, floats};
use super::product::{Matrix, Shape, multiply_here};
use super::transpose::{Rows, TILE, transpose};
use super::{Cpu, Vector, amx, lanes};
use crate::plan::Product;
use crate::tile::Element;

/// Rows of a panel: those of the library's widest kernel, and a multiple of the narrower ones'.
const PANEL: usize = 64;

/// Columns of one call: so few that the library reads a panel where it is, and a multiple of its kernels' own.
const CALL: usize = 48;

/// Terms of a stretch: the library's own number.
const TERMS: usize = 512;

/// Rows and columns of a block of the result, at most. A stretch of the left factor takes 1 MiB then.
const BLOCK: (usize, usize) = (512, 768);

/// Columns of the right factor that are laid out at once: 384 KiB.
const COLUMNS: usize = 4 * CALL;

/// Terms that are copied to all panels before the next ones are, where it is rows that lie side by side.
const ROWS: usize = 4;

/// A factor in memory, of any type that a factor may have.
#[derive(Clone, Copy)]
pub(super) struct Factor {
    pub element: Element,
    pub matrix: Matrix<*const u8>,
}

// SAFETY: whoever makes one promises what `Cpu::product` asks for.
unsafe impl Send for Factor {}
// SAFETY: as above.
unsafe impl Sync for Factor {}

/// A result in memory, of any type that a result may have.
#[derive(Clone, Copy)]
pub(super) struct Sink {
    pub element: Element,
    pub matrix: Matrix<*mut u8>,
}

/// What is multiplied into what.
#[derive(Clone, Copy)]
pub(super) struct Gemm {
    pub shape: Shape,
    pub to: Sink,
    pub a: Factor,
    pub b: Factor,
}

// SAFETY: as for `Factor`.
unsafe impl Send for Gemm {}
// SAFETY: as above.
unsafe impl Sync for Gemm {}

impl Cpu {
    /// `to = factor a b`, or `to += factor a b`, on all threads.
    ///
    /// # Safety
    /// As for [`Cpu::product`], for the `matrices` products that `work` tells, at least one, whose shapes are one.
    pub(super) unsafe fn packed(&self, matrices: usize, work: impl Fn(usize) -> Gemm + Sync) {
        let Gemm { shape, a, b, .. } = work(0).downwards();
        let by_tiles = self.is_by_tiles([a.element, b.element]);
        let block = block(shape, matrices, self.threads, by_tiles);
        let (rows, columns) = (shape.m.div_ceil(block.0), shape.n.div_ceil(block.1));
        let one = |i: usize| {
            let (work, i) = (work(i / (rows * columns)).downwards(), i % (rows * columns));
            // SAFETY: the caller's; blocks are disjoint.
            unsafe { self.block(work.part((i / columns, i % columns), block), by_tiles) }
        };
        let count = rows * columns * matrices;
        match &self.pool {
            Some(pool) => pool.install(|| (0..count).into_par_iter().with_max_len(1).for_each(one)),
            None => (0..count).for_each(one),
        }
    }

    /// Whether factors of these types are multiplied by the matrix unit.
    pub(super) fn is_by_tiles(&self, factors: [Element; 2]) -> bool {
        factors == [Element::Bf16; 2] && self.has_matrix_unit()
    }

    /// A block of the result on the calling thread.
    unsafe fn block(&self, work: Gemm, by_tiles: bool) {
        let Shape { m, n, k, add, .. } = work.shape;
        if k == 0 {
            if !add {
                // SAFETY: the caller's: inside the matrix.
                (0..m * n).for_each(|i| unsafe { work.to.from(i % m, i / m).clear() });
            }
        } else if by_tiles {
            // SAFETY: the caller's.
            unsafe { self.block_by_tiles(work) };
        } else {
            // SAFETY: the caller's.
            unsafe { self.block_by_panels(work) };
        }
    }

    /// The same by the matrix unit, of bf16.
    unsafe fn block_by_tiles(&self, work: Gemm) {
        let Shape { m, n, k, factor, add } = work.shape;
        let mut scratch = self.scratch.of_this_thread(self);
        let mut rest = scratch.bytes();
        let [left, right, sums, room] = amx::sizes((m, n), k).map(|size| floats(&mut rest, size));
        // SAFETY: the caller's: inside the matrices; whoever says that it goes by tiles has asked.
        unsafe { amx::sums(&work, [left, right, &mut *sums]) };
        if factor.to_bits() != 1.0_f32.to_bits() {
            for sum in sums.iter_mut() {
                *sum *= factor;
            }
        }
        let apart = room.len(); // a column of sums is as long
        // SAFETY: as above.
        unsafe { work.to.take(self.vector, sums, (m, n, apart), add.then_some(room)) };
    }

    /// The same by the library.
    unsafe fn block_by_panels(&self, work: Gemm) {
        let Shape { m, n, k, add, .. } = work.shape;
        let is_narrow = work.to.element != Element::F32;
        let mut scratch = self.scratch.of_this_thread(self);
        let mut rest = scratch.bytes();
        let [left, right, wide, sums] = sizes((m, n), k, is_narrow).map(|size| floats(&mut rest, size));
        let wide_work = if is_narrow { work.into_sums(sums) } else { work };
        let mut first = 0;
        while first < k {
            let terms = (k - first).min(TERMS);
            // SAFETY: the caller's: inside the matrices.
            unsafe {
                wide_work.terms(first, terms).multiply(self.vector, [&mut *left, &mut *right, &mut *wide]);
            };
            first += terms;
        }
        if is_narrow {
            // SAFETY: as above.
            unsafe { work.to.take(self.vector, sums, (m, n, m), add.then_some(wide)) };
        }
    }
}

/// Bytes that a thread needs for the blocks of a product of such matrices.
pub(super) fn block_bytes(product: &Product, cpu: &Cpu) -> usize {
    let matrices = product.batch.iter().fold(1, |all: usize, size| all.saturating_mul(*size));
    let [a, b, to] = product.elements;
    let by_tiles = cpu.is_by_tiles([a, b]);
    let of = |m, n| {
        let shape = Shape { m, n, k: product.k, factor: 1.0, add: false };
        let block = block(shape, matrices, cpu.threads, by_tiles);
        let sizes =
            if by_tiles { amx::sizes(block, product.k) } else { sizes(block, product.k, to != Element::F32) };
        sizes.map(|size| aligned_bytes(size * size_of::<f32>())).iter().sum()
    };
    let both: [usize; 2] = [of(product.m, product.n), of(product.n, product.m)]; // whichever way the result lies
    both[0].max(both[1])
}

/// How many f32 a block takes: the left factor laid out, some columns of the right one, rows of a narrow one, and sums
/// of a narrow result.
fn sizes((m, n): (usize, usize), k: usize, is_narrow: bool) -> [usize; 4] {
    let terms = k.min(TERMS);
    let sums = if is_narrow { m * n } else { 0 };
    [m.next_multiple_of(PANEL) * terms, n.min(COLUMNS) * terms, TILE * TERMS, sums]
}

/// Rows and columns of a block: no larger than its kernel wants them, and small enough that each thread has one.
fn block(shape: Shape, matrices: usize, threads: usize, by_tiles: bool) -> (usize, usize) {
    let (most, panel) =
        if by_tiles { (amx::BLOCK, (amx::PANEL, amx::PANEL)) } else { (BLOCK, (PANEL, CALL)) };
    let (mut rows, mut columns) = (shape.m.clamp(1, most.0), shape.n.clamp(1, most.1));
    let blocks = |rows, columns| shape.m.div_ceil(rows).saturating_mul(shape.n.div_ceil(columns));
    while blocks(rows, columns).saturating_mul(matrices) < threads {
        if rows > panel.0 && rows >= columns {
            rows = rows.div_ceil(2).next_multiple_of(panel.0);
        } else if columns > panel.1 {
            columns = columns.div_ceil(2).next_multiple_of(panel.1);
        } else {
            break;
        }
    }
    (rows, columns)
}

impl Gemm {
    /// The same with a result that lies in columns, as the library's kernels write: else the transposed product.
    fn downwards(self) -> Self {
        let Shape { m, n, .. } = self.shape;
        if self.to.matrix.row <= self.to.matrix.column {
            return self;
        }
        let shape = Shape { m: n, n: m, ..self.shape };
        Self { shape, to: self.to.transposed(), a: self.b.transposed(), b: self.a.transposed() }
    }

    /// The block number (row, column).
    unsafe fn part(self, (row, column): (usize, usize), block: (usize, usize)) -> Self {
        let (row, column) = (row * block.0, column * block.1);
        let Shape { m, n, .. } = self.shape;
        let shape = Shape { m: (m - row).min(block.0), n: (n - column).min(block.1), ..self.shape };
        // SAFETY: the caller's: inside the matrices.
        unsafe {
            Self { shape, to: self.to.from(row, column), a: self.a.from(row, 0), b: self.b.from(0, column) }
        }
    }

    /// The same into sums of f32, column after column.
    fn into_sums(self, sums: &mut [f32]) -> Self {
        let matrix = Matrix { at: sums.as_mut_ptr().cast(), row: 1, column: self.shape.m as isize };
        let to = Sink { element: Element::F32, matrix };
        Self { shape: Shape { add: false, ..self.shape }, to, ..self }
    }

    /// A stretch of the terms; all but the first add to what is there.
    unsafe fn terms(self, first: usize, k: usize) -> Self {
        let shape = Shape { k, add: self.shape.add || first > 0, ..self.shape };
        // SAFETY: the caller's: inside the matrices.
        unsafe { Self { shape, a: self.a.from(0, first), b: self.b.from(first, 0), ..self } }
    }

    /// One stretch, given memory for its factors and for rows of a narrow one.
    unsafe fn multiply(self, unit: Vector, [left, right, wide]: [&mut [f32]; 3]) {
        let Shape { m, n, k, .. } = self.shape;
        // SAFETY: the caller's: inside the matrices.
        unsafe {
            let together = if self.a.matrix.row == 1 { ROWS } else { k }; // as they lie side by side
            for term in (0..k).step_by(together) {
                let count = (k - term).min(together);
                for i in 0..m.div_ceil(PANEL) {
                    let rows = (m - i * PANEL).min(PANEL);
                    let panel = &mut left[(i * k + term) * PANEL..];
                    self.a.from(i * PANEL, term).lay(unit, (rows, count), panel, PANEL, wide);
                }
            }
            for column in (0..n).step_by(COLUMNS) {
                let count = (n - column).min(COLUMNS);
                let b = self.b.from(0, column).right(unit, (k, count), right, wide);
                let (to, shape) = (self.to.from(0, column), Shape { n: count, ..self.shape });
                Self { shape, to, ..self }.panels(left, b);
            }
        }
    }

    /// Some columns, with both factors laid out.
    unsafe fn panels(self, left: &[f32], b: Matrix<*const f32>) {
        let Shape { m, n, k, .. } = self.shape;
        for column in (0..n).step_by(CALL) {
            for (i, panel) in left.chunks(PANEL * k).enumerate().take(m.div_ceil(PANEL)) {
                let a = Matrix { at: panel.as_ptr(), column: PANEL as isize, row: 1 };
                let rows = (m - i * PANEL).min(PANEL);
                let shape = Shape { m: rows, n: (n - column).min(CALL), ..self.shape };
                // SAFETY: the caller's: inside the matrices.
                unsafe {
                    multiply_here(shape, self.to.floats().from(i * PANEL, column), a, b.from(0, column));
                };
            }
        }
    }
}

impl Factor {
    pub(super) fn transposed(self) -> Self {
        Self { matrix: self.matrix.transposed(), ..self }
    }

    /// The same from another element on.
    pub(super) unsafe fn from(self, row: usize, column: usize) -> Self {
        let Matrix { at, row: down, column: along } = self.matrix;
        let elements = row as isize * down + column as isize * along;
        // SAFETY: the caller's: inside the matrix.
        let at = unsafe { at.offset(elements * self.element.bytes() as isize) };
        Self { matrix: Matrix { at, ..self.matrix }, ..self }
    }

    /// The right factor's columns, the elements of each side by side: where they are, or in `to`.
    unsafe fn right(
        self,
        unit: Vector,
        (terms, columns): (usize, usize),
        to: &mut [f32],
        wide: &mut [f32],
    ) -> Matrix<*const f32> {
        if self.element == Element::F32 && self.matrix.row == 1 {
            return Matrix { at: self.matrix.at.cast(), row: 1, column: self.matrix.column };
        }
        // SAFETY: the caller's: inside the matrix.
        unsafe { self.lay(unit, (terms, columns), to, terms, wide) };
        Matrix { at: to.as_ptr(), row: 1, column: terms as isize }
    }

    /// Copies columns one after the other, each `apart` from the next.
    unsafe fn lay(
        self,
        unit: Vector,
        (rows, columns): (usize, usize),
        to: &mut [f32],
        apart: usize,
        wide: &mut [f32],
    ) {
        let Matrix { row, column, .. } = self.matrix;
        // SAFETY: the caller's: inside the matrix.
        unsafe {
            if row == 1 {
                for j in 0..columns {
                    self.from(0, j).widen(unit, &mut to[j * apart..][..rows]);
                }
            } else if column == 1 {
                for i in (0..rows).step_by(TILE) {
                    let count = (rows - i).min(TILE);
                    self.from(i, 0).transpose(unit, (count, columns), &mut to[i..], apart, wide);
                }
            } else {
                for j in 0..columns {
                    for (i, to) in to[j * apart..][..rows].iter_mut().enumerate() {
                        self.from(i, j).widen(unit, std::slice::from_mut(to));
                    }
                }
            }
        }
    }

    /// Copies at most [`TILE`] rows, each side by side in memory, as columns.
    unsafe fn transpose(
        self,
        unit: Vector,
        (rows, columns): (usize, usize),
        to: &mut [f32],
        apart: usize,
        wide: &mut [f32],
    ) {
        if self.element == Element::F32 && self.matrix.row >= 0 {
            let stride = self.matrix.row as usize;
            // SAFETY: the caller's: inside the matrix.
            let from = unsafe { slice(self.matrix.at, (rows - 1) * stride + columns) };
            return transpose(unit, Rows { from, stride }, (rows, columns), to, apart);
        }
        for i in 0..rows {
            // SAFETY: as above.
            unsafe { self.from(i, 0).widen(unit, &mut wide[i * TERMS..][..columns]) };
        }
        transpose(unit, Rows { from: wide, stride: TERMS }, (rows, columns), to, apart);
    }

    /// Copies elements that are side by side.
    unsafe fn widen(self, unit: Vector, to: &mut [f32]) {
        let (at, count) = (self.matrix.at, to.len());
        // SAFETY: the caller's: inside the matrix.
        unsafe {
            match self.element {
                Element::F16 => lanes::widen_f16(slice::<f16>(at, count), to),
                Element::Bf16 => lanes::widen_bf16(unit, slice(at, count), to),
                _ => to.copy_from_slice(slice(at, count)),
            }
        }
    }
}

impl Sink {
    fn transposed(self) -> Self {
        Self { matrix: self.matrix.transposed(), ..self }
    }

    /// The same of f32.
    pub(super) fn floats(self) -> Matrix<*mut f32> {
        let Matrix { at, row, column } = self.matrix;
        Matrix { at: at.cast(), row, column }
    }

    unsafe fn from(self, row: usize, column: usize) -> Self {
        let Matrix { at, row: down, column: along } = self.matrix;
        let elements = row as isize * down + column as isize * along;
        // SAFETY: the caller's: inside the matrix.
        let at = unsafe { at.offset(elements * self.element.bytes() as isize) };
        Self { matrix: Matrix { at, ..self.matrix }, ..self }
    }

    /// Makes the first element 0: no bit set, whatever its type.
    unsafe fn clear(self) {
        // SAFETY: the caller's: inside the matrix.
        unsafe { self.matrix.at.write_bytes(0, self.element.bytes()) }
    }

    /// Rounds sums of f32 to its type: `rows` a column, and columns so far `apart`. With room for a column, what is
    /// there is added first.
    unsafe fn take(
        self,
        unit: Vector,
        sums: &mut [f32],
        (rows, columns, apart): (usize, usize, usize),
        mut room: Option<&mut [f32]>,
    ) {
        for (j, sums) in sums.chunks_mut(apart).enumerate().take(columns) {
            let side_by_side = if self.matrix.row == 1 { rows } else { 1 };
            for (i, sums) in sums[..rows].chunks_mut(side_by_side).enumerate() {
                // SAFETY: the caller's: inside the matrix.
                unsafe { self.from(i, j).round(unit, sums, room.as_deref_mut()) };
            }
        }
    }

    /// The same for elements that are side by side.
    unsafe fn round(self, unit: Vector, sums: &mut [f32], room: Option<&mut [f32]>) {
        let (at, count) = (self.matrix.at, sums.len());
        // SAFETY: the caller's: inside the matrix.
        unsafe {
            match self.element {
                Element::F16 => {
                    let to = slice_mut::<f16>(at, count);
                    added(unit, sums, room, |wide| lanes::widen_f16(to, wide));
                    lanes::narrow_f16(sums, to);
                }
                Element::Bf16 => {
                    let to = slice_mut::<bf16>(at, count);
                    added(unit, sums, room, |wide| lanes::widen_bf16(unit, to, wide));
                    lanes::narrow_bf16(unit, sums, to);
                }
                _ => {
                    let to = slice_mut::<f32>(at, count);
                    added(unit, sums, room, |there| there.copy_from_slice(to));
                    to.copy_from_slice(sums);
                }
            }
        }
    }
}

/// Adds what `read` writes into the room, if there is any.
fn added(unit: Vector, sums: &mut [f32], room: Option<&mut [f32]>, read: impl FnOnce(&mut [f32])) {
    let Some(room) = room else { return };
    let room = &mut room[..sums.len()];
    read(room);
    lanes::add(unit, room, sums);
}

/// Elements side by side.
unsafe fn slice_mut<'a, T>(at: *mut u8, count: usize) -> &'a mut [T] {
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts_mut(at.cast(), count) }
}

/// Elements side by side.
unsafe fn slice<'a, T>(at: *const u8, count: usize) -> &'a [T] {
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(at.cast(), count) }
}
