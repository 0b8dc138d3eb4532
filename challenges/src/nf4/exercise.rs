//! (A) `nf4`: dequantise NF4 in one fused kernel.

#![allow(unsafe_code)] // vector instructions and streaming stores have no safe form

use challenges::nf4::{Absmax, Nf4, Output, Weight};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use kernels::{Cpu, Vector};

/// The attempt.
pub struct Exercise;

impl Nf4 for Exercise {
    // ANCHOR: nf4-step-1
    // step A.1: split each byte into its two codes, high nibble first
    fn unpack(&self, packed: &[u8], codes: &mut [u8]) {
        todo!("A.1: split each byte into its two codes, high nibble first")
    }
    // ANCHOR_END: nf4-step-1

    // ANCHOR: nf4-step-2
    // step A.2: replace each code by its table value
    fn look_up(&self, codes: &[u8], table: &[f32; 16], values: &mut [f32]) {
        todo!("A.2: replace each code by its table value")
    }
    // ANCHOR_END: nf4-step-2

    // ANCHOR: nf4-step-3
    // step A.3: multiply one block's table values by the block's scale
    fn block(&self, packed: &[u8], table: &[f32; 16], absmax: f32, values: &mut [f32]) {
        todo!("A.3: multiply one block's table values by the block's scale")
    }
    // ANCHOR_END: nf4-step-3

    // ANCHOR: nf4-step-4
    // step A.4: find a block's scale, through both levels where it is quantised itself
    fn absmax(&self, absmax: &Absmax<'_>, block: usize) -> f32 {
        todo!("A.4: find a block's scale, through both levels where it is quantised itself")
    }
    // ANCHOR_END: nf4-step-4

    // ANCHOR: nf4-step-5
    // step A.5: dequantise the whole weight in one pass, rounded once to the output's type
    fn dequantize(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        todo!("A.5: dequantise the whole weight in one pass, rounded once to the output's type")
    }
    // ANCHOR_END: nf4-step-5

    // ANCHOR: nf4-step-6
    // step A.6: the same bits with vector instructions, streaming stores and all threads
    fn dequantize_fast(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        todo!("A.6: the same bits with vector instructions, streaming stores and all threads")
    }
    // ANCHOR_END: nf4-step-6
}

impl Exercise {
    // step A.5: cut the output into blocks; scale, multiply and round each block's elements
    fn pass<T: Send>(&self, cpu: &Cpu, weight: &Weight<'_>, out: &mut [T], round: impl Fn(f32) -> T + Sync) {
        todo!("A.5: cut the output into blocks; scale, multiply and round each block's elements")
    }
}

/// The 16-bit type whose bit patterns a block's table holds.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    F16,
    Bf16,
}

/// One thread's share: `out` begins with block number `block`, and `packed` with that block's codes.
struct Piece<'a> {
    weight: &'a Weight<'a>,
    kind: Kind,
    block: usize,
    packed: &'a [u8],
    out: &'a mut [u16],
}

// step A.6: one launch; each piece goes to the loop written for the vector unit that `cpu` names
fn fast(cpu: &Cpu, weight: &Weight<'_>, kind: Kind, out: &mut [u16]) {
    todo!("A.6: one launch; each piece goes to the loop written for the vector unit that `cpu` names")
}

// step A.6: the loop without vector instructions
fn piece_portable(piece: Piece<'_>) {
    todo!("A.6: the loop without vector instructions")
}

// step A.6: one value to the output's type, nearest even, as its bits
fn round(kind: Kind, value: f32) -> u16 {
    todo!("A.6: one value to the output's type, nearest even, as its bits")
}

// step A.6: the loop with AVX-512: 32 outputs by one 16-bit permutation, one streaming store
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
unsafe fn piece_avx512(piece: Piece<'_>) {
    todo!("A.6: the loop with AVX-512: 32 outputs by one 16-bit permutation, one streaming store")
}

// step A.6: 16 floats to bfloat16 bits, nearest even
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn round_to_bf16_avx512(values: core::arch::x86_64::__m512) -> core::arch::x86_64::__m256i {
    todo!("A.6: 16 floats to bfloat16 bits, nearest even")
}

// step A.6: the loop with AVX2: 32 outputs by two byte shuffles, two streaming stores
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
unsafe fn piece_avx2(piece: Piece<'_>) {
    todo!("A.6: the loop with AVX2: 32 outputs by two byte shuffles, two streaming stores")
}

// step A.6: a block's 16 products to two tables: the results' low bytes, and their high ones
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn table_avx2(
    kind: Kind,
    first8: core::arch::x86_64::__m256,
    last8: core::arch::x86_64::__m256,
) -> (core::arch::x86_64::__m256i, core::arch::x86_64::__m256i) {
    todo!("A.6: a block's 16 products to two tables: the results' low bytes, and their high ones")
}

// step A.6: 8 floats to bfloat16 bits, nearest even
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn round_to_bf16_avx2(values: core::arch::x86_64::__m256) -> core::arch::x86_64::__m256i {
    todo!("A.6: 8 floats to bfloat16 bits, nearest even")
}

// step A.6: the loop with NEON: 32 outputs by two byte tables, two non-temporal pair stores
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
unsafe fn piece_neon(piece: Piece<'_>) {
    todo!("A.6: the loop with NEON: 32 outputs by two byte tables, two non-temporal pair stores")
}
