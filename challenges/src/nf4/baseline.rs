//! What an attempt is compared with: the three passes of the usual library.
//!
//! (1) the 8-bit scales to an f32 buffer, (2) the offset added to it, (3) the 4-bit codes to the output: a
//! table look-up, a multiplication and a conversion for each element, ordinary stores. All threads. The third
//! pass takes 16 elements at a time, in the vector instructions that the machine has: AVX-512, AVX2 with F16C,
//! or NEON. So a ratio to it measures fusion, not vectorisation. The library's own CPU code has a vector form
//! for AVX-512 only. The buffer between the passes is kept from call to call, as a caching allocator would.
//!
//! Bytes an element at block size 64, 16-bit output: 0.5 + 2 as in one pass, and 1/64 + 4/64 for pass one,
//! 8/64 for pass two, 4/64 for the scales of pass three; and every output line is read before it is
//! overwritten, 2 more, because the stores are ordinary.
//!
//! `tests/peers/nf4_cpu.py` times the library's entry points on the same machine.

#![allow(unsafe_code)] // vector code

#[cfg(target_arch = "aarch64")]
mod arm;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use half::{bf16, f16};
use kernels::{Cpu, Vector};

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
                    let groups = piece.chunks_mut(*block_size).zip(codes[first..].chunks(*block_size));
                    for ((piece, codes), group) in groups.zip(&scales[first / block_size..]) {
                        for (scale, code) in piece.iter_mut().zip(codes) {
                            *scale = table[*code as usize] * group;
                        }
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

/// The third pass: each piece by the loop for the vector unit that `cpu` names.
fn codes_to_values<T: Element>(cpu: &Cpu, weight: &Weight<'_>, scales: &[f32], out: &mut [T]) {
    cpu.launch(out, weight.block_size, |first, out| {
        let (packed, scales) = (&weight.packed[first / 2..], &scales[first / weight.block_size..]);
        let piece = Piece { table: weight.table, block_size: weight.block_size, packed, scales, out };
        match cpu.vector() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the device names a vector unit only where the machine has it.
            Vector::Avx512 => unsafe { x86::piece_avx512(piece) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Vector::Avx2 => unsafe { x86::piece_avx2(piece) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Vector::Neon => unsafe { arm::piece_neon(piece) },
            _ => portable::piece(piece),
        }
    });
}
// ANCHOR_END: nf4-baseline

/// One thread's share of the third pass: whole blocks, the last of which may be short.
struct Piece<'a, T> {
    table: &'a [f32; 16],
    block_size: usize,
    packed: &'a [u8],
    scales: &'a [f32],
    out: &'a mut [T],
}

impl<'a, T> Piece<'a, T> {
    /// Each block's scale, its codes and its outputs.
    #[inline]
    fn blocks(self) -> impl Iterator<Item = (f32, &'a [u8], &'a mut [T])> {
        let blocks = self.out.chunks_mut(self.block_size).zip(self.packed.chunks(self.block_size / 2));
        blocks.zip(self.scales).map(|((out, packed), scale)| (*scale, packed, out))
    }
}

/// An output type: how values are rounded to it and stored, one at a time or 16.
trait Element: Send + Sized {
    fn round(value: f32) -> Self;

    /// # Safety
    /// The machine has AVX-512 F, BW, VL and F16C.
    #[cfg(target_arch = "x86_64")]
    unsafe fn store_avx512(values: core::arch::x86_64::__m512, out: &mut [Self; 16]);

    /// # Safety
    /// The machine has AVX2 and F16C.
    #[cfg(target_arch = "x86_64")]
    unsafe fn store_avx2(values: [core::arch::x86_64::__m256; 2], out: &mut [Self; 16]);

    /// # Safety
    /// The machine has NEON.
    #[cfg(target_arch = "aarch64")]
    unsafe fn store_neon(values: [core::arch::aarch64::float32x4_t; 4], out: &mut [Self; 16]);
}

macro_rules! element {
    ($type:ty, $round:path, $avx512:path, $avx2:path, $neon:path) => {
        impl Element for $type {
            #[inline]
            fn round(value: f32) -> Self {
                $round(value)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
            #[inline]
            unsafe fn store_avx512(values: core::arch::x86_64::__m512, out: &mut [Self; 16]) {
                $avx512(values, out);
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,f16c")]
            #[inline]
            unsafe fn store_avx2(values: [core::arch::x86_64::__m256; 2], out: &mut [Self; 16]) {
                $avx2(values, out);
            }

            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "neon")]
            #[inline]
            unsafe fn store_neon(values: [core::arch::aarch64::float32x4_t; 4], out: &mut [Self; 16]) {
                $neon(values, out);
            }
        }
    };
}

element!(f16, portable::to_f16, x86::f16_avx512, x86::f16_avx2, arm::f16_neon);
element!(bf16, portable::to_bf16, x86::bf16_avx512, x86::bf16_avx2, arm::bf16_neon);
element!(f32, std::convert::identity, x86::f32_avx512, x86::f32_avx2, arm::f32_neon);
