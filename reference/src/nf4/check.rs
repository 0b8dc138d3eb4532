//! Whether the parts of a weight fit together: asked once at the door, so that a decoder need not ask.

use super::{Error, Layout, Weight};
use crate::checkpoint;

impl Weight<'_> {
    /// Whether the weight can be decoded: all lengths as `len` and the block sizes need them, block sizes
    /// powers of two in range, every table value and scale finite.
    pub fn check(&self) -> Result<(), Error> {
        self.layout().check()?;
        self.parts().try_for_each(|(need, values)| values.check(&need))
    }
}

impl Layout {
    /// Whether the block sizes are such as the format allows.
    pub(super) fn check(self) -> Result<(), Error> {
        check_block_size(self.block_size)?;
        self.nested.map_or(Ok(()), check_nested_block_size)
    }
}

/// Product of the dimensions, unless it overflows.
pub(super) fn element_count(shape: &[usize]) -> Result<usize, Error> {
    checkpoint::element_count(shape).ok_or_else(|| Error::ShapeOverflow { shape: shape.to_vec() })
}

/// Whether the format allows blocks of a size, of elements or of scales.
pub(crate) fn is_block_size(size: usize) -> bool {
    size.is_power_of_two() && (32..=4096).contains(&size)
}

/// The block sizes that the format allows.
pub(super) fn check_block_size(got: usize) -> Result<(), Error> {
    if is_block_size(got) { Ok(()) } else { Err(Error::BlockSize { what: "blocksize", got }) }
}

/// The second level allows the same sizes.
fn check_nested_block_size(got: usize) -> Result<(), Error> {
    if is_block_size(got) { Ok(()) } else { Err(Error::BlockSize { what: "nested_blocksize", got }) }
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
