//! The third pass in NEON: eight bytes in and 16 values out at a time.

#![allow(clippy::wildcard_imports)] // the names of instructions

use core::arch::aarch64::*;

use half::{bf16, f16};

use super::portable::short;
use super::{Element, Piece};

/// TBL looks up bytes, so the table is kept as four tables of 16 bytes: all values' first bytes, all second ones, and
/// so on. What they give is interleaved to floats.
///
/// # Safety
/// The machine has NEON.
#[target_feature(enable = "neon")]
pub(super) unsafe fn piece_neon<T: Element>(piece: Piece<'_, T>) {
    let own = piece.table;
    // SAFETY: reads 64 bytes and separates them by their place in a float.
    let table = unsafe { vld4q_u8(own.as_ptr().cast()) };
    for (scale, packed, out) in piece.blocks() {
        let (sixteens, rest) = out.as_chunks_mut::<16>();
        for (values, bytes) in sixteens.iter_mut().zip(packed.as_chunks::<8>().0) {
            // SAFETY: `bytes` is eight bytes.
            let bytes = unsafe { vld1_u8(bytes.as_ptr()) };
            let (even, odd) = (vshr_n_u8::<4>(bytes), vand_u8(bytes, vdup_n_u8(15)));
            let codes = vcombine_u8(vzip1_u8(even, odd), vzip2_u8(even, odd)); // (16,) u8
            let products = look_up_neon(table, codes).map(|values| vmulq_n_f32(values, scale));
            // SAFETY: this function has the same features.
            unsafe { T::store_neon(products, values) };
        }
        short(own, scale, &packed[sixteens.len() * 8..], rest);
    }
}

/// The table's values for 16 codes, in order.
#[target_feature(enable = "neon")]
#[inline]
fn look_up_neon(table: uint8x16x4_t, codes: uint8x16_t) -> [float32x4_t; 4] {
    let (b0, b1) = (vqtbl1q_u8(table.0, codes), vqtbl1q_u8(table.1, codes));
    let (b2, b3) = (vqtbl1q_u8(table.2, codes), vqtbl1q_u8(table.3, codes));
    let halves = |a, b| [vreinterpretq_u16_u8(vzip1q_u8(a, b)), vreinterpretq_u16_u8(vzip2q_u8(a, b))];
    let ([low0, low1], [high0, high1]) = (halves(b0, b1), halves(b2, b3)); // eight values each
    [vzip1q_u16(low0, high0), vzip2q_u16(low0, high0), vzip1q_u16(low1, high1), vzip2q_u16(low1, high1)]
        .map(|words| vreinterpretq_f32_u16(words))
}

/// FCVTN rounds to half precision by the floating-point environment, whose default is to nearest even.
#[target_feature(enable = "neon")]
#[inline]
pub(super) fn f16_neon(values: [float32x4_t; 4], out: &mut [f16; 16]) {
    for (pair, out) in values.as_chunks::<2>().0.iter().zip(out.as_chunks_mut::<8>().0) {
        let words: uint16x8_t;
        // SAFETY: two conversions between registers.
        unsafe {
            core::arch::asm!(
                "fcvtn {words:v}.4h, {first:v}.4s",
                "fcvtn2 {words:v}.8h, {last:v}.4s",
                words = out(vreg) words,
                first = in(vreg) pair[0],
                last = in(vreg) pair[1],
                options(pure, nomem, nostack), // sets the flags of inexact and overflowing results
            );
        }
        // SAFETY: eight words of two bytes.
        unsafe { vst1q_u16(out.as_mut_ptr().cast(), words) }
    }
}

/// Rounds on the bits: half a unit in the last place is added, a hair less where the kept bit is even.
#[target_feature(enable = "neon")]
#[inline]
pub(super) fn bf16_neon(values: [float32x4_t; 4], out: &mut [bf16; 16]) {
    for (values, out) in values.into_iter().zip(out.as_chunks_mut::<4>().0) {
        let bits = vreinterpretq_u32_f32(values);
        let cut = vshrq_n_u32::<16>(bits);
        let even = vaddq_u32(vandq_u32(cut, vdupq_n_u32(1)), vdupq_n_u32(0x7fff));
        let rounded = vshrq_n_u32::<16>(vaddq_u32(bits, even));
        let quiet = vorrq_u32(cut, vdupq_n_u32(0x40)); // a NaN stays quiet
        let words = vmovn_u32(vbslq_u32(vceqq_f32(values, values), rounded, quiet));
        // SAFETY: four words of two bytes.
        unsafe { vst1_u16(out.as_mut_ptr().cast(), words) }
    }
}

#[target_feature(enable = "neon")]
#[inline]
pub(super) fn f32_neon(values: [float32x4_t; 4], out: &mut [f32; 16]) {
    for (values, out) in values.into_iter().zip(out.as_chunks_mut::<4>().0) {
        // SAFETY: four floats.
        unsafe { vst1q_f32(out.as_mut_ptr(), values) }
    }
}
