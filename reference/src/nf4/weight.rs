//! A quantised weight: what it consists of, and whether its parts fit together.
//!
//! A [`Weight`] borrows everything and is what every dequantiser is given. A [`Quantized`] keeps the parts
//! together with the shape and the type that the original had; its bytes are either its own or those of a
//! mapped checkpoint. [`Weight::check`] is the one place that decides whether a weight can be decoded.

use half::{bf16, f16};

use super::{Absmax, CODE2, Error, NESTED_BLOCK, NF4, Weight, double_quantize, quantize};

/// The type that a weight had before it was quantised, and has again afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// IEEE binary16: 5 bits of exponent, 10 of fraction.
    F16,
    /// The upper half of an f32: 8 bits of exponent, 7 of fraction.
    Bf16,
    /// IEEE binary32.
    F32,
}

/// A quantised weight with its shape. `B` is `Vec<u8>` where it owns its bytes, `&[u8]` where they lie in a
/// mapped file.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantized<B = Vec<u8>> {
    /// Dimensions, usually (out, in).
    pub shape: Vec<usize>,
    /// The type it had before.
    pub dtype: Dtype,
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
    pub fn single(values: &[f32], shape: &[usize], dtype: Dtype, block_size: usize) -> Result<Self, Error> {
        let len = element_count(shape)?;
        check_len("values", values.len(), len)?;
        let (packed, absmax) = quantize(values, block_size)?;
        let absmax = Scales::Single(absmax);
        Ok(Self { shape: shape.to_vec(), dtype, packed, table: NF4, block_size, absmax })
    }

    /// Quantises values and then their scales, the usual layout of a QLoRA checkpoint.
    pub fn double(values: &[f32], shape: &[usize], dtype: Dtype, block_size: usize) -> Result<Self, Error> {
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

impl Weight<'_> {
    /// Whether the weight can be decoded: all lengths as `len` and the block sizes need them, block sizes
    /// powers of two in range, every table value and scale finite.
    pub fn check(&self) -> Result<(), Error> {
        check_block_size(self.block_size)?;
        check_len("packed bytes", self.packed.len(), self.len.div_ceil(2))?;
        check_finite("quant_map", self.table)?;
        self.absmax.check(self.len.div_ceil(self.block_size))
    }
}

impl Absmax<'_> {
    /// Whether there is a finite scale for each of `blocks` blocks.
    fn check(&self, blocks: usize) -> Result<(), Error> {
        match *self {
            Absmax::Single(scales) => {
                check_len("absmax", scales.len(), blocks)?;
                check_finite("absmax", scales)
            }
            Absmax::Double { codes, table, scales, block_size, offset } => {
                check_nested_block_size(block_size)?;
                check_len("absmax", codes.len(), blocks)?;
                check_len("nested_absmax", scales.len(), blocks.div_ceil(block_size))?;
                check_finite("nested_quant_map", table)?;
                check_finite("nested_absmax", scales)?;
                check_finite("nested_offset", &[offset])
            }
        }
    }
}

impl Dtype {
    /// The nearest value of this type, ties to even, as its bit pattern in the low bits.
    pub fn round(self, w: f32) -> u32 {
        match self {
            Dtype::F16 => f16::from_f32(w).to_bits() as u32,
            Dtype::Bf16 => bf16::from_f32(w).to_bits() as u32,
            Dtype::F32 => w.to_bits(),
        }
    }

    /// What a bit pattern of this type stands for.
    pub fn value(self, bits: u32) -> f32 {
        match self {
            Dtype::F16 => f16::from_bits(bits as u16).to_f32(),
            Dtype::Bf16 => bf16::from_bits(bits as u16).to_f32(),
            Dtype::F32 => f32::from_bits(bits),
        }
    }

    /// Size of one element in bytes.
    pub fn bytes(self) -> usize {
        if self == Dtype::F32 { 4 } else { 2 }
    }
}

/// Product of the dimensions, unless it overflows.
pub(super) fn element_count(shape: &[usize]) -> Result<usize, Error> {
    let product = shape.iter().try_fold(1_usize, |n, dim| n.checked_mul(*dim));
    product.ok_or_else(|| Error::ShapeOverflow { shape: shape.to_vec() })
}

/// The block sizes that the format allows.
pub(super) fn check_block_size(block_size: usize) -> Result<(), Error> {
    let allowed = block_size.is_power_of_two() && (32..=4096).contains(&block_size);
    if allowed { Ok(()) } else { Err(Error::BlockSize { what: "blocksize", got: block_size }) }
}

/// The second level allows the same sizes.
fn check_nested_block_size(block_size: usize) -> Result<(), Error> {
    check_block_size(block_size).map_err(|_| Error::BlockSize { what: "nested_blocksize", got: block_size })
}

/// That a part has the length that the rest of the weight calls for.
pub(super) fn check_len(what: &'static str, got: usize, need: usize) -> Result<(), Error> {
    if got == need { Ok(()) } else { Err(Error::Length { what, got, need }) }
}

/// That no value is NaN or infinite.
pub(super) fn check_finite(what: &'static str, values: &[f32]) -> Result<(), Error> {
    let bad = values.iter().position(|x| !x.is_finite());
    bad.map_or(Ok(()), |index| Err(Error::NotFinite { what, index, value: values[index] }))
}
