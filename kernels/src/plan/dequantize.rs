//! A dequantisation as data: what is wanted of a weight of 4-bit codes, and the parts that the weight consists of.
//!
//! A plan names its callee by number; the forms in which a device calls it are the device's own.

use std::ops::Range;

use crate::tile::Element;

/// A part of a weight. As a number it is the part's position among the inputs of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WeightPart {
    /// The codes, two per byte.
    Packed,
    /// The 16 values that a code stands for.
    QuantMap,
    /// The scale of each block, or its code if scales are quantised.
    Absmax,
    /// The 256 values that the code of a scale stands for.
    NestedQuantMap,
    /// The second-level scales.
    NestedAbsmax,
    /// The number that is added to every scale.
    NestedOffset,
}

/// The most inputs of a call.
pub(crate) const MOST_INPUTS: usize = WeightPart::ALL.len();

impl WeightPart {
    /// Every part, in the order of a call's inputs.
    pub const ALL: [Self; 6] = [
        Self::Packed,
        Self::QuantMap,
        Self::Absmax,
        Self::NestedQuantMap,
        Self::NestedAbsmax,
        Self::NestedOffset,
    ];
}

/// What is wanted of a quantised weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dequantize {
    /// Elements of the whole weight.
    pub len: usize,
    /// Elements that share one scale.
    pub block_size: usize,
    /// Blocks that share one second-level scale; `None` if scales are f32.
    pub nested: Option<usize>,
    /// What the elements become: f16, bf16 or f32.
    pub element: Element,
    /// The elements that are wanted, in whole blocks; the weight's last block may be a shorter one.
    pub part: Range<usize>,
}

impl Dequantize {
    /// The whole of a weight.
    pub fn whole(len: usize, block_size: usize, nested: Option<usize>, element: Element) -> Self {
        Self { len, block_size, nested, element, part: 0..len }
    }

    /// Returns the parts that it reads, in their order: three, or six if scales are quantised.
    pub fn inputs(&self) -> &'static [WeightPart] {
        if self.nested.is_some() { &WeightPart::ALL } else { &WeightPart::ALL[..3] }
    }

    /// Returns the bytes of a part; 0 if the weight has no such part.
    pub fn input_bytes(&self, part: WeightPart) -> usize {
        let blocks = self.len.div_ceil(self.block_size.max(1));
        let floats = |count: usize| count.saturating_mul(size_of::<f32>());
        match (part, self.nested) {
            (WeightPart::Packed, _) => self.len.div_ceil(2),
            (WeightPart::QuantMap, _) => floats(16),
            (WeightPart::Absmax, None) => floats(blocks),
            (WeightPart::Absmax, Some(_)) => blocks,
            (WeightPart::NestedQuantMap, Some(_)) => floats(256),
            (WeightPart::NestedAbsmax, Some(nested)) => floats(blocks.div_ceil(nested.max(1))),
            (WeightPart::NestedOffset, Some(_)) => floats(1),
            (WeightPart::NestedQuantMap | WeightPart::NestedAbsmax | WeightPart::NestedOffset, None) => 0,
        }
    }

    /// Bytes of the result.
    pub fn output_bytes(&self) -> usize {
        self.part.len().saturating_mul(self.element.bytes())
    }

    /// What the numbers lack.
    pub(crate) fn check(&self) -> Option<&'static str> {
        let Range { start, end } = self.part;
        if self.block_size == 0 || self.nested == Some(0) {
            return Some("blocks of at least one element");
        }
        if !matches!(self.element, Element::F32 | Element::F16 | Element::Bf16) {
            return Some("a result of floats");
        }
        let whole = |at: usize| at.is_multiple_of(self.block_size);
        if start > end || end > self.len || !whole(start) || !(whole(end) || end == self.len) {
            return Some("a part of the weight in whole blocks");
        }
        (start != 0 && self.block_size % 2 != 0).then_some("a part that begins with a whole byte of codes")
    }

    /// Cuts what is wanted into pieces that a callee takes: at most two, each of which begins with a group of blocks, or
    /// lies within one.
    pub(crate) fn pieces(&self) -> [Option<Range<usize>>; 2] {
        let Range { start, end } = self.part;
        let group = self.block_size.saturating_mul(self.nested.unwrap_or(1));
        let cut = if start % group == 0 { start } else { start.next_multiple_of(group).min(end) };
        [start..cut, cut..end].map(|piece| (!piece.is_empty()).then_some(piece))
    }
}
