//! Outputs of any type, handled as bit patterns.

use challenges::nf4::{Dtype, Output, Weight};
use half::{bf16, f16};

/// The type of an output's elements.
pub(super) fn dtype(out: &Output<'_>) -> Dtype {
    match out {
        Output::F16(_) => Dtype::F16,
        Output::Bf16(_) => Dtype::Bf16,
        Output::F32(_) => Dtype::F32,
    }
}

/// The same output, borrowed once more.
pub(super) fn again<'a>(out: &'a mut Output<'_>) -> Output<'a> {
    match out {
        Output::F16(out) => Output::F16(out),
        Output::Bf16(out) => Output::Bf16(out),
        Output::F32(out) => Output::F32(out),
    }
}

/// The address of element 0.
pub(super) fn address(out: &mut Output<'_>) -> usize {
    match out {
        Output::F16(out) => out.as_mut_ptr() as usize,
        Output::Bf16(out) => out.as_mut_ptr() as usize,
        Output::F32(out) => out.as_mut_ptr() as usize,
    }
}

/// The bit pattern of element `e`.
pub(super) fn get(out: &Output<'_>, e: usize) -> u32 {
    match out {
        Output::F16(out) => out[e].to_bits() as u32,
        Output::Bf16(out) => out[e].to_bits() as u32,
        Output::F32(out) => out[e].to_bits(),
    }
}

/// Sets element `e` to a bit pattern.
pub(super) fn put(out: &mut Output<'_>, e: usize, bits: u32) {
    match out {
        Output::F16(out) => out[e] = f16::from_bits(bits as u16),
        Output::Bf16(out) => out[e] = bf16::from_bits(bits as u16),
        Output::F32(out) => out[e] = f32::from_bits(bits),
    }
}

/// Sets element `e` to the value nearest to `w`.
pub(super) fn round(out: &mut Output<'_>, e: usize, w: f32) {
    let bits = dtype(out).round(w);
    put(out, e, bits);
}

/// The bit patterns of the first `len` elements.
pub(super) fn bits(out: &Output<'_>, len: usize) -> Vec<u32> {
    (0..len).map(|e| get(out, e)).collect()
}

/// The code of element `e`.
pub(super) fn code(weight: &Weight<'_>, e: usize) -> usize {
    let byte = weight.packed[e / 2];
    usize::from(if e.is_multiple_of(2) { byte >> 4 } else { byte & 15 })
}
