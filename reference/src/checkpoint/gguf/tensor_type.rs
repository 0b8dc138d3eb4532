//! The types of a tensor's blocks.

use std::fmt;

/// How numbers are stored: one by one, or in blocks with numbers of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, non_camel_case_types)] // as the format calls them
pub enum TensorType {
    F32,
    F16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_K,
    IQ2_XXS,
    IQ2_XS,
    IQ3_XXS,
    IQ1_S,
    IQ4_NL,
    IQ3_S,
    IQ2_S,
    IQ4_XS,
    I8,
    I16,
    I32,
    I64,
    F64,
    IQ1_M,
    Bf16,
    TQ1_0,
    TQ2_0,
    MXFP4,
}

use TensorType as T;

/// Every type: its number in a file, its name, the elements of a block and their bytes.
///
/// Source: `ggml.h` (`ggml_type`) and `ggml-common.h` (the blocks) of ggml. Numbers that are left out are of types that
/// were removed.
const TABLE: [(u32, TensorType, &str, [usize; 2]); 32] = [
    (0, T::F32, "F32", [1, 4]),
    (1, T::F16, "F16", [1, 2]),
    (2, T::Q4_0, "Q4_0", [32, 2 + 16]),
    (3, T::Q4_1, "Q4_1", [32, 2 + 2 + 16]),
    (6, T::Q5_0, "Q5_0", [32, 2 + 4 + 16]),
    (7, T::Q5_1, "Q5_1", [32, 2 + 2 + 4 + 16]),
    (8, T::Q8_0, "Q8_0", [32, 2 + 32]),
    (9, T::Q8_1, "Q8_1", [32, 2 + 2 + 32]),
    (10, T::Q2_K, "Q2_K", [256, 16 + 64 + 2 + 2]),
    (11, T::Q3_K, "Q3_K", [256, 32 + 64 + 12 + 2]),
    (12, T::Q4_K, "Q4_K", [256, 2 + 2 + 12 + 128]),
    (13, T::Q5_K, "Q5_K", [256, 2 + 2 + 12 + 32 + 128]),
    (14, T::Q6_K, "Q6_K", [256, 128 + 64 + 16 + 2]),
    (15, T::Q8_K, "Q8_K", [256, 4 + 256 + 32]),
    (16, T::IQ2_XXS, "IQ2_XXS", [256, 2 + 64]),
    (17, T::IQ2_XS, "IQ2_XS", [256, 2 + 64 + 8]),
    (18, T::IQ3_XXS, "IQ3_XXS", [256, 2 + 64 + 32]),
    (19, T::IQ1_S, "IQ1_S", [256, 2 + 32 + 16]),
    (20, T::IQ4_NL, "IQ4_NL", [32, 2 + 16]),
    (21, T::IQ3_S, "IQ3_S", [256, 2 + 64 + 8 + 32 + 4]),
    (22, T::IQ2_S, "IQ2_S", [256, 2 + 64 + 8 + 8]),
    (23, T::IQ4_XS, "IQ4_XS", [256, 2 + 2 + 4 + 128]),
    (24, T::I8, "I8", [1, 1]),
    (25, T::I16, "I16", [1, 2]),
    (26, T::I32, "I32", [1, 4]),
    (27, T::I64, "I64", [1, 8]),
    (28, T::F64, "F64", [1, 8]),
    (29, T::IQ1_M, "IQ1_M", [256, 32 + 16 + 8]),
    (30, T::Bf16, "BF16", [1, 2]),
    (34, T::TQ1_0, "TQ1_0", [256, 48 + 4 + 2]),
    (35, T::TQ2_0, "TQ2_0", [256, 64 + 2]),
    (39, T::MXFP4, "MXFP4", [32, 1 + 16]),
];

impl TensorType {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.into_iter().map(|(_, ty, ..)| ty)
    }

    /// The type of a number.
    pub fn of(number: u32) -> Option<Self> {
        TABLE.iter().find(|(own, ..)| *own == number).map(|(_, ty, ..)| *ty)
    }

    /// The type of a name.
    pub fn named(name: &str) -> Option<Self> {
        TABLE.iter().find(|(_, _, own, _)| *own == name).map(|(_, ty, ..)| *ty)
    }

    /// Its number in a file.
    pub fn number(self) -> u32 {
        self.row().0
    }

    /// As the format calls it.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// Elements of a block, and its bytes.
    pub fn block(self) -> [usize; 2] {
        self.row().3
    }

    /// Bytes of so many elements, whole blocks of them; `None` if they are not, or too many.
    pub fn bytes(self, elements: usize) -> Option<usize> {
        let [of_block, bytes] = self.block();
        elements.is_multiple_of(of_block).then(|| (elements / of_block).checked_mul(bytes)).flatten()
    }

    fn row(self) -> (u32, Self, &'static str, [usize; 2]) {
        let row = TABLE.iter().find(|(_, ty, ..)| *ty == self);
        *row.expect("every type has a row: the table's length is their number")
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
