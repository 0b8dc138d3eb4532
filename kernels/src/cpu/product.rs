//! Products of f32 matrices, by the `gemm` library's kernel for them, cut among threads as the plan says.

#![allow(unsafe_code)] // the library takes addresses; threads write disjoint parts of one result

use gemm_common::Parallelism;
use rayon::prelude::*;

use super::Cpu;
use crate::plan::{Cut, Product};

/// Where the three matrices of one product lie.
#[derive(Clone, Copy)]
struct Place {
    a: *const f32,
    b: *const f32,
    to: *mut f32,
}

// SAFETY: whoever makes one promises what `Cpu::product` asks for.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

/// A part of the result: rows and columns, each from the first to the one after the last.
#[derive(Clone, Copy)]
struct Part {
    rows: (usize, usize),
    columns: (usize, usize),
    parallelism: Parallelism,
}

impl Cpu {
    /// Computes a product.
    ///
    /// # Safety
    /// The views' elements lie behind the addresses, those of the result apart from the factors' and each once.
    pub(super) unsafe fn product(&self, product: &Product, a: *const f32, b: *const f32, to: *mut f32) {
        let count: usize = product.batch.iter().product();
        let place = Place { a, b, to };
        let whole = |parallelism| Part { rows: (0, product.m), columns: (0, product.n), parallelism };
        // SAFETY: the caller's; parts and matrices of the batch are disjoint.
        let one = |i: usize, part: Part| unsafe { run(product, place.of(product, i), part) };
        let each = |part: Part| (0..count).for_each(|i| one(i, part));
        let Some(pool) = &self.pool else { return each(whole(Parallelism::None)) };
        pool.install(|| match product.cut {
            Cut::Single => each(whole(Parallelism::None)),
            Cut::Library => each(whole(Parallelism::Rayon(self.threads))),
            Cut::Batch => (0..count).into_par_iter().for_each(|i| one(i, whole(Parallelism::None))),
            Cut::Rows | Cut::Columns => {
                let parts = parts(product, self.threads);
                (0..count).for_each(|i| parts.par_iter().for_each(|part| one(i, *part)));
            }
        });
    }
}

/// One part for each thread.
fn parts(product: &Product, threads: usize) -> Vec<Part> {
    let by_rows = product.cut == Cut::Rows;
    let size = if by_rows { product.m } else { product.n };
    let length = size.div_ceil(threads).max(1);
    let stretch = |i: usize| (i * length, ((i + 1) * length).min(size));
    let part = |i: usize| {
        let (rows, columns) =
            if by_rows { (stretch(i), (0, product.n)) } else { ((0, product.m), stretch(i)) };
        Part { rows, columns, parallelism: Parallelism::None }
    };
    (0..size.div_ceil(length)).map(part).collect()
}

impl Place {
    /// The matrices number `i` of the batch.
    unsafe fn of(self, product: &Product, i: usize) -> Self {
        let offset = |strides: &[usize]| {
            let mut rest = i;
            product.batch.iter().zip(strides).rev().fold(0, |offset, (size, stride)| {
                let at = rest % size;
                rest /= size;
                offset + at * stride
            })
        };
        let (a, b, to) =
            (offset(&product.a.strides), offset(&product.b.strides), offset(&product.to.strides));
        // SAFETY: the caller's: inside the views.
        unsafe { Self { a: self.a.add(a), b: self.b.add(b), to: self.to.add(to) } }
    }
}

/// A matrix as the library takes it: address, and the strides of its columns and rows.
#[derive(Clone, Copy)]
pub(super) struct Matrix<P> {
    pub at: P,
    pub column: isize,
    pub row: isize,
}

impl<P> Matrix<P> {
    pub fn transposed(self) -> Self {
        Self { column: self.row, row: self.column, ..self }
    }
}

impl Matrix<*mut f32> {
    /// The same, to be read.
    pub fn read(self) -> Matrix<*const f32> {
        Matrix { at: self.at.cast_const(), column: self.column, row: self.row }
    }
}

/// A product's rows, columns and terms, what its sums are multiplied with, and whether they are added to what is there.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub factor: f32,
    pub add: bool,
}

/// `to = factor a b`, or `to += factor a b`, on the calling thread.
///
/// # Safety
/// As for [`Cpu::product`].
pub(super) unsafe fn multiply_here(
    shape: Shape,
    to: Matrix<*mut f32>,
    a: Matrix<*const f32>,
    b: Matrix<*const f32>,
) {
    // SAFETY: the caller's.
    unsafe { multiply(shape, to, a, b, Parallelism::None) }
}

unsafe fn run(product: &Product, place: Place, part: Part) {
    let lead = product.batch.len();
    let (row, column) = (part.rows.0 as isize, part.columns.0 as isize);
    let strides = |strides: &[usize]| (strides[lead] as isize, strides[lead + 1] as isize);
    let ((a_row, a_column), (b_row, b_column)) = (strides(&product.a.strides), strides(&product.b.strides));
    let (to_row, to_column) = strides(&product.to.strides);
    // SAFETY: the caller's: inside the views.
    let a = Matrix { at: unsafe { place.a.offset(row * a_row) }, column: a_column, row: a_row };
    let b = Matrix { at: unsafe { place.b.offset(column * b_column) }, column: b_column, row: b_row };
    let at = unsafe { place.to.offset(row * to_row + column * to_column) };
    let to = Matrix { at, column: to_column, row: to_row };
    let (m, n) = (part.rows.1 - part.rows.0, part.columns.1 - part.columns.0);
    let shape = Shape { m, n, k: product.k, factor: product.scale, add: product.add };
    // SAFETY: as above.
    unsafe { multiply(shape, to, a, b, part.parallelism) }
}

/// The library's kernels write down columns: a result that lies in rows is the transposed product's.
unsafe fn multiply(
    shape: Shape,
    to: Matrix<*mut f32>,
    a: Matrix<*const f32>,
    b: Matrix<*const f32>,
    parallelism: Parallelism,
) {
    // SAFETY: the caller's.
    unsafe {
        if to.column < to.row {
            let (m, n) = (shape.n, shape.m);
            let shape = Shape { m, n, ..shape };
            multiply_columns(shape, to.transposed(), b.transposed(), a.transposed(), parallelism);
        } else {
            multiply_columns(shape, to, a, b, parallelism);
        }
    }
}

unsafe fn multiply_columns(
    Shape { m, n, k, factor, add }: Shape,
    to: Matrix<*mut f32>,
    a: Matrix<*const f32>,
    b: Matrix<*const f32>,
    parallelism: Parallelism,
) {
    let kernel = gemm_f32::gemm::f32::get_gemm_fn();
    let no_conjugate = false;
    // SAFETY: the caller's.
    unsafe {
        kernel(
            m,
            n,
            k,
            to.at,
            to.column,
            to.row,
            add,
            a.at,
            a.column,
            a.row,
            b.at,
            b.column,
            b.row,
            1.0,
            factor,
            no_conjugate,
            no_conjugate,
            no_conjugate,
            parallelism,
        );
    }
}
