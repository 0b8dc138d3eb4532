//! What an attempt is compared with: the three passes of the usual library.
//!
//! (1) the 8-bit scales to an f32 buffer, (2) the offset added to it, (3) the 4-bit codes to the output: a
//! table look-up, a multiplication and a conversion for each element, ordinary stores. All threads. Like the
//! library's own CPU code, the third pass takes 16 elements at a time where the machine has AVX-512 and one
//! by one elsewhere. The buffer between the passes is kept from call to call, as a caching allocator would.
//!
//! Bytes an element at block size 64, 16-bit output: 0.5 + 2 as in one pass, and 1/64 + 4/64 for pass one,
//! 8/64 for pass two, 4/64 for the scales of pass three; and every output line is read before it is
//! overwritten, 2 more, because the stores are ordinary.
//!
//! `tests/peers/nf4_cpu.py` times the library's entry points on the same machine.

#![allow(unsafe_code)] // vector code

use half::{bf16, f16};
use kernels::Cpu;
#[cfg(target_arch = "x86_64")]
use kernels::Vector;

use super::{Absmax, Output, Weight};
use crate::given;

/// The three-pass dequantiser with the buffer between its passes.
#[derive(Debug, Default)]
pub struct Baseline {
    scales: Vec<f32>, // (blocks,)
}

// ANCHOR: nf4-baseline
impl Baseline {
    /// Dequantises `weight` into `out`: three launches (one where the scales are f32 already).
    pub fn dequantize(&mut self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        given::NF4.count();
        let scales = match &weight.absmax {
            Absmax::Single(scales) => scales,
            Absmax::Double { codes, table, scales, block_size, offset } => {
                self.scales.resize(codes.len(), 0.0);
                cpu.launch(&mut self.scales, *block_size, |first, piece| {
                    for (b, scale) in (first..).zip(piece) {
                        *scale = table[codes[b] as usize] * scales[b / block_size];
                    }
                });
                cpu.launch(&mut self.scales, *block_size, |_, piece| {
                    for scale in piece {
                        *scale += offset;
                    }
                });
                self.scales.as_slice()
            }
        };
        match out {
            Output::F16(out) => codes_to_values(cpu, weight, scales, out),
            Output::Bf16(out) => codes_to_values(cpu, weight, scales, out),
            Output::F32(out) => codes_to_values(cpu, weight, scales, out),
        }
    }
}

/// The third pass, block by block.
fn codes_to_values<T: Element>(cpu: &Cpu, weight: &Weight<'_>, scales: &[f32], out: &mut [T]) {
    cpu.launch(out, weight.block_size, |first, piece| {
        let scales = &scales[first / weight.block_size..];
        let packed = &weight.packed[first / 2..];
        match cpu.vector() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the device names a vector unit only where the machine has it.
            Vector::Avx512 => unsafe { piece_by_sixteens(weight, scales, packed, piece) },
            _ => piece_by_pairs(weight, scales, packed, piece),
        }
    });
}

/// The blocks of a piece, one value at a time.
fn piece_by_pairs<T: Element>(weight: &Weight<'_>, scales: &[f32], packed: &[u8], out: &mut [T]) {
    let packed = packed.chunks(weight.block_size / 2);
    for ((block, packed), scale) in out.chunks_mut(weight.block_size).zip(packed).zip(scales) {
        by_pairs(weight.table, *scale, packed, block);
    }
}

/// A byte in, two values out.
fn by_pairs<T: Element>(table: &[f32; 16], scale: f32, packed: &[u8], block: &mut [T]) {
    let value = |code: u8| T::round(table[code as usize] * scale);
    let (pairs, odd) = block.as_chunks_mut::<2>();
    for (pair, byte) in pairs.iter_mut().zip(packed) {
        *pair = [value(byte >> 4), value(byte & 15)];
    }
    if let ([last], Some(byte)) = (odd, packed.get(pairs.len())) {
        *last = value(byte >> 4);
    }
}
// ANCHOR_END: nf4-baseline

/// The blocks of a piece, eight bytes in and sixteen values out at a time.
///
/// # Safety
/// The machine has AVX-512 F, BW, VL and F16C.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
unsafe fn piece_by_sixteens<T: Element>(weight: &Weight<'_>, scales: &[f32], packed: &[u8], out: &mut [T]) {
    use core::arch::x86_64::*;
    let shifts = _mm512_set_epi32(0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4);
    let spread = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0); // byte of each lane
    // SAFETY: 16 floats.
    let table = unsafe { _mm512_loadu_ps(weight.table.as_ptr()) };
    let blocks = out.chunks_mut(weight.block_size).zip(packed.chunks(weight.block_size / 2));
    for ((block, packed), scale) in blocks.zip(scales) {
        let scales = _mm512_set1_ps(*scale);
        let (sixteens, rest) = block.as_chunks_mut::<16>();
        for (values, bytes) in sixteens.iter_mut().zip(packed.as_chunks::<8>().0) {
            let bytes = _mm512_set1_epi64(i64::from_le_bytes(*bytes));
            let codes = _mm512_srlv_epi32(_mm512_shuffle_epi8(bytes, spread), shifts);
            // SAFETY: this function has the same features.
            unsafe { T::store(_mm512_mul_ps(_mm512_permutexvar_ps(codes, table), scales), values) };
        }
        by_pairs(weight.table, *scale, &packed[sixteens.len() * 8..], rest);
    }
}

/// An output type: how a value is rounded to it, one at a time or sixteen.
trait Element: Send + Sized {
    fn round(value: f32) -> Self;

    /// # Safety
    /// The machine has AVX-512 F, BW, VL.
    #[cfg(target_arch = "x86_64")]
    unsafe fn store(values: core::arch::x86_64::__m512, out: &mut [Self; 16]);
}

impl Element for f16 {
    fn round(value: f32) -> Self {
        f16::from_f32(value)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
    unsafe fn store(values: core::arch::x86_64::__m512, out: &mut [Self; 16]) {
        use core::arch::x86_64::{_MM_FROUND_TO_NEAREST_INT, _mm256_storeu_si256, _mm512_cvtps_ph};
        let words = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values);
        // SAFETY: 16 words of two bytes.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), words) }
    }
}

impl Element for bf16 {
    fn round(value: f32) -> Self {
        bf16::from_f32(value)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
    unsafe fn store(values: core::arch::x86_64::__m512, out: &mut [Self; 16]) {
        use core::arch::x86_64::{
            _CMP_UNORD_Q, _mm256_storeu_si256, _mm512_add_epi32, _mm512_and_si512, _mm512_castps_si512,
            _mm512_cmp_ps_mask, _mm512_cvtepi32_epi16, _mm512_mask_or_epi32, _mm512_set1_epi32,
            _mm512_srli_epi32,
        };
        let bits = _mm512_castps_si512(values);
        let cut = _mm512_srli_epi32::<16>(bits);
        let even = _mm512_add_epi32(_mm512_and_si512(cut, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x7fff));
        let rounded = _mm512_srli_epi32::<16>(_mm512_add_epi32(bits, even));
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(values, values);
        let words = _mm512_mask_or_epi32(rounded, nan, cut, _mm512_set1_epi32(0x40)); // a NaN stays quiet
        // SAFETY: 16 words of two bytes.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(words)) }
    }
}

impl Element for f32 {
    fn round(value: f32) -> Self {
        value
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
    unsafe fn store(values: core::arch::x86_64::__m512, out: &mut [Self; 16]) {
        // SAFETY: 16 floats.
        unsafe { core::arch::x86_64::_mm512_storeu_ps(out.as_mut_ptr(), values) }
    }
}
