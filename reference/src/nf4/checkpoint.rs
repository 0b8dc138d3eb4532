//! Quantised weights out of a Hugging Face checkpoint.
//!
//! One quantised weight is several tensors, tied together by their names: its parts, as [`Part`] names them, and
//! `X.quant_state.bitsandbytes__nf4`, a JSON text of bytes with the shape, the block sizes and the offset.
//!
//! A weight is read in one of two ways. [`Checkpoint::nf4_stored`] borrows every part from the map as it is, to be
//! copied to a device and nowhere else. [`Checkpoint::nf4`] is for an oracle, which computes: codes are borrowed, f32
//! parts are copied, since nothing aligns them.

use std::borrow::Cow;

use super::check::{check_len, element_count};
use super::state::{self, Nested, State};
use super::{Error, Layout, OutputDtype, Part, PartType, Quantized, Scales};
use crate::checkpoint::{Checkpoint, Tensor};
use crate::dtype;
use safetensors::tensor::Dtype as Stored;

/// A quantised weight whose bytes lie in a [`Checkpoint`].
pub type QuantizedTensor<'a> = Quantized<&'a [u8]>;

/// A quantised weight as a [`Checkpoint`] stores it: each part has the type and the length that the layout calls for.
#[derive(Clone, Debug)]
pub struct StoredWeight<'a> {
    /// Dimensions, usually (out, in).
    pub shape: Vec<usize>,
    /// The type it had before.
    pub dtype: OutputDtype,
    /// What decides the sizes of its parts.
    pub layout: Layout,
    tensors: Vec<&'a [u8]>, // by the number of their part; the offset is no tensor
    offset: f32,            // 0 without a second level
}

impl Checkpoint {
    /// A quantised weight by the name of its codes, such as `model.layers.0.mlp.up_proj.weight`.
    ///
    /// Fails where a part is missing, has another type or length than the others call for, or holds a
    /// scale that is not finite. What it returns passes [`Quantized::check`].
    pub fn nf4(&self, name: &str) -> Result<QuantizedTensor<'_>, Error> {
        let quantized = self.nf4_stored(name)?.to_quantized();
        quantized.check().map_err(|fault| fault.of(name))?;
        Ok(quantized)
    }

    /// Whether a tensor holds the codes of a quantised weight: whatever its type, a state stands beside it.
    pub fn is_quantized(&self, name: &str) -> bool {
        let state = format!("{name}.quant_state.");
        self.names().any(|other| other.starts_with(&state))
    }

    /// The same with every part as it is stored: borrowed, and not yet looked at.
    ///
    /// Fails where a part is missing, or has another type or length than the others call for.
    pub fn nf4_stored(&self, name: &str) -> Result<StoredWeight<'_>, Error> {
        let packed = self.tensor(name)?;
        stored(self, name, packed).map_err(|fault| fault.of(name))
    }
}

impl<'a> StoredWeight<'a> {
    /// Every part with its bytes, little endian and aligned to nothing.
    pub fn parts(&self) -> impl Iterator<Item = (PartType, Cow<'a, [u8]>)> {
        self.layout.parts().map(|part| {
            let bytes = self.tensors.get(part.part as usize).map(|bytes| Cow::Borrowed(*bytes));
            (part, bytes.unwrap_or_else(|| self.offset.to_le_bytes().to_vec().into()))
        })
    }

    /// The same as a weight to be decoded: codes borrowed, floats copied.
    fn to_quantized(&self) -> QuantizedTensor<'a> {
        let bytes = |part: Part| self.tensors[part as usize];
        let (table, floats) = (floats(bytes(Part::QuantMap)), |part: Part| floats(bytes(part)).collect());
        let absmax = match self.layout.nested {
            None => Scales::Single(floats(Part::Absmax)),
            Some(block_size) => Scales::Double {
                codes: bytes(Part::Absmax),
                table: Box::new(array(self::floats(bytes(Part::NestedQuantMap)))),
                scales: floats(Part::NestedAbsmax),
                block_size,
                offset: self.offset,
            },
        };
        Quantized {
            shape: self.shape.clone(),
            dtype: self.dtype,
            packed: bytes(Part::Packed),
            table: array(table),
            block_size: self.layout.block_size,
            absmax,
        }
    }
}

/// The weight, before an error gets its name.
fn stored<'a>(file: &'a Checkpoint, name: &str, packed: Tensor<'a>) -> Result<StoredWeight<'a>, Error> {
    let State { block_size, dtype, shape, nested } = state(file, name)?;
    let (nested, offset) =
        nested.map_or((None, 0.0), |Nested { block_size, offset }| (Some(block_size), offset));
    let layout = Layout { len: element_count(&shape)?, block_size, nested };
    layout.check()?;
    let in_file = layout.parts().filter(|need| need.part != Part::NestedOffset);
    let tensors = in_file.map(|need| {
        let tensor =
            if need.part == Part::Packed { packed } else { companion(file, name, need.part.label())? };
        part(tensor, &need)
    });
    Ok(StoredWeight { tensors: tensors.collect::<Result<_, _>>()?, shape, dtype, layout, offset })
}

/// The companion that says how a weight was quantised; to another type, it ends with that one's name.
const STATE: &str = "quant_state.bitsandbytes__nf4";

/// The state of a weight, or that it was quantised in another way, or not at all.
fn state(file: &Checkpoint, name: &str) -> Result<State, Error> {
    let json = companion(file, name, STATE);
    if let Err(Error::MissingPart { .. }) = json {
        let stem = format!("{name}.{}", STATE.trim_end_matches("nf4"));
        if let Some(quant_type) = file.names().find_map(|other| other.strip_prefix(&stem)) {
            return Err(Error::QuantType { got: quant_type.to_owned() });
        }
    }
    state::parse(of_dtype(json?, STATE, dtype::Dtype::U8)?)
}

/// A tensor beside that of the codes.
fn companion<'a>(file: &'a Checkpoint, name: &str, part: &'static str) -> Result<Tensor<'a>, Error> {
    file.tensor(&format!("{name}.{part}")).map_err(|_| Error::MissingPart { part })
}

/// The bytes of a part, if they are as the layout calls for.
fn part<'a>(tensor: Tensor<'a>, need: &PartType) -> Result<&'a [u8], Error> {
    let bytes = match need.part {
        Part::Packed => packed_bytes(tensor)?,
        part => of_dtype(tensor, part.label(), need.dtype)?,
    };
    check_len(need.part.label(), bytes.len() / need.dtype.bytes(), need.len)?;
    Ok(bytes)
}

/// The bytes of packed codes, under whichever of bitsandbytes' `quant_storage` types they are stored. Sharding
/// libraries flatten tensors of one type only, so checkpoints for them store the codes as if they were of the model's
/// own type.
fn packed_bytes(tensor: Tensor<'_>) -> Result<&[u8], Error> {
    match tensor.dtype {
        Stored::U8 | Stored::BF16 | Stored::F16 | Stored::F32 => Ok(tensor.bytes),
        got => {
            let need = "U8, BF16, F16 or F32".to_owned();
            Err(Error::WrongDtype { part: "weight", got: got.to_string(), need })
        }
    }
}

/// The bytes of a tensor, if they are of the type that is needed.
fn of_dtype<'a>(tensor: Tensor<'a>, part: &'static str, need: dtype::Dtype) -> Result<&'a [u8], Error> {
    let (got, need) = (tensor.dtype, need.in_file());
    let wrong = || Error::WrongDtype { part, got: got.to_string(), need: need.to_string() };
    if got == need { Ok(tensor.bytes) } else { Err(wrong()) }
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four))
}

/// A table whose length was checked.
fn array<const N: usize>(mut values: impl Iterator<Item = f32>) -> [f32; N] {
    std::array::from_fn(|_| values.next().expect("its length was checked"))
}
