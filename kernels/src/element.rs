//! The types of the numbers that memory holds.

use std::fmt;

/// A number type in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Element {
    /// One byte, read as a whole number.
    U8,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// Single precision.
    F32,
    /// A whole number.
    I32,
}

impl Element {
    /// Size in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
        }
    }

    /// Whether it is a whole number.
    pub fn is_whole(self) -> bool {
        matches!(self, Self::U8 | Self::I32)
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::U8 => "u8",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::I32 => "i32",
        })
    }
}
