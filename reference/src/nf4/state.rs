//! The quantisation state that a checkpoint stores beside each weight, as JSON in a tensor of bytes.
//!
//! ```text
//! {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [4096, 4096],
//!  "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.0735}
//! ```
//!
//! The last three are there when the scales are themselves quantised, and only together.

use serde::Deserialize;

use super::{Error, OutputDtype};

/// What the JSON says, once it makes sense.
#[derive(Debug)]
pub(super) struct State {
    pub block_size: usize,
    pub dtype: OutputDtype,
    pub shape: Vec<usize>,
    pub nested: Option<Nested>,
}

/// The second level.
#[derive(Debug)]
pub(super) struct Nested {
    pub block_size: usize,
    pub offset: f32,
}

/// Reads the bytes of a `.quant_state.bitsandbytes__nf4` tensor.
pub(super) fn parse(json: &[u8]) -> Result<State, Error> {
    let raw: Raw = serde_json::from_slice(json).map_err(|source| Error::QuantState { source })?;
    if raw.quant_type != "nf4" {
        return Err(Error::QuantType { got: raw.quant_type });
    }
    Ok(State {
        block_size: raw.blocksize,
        dtype: dtype(&raw.dtype)?,
        nested: nested(&raw)?,
        shape: raw.shape,
    })
}

/// The JSON as it is written.
#[derive(Deserialize)]
struct Raw {
    quant_type: String,
    blocksize: usize,
    dtype: String,
    shape: Vec<usize>,
    nested_blocksize: Option<usize>,
    nested_dtype: Option<String>,
    nested_offset: Option<f64>,
}

/// The names that torch gives to the three types.
fn dtype(name: &str) -> Result<OutputDtype, Error> {
    match name {
        "float16" => Ok(OutputDtype::F16),
        "bfloat16" => Ok(OutputDtype::Bf16),
        "float32" => Ok(OutputDtype::F32),
        _ => Err(Error::StateDtype {
            what: "dtype",
            got: name.to_owned(),
            need: "float16, bfloat16 or float32",
        }),
    }
}

/// The second level: all three fields or none. The offset was an f32 and its decimals restore it exactly.
fn nested(raw: &Raw) -> Result<Option<Nested>, Error> {
    match (raw.nested_blocksize, &raw.nested_dtype, raw.nested_offset) {
        (None, None, None) => Ok(None),
        (None, ..) => Err(Error::StateField { need: "nested_blocksize" }),
        (_, None, _) => Err(Error::StateField { need: "nested_dtype" }),
        (.., None) => Err(Error::StateField { need: "nested_offset" }),
        (Some(block_size), Some(dtype), Some(offset)) if dtype == "float32" => {
            Ok(Some(Nested { block_size, offset: offset as f32 }))
        }
        (_, Some(got), _) => {
            Err(Error::StateDtype { what: "nested_dtype", got: got.clone(), need: "float32" })
        }
    }
}
