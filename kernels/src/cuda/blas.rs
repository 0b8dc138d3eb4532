//! Products of matrices by cuBLASLt: what a product of a plan is in its terms, its candidates, and one that is ready.
//!
//! The library counts columns first, a plan rows first; a matrix whose rows lie side by side is, to the library, its
//! transpose. So where the result's rows lie side by side the two factors change places. A matrix of which neither
//! neighbouring rows nor neighbouring columns are side by side has no form here, and neither have factors of two types:
//! those are computed by the room's own kernel.
//!
//! Source: cuBLAS, "Using the cuBLASLt API".

use std::ffi::c_void;

use cudarc::cublas::sys::cublasOperation_t as Turn;
use cudarc::cublaslt::sys::{
    self, cublasComputeType_t as Compute, cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasLtMatmulDesc_t,
    cublasLtMatmulDescAttributes_t as Of, cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreference_t,
    cublasLtMatmulPreferenceAttributes_t as Preference, cublasLtMatrixLayout_t,
    cublasLtMatrixLayoutAttribute_t as Shape, cublasStatus_t, cudaDataType,
};

use super::error::CudaError;
use super::library::{self, Kind};
use super::order::Stream;
use super::probe::Gpu;
use crate::plan::{Memory, Product, View};
use crate::tile::Element;

/// Bytes that a product may use beside its matrices. Source: cuBLAS, "cublasSetWorkspace", which recommends 32 MiB for
/// Hopper.
pub(super) const WORKSPACE: usize = 32 << 20;

/// The most candidates of a product.
const CANDIDATES: usize = 8;

/// The library, opened once for a GPU.
#[derive(Debug)]
pub(super) struct Blas {
    handle: cublasLtHandle_t,
}

// SAFETY: "The cuBLASLt handle can be used from several threads" (cuBLAS, "Thread Safety").
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

/// A product's layouts and the algorithm that computes it.
#[derive(Debug)]
pub(super) struct Matmul {
    kind: Descriptor<cublasLtMatmulDesc_t>,
    layouts: [Descriptor<cublasLtMatrixLayout_t>; 3],
    algorithm: cublasLtMatmulAlgo_t,
    /// Whether the second factor comes first.
    pub is_swapped: bool,
    scale: f32,
    add: f32,
    /// Bytes beside its matrices.
    pub workspace: usize,
}

// SAFETY: descriptors are plain data of the library's; a product is run by one thread at a time.
unsafe impl Send for Matmul {}

/// Something of the library's that has to be given back.
#[derive(Debug)]
struct Descriptor<T: Copy> {
    handle: T,
    release: unsafe fn(T) -> cublasStatus_t,
}

impl<T: Copy> Drop for Descriptor<T> {
    fn drop(&mut self) {
        // SAFETY: made once, given back once.
        let _ = unsafe { (self.release)(self.handle) };
    }
}

/// A matrix as the library sees it: columns side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Columns {
    rows: usize,
    count: usize,
    stride: usize, // elements from a column to the next
    is_transposed: bool,
    batch: usize, // elements from a matrix to the next
}

/// A product in the library's terms: factors in its order, then the result. The library proposes the same algorithms,
/// in the same order, for products with the same form: they have the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Form {
    matrices: [Columns; 3],
    elements: [Element; 3],
    alignments: [u32; 3], // of each first element, in bytes
    count: usize,
    is_swapped: bool,
}

/// What a call returned, as a result.
fn check(call: &'static str, status: cublasStatus_t) -> Result<(), CudaError> {
    match status {
        cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        refused => Err(CudaError::Library { call, text: format!("{refused:?}") }),
    }
}

impl Blas {
    /// Opens the library in the GPU's context.
    pub fn open(gpu: &Gpu) -> Result<Self, CudaError> {
        library::open(Kind::CublasLt).map_err(CudaError::NoLibrary)?;
        gpu.stream().enter()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the library is open; it writes one handle.
        check("cublasLtCreate", unsafe { sys::cublasLtCreate(&raw mut handle) })?;
        Ok(Self { handle })
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        let _ = unsafe { sys::cublasLtDestroy(self.handle) };
    }
}

/// The library's name for a type of floats.
fn data_type(element: Element) -> Option<cudaDataType> {
    match element {
        Element::F16 => Some(cudaDataType::CUDA_R_16F),
        Element::Bf16 => Some(cudaDataType::CUDA_R_16BF),
        Element::F32 => Some(cudaDataType::CUDA_R_32F),
        Element::U8 | Element::I32 => None,
    }
}

/// A matrix of so many rows and columns whose neighbours are so far apart; wanted as it is, or as its transpose.
fn columns(size: [usize; 2], stride: [usize; 2], batch: usize) -> Option<Columns> {
    let [rows, all] = size;
    let side_by_side = |along: usize, across: usize| {
        let (length, count) = (size[along], size[across]);
        let apart = if count <= 1 { length.max(1) } else { stride[across] };
        (length <= 1 || stride[along] == 1) && apart >= length.max(1)
    };
    if side_by_side(0, 1) {
        let stride = if all <= 1 { rows.max(1) } else { stride[1] };
        return Some(Columns { rows, count: all, stride, is_transposed: false, batch });
    }
    if side_by_side(1, 0) {
        let stride = if rows <= 1 { all.max(1) } else { stride[0] };
        return Some(Columns { rows: all, count: rows, stride, is_transposed: true, batch });
    }
    None
}

/// The elements from a matrix of a batch to the next, if all are equally far apart.
fn batch_stride(batch: &[usize], view: &View) -> Option<usize> {
    let dims = batch.iter().zip(&view.strides).filter(|(size, _)| **size > 1);
    let dims: Vec<(usize, usize)> = dims.map(|(size, stride)| (*size, *stride)).collect();
    let even = dims.windows(2).all(|pair| pair[0].1 == pair[1].1 * pair[1].0);
    even.then(|| dims.last().map_or(0, |(_, stride)| *stride))
}

impl Form {
    /// Returns the form of a product; `None` if it has none.
    pub fn of(product: &Product) -> Option<Self> {
        let Product { batch, m, n, k, a, b, to, elements, .. } = product;
        let count = batch.iter().product();
        let last = |view: &View| [view.strides[batch.len()], view.strides[batch.len() + 1]];
        let [of_a, of_b, of_to] = [a, b, to].map(|view| batch_stride(batch, view));
        let (of_a, of_b, of_to) = (of_a?, of_b?, of_to?);
        let flip = |[first, second]: [usize; 2]| [second, first];
        let [of_first, of_second, of_result] =
            [(a, 0), (b, 1), (to, 2)].map(|(view, side)| alignment(view, elements[side]));
        let [left, right, sum] = *elements;
        let swapped = columns([*n, *m], flip(last(to)), of_to).filter(|to| !to.is_transposed);
        if let Some(result) = swapped {
            let first = columns([*n, *k], flip(last(b)), of_b)?;
            let second = columns([*k, *m], flip(last(a)), of_a)?;
            return Some(Self {
                matrices: [first, second, result],
                elements: [right, left, sum],
                alignments: [of_second, of_first, of_result],
                count,
                is_swapped: true,
            });
        }
        let result = columns([*m, *n], last(to), of_to).filter(|to| !to.is_transposed)?;
        let (first, second) = (columns([*m, *k], last(a), of_a)?, columns([*k, *n], last(b), of_b)?);
        Some(Self {
            matrices: [first, second, result],
            elements: *elements,
            alignments: [of_first, of_second, of_result],
            count,
            is_swapped: false,
        })
    }
}

/// Whether the library computes a product.
pub(super) fn is_expressible(product: &Product) -> bool {
    let [a, b, to] = product.elements;
    let same = a == b && (to == a || to == Element::F32);
    same && product.k > 0 && Form::of(product).is_some_and(|form| i32::try_from(form.count).is_ok())
}

/// The alignment of a view's first element, in bytes: at most 64, the unit of places in an arena.
///
/// cuBLASLt proposes other algorithms for other alignments, and algorithms add in other orders. With a larger bound, the
/// place of a buffer in the arena would decide the bits of a product, and recomputed activations would differ from those
/// that were kept.
fn alignment(view: &View, element: Element) -> u32 {
    let base = if let Memory::Arena(at) = view.memory { at } else { 0 };
    let first = base + view.offset * element.bytes();
    1 << first.trailing_zeros().min(6)
}

fn described<T: Copy>(
    call: &'static str,
    release: unsafe fn(T) -> cublasStatus_t,
    none: T,
    make: impl FnOnce(*mut T) -> cublasStatus_t,
) -> Result<Descriptor<T>, CudaError> {
    let mut handle = none;
    check(call, make(&raw mut handle))?;
    Ok(Descriptor { handle, release })
}

impl Columns {
    fn layout(
        &self,
        kind: cudaDataType,
        count: usize,
    ) -> Result<Descriptor<cublasLtMatrixLayout_t>, CudaError> {
        let (rows, columns, stride) = (self.rows as u64, self.count as u64, self.stride as i64);
        let layout = described(
            "cublasLtMatrixLayoutCreate",
            sys::cublasLtMatrixLayoutDestroy,
            std::ptr::null_mut(),
            // SAFETY: the library writes one handle.
            |to| unsafe { sys::cublasLtMatrixLayoutCreate(to, kind, rows, columns, stride) },
        )?;
        let set = |which: Shape, value: *const c_void, bytes: usize| {
            // SAFETY: the value has as many bytes as are said, and is copied.
            let set = unsafe { sys::cublasLtMatrixLayoutSetAttribute(layout.handle, which, value, bytes) };
            check("cublasLtMatrixLayoutSetAttribute", set)
        };
        let (count, apart) = (count as i32, self.batch as i64);
        set(Shape::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, (&raw const count).cast(), size_of::<i32>())?;
        set(Shape::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, (&raw const apart).cast(), size_of::<i64>())?;
        Ok(layout)
    }
}

/// A product's description in the library, without the algorithm that computes it.
struct Described {
    kind: Descriptor<cublasLtMatmulDesc_t>,
    layouts: [Descriptor<cublasLtMatrixLayout_t>; 3],
    preference: Descriptor<cublasLtMatmulPreference_t>,
    is_swapped: bool,
}

impl Described {
    fn of(product: &Product) -> Result<Option<Self>, CudaError> {
        let Some(form) = Form::of(product) else { return Ok(None) };
        let [Some(of_factors), Some(_), Some(of_to)] = form.elements.map(data_type) else { return Ok(None) };
        let kind = described(
            "cublasLtMatmulDescCreate",
            sys::cublasLtMatmulDescDestroy,
            std::ptr::null_mut(),
            // SAFETY: the library writes one handle.
            |to| unsafe {
                sys::cublasLtMatmulDescCreate(to, Compute::CUBLAS_COMPUTE_32F, cudaDataType::CUDA_R_32F)
            },
        )?;
        let sides = [Of::CUBLASLT_MATMUL_DESC_TRANSA, Of::CUBLASLT_MATMUL_DESC_TRANSB];
        for (which, matrix) in sides.into_iter().zip(&form.matrices) {
            let turn = if matrix.is_transposed { Turn::CUBLAS_OP_T } else { Turn::CUBLAS_OP_N };
            // SAFETY: the value has as many bytes as are said, and is copied.
            let set = unsafe {
                sys::cublasLtMatmulDescSetAttribute(
                    kind.handle,
                    which,
                    (&raw const turn).cast(),
                    size_of::<Turn>(),
                )
            };
            check("cublasLtMatmulDescSetAttribute", set)?;
        }
        let [a, b, to] = form.matrices;
        let layouts = [
            a.layout(of_factors, form.count)?,
            b.layout(of_factors, form.count)?,
            to.layout(of_to, form.count)?,
        ];
        let preference = preference(form.alignments)?;
        Ok(Some(Self { kind, layouts, preference, is_swapped: form.is_swapped }))
    }
}

/// How much memory a product may use, and how its matrices are aligned.
fn preference([a, b, to]: [u32; 3]) -> Result<Descriptor<cublasLtMatmulPreference_t>, CudaError> {
    let preference = described(
        "cublasLtMatmulPreferenceCreate",
        sys::cublasLtMatmulPreferenceDestroy,
        std::ptr::null_mut(),
        // SAFETY: the library writes one handle.
        |to| unsafe { sys::cublasLtMatmulPreferenceCreate(to) },
    )?;
    let set = |which: Preference, value: *const c_void, bytes: usize| {
        // SAFETY: the value has as many bytes as are said, and is copied.
        let set =
            unsafe { sys::cublasLtMatmulPreferenceSetAttribute(preference.handle, which, value, bytes) };
        check("cublasLtMatmulPreferenceSetAttribute", set)
    };
    let workspace = WORKSPACE as u64;
    set(
        Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
        (&raw const workspace).cast(),
        size_of::<u64>(),
    )?;
    let sides = [
        (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a),
        (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b),
        (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, to),
        (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, to),
    ];
    for (which, bytes) in sides {
        set(which, (&raw const bytes).cast(), size_of::<u32>())?;
    }
    Ok(preference)
}

impl Gpu {
    /// The algorithms that the library proposes for a product, the one that it thinks fastest first.
    fn algorithms(&self, described: &Described) -> Result<Vec<cublasLtMatmulHeuristicResult_t>, CudaError> {
        let [a, b, to] = described.layouts.each_ref().map(|layout| layout.handle);
        let mut found = 0;
        let mut algorithms: Vec<cublasLtMatmulHeuristicResult_t> = Vec::with_capacity(CANDIDATES);
        let (handle, kind, preference) =
            (self.blas()?.handle, described.kind.handle, described.preference.handle);
        self.stream().enter()?;
        // SAFETY: all descriptors are alive; the library writes at most as many results as there is room for, and
        // their number.
        let asked = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                handle,
                kind,
                a,
                b,
                to,
                to,
                preference,
                CANDIDATES as i32,
                algorithms.as_mut_ptr(),
                &raw mut found,
            )
        };
        check("cublasLtMatmulAlgoGetHeuristic", asked)?;
        // SAFETY: so many were written.
        unsafe { algorithms.set_len(usize::try_from(found).unwrap_or(0).min(CANDIDATES)) };
        algorithms.retain(|algorithm| algorithm.state == cublasStatus_t::CUBLAS_STATUS_SUCCESS);
        Ok(algorithms)
    }

    /// How many algorithms the library proposes for a product.
    pub(super) fn count_algorithms(&self, product: &Product) -> Result<usize, CudaError> {
        let described = Described::of(product)?;
        described.map_or(Ok(0), |described| Ok(self.algorithms(&described)?.len()))
    }

    /// A product, ready to be run by one of the algorithms that the library proposes; its first, if there are not so
    /// many.
    /// `None` if it has no form in the library.
    pub(super) fn matmul(&self, product: &Product, algorithm: usize) -> Result<Option<Matmul>, CudaError> {
        let Some(described) = Described::of(product)? else { return Ok(None) };
        let algorithms = self.algorithms(&described)?;
        let Some(chosen) = algorithms.get(algorithm).or(algorithms.first()) else { return Ok(None) };
        let Described { kind, layouts, is_swapped, .. } = described;
        let (scale, add) = (product.scale, if product.add { 1.0 } else { 0.0 });
        let (algorithm, workspace) = (chosen.algo, chosen.workspaceSize);
        Ok(Some(Matmul { kind, layouts, algorithm, is_swapped, scale, add, workspace }))
    }

    /// Queues a product: the addresses of its factors and of the result, and of the memory beside them.
    pub(super) fn multiply(
        &self,
        stream: &Stream,
        matmul: &Matmul,
        [a, b, to]: [u64; 3],
        scratch: u64,
    ) -> Result<(), CudaError> {
        let (first, second) = if matmul.is_swapped { (b, a) } else { (a, b) };
        let at = |address: u64| std::ptr::without_provenance_mut::<c_void>(address as usize);
        let [of_first, of_second, of_to] = matmul.layouts.each_ref().map(|layout| layout.handle);
        stream.enter()?;
        // SAFETY: all descriptors are alive; the addresses are the card's, and the plan's check has seen that the
        // matrices lie inside their memories; scale and summand are read before the call returns.
        let queued = unsafe {
            sys::cublasLtMatmul(
                self.blas()?.handle,
                matmul.kind.handle,
                (&raw const matmul.scale).cast(),
                at(first),
                of_first,
                at(second),
                of_second,
                (&raw const matmul.add).cast(),
                at(to),
                of_to,
                at(to),
                of_to,
                &raw const matmul.algorithm,
                at(scratch),
                matmul.workspace,
                stream.handle().cast(),
            )
        };
        check("cublasLtMatmul", queued)?;
        self.count_launch();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Choice;

    fn product(strides: [[usize; 2]; 3], [m, n, k]: [usize; 3]) -> Product {
        let view = |strides: [usize; 2]| View {
            memory: Memory::Arena(0),
            bytes: 1 << 20,
            offset: 0,
            strides: strides.to_vec(),
        };
        let [a, b, to] = strides.map(view);
        let (elements, choice) = ([Element::F32; 3], Choice::Library);
        Product { batch: vec![], m, n, k, a, b, elements, to, add: false, scale: 1.0, choice }
    }

    #[test]
    fn alignment_is_the_same_for_every_arena_place() {
        let view = |place: usize, offset: usize| View {
            memory: Memory::Arena(place),
            bytes: 1 << 20,
            offset,
            strides: vec![1],
        };
        for (offset, bytes) in [(0, 64), (16, 64), (8, 32), (4, 16), (1, 4)] {
            for place in [0, 64, 128, 192, 256, 1 << 20] {
                assert_eq!(
                    alignment(&view(place, offset), Element::F32),
                    bytes,
                    "{offset} elements at {place}"
                );
            }
        }
    }

    #[test]
    fn rows_side_by_side_change_places() {
        let form = Form::of(&product([[5, 1], [7, 1], [7, 1]], [3, 7, 5])).expect("it has a form");
        let matrix = |rows, count, stride| Columns { rows, count, stride, is_transposed: false, batch: 0 };
        assert_eq!(form.matrices, [matrix(7, 5, 7), matrix(5, 3, 5), matrix(7, 3, 7)]);
        assert!(form.is_swapped);
    }

    #[test]
    fn a_transposed_factor_and_a_transposed_result_have_forms() {
        let form = Form::of(&product([[5, 1], [1, 5], [7, 1]], [3, 7, 5])).expect("it has a form");
        assert!(form.matrices[0].is_transposed && !form.matrices[1].is_transposed);
        assert_eq!((form.matrices[0].rows, form.matrices[0].count), (5, 7), "as it is stored");
        let form = Form::of(&product([[5, 1], [7, 1], [1, 3]], [3, 7, 5])).expect("it has a form");
        assert!(!form.is_swapped && form.matrices[0].is_transposed);
    }

    #[test]
    fn what_lies_apart_in_both_directions_has_none() {
        assert!(Form::of(&product([[10, 2], [7, 1], [7, 1]], [3, 7, 5])).is_none());
        assert!(Form::of(&product([[0, 1], [7, 1], [7, 1]], [3, 7, 5])).is_none(), "rows that are one");
    }
}
