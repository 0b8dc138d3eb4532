//! NF4 with double quantisation: the format, to the bit.
//!
//! A weight is cut into blocks of `block_size` consecutive elements (row-major over (out, in)). Each
//! element is one of 16 table values times its block's largest magnitude, its *absmax*; the absmaxes are
//! f32, or themselves quantised to 8 bits in blocks of 256 with one common offset (*double* or *nested*
//! quantisation).
//!
//! Sources: Dettmers et al., "QLoRA: Efficient Finetuning of Quantized LLMs" (2023), section 3, for the
//! data type; the bit-exact order of roundings is that of the `bitsandbytes` library.

mod check;
mod checkpoint;
mod codec;
mod dtype;
mod error;
mod parts;
mod quantize;
mod state;
mod table;
mod weight;

pub(crate) use check::is_block_size;
pub use checkpoint::{QuantizedTensor, StoredWeight};
pub use codec::{block_absmax, dequantize_bits, dequantize_bits_range, dequantize_f32};
pub use dtype::OutputDtype;
pub use error::Error;
pub use parts::{Layout, Part, PartType, PartValues};
pub use quantize::{NESTED_BLOCK, double_quantize, quantize};
pub use table::{CODE2, NF4};
pub use weight::{Quantized, Scales};

/// A quantised weight, borrowed: what a dequantiser is given.
#[derive(Clone, Copy, Debug)]
pub struct Weight<'a> {
    /// Number of elements, out * in.
    pub len: usize,
    /// Elements that share one absmax: a power of two, 32 to 4096.
    pub block_size: usize,
    /// ceil(len / 2) bytes; element e is the HIGH nibble of byte e / 2 when e is even, the LOW one when odd.
    pub packed: &'a [u8],
    /// The 16 values that a nibble stands for; [`NF4`] unless a checkpoint carries its own.
    pub table: &'a [f32; 16],
    /// The scale of each of the ceil(len / `block_size`) blocks.
    pub absmax: Absmax<'a>,
}

/// The scales of a weight's blocks.
#[derive(Clone, Copy, Debug)]
pub enum Absmax<'a> {
    /// One f32 a block.
    Single(&'a [f32]),
    /// One byte a block: `a = f32(f32(table[codes[b]] * scales[b / block_size]) + offset)`.
    Double {
        /// One byte a block of elements.
        codes: &'a [u8],
        /// The 256 values that a byte stands for; [`CODE2`] unless a checkpoint carries its own.
        table: &'a [f32; 256],
        /// One f32 for each `block_size` bytes of `codes`.
        scales: &'a [f32],
        /// Codes that share one second-level scale: a power of two, usually 256.
        block_size: usize,
        /// Added to every block's scale.
        offset: f32,
    },
}
