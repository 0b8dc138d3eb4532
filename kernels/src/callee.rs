//! What a plan calls: the dequantiser of challenge A, as it was handed in.
//!
//! A step of a plan says as data what is wanted, [`Dequantize`]: how long the weight is, how its scales lie, which part
//! of it is needed, and in which type. Who does it is a [`Callee`], which is linked when the plan is prepared. A callee
//! has a form for each kind of device that it can serve: Rust on a CPU, a kernel's text on a card. A device takes the
//! form that it can run, and refuses a callee that has none while nothing has run yet.
//!
//! A callee sees whole weights only. A part of a weight is handed to it as one weight, or as two: a part that begins
//! within a group of blocks that share a second-level scale is cut where the next group begins.

use std::ops::Range;

use crate::cpu::Cpu;
use crate::cuda::{CudaError, Gpu, Stream};
use crate::tile::Element;

/// A dequantiser in the forms that it has.
pub trait Callee: Sync {
    /// For errors.
    fn name(&self) -> &str;

    /// Its form in Rust, if there is one.
    fn host(&self) -> Option<&dyn HostCallee>;

    /// Its form in CUDA C++, if there is one.
    fn card(&self) -> Option<&dyn CardCallee> {
        None
    }
}

/// A dequantiser in CUDA C++.
pub trait CardCallee: Sync {
    /// Compiles it for a card, to write elements of a type: f16, bf16 or f32.
    ///
    /// # Errors
    /// What the compiler says of its text, what the driver says of the code, and what its launch asks for in vain.
    fn load(&self, gpu: &Gpu, element: Element) -> Result<Box<dyn CardDequantizer>, CudaError>;
}

/// A dequantiser that is loaded on a card.
pub trait CardDequantizer: Send + Sync {
    /// Whether it takes weights with such blocks.
    ///
    /// # Errors
    /// What is wrong with them.
    fn check(&self, weight: &CardWeight) -> Result<(), String>;

    /// Queues it on a stream of the card: every element of the weight, rounded, from address `out` on.
    ///
    /// # Errors
    /// A launch that the card refuses.
    fn launch(&self, gpu: &Gpu, stream: &Stream, weight: &CardWeight, out: u64) -> Result<(), CudaError>;
}

/// A weight of 4-bit codes in a card's memory: addresses of its parts, and what a kernel takes by value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CardWeight {
    /// Elements.
    pub len: usize,
    /// Elements that share one scale.
    pub block_size: usize,
    /// Blocks that share one second-level scale; `None` if scales are f32.
    pub nested: Option<usize>,
    /// ceil(len / 2) bytes; an even element is the high half of its byte.
    pub packed: u64,
    /// A byte a block, or 0 if scales are f32.
    pub codes: u64,
    /// The scales in f32: of the second level, or all of them.
    pub scales: u64,
    /// The 256 values in f32 that a byte stands for, or 0 if scales are f32.
    pub code2: u64,
    /// Added to every scale of two levels.
    pub offset: f32,
    /// The values that a code stands for.
    pub table: [f32; 16],
}

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

impl Dequantize {
    /// The whole of a weight.
    pub fn whole(len: usize, block_size: usize, nested: Option<usize>, element: Element) -> Self {
        Self { len, block_size, nested, element, part: 0..len }
    }

    /// How many inputs it has: packed codes, table of codes, scales; or, if these are quantised, their codes, the table
    /// of these, the second-level scales, the offset.
    pub fn inputs(&self) -> usize {
        if self.nested.is_some() { MOST_INPUTS } else { 3 }
    }

    /// Bytes of an input, by its number.
    pub fn input_bytes(&self, input: usize) -> usize {
        let blocks = self.len.div_ceil(self.block_size.max(1));
        let floats = |count: usize| count.saturating_mul(size_of::<f32>());
        match (input, self.nested) {
            (0, _) => self.len.div_ceil(2),
            (1, _) => floats(16),
            (2, None) => floats(blocks),
            (2, Some(_)) => blocks,
            (3, Some(_)) => floats(256),
            (4, Some(nested)) => floats(blocks.div_ceil(nested.max(1))),
            (5, Some(_)) => floats(1),
            _ => 0,
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

    /// What is wanted, as a callee takes it: at most two parts, each of which begins with a group of blocks, or lies
    /// within one.
    pub(crate) fn parts(&self) -> [Option<Range<usize>>; 2] {
        let Range { start, end } = self.part;
        let group = self.block_size.saturating_mul(self.nested.unwrap_or(1));
        let cut = if start % group == 0 { start } else { start.next_multiple_of(group).min(end) };
        [start..cut, cut..end].map(|part| (!part.is_empty()).then_some(part))
    }

    /// The weight's bytes that each of its [parts](Self::parts) lies in, with the place of its first element in the
    /// result. The bytes are those of [`Self::input_bytes`], checked.
    pub(crate) fn weights<'a>(&self, inputs: &Inputs<'a>) -> [Option<(Quantized<'a>, usize)>; 2] {
        self.parts().map(|part| part.map(|part| (self.weight(inputs, &part), part.start - self.part.start)))
    }

    /// A part of the weight that begins with a group of blocks, or ends where one does.
    fn weight<'a>(&self, inputs: &Inputs<'a>, part: &Range<usize>) -> Quantized<'a> {
        let Self { block_size, .. } = *self;
        let blocks = part.start / block_size..part.end.div_ceil(block_size);
        let packed = &inputs.packed[part.start / 2..part.end.div_ceil(2)];
        let scales = match inputs.scales {
            Scales::Single(scales) => Scales::Single(&scales[blocks]),
            Scales::Double { codes, table, scales, block_size, offset } => {
                let groups = blocks.start / block_size..blocks.end.div_ceil(block_size);
                Scales::Double { codes: &codes[blocks], table, scales: &scales[groups], block_size, offset }
            }
        };
        Quantized { len: part.len(), block_size, packed, table: inputs.table, scales }
    }
}

/// The bytes of a whole weight, read as what they are.
pub(crate) struct Inputs<'a> {
    packed: &'a [u8],
    table: &'a [f32; 16],
    scales: Scales<'a>,
}

/// The most inputs of a call.
pub(crate) const MOST_INPUTS: usize = 6;

impl<'a> Inputs<'a> {
    /// Reads them in place; `None` if one has not its length, or is not aligned to a number.
    pub fn of(what: &Dequantize, inputs: &[&'a [u8]]) -> Option<Self> {
        let scales = match (what.nested, inputs) {
            (None, [_, _, scales]) => Scales::Single(floats(scales)?),
            (Some(block_size), [_, _, codes, table, scales, offset]) => Scales::Double {
                codes,
                table: floats(table)?.try_into().ok()?,
                scales: floats(scales)?,
                block_size,
                offset: *floats(offset)?.first()?,
            },
            _ => return None,
        };
        Some(Self { packed: inputs[0], table: floats(inputs[1])?.try_into().ok()?, scales })
    }
}

/// Bytes as f32, if they are aligned and whole.
fn floats(bytes: &[u8]) -> Option<&[f32]> {
    let is_whole = bytes.len().is_multiple_of(size_of::<f32>());
    let is_aligned = bytes.as_ptr().addr().is_multiple_of(align_of::<f32>());
    (is_whole && is_aligned).then(|| crate::buffer::cast(bytes))
}
