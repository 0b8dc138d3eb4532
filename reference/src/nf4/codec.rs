//! Dequantise: what a stored weight means.
//!
//! ```text
//! t   = f32(code2[absmax8[b]] * absmax2[s])      b = e / 64, s = b / 256
//! a   = f32(t + offset)
//! w   = f32(nf4[q] * a)                          q = nibble e
//! out = round16(w)                               to nearest, ties to even
//! ```
//!
//! Every line rounds once, to f32, and the last once more to the output's type. The product and the sum of
//! the first two lines are never fused: a fused multiply-add skips the rounding of `t`, and a few f16 outputs
//! in a million come out one step away - near enough for a tolerance, and wrong. Rust does not
//! contract `a * b + c` by itself, so the lines below are the definition.
//!
//! f32 subnormals are kept (IEEE 754). The original flushes them to zero on a GPU, which shows only where
//! a scale is below 2^-126.

use std::ops::Range;

use super::{Absmax, OutputDtype, Weight};
use crate::oracles::NF4;

/// Every element of a weight as f32, before the last rounding.
///
/// Panics where the weight's lengths do not fit together; [`Weight::check`] says so without a panic.
pub fn dequantize_f32(weight: &Weight) -> Vec<f32> {
    NF4.count();
    (0..weight.len).map(|e| element(weight, e)).collect()
}

/// Every element of a weight as the bit pattern of `dtype`, in the low bits of a u32.
///
/// Panics as [`dequantize_f32`] does.
pub fn dequantize_bits(weight: &Weight, dtype: OutputDtype) -> Vec<u32> {
    dequantize_bits_range(weight, dtype, 0..weight.len)
}

/// The elements of `range` as [`dequantize_bits`] gives them: a window to spot-check a large weight by.
///
/// Panics where `range` ends past the weight, and as [`dequantize_f32`] does.
pub fn dequantize_bits_range(weight: &Weight, dtype: OutputDtype, range: Range<usize>) -> Vec<u32> {
    NF4.count();
    assert!(range.end <= weight.len, "range {range:?} of a weight of {} elements", weight.len);
    range.map(|e| dtype.round(element(weight, e))).collect()
}

/// The scale of one block of elements: stored, or rebuilt from its byte.
///
/// Panics where there is no such block.
pub fn block_absmax(absmax: &Absmax, block: usize) -> f32 {
    NF4.count();
    scale(absmax, block)
}

// ANCHOR: nf4-oracle
/// `w = f32(nf4[q] * a)`.
fn element(weight: &Weight, e: usize) -> f32 {
    weight.table[nibble(weight.packed, e)] * scale(&weight.absmax, e / weight.block_size)
}

/// The high half of byte e / 2 for even e, the low half for odd.
fn nibble(packed: &[u8], e: usize) -> usize {
    let byte = packed[e / 2] as usize;
    if e.is_multiple_of(2) { byte >> 4 } else { byte & 15 }
}

/// `a = f32(f32(code2[absmax8[b]] * absmax2[s]) + offset)`, or the stored f32.
fn scale(absmax: &Absmax, b: usize) -> f32 {
    match *absmax {
        Absmax::Single(scales) => scales[b],
        Absmax::Double { codes, table, scales, block_size, offset } => {
            let t = table[codes[b] as usize] * scales[b / block_size];
            t + offset
        }
    }
}
// ANCHOR_END: nf4-oracle
