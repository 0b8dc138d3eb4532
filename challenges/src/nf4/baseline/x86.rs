//! The third pass in AVX-512 and in AVX2 with F16C: eight bytes in and 16 values out at a time.

#![allow(clippy::wildcard_imports)] // the names of instructions

use core::arch::x86_64::*;

use half::{bf16, f16};

use super::portable::short;
use super::{Element, Piece};

/// # Safety
/// The machine has AVX-512 F, BW, VL and F16C.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
pub(super) unsafe fn piece_avx512<T: Element>(piece: Piece<'_, T>) {
    let shifts = _mm512_set_epi32(0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4);
    let spread = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0); // byte of each lane
    let own = piece.table;
    // SAFETY: 16 floats.
    let table = unsafe { _mm512_loadu_ps(own.as_ptr()) };
    for (scale, packed, out) in piece.blocks() {
        let scales = _mm512_set1_ps(scale);
        let (sixteens, rest) = out.as_chunks_mut::<16>();
        for (values, bytes) in sixteens.iter_mut().zip(packed.as_chunks::<8>().0) {
            let bytes = _mm512_set1_epi64(i64::from_le_bytes(*bytes));
            let codes = _mm512_srlv_epi32(_mm512_shuffle_epi8(bytes, spread), shifts);
            // SAFETY: this function has the same features.
            unsafe { T::store_avx512(_mm512_mul_ps(_mm512_permutexvar_ps(codes, table), scales), values) };
        }
        short(own, scale, &packed[sixteens.len() * 8..], rest);
    }
}

/// # Safety
/// The machine has AVX2 and F16C.
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn piece_avx2<T: Element>(piece: Piece<'_, T>) {
    let nibble = _mm_set1_epi8(15);
    let own = piece.table;
    // SAFETY: 16 floats.
    let table = unsafe { [_mm256_loadu_ps(own.as_ptr()), _mm256_loadu_ps(own.as_ptr().add(8))] };
    for (scale, packed, out) in piece.blocks() {
        let scales = _mm256_set1_ps(scale);
        let (sixteens, rest) = out.as_chunks_mut::<16>();
        for (values, bytes) in sixteens.iter_mut().zip(packed.as_chunks::<8>().0) {
            let bytes = _mm_cvtsi64_si128(i64::from_le_bytes(*bytes));
            let even = _mm_and_si128(_mm_srli_epi16::<4>(bytes), nibble);
            let codes = _mm_unpacklo_epi8(even, _mm_and_si128(bytes, nibble)); // (16,) u8
            let first = _mm256_mul_ps(look_up_avx2(table, codes), scales);
            let last = _mm256_mul_ps(look_up_avx2(table, _mm_srli_si128::<8>(codes)), scales);
            // SAFETY: this function has the same features.
            unsafe { T::store_avx2([first, last], values) };
        }
        short(own, scale, &packed[sixteens.len() * 8..], rest);
    }
}

/// The table's values for the first eight of some codes. VPERMPS reads an index's lowest three bits; the fourth, moved
/// to the sign, chooses the half of the table.
#[target_feature(enable = "avx2")]
#[inline]
fn look_up_avx2([low, high]: [__m256; 2], codes: __m128i) -> __m256 {
    let codes = _mm256_cvtepu8_epi32(codes);
    let is_high = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(codes));
    let (low, high) = (_mm256_permutevar8x32_ps(low, codes), _mm256_permutevar8x32_ps(high, codes));
    _mm256_blendv_ps(low, high, is_high)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
#[inline]
pub(super) fn f16_avx512(values: __m512, out: &mut [f16; 16]) {
    let words = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values);
    // SAFETY: 16 words of two bytes.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), words) }
}

/// Rounds on the bits: half a unit in the last place is added, a hair less where the kept bit is even.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
#[inline]
pub(super) fn bf16_avx512(values: __m512, out: &mut [bf16; 16]) {
    let bits = _mm512_castps_si512(values);
    let cut = _mm512_srli_epi32::<16>(bits);
    let even = _mm512_add_epi32(_mm512_and_si512(cut, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x7fff));
    let rounded = _mm512_srli_epi32::<16>(_mm512_add_epi32(bits, even));
    let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(values, values);
    let words = _mm512_mask_or_epi32(rounded, nan, cut, _mm512_set1_epi32(0x40)); // a NaN stays quiet
    // SAFETY: 16 words of two bytes.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(words)) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
#[inline]
pub(super) fn f32_avx512(values: __m512, out: &mut [f32; 16]) {
    // SAFETY: 16 floats.
    unsafe { _mm512_storeu_ps(out.as_mut_ptr(), values) }
}

#[target_feature(enable = "avx2,f16c")]
#[inline]
pub(super) fn f16_avx2([first, last]: [__m256; 2], out: &mut [f16; 16]) {
    let first = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(first);
    let last = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(last);
    // SAFETY: 16 words of two bytes.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm256_set_m128i(last, first)) }
}

/// VPACKUSDW packs within 128-bit halves, so the quarters of its result are put in order.
#[target_feature(enable = "avx2,f16c")]
#[inline]
pub(super) fn bf16_avx2([first, last]: [__m256; 2], out: &mut [bf16; 16]) {
    let packed = _mm256_packus_epi32(round_to_bf16_avx2(first), round_to_bf16_avx2(last));
    // SAFETY: 16 words of two bytes.
    unsafe {
        _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm256_permute4x64_epi64::<0b11_01_10_00>(packed));
    }
}

/// The bits of bfloat16 in the low halves of eight words. Table and scales are finite, so a NaN is the processor's own
/// and has zeros where the addition could carry.
#[target_feature(enable = "avx2")]
#[inline]
fn round_to_bf16_avx2(values: __m256) -> __m256i {
    let bits = _mm256_castps_si256(values);
    let kept = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    let even = _mm256_add_epi32(kept, _mm256_set1_epi32(0x7fff));
    _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, even))
}

#[target_feature(enable = "avx2,f16c")]
#[inline]
pub(super) fn f32_avx2([first, last]: [__m256; 2], out: &mut [f32; 16]) {
    // SAFETY: 16 floats.
    unsafe {
        _mm256_storeu_ps(out.as_mut_ptr(), first);
        _mm256_storeu_ps(out.as_mut_ptr().add(8), last);
    }
}
