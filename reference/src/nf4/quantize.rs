//! Quantise: which codes stand for given values.
//!
//! ```text
//! a_b = max |x_e|                  over the block b = e / block_size
//! n   = f32(x / a_b)               in -1..=1
//! q   = #{ i : n > m_i }           m_i = f32((nf4[i] + nf4[i + 1]) / 2), so a tie goes to the lower index
//! ```
//!
//! The second level does the same to the scales themselves. They are all positive, so their mean is taken
//! off first, or half of the signed table would stand idle:
//!
//! ```text
//! d   = f32(a - offset)            offset = mean of a
//! c   = max |d|                    over blocks of 256 scales
//! q   = nearest entry of code2 to f32(d / c); of two equally near, the one at the even index
//! ```
//!
//! A block of zeros has no defined code (0 / 0): the original stores byte 0x00 from a GPU and 0x77 from a
//! CPU. Elements get 7 here, the index of the table's zero, so that zeros come back as +0. Scales that all
//! equal the offset get 0, as in the original: whatever the code, times a scale of zero it adds nothing.

use std::cmp::Ordering;

use super::{CODE2, Error, NF4, check};
use crate::oracles;

/// Scales that share one second-level scale.
pub const NESTED_BLOCK: usize = 256;

/// Packed codes, ceil(n / 2) bytes, and absmaxes, one f32 a block, of n values.
///
/// The low nibble that an odd n leaves over is 7, the code of zero. Fails on a block size that is no power
/// of two of 32..=4096, and on a value that is not finite.
pub fn quantize(values: &[f32], block_size: usize) -> Result<(Vec<u8>, Vec<f32>), Error> {
    oracles::NF4.count();
    check::check_block_size(block_size)?;
    check::check_finite("values", values)?;
    let absmax: Vec<f32> = values.chunks(block_size).map(largest).collect();
    let thresholds = thresholds();
    let codes: Vec<u8> =
        values.iter().enumerate().map(|(e, x)| code(&thresholds, *x, absmax[e / block_size])).collect();
    Ok((pack(&codes), absmax))
}

/// The second level: a byte a scale, one f32 for each [`NESTED_BLOCK`] of them, and the offset.
///
/// Without an `offset` the mean is taken, summed in f64. (The original's order of summation is
/// unspecified: to reproduce its bytes, hand in the offset that it stored.)
pub fn double_quantize(absmax: &[f32], offset: Option<f32>) -> (Vec<u8>, Vec<f32>, f32) {
    oracles::NF4.count();
    let offset = offset.unwrap_or_else(|| mean(absmax));
    let centred: Vec<f32> = absmax.iter().map(|a| a - offset).collect();
    let scales: Vec<f32> = centred.chunks(NESTED_BLOCK).map(largest).collect();
    let codes = centred.iter().enumerate().map(|(b, d)| nearest(*d, scales[b / NESTED_BLOCK])).collect();
    (codes, scales, offset)
}

/// max |x|.
fn largest(block: &[f32]) -> f32 {
    block.iter().fold(0.0, |most: f32, x| most.max(x.abs()))
}

/// The 15 midpoints between neighbours of the table, rounded to f32.
fn thresholds() -> [f32; 15] {
    std::array::from_fn(|i| f32::midpoint(NF4[i], NF4[i + 1]))
}

/// The index of the table's value for `x` in a block whose largest magnitude is `absmax`.
fn code(thresholds: &[f32; 15], x: f32, absmax: f32) -> u8 {
    let n = if absmax == 0.0 { 0.0 } else { x / absmax };
    thresholds.iter().filter(|m| n > **m).count() as u8
}

/// Two codes a byte, the first in the high half.
fn pack(codes: &[u8]) -> Vec<u8> {
    codes.chunks(2).map(|pair| pair[0] << 4 | pair.get(1).copied().unwrap_or(7)).collect()
}

/// The mean of the scales; 0 for none.
fn mean(absmax: &[f32]) -> f32 {
    let sum: f64 = absmax.iter().map(|a| *a as f64).sum();
    (sum / absmax.len().max(1) as f64) as f32
}

/// The index of `code2`'s entry nearest to `d / scale`. Distances are taken in f64, where they are exact.
fn nearest(d: f32, scale: f32) -> u8 {
    if scale == 0.0 {
        return 0;
    }
    let n = d / scale;
    let above = CODE2.partition_point(|c| *c < n).clamp(1, 255);
    let below = above - 1;
    let up = CODE2[above] as f64 - n as f64;
    let down = n as f64 - CODE2[below] as f64;
    match up.total_cmp(&down) {
        Ordering::Less => above as u8,
        Ordering::Greater => below as u8,
        Ordering::Equal => (above & !1) as u8, // of two neighbours, the even one
    }
}
