//! The third pass in plain Rust, for machines without a vector unit and for the tail of a block on other machines.
//!
//! Values are looked up into a small array and rounded from there, without a branch, so that the compiler makes vector
//! code of the rounding with what every processor has.

use half::{bf16, f16};

use super::{Element, Piece};

/// Values that are looked up before they are rounded.
const VALUES: usize = 64;

/// A piece, block by block.
pub(super) fn piece<T: Element>(piece: Piece<'_, T>) {
    let table = piece.table;
    for (scale, packed, out) in piece.blocks() {
        short(table, scale, packed, out);
    }
}

/// Any number of values of one block: a byte in, two values out.
pub(super) fn short<T: Element>(table: &[f32; 16], scale: f32, packed: &[u8], out: &mut [T]) {
    for (out, packed) in out.chunks_mut(VALUES).zip(packed.chunks(VALUES / 2)) {
        let mut values = [0.0; VALUES];
        for (pair, byte) in values.as_chunks_mut::<2>().0.iter_mut().zip(packed) {
            *pair = [table[(byte >> 4) as usize], table[(byte & 15) as usize]];
        }
        for (out, value) in out.iter_mut().zip(&values) {
            *out = T::round(value * scale);
        }
    }
}

/// To bfloat16, nearest even; a NaN keeps its sign and becomes quiet.
#[inline]
pub(super) fn to_bf16(value: f32) -> bf16 {
    let bits = value.to_bits();
    let cut = bits >> 16;
    let rounded = bits.wrapping_add(0x7fff + (cut & 1)) >> 16;
    bf16::from_bits(if value.is_nan() { cut | 0x40 } else { rounded } as u16)
}

/// To IEEE half precision, nearest even; a NaN keeps its sign and becomes quiet.
#[inline]
pub(super) fn to_f16(value: f32) -> f16 {
    const BIAS: i32 = (127 - 15) << 23; // what the exponents of equal numbers differ by
    let bits = value.to_bits();
    let size = (bits & 0x7fff_ffff).cast_signed();
    let normal = (size - BIAS + 0xfff + (size >> 13 & 1)) >> 13;
    // A subnormal counts units of 2^-24, and so does the last bit of a number from 0.5 to 1: the addition rounds.
    let subnormal = (value.abs() + 0.5).to_bits().cast_signed() - 0.5_f32.to_bits().cast_signed();
    let finite = if size < 0x3880_0000 { subnormal } else { normal }; // 2^-14
    let beyond = if size > 0x7f80_0000 { 0x7e00 } else { 0x7c00 }; // NaN, infinity
    let rounded = if size >= 0x4780_0000 { beyond } else { finite }; // 2^16
    f16::from_bits((bits >> 16 & 0x8000) as u16 | rounded as u16)
}
