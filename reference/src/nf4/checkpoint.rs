//! Quantised weights out of a Hugging Face checkpoint.
//!
//! One quantised weight is several tensors, tied together by their names:
//!
//! ```text
//! X.weight                                   u8, two codes a byte
//! X.weight.absmax                            u8 codes, or f32 without a second level
//! X.weight.quant_map                         f32, 16
//! X.weight.nested_absmax                     f32          } with a second level
//! X.weight.nested_quant_map                  f32, 256     }
//! X.weight.quant_state.bitsandbytes__nf4     JSON
//! ```
//!
//! Codes are borrowed from the map; f32 parts are small and copied, since nothing aligns them.

use safetensors::tensor::Dtype as Stored;

use super::state::{self, Nested, State};
use super::{Error, Quantized, Scales};
use crate::checkpoint::{Checkpoint, Tensor};

/// A quantised weight whose bytes lie in a [`Checkpoint`].
pub type QuantizedTensor<'a> = Quantized<&'a [u8]>;

impl Checkpoint {
    /// A quantised weight by the name of its codes, such as `model.layers.0.mlp.up_proj.weight`.
    ///
    /// Fails where a part is missing, has another type or length than the others call for, or holds a
    /// scale that is not finite. What it returns passes [`Quantized::check`].
    pub fn nf4(&self, name: &str) -> Result<QuantizedTensor<'_>, Error> {
        let packed = self.tensor(name)?;
        quantized(self, name, packed).map_err(|fault| fault.of(name))
    }
}

/// The weight, before an error gets its name.
fn quantized<'a>(file: &'a Checkpoint, name: &str, packed: Tensor<'a>) -> Result<QuantizedTensor<'a>, Error> {
    let state = state(file, name)?;
    let quantized = Quantized {
        packed: of_dtype(packed, "weight", Stored::U8)?,
        table: *table::<16>(file, name, "quant_map")?,
        absmax: scales(file, name, &state)?,
        shape: state.shape,
        dtype: state.dtype,
        block_size: state.block_size,
    };
    quantized.check()?;
    Ok(quantized)
}

/// The state of a weight, or that it was quantised in another way, or not at all.
fn state(file: &Checkpoint, name: &str) -> Result<State, Error> {
    let json = part(file, name, "quant_state.bitsandbytes__nf4", Stored::U8);
    if let Err(Error::MissingPart { .. }) = json {
        let stem = format!("{name}.quant_state.bitsandbytes__");
        if let Some(quant_type) = file.names().find_map(|other| other.strip_prefix(&stem)) {
            return Err(Error::QuantType { got: quant_type.to_owned() });
        }
    }
    state::parse(json?)
}

/// Both levels of the scales.
fn scales<'a>(file: &'a Checkpoint, name: &str, state: &State) -> Result<Scales<&'a [u8]>, Error> {
    let Some(Nested { block_size, offset }) = state.nested else {
        return Ok(Scales::Single(floats(file, name, "absmax")?));
    };
    Ok(Scales::Double {
        codes: part(file, name, "absmax", Stored::U8)?,
        table: table(file, name, "nested_quant_map")?,
        scales: floats(file, name, "nested_absmax")?,
        block_size,
        offset,
    })
}

/// The bytes of a companion tensor.
fn part<'a>(file: &'a Checkpoint, name: &str, part: &'static str, dtype: Stored) -> Result<&'a [u8], Error> {
    let companion = file.tensor(&format!("{name}.{part}")).map_err(|_| Error::MissingPart { part })?;
    of_dtype(companion, part, dtype)
}

/// A companion of f32, copied.
fn floats(file: &Checkpoint, name: &str, name_of_part: &'static str) -> Result<Vec<f32>, Error> {
    let bytes = part(file, name, name_of_part, Stored::F32)?;
    Ok(bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect())
}

/// A companion of exactly `N` f32.
fn table<const N: usize>(file: &Checkpoint, name: &str, part: &'static str) -> Result<Box<[f32; N]>, Error> {
    let values = floats(file, name, part)?;
    values.try_into().map_err(|values: Vec<f32>| Error::Length { what: part, got: values.len(), need: N })
}

/// The bytes of a tensor, if they are of the type that is needed.
fn of_dtype<'a>(tensor: Tensor<'a>, part: &'static str, need: Stored) -> Result<&'a [u8], Error> {
    let wrong = || Error::WrongDtype { part, got: tensor.dtype.to_string(), need: need.to_string() };
    if tensor.dtype == need { Ok(tensor.bytes) } else { Err(wrong()) }
}
