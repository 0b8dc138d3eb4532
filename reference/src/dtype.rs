//! The type of an element, wherever numbers are described: in a graph, in a quantised weight, in a file.
//!
//! There is one such type. Others meet it at a wall, each in one place: those of a safetensors file here; those that a
//! weight can be decoded to ([`crate::nf4::OutputDtype`], the floats among these) in that file; the
//! machine's in the compiler.

use safetensors::tensor::Dtype as InFile;

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dtype {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// A byte; also the type of a condition, 0 or 1.
    U8,
    /// A signed integer; its arithmetic wraps around.
    I32,
}

impl Dtype {
    /// Every type, with its name in a graph's text.
    pub const NAMES: [(Dtype, &str); 5] = [
        (Dtype::F32, "f32"),
        (Dtype::F16, "f16"),
        (Dtype::Bf16, "bf16"),
        (Dtype::U8, "u8"),
        (Dtype::I32, "i32"),
    ];

    /// Its name in a graph's text.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(one, _)| *one == self).map_or("?", |(_, name)| name)
    }

    /// Whether it is f32, f16 or bf16.
    pub fn is_float(self) -> bool {
        matches!(self, Dtype::F32 | Dtype::F16 | Dtype::Bf16)
    }

    /// Size of one element in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Dtype::F32 | Dtype::I32 => 4,
            Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::U8 => 1,
        }
    }

    /// The type of a tensor in a safetensors file; `None` if nothing here computes with it.
    pub fn of_file(stored: InFile) -> Option<Self> {
        Self::NAMES.iter().map(|(dtype, _)| *dtype).find(|dtype| dtype.in_file() == stored)
    }

    /// The same in a safetensors file.
    pub fn in_file(self) -> InFile {
        match self {
            Dtype::F32 => InFile::F32,
            Dtype::F16 => InFile::F16,
            Dtype::Bf16 => InFile::BF16,
            Dtype::U8 => InFile::U8,
            Dtype::I32 => InFile::I32,
        }
    }
}
