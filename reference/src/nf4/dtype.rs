//! The types that a weight is decoded to, and the last rounding.
//!
//! An output is a bit pattern, so that two of them are equal or not: a comparison of values would take -0 for
//! 0 and no NaN for itself. Rounding is to nearest, ties to even; f16 keeps its subnormals and goes to
//! infinity from 65520 on, bf16 has the range of f32.
//!
//! These three are what the format knows, and so a set of their own: a decoder has no case for a byte or a whole
//! number. The project's one type of elements is [`Dtype`]; the two meet here alone, every output type being one of
//! those, and one of those an output type where it is a float.

use half::{bf16, f16};

use super::Error;
use crate::dtype::Dtype;

/// The type that a weight had before it was quantised, and has again afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputDtype {
    /// IEEE binary16: 5 bits of exponent, 10 of fraction.
    F16,
    /// The upper half of an f32: 8 bits of exponent, 7 of fraction.
    Bf16,
    /// IEEE binary32.
    F32,
}

impl OutputDtype {
    /// The nearest value of this type, ties to even, as its bit pattern in the low bits.
    pub fn round(self, w: f32) -> u32 {
        match self {
            OutputDtype::F16 => f16::from_f32(w).to_bits() as u32,
            OutputDtype::Bf16 => bf16::from_f32(w).to_bits() as u32,
            OutputDtype::F32 => w.to_bits(),
        }
    }

    /// What a bit pattern of this type stands for.
    pub fn value(self, bits: u32) -> f32 {
        match self {
            OutputDtype::F16 => f16::from_bits(bits as u16).to_f32(),
            OutputDtype::Bf16 => bf16::from_bits(bits as u16).to_f32(),
            OutputDtype::F32 => f32::from_bits(bits),
        }
    }

    /// Size of one element in bytes.
    pub fn bytes(self) -> usize {
        if self == OutputDtype::F32 { 4 } else { 2 }
    }
}

impl From<OutputDtype> for Dtype {
    fn from(dtype: OutputDtype) -> Self {
        match dtype {
            OutputDtype::F32 => Dtype::F32,
            OutputDtype::F16 => Dtype::F16,
            OutputDtype::Bf16 => Dtype::Bf16,
        }
    }
}

/// Fails for what is no float.
impl TryFrom<Dtype> for OutputDtype {
    type Error = Error;

    fn try_from(dtype: Dtype) -> Result<Self, Error> {
        match dtype {
            Dtype::F32 => Ok(OutputDtype::F32),
            Dtype::F16 => Ok(OutputDtype::F16),
            Dtype::Bf16 => Ok(OutputDtype::Bf16),
            Dtype::U8 | Dtype::I32 => Err(Error::OutputDtype { got: dtype.name() }),
        }
    }
}
