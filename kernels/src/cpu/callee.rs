//! A callee on the CPU: a dequantiser in Rust, and a weight as bytes of the host.
//!
//! A callee sees whole weights only. A part of a weight is handed to it as one weight, or as two: a part that begins
//! within a group of blocks that share a second-level scale is cut where the next group begins.

use std::ops::Range;

use super::Cpu;
use crate::buffer::cast;
use crate::plan::{Dequantize, WeightPart};
use crate::tile::Element;

/// A dequantiser in Rust.
pub trait HostCallee: Sync {
    /// Whether a weight is one that it can take, by its numbers. Asked when the bytes of the weight's scales and tables
    /// are first seen and whenever they may have changed, not at each call.
    ///
    /// A weight that ranks gather is asked about at each call. It lies in memory that the run has just written, and its
    /// bytes are those of other ranks' buffers, which may change between two runs while everything on this rank stays
    /// as it was: no version that is known here names them. What a check reads is little beside what the call writes:
    /// of scales in f32 for 64 elements each, 4 bytes for 128 in f16; of quantised scales in groups of 256, 4 for
    /// 32,768.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check(&self, weight: &Quantized<'_>) -> Result<(), String>;

    /// Writes each element of a weight that passed [`Self::check`], rounded to `element`: f16, bf16 or f32. `out` has
    /// exactly their bytes, and is aligned to one.
    ///
    /// # Errors
    /// Why it cannot.
    fn dequantize(
        &self,
        cpu: &Cpu,
        weight: &Quantized<'_>,
        element: Element,
        out: &mut [u8],
    ) -> Result<(), String>;
}

/// A weight of 4-bit codes, or a part of one in whole blocks.
#[derive(Clone, Copy, Debug)]
pub struct Quantized<'a> {
    /// Elements.
    pub len: usize,
    /// Elements that share one scale.
    pub block_size: usize,
    /// ceil(len / 2) bytes; an even element is the high half of its byte.
    pub packed: &'a [u8],
    /// The values that a code stands for.
    pub table: &'a [f32; 16],
    /// A scale for each of the ceil(len / `block_size`) blocks.
    pub scales: Scales<'a>,
}

/// The scales of a weight's blocks.
#[derive(Clone, Copy, Debug)]
pub enum Scales<'a> {
    /// One f32 a block.
    Single(&'a [f32]),
    /// One byte a block: `f32(table[code] * scales[block / block_size]) + offset`.
    Double {
        /// One byte a block.
        codes: &'a [u8],
        /// The values that a byte stands for.
        table: &'a [f32; 256],
        /// One f32 for each `block_size` codes.
        scales: &'a [f32],
        /// Codes that share one second-level scale.
        block_size: usize,
        /// Added to every scale.
        offset: f32,
    },
}

/// The bytes of a whole weight, read as what they are.
pub(crate) struct Inputs<'a> {
    packed: &'a [u8],
    table: &'a [f32; 16],
    scales: Scales<'a>,
}

impl<'a> Inputs<'a> {
    /// Reads them in place; `None` if one has not its length, or is not aligned to a number.
    pub fn of(what: &Dequantize, inputs: &[&'a [u8]]) -> Option<Self> {
        let bytes = |part: WeightPart| inputs.get(part as usize).copied();
        let numbers = |part: WeightPart| floats(bytes(part)?);
        let scales = match what.nested {
            None => Scales::Single(numbers(WeightPart::Absmax)?),
            Some(block_size) => Scales::Double {
                codes: bytes(WeightPart::Absmax)?,
                table: numbers(WeightPart::NestedQuantMap)?.try_into().ok()?,
                scales: numbers(WeightPart::NestedAbsmax)?,
                block_size,
                offset: *numbers(WeightPart::NestedOffset)?.first()?,
            },
        };
        let table = numbers(WeightPart::QuantMap)?.try_into().ok()?;
        Some(Self { packed: bytes(WeightPart::Packed)?, table, scales })
    }

    /// Returns the bytes of each of the [pieces](Dequantize::pieces), with the position of its first element in the
    /// result. The bytes are those of [`Dequantize::input_bytes`], checked.
    pub fn pieces(&self, what: &Dequantize) -> [Option<(Quantized<'a>, usize)>; 2] {
        what.pieces().map(|piece| {
            piece.map(|piece| (self.weight(what.block_size, &piece), piece.start - what.part.start))
        })
    }

    /// Returns a piece of the weight that begins with a group of blocks, or ends where one does.
    fn weight(&self, block_size: usize, part: &Range<usize>) -> Quantized<'a> {
        let blocks = part.start / block_size..part.end.div_ceil(block_size);
        let packed = &self.packed[part.start / 2..part.end.div_ceil(2)];
        let scales = match self.scales {
            Scales::Single(scales) => Scales::Single(&scales[blocks]),
            Scales::Double { codes, table, scales, block_size, offset } => {
                let groups = blocks.start / block_size..blocks.end.div_ceil(block_size);
                Scales::Double { codes: &codes[blocks], table, scales: &scales[groups], block_size, offset }
            }
        };
        Quantized { len: part.len(), block_size, packed, table: self.table, scales }
    }
}

/// Bytes as f32, if they are aligned and whole.
fn floats(bytes: &[u8]) -> Option<&[f32]> {
    let is_whole = bytes.len().is_multiple_of(size_of::<f32>());
    let is_aligned = bytes.as_ptr().addr().is_multiple_of(align_of::<f32>());
    (is_whole && is_aligned).then(|| cast(bytes))
}
