//! A quantised weight that keeps its parts.
//!
//! A [`Weight`] borrows everything and is what every dequantiser is given. A [`Quantized`] keeps the parts
//! together with the shape and the type that the original had; its bytes are either its own or those of a
//! mapped checkpoint.

use super::check::{check_len, element_count};
use super::{Absmax, CODE2, Error, NESTED_BLOCK, NF4, OutputDtype, Weight, double_quantize, quantize};

/// A quantised weight with its shape. `B` is `Vec<u8>` where it owns its bytes, `&[u8]` where they lie in a
/// mapped file.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantized<B = Vec<u8>> {
    /// Dimensions, usually (out, in).
    pub shape: Vec<usize>,
    /// The type it had before.
    pub dtype: OutputDtype,
    /// Two codes a byte; see [`Weight::packed`].
    pub packed: B,
    /// What a nibble stands for.
    pub table: [f32; 16],
    /// Elements that share one absmax.
    pub block_size: usize,
    /// The scale of each block.
    pub absmax: Scales<B>,
}

/// [`Absmax`], owned but for its bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Scales<B = Vec<u8>> {
    /// One f32 a block.
    Single(Vec<f32>),
    /// One byte a block, and what turns it into an f32; see [`Absmax::Double`].
    Double {
        /// One byte a block of elements.
        codes: B,
        /// What a byte stands for.
        table: Box<[f32; 256]>,
        /// One f32 for each `block_size` bytes of `codes`.
        scales: Vec<f32>,
        /// Codes that share one second-level scale.
        block_size: usize,
        /// Added to every block's scale.
        offset: f32,
    },
}

impl Quantized {
    /// Quantises values of a given shape, with one f32 a block.
    ///
    /// `dtype` is recorded, not applied: round the values to it first if they did not come from there.
    pub fn single(
        values: &[f32],
        shape: &[usize],
        dtype: OutputDtype,
        block_size: usize,
    ) -> Result<Self, Error> {
        let len = element_count(shape)?;
        check_len("values", values.len(), len)?;
        let (packed, absmax) = quantize(values, block_size)?;
        let absmax = Scales::Single(absmax);
        Ok(Self { shape: shape.to_vec(), dtype, packed, table: NF4, block_size, absmax })
    }

    /// Quantises values and then their scales, the usual layout of a QLoRA checkpoint.
    pub fn double(
        values: &[f32],
        shape: &[usize],
        dtype: OutputDtype,
        block_size: usize,
    ) -> Result<Self, Error> {
        let mut quantized = Self::single(values, shape, dtype, block_size)?;
        if let Scales::Single(absmax) = &quantized.absmax {
            let (codes, scales, offset) = double_quantize(absmax, None);
            let table = Box::new(CODE2);
            quantized.absmax = Scales::Double { codes, table, scales, block_size: NESTED_BLOCK, offset };
        }
        Ok(quantized)
    }
}

impl<B: AsRef<[u8]>> Quantized<B> {
    /// Whether the weight can be decoded: a shape that can be counted, and what [`Weight::check`] asks.
    pub fn check(&self) -> Result<(), Error> {
        element_count(&self.shape)?;
        self.view().check()
    }

    /// The weight as a dequantiser takes it.
    pub fn view(&self) -> Weight<'_> {
        Weight {
            len: self.shape.iter().fold(1, |n: usize, dim| n.saturating_mul(*dim)),
            block_size: self.block_size,
            packed: self.packed.as_ref(),
            table: &self.table,
            absmax: self.absmax.view(),
        }
    }
}

impl<B: AsRef<[u8]>> Scales<B> {
    /// The scales as a dequantiser takes them.
    pub fn view(&self) -> Absmax<'_> {
        match self {
            Scales::Single(scales) => Absmax::Single(scales),
            Scales::Double { codes, table, scales, block_size, offset } => Absmax::Double {
                codes: codes.as_ref(),
                table,
                scales,
                block_size: *block_size,
                offset: *offset,
            },
        }
    }
}
