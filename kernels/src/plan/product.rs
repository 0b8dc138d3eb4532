//! A product of matrices, and the ways in which a device may compute it.

use super::{Memory, View};
use crate::tile::Element;

/// A product of matrices, `to = scale a b`, or `to += scale a b`: sums in f32, rounded once to the type of the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    /// Leading dimensions, each of which all three views have a stride for.
    pub batch: Vec<usize>,
    /// Rows of `a` and of the result.
    pub m: usize,
    /// Columns of `b` and of the result.
    pub n: usize,
    /// Columns of `a`, rows of `b`.
    pub k: usize,
    /// (batch.., m, k)
    pub a: View,
    /// (batch.., k, n)
    pub b: View,
    /// What `a`, `b` and the result are made of: f32, f16 or bf16.
    pub elements: [Element; 3],
    /// (batch.., m, n)
    pub to: View,
    /// Whether the result is added to what is there.
    pub add: bool,
    /// What the product is multiplied with.
    pub scale: f32,
    /// How it is computed.
    pub choice: Choice,
}

/// How a product is computed: the candidates of tuning. On a CPU, how it is cut among threads; on a card, by which of
/// its library's kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Choice {
    /// As the library does by itself.
    #[default]
    Library,
    /// Each thread its own rows of the result.
    Rows,
    /// Each thread its own columns of the result.
    Columns,
    /// Each thread its own matrices of the batch.
    Batch,
    /// Not at all.
    Single,
    /// Each thread its own blocks of the result, with the factors copied stretch by stretch into memory of its own that
    /// its cache holds. A product with a factor or a result that is not f32 is always computed so.
    Packed,
    /// On a card: one of the algorithms that cuBLASLt's heuristic proposes, by number, the one that it thinks fastest
    /// first.
    Algorithm(u8),
}

impl Choice {
    /// Every one on a CPU.
    pub const ALL: [Choice; 6] =
        [Choice::Library, Choice::Rows, Choice::Columns, Choice::Batch, Choice::Single, Choice::Packed];

    /// The choice for a product that was never tried, by the rows, columns and terms of each matrix.
    ///
    /// Where a factor is large and is read few times, copying it is much of the work, and the library copies it slowly.
    /// Two cores of an Intel Xeon with AVX-512, GFLOP/s of the library's fastest choice and packed, of rows that meet
    /// a weight of 32000 by 512: their logits, the logits' product with the weight, the weight's gradient.
    ///
    /// | rows | library | packed |
    /// |---:|---|---|
    /// | 64 | 118, 121, 127 | 161, 125, 143 |
    /// | 192 | 180, 197, 179 | 187, 211, 198 |
    /// | 2048 | 241, 199, 159 | 199, 182, 183 |
    ///
    /// With many rows the library is as fast or faster, but it copies the whole weight into memory that it takes for
    /// each call, 65 MB here, which no plan would know of. Packed products take memory of the threads, which
    /// [`scratch_bytes`](crate::Executable::scratch_bytes) counts, and nothing else but a few bytes that the library
    /// takes for each call. Tuning may choose otherwise.
    pub fn by_shape(m: usize, n: usize, k: usize) -> Self {
        let least = m.min(n).min(k);
        let is_flat = least >= 32 && m.max(n).max(k) >= 16 * least;
        if is_flat { Choice::Packed } else { Choice::Library }
    }
}

impl Product {
    /// Puts its matrices into an arena of their own, one after the other, and returns the bytes of it.
    pub(crate) fn move_to_arena(&mut self) -> usize {
        let mut bytes: usize = 0;
        for view in [&mut self.a, &mut self.b, &mut self.to] {
            view.memory = Memory::Arena(bytes);
            bytes = bytes.saturating_add(view.bytes.max(1)).saturating_add(63) / 64 * 64;
        }
        bytes
    }
}
