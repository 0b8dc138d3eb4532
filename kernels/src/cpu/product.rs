//! Products of matrices by the `gemm` library's kernel for f32, cut among threads as the plan says.
//!
//! A product with a factor or a result in f16 or bf16 goes by way of `packed_gemm`, as [`Choice::Packed`] says.

#![allow(unsafe_code)] // the library takes addresses; threads write disjoint parts of one result

use gemm_common::Parallelism;
use rayon::prelude::*;

use super::Cpu;
use super::packed_gemm::{Factor, Gemm, Sink};
use crate::plan::{Choice, Product, View};
use crate::tile::Element;

/// Where the three matrices of one product lie.
#[derive(Clone, Copy)]
pub(super) struct Matrices {
    pub a: *const u8,
    pub b: *const u8,
    pub to: *mut u8,
}

// SAFETY: whoever makes one promises what `Cpu::product` asks for.
unsafe impl Send for Matrices {}
// SAFETY: as above.
unsafe impl Sync for Matrices {}

/// A part of the result: rows and columns, each from the first to the one after the last.
#[derive(Clone, Copy)]
struct Part {
    rows: (usize, usize),
    columns: (usize, usize),
    parallelism: Parallelism,
}

impl Cpu {
    /// Computes a product that is [`ready`].
    ///
    /// # Safety
    /// The views' elements lie behind the addresses, those of the result apart from the factors' and each once.
    pub(super) unsafe fn product(&self, product: &Product, place: Matrices) {
        if product.batch.contains(&0) || product.m == 0 || product.n == 0 {
            return;
        }
        let count: usize = product.batch.iter().product();
        if is_packed(product) {
            // SAFETY: the caller's; matrices of the batch are disjoint.
            return unsafe { self.packed(count, |i| work(product, place.of(product, i))) };
        }
        let whole = |parallelism| Part { rows: (0, product.m), columns: (0, product.n), parallelism };
        // SAFETY: the caller's; parts and matrices of the batch are disjoint.
        let one = |i: usize, part: Part| unsafe { run(product, place.of(product, i), part) };
        let each = |part: Part| (0..count).for_each(|i| one(i, part));
        let Some(pool) = &self.pool else { return each(whole(Parallelism::None)) };
        pool.install(|| match product.choice {
            Choice::Single => each(whole(Parallelism::None)),
            Choice::Library | Choice::Algorithm(_) => each(whole(Parallelism::Rayon(self.threads))),
            Choice::Batch => (0..count).into_par_iter().for_each(|i| one(i, whole(Parallelism::None))),
            Choice::Rows | Choice::Columns => {
                let parts = Parts::of(product, self.threads);
                let all = |i| (0..parts.count).into_par_iter().for_each(|n| one(i, parts.part(product, n)));
                (0..count).for_each(all);
            }
            Choice::Packed => unreachable!("done above"),
        });
    }
}

/// Whether a product goes block by block.
pub(super) fn is_packed(product: &Product) -> bool {
    product.choice == Choice::Packed || product.elements != [Element::F32; 3]
}

/// A checked product as it is run: factors of no terms have strides that lead nowhere, so that they stay where they
/// are.
pub(super) fn ready(product: &Product) -> Product {
    let still = |view: &View| View { strides: vec![0; view.strides.len()], ..view.clone() };
    match product.k {
        0 => Product { a: still(&product.a), b: still(&product.b), ..product.clone() },
        _ => product.clone(),
    }
}

/// The result cut among the threads, along its rows or its columns.
struct Parts {
    by_rows: bool,
    length: usize,
    count: usize,
}

impl Parts {
    fn of(product: &Product, threads: usize) -> Self {
        let by_rows = product.choice == Choice::Rows;
        let size = if by_rows { product.m } else { product.n };
        let length = size.div_ceil(threads).max(1);
        Self { by_rows, length, count: size.div_ceil(length) }
    }

    fn part(&self, product: &Product, number: usize) -> Part {
        let stretch = |size: usize| (number * self.length, ((number + 1) * self.length).min(size));
        let (rows, columns) = if self.by_rows {
            (stretch(product.m), (0, product.n))
        } else {
            ((0, product.m), stretch(product.n))
        };
        Part { rows, columns, parallelism: Parallelism::None }
    }
}

impl Matrices {
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
        let [of_a, of_b, of_to] = product.elements.map(Element::bytes);
        // SAFETY: the caller's: inside the views.
        unsafe { Self { a: self.a.add(a * of_a), b: self.b.add(b * of_b), to: self.to.add(to * of_to) } }
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

impl<T> Matrix<*const T> {
    /// The same of another type.
    pub fn cast<U>(self) -> Matrix<*const U> {
        Matrix { at: self.at.cast(), column: self.column, row: self.row }
    }

    /// The same from another element on.
    pub unsafe fn from(self, row: usize, column: usize) -> Self {
        let elements = row as isize * self.row + column as isize * self.column;
        // SAFETY: the caller's: inside the matrix.
        Self { at: unsafe { self.at.offset(elements) }, ..self }
    }
}

impl Matrix<*mut f32> {
    /// The same from another element on.
    pub unsafe fn from(self, row: usize, column: usize) -> Self {
        let elements = row as isize * self.row + column as isize * self.column;
        // SAFETY: the caller's: inside the matrix.
        Self { at: unsafe { self.at.offset(elements) }, ..self }
    }

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

/// Factors of f32 by the library.
unsafe fn run(product: &Product, place: Matrices, part: Part) {
    let (row, column) = (part.rows.0, part.columns.0);
    // SAFETY: the caller's: inside the views.
    unsafe {
        let Gemm { shape, to, a, b } = work(product, place);
        let floats = |factor: Factor| factor.matrix.cast::<f32>();
        let (a, b) = (floats(a).from(row, 0), floats(b).from(0, column));
        let shape = Shape { m: part.rows.1 - row, n: part.columns.1 - column, ..shape };
        multiply(shape, to.floats().from(row, column), a, b, part.parallelism);
    }
}

/// One product of the batch.
fn work(product: &Product, place: Matrices) -> Gemm {
    let lead = product.batch.len();
    let strides = |strides: &[usize]| (strides[lead] as isize, strides[lead + 1] as isize);
    let factor = |at, view: &View, element| {
        let (row, column) = strides(&view.strides);
        Factor { element, matrix: Matrix { at, column, row } }
    };
    let (a, b) =
        (factor(place.a, &product.a, product.elements[0]), factor(place.b, &product.b, product.elements[1]));
    let (row, column) = strides(&product.to.strides);
    let to = Sink { element: product.elements[2], matrix: Matrix { at: place.to, column, row } };
    let shape = Shape { m: product.m, n: product.n, k: product.k, factor: product.scale, add: product.add };
    Gemm { shape, to, a, b }
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
