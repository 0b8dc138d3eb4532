//! Whether the parts of a weight fit together: asked once at the door, so that a decoder need not ask.

use super::{Absmax, Error, Weight};
use crate::checkpoint;

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

/// Product of the dimensions, unless it overflows.
pub(super) fn element_count(shape: &[usize]) -> Result<usize, Error> {
    checkpoint::element_count(shape).ok_or_else(|| Error::ShapeOverflow { shape: shape.to_vec() })
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
