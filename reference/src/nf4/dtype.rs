//! The types that a weight is decoded to, and the last rounding.
//!
//! An output is a bit pattern, so that two of them are equal or not: a comparison of values would take -0 for
//! 0 and no NaN for itself. Rounding is to nearest, ties to even; f16 keeps its subnormals and goes to
//! infinity from 65520 on, bf16 has the range of f32.

use half::{bf16, f16};

/// The type that a weight had before it was quantised, and has again afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// IEEE binary16: 5 bits of exponent, 10 of fraction.
    F16,
    /// The upper half of an f32: 8 bits of exponent, 7 of fraction.
    Bf16,
    /// IEEE binary32.
    F32,
}

impl Dtype {
    /// The nearest value of this type, ties to even, as its bit pattern in the low bits.
    pub fn round(self, w: f32) -> u32 {
        match self {
            Dtype::F16 => f16::from_f32(w).to_bits() as u32,
            Dtype::Bf16 => bf16::from_f32(w).to_bits() as u32,
            Dtype::F32 => w.to_bits(),
        }
    }

    /// What a bit pattern of this type stands for.
    pub fn value(self, bits: u32) -> f32 {
        match self {
            Dtype::F16 => f16::from_bits(bits as u16).to_f32(),
            Dtype::Bf16 => bf16::from_bits(bits as u16).to_f32(),
            Dtype::F32 => f32::from_bits(bits),
        }
    }

    /// Size of one element in bytes.
    pub fn bytes(self) -> usize {
        if self == Dtype::F32 { 4 } else { 2 }
    }
}
