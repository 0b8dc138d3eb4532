//! The parts of a quantised weight: which there are, what each holds, and in which order. This table is the only one.
//!
//! ```text
//! X                     u8   (ceil(n / 2))              two codes a byte
//! X.quant_map           f32  (16)                       what a code stands for
//! X.absmax              f32  (blocks)                   a scale for each of the ceil(n / block size) blocks; or
//! X.absmax              u8   (blocks)                   its code, and with it:
//! X.nested_quant_map    f32  (256)                      what a code of a scale stands for
//! X.nested_absmax       f32  (ceil(blocks / nested))    the second-level scales
//! X.nested_offset       f32  ()                         what is added to every scale
//! ```
//!
//! These are the tensors of a checkpoint by their names there, but for the offset, which stands in the state beside
//! them; the inputs of a graph's model by the same names; and the inputs of the operation that dequantises, in this
//! order.

use std::slice;

use super::check::{check_finite, check_len};
use super::{Absmax, Error, Weight};
use crate::dtype::Dtype;

/// A part, by what it holds. As a number it is the part's place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The codes, two a byte.
    Packed,
    /// The 16 values that a code stands for.
    QuantMap,
    /// The scale of each block, or its code.
    Absmax,
    /// The 256 values that a code of a scale stands for.
    NestedQuantMap,
    /// The second-level scales.
    NestedAbsmax,
    /// What is added to every scale.
    NestedOffset,
}

/// What decides the sizes of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Elements of the weight.
    pub len: usize,
    /// Elements that share one absmax.
    pub block_size: usize,
    /// Codes that share one second-level scale; `None` if there is no second level.
    pub nested: Option<usize>,
}

/// A part of a weight of some layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartType {
    /// Which one.
    pub part: Part,
    /// The type of its elements: u8 or f32.
    pub dtype: Dtype,
    /// Number of its elements.
    pub len: usize,
}

/// The elements of a part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PartValues<'a> {
    /// Of one of u8.
    Bytes(&'a [u8]),
    /// Of one of f32.
    Floats(&'a [f32]),
}

impl Part {
    /// What follows the weight's name in the part's.
    pub fn suffix(self) -> &'static str {
        match self {
            Part::Packed => "",
            Part::QuantMap => ".quant_map",
            Part::Absmax => ".absmax",
            Part::NestedQuantMap => ".nested_quant_map",
            Part::NestedAbsmax => ".nested_absmax",
            Part::NestedOffset => ".nested_offset",
        }
    }

    /// Its name for a weight of a name.
    pub fn of(self, weight: &str) -> String {
        format!("{weight}{}", self.suffix())
    }

    /// As errors call it.
    pub(super) fn label(self) -> &'static str {
        self.suffix().strip_prefix('.').unwrap_or("packed bytes")
    }
}

impl Layout {
    /// The parts, in their order: three, or six with a second level.
    pub fn parts(self) -> impl Iterator<Item = PartType> {
        let blocks = self.len.div_ceil(self.block_size.max(1));
        let groups = blocks.div_ceil(self.nested.unwrap_or(1).max(1));
        let of = |part, dtype, len| Some(PartType { part, dtype, len });
        let nested = |part, len| self.nested.and_then(|_| of(part, Dtype::F32, len));
        let absmax = if self.nested.is_some() { Dtype::U8 } else { Dtype::F32 };
        let parts = [
            of(Part::Packed, Dtype::U8, self.len.div_ceil(2)),
            of(Part::QuantMap, Dtype::F32, 16),
            of(Part::Absmax, absmax, blocks),
            nested(Part::NestedQuantMap, 256),
            nested(Part::NestedAbsmax, groups),
            nested(Part::NestedOffset, 1),
        ];
        parts.into_iter().flatten()
    }
}

impl PartType {
    /// Its dimensions: one, or none of the offset.
    pub fn shape(&self) -> &[usize] {
        if self.part == Part::NestedOffset { &[] } else { slice::from_ref(&self.len) }
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.len.saturating_mul(self.dtype.bytes())
    }
}

impl PartValues<'_> {
    /// That they are as many as the layout calls for, and finite.
    pub(super) fn check(&self, need: &PartType) -> Result<(), Error> {
        let what = need.part.label();
        match self {
            PartValues::Bytes(bytes) => check_len(what, bytes.len(), need.len),
            PartValues::Floats(floats) => {
                check_len(what, floats.len(), need.len)?;
                check_finite(what, floats)
            }
        }
    }
}

impl Weight<'_> {
    /// What decides the sizes of its parts.
    pub fn layout(&self) -> Layout {
        let nested = match self.absmax {
            Absmax::Single(_) => None,
            Absmax::Double { block_size, .. } => Some(block_size),
        };
        Layout { len: self.len, block_size: self.block_size, nested }
    }

    /// Its parts, each with what the layout calls for.
    pub fn parts(&self) -> impl Iterator<Item = (PartType, PartValues<'_>)> {
        self.layout().parts().map(|part| (part, self.part(part.part)))
    }

    /// The elements of a part; none if the weight has no such part.
    fn part(&self, part: Part) -> PartValues<'_> {
        use PartValues::{Bytes, Floats};
        match (part, &self.absmax) {
            (Part::Packed, _) => Bytes(self.packed),
            (Part::QuantMap, _) => Floats(self.table),
            (Part::Absmax, Absmax::Single(scales)) => Floats(scales),
            (Part::Absmax, Absmax::Double { codes, .. }) => Bytes(codes),
            (Part::NestedQuantMap, Absmax::Double { table, .. }) => Floats(*table),
            (Part::NestedAbsmax, Absmax::Double { scales, .. }) => Floats(scales),
            (Part::NestedOffset, Absmax::Double { offset, .. }) => Floats(slice::from_ref(offset)),
            (Part::NestedQuantMap | Part::NestedAbsmax | Part::NestedOffset, Absmax::Single(_)) => {
                Floats(&[])
            }
        }
    }
}
