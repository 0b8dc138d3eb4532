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
//! Files are mapped into memory, not read: opening 30 GB costs a header, and bytes are fetched when they
//! are decoded. Codes are borrowed from the map; f32 parts are small and copied, since nothing aligns them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use safetensors::tensor::Dtype as Stored;

use super::bytes::Bytes;
use super::header::{self, Entry};
use super::state::{self, Nested, State};
use super::{Error, Quantized, Scales, index};

/// One or more safetensors files, mapped.
pub struct Checkpoint {
    files: Vec<Bytes>,
    tensors: BTreeMap<String, Place>,
}

/// A quantised weight whose bytes lie in a [`Checkpoint`].
pub type QuantizedTensor<'a> = Quantized<&'a [u8]>;

/// A tensor as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// The type of each element.
    pub dtype: Stored,
    /// Dimensions, row-major.
    pub shape: &'a [usize],
    /// Its bytes, little endian, unaligned.
    pub bytes: &'a [u8],
}

impl Checkpoint {
    /// Opens a `.safetensors` file, or a folder that holds `model.safetensors` or the shards that its
    /// `model.safetensors.index.json` lists.
    ///
    /// Fails where a file is missing, cut short, or has a header that does not fit it. The files stay
    /// mapped: whoever changes one meanwhile changes the weights or ends the process; replace a file by
    /// renaming a new one over it instead.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        if !path.is_dir() {
            return Self::single(path);
        }
        let (whole, listed) = (path.join("model.safetensors"), path.join("model.safetensors.index.json"));
        if whole.exists() {
            return Self::single(&whole);
        }
        if listed.exists() {
            return Self::sharded(path, &listed);
        }
        Err(Error::EmptyFolder.at(path))
    }

    /// Reads a file that is in memory already.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Error> {
        Self::of_one(Bytes::Owned(bytes))
    }

    /// The names of all tensors, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// A tensor by its name, as it is stored.
    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>, Error> {
        let place = self.tensors.get(name).ok_or_else(|| Error::MissingTensor.of(name))?;
        let bytes = &self.files[place.file].as_slice()[place.entry.bytes.clone()];
        Ok(Tensor { dtype: place.entry.dtype, shape: &place.entry.shape, bytes })
    }

    /// A quantised weight by the name of its codes, such as `model.layers.0.mlp.up_proj.weight`.
    ///
    /// Fails where a part is missing, has another type or length than the others call for, or holds a
    /// scale that is not finite. What it returns passes [`Quantized::check`].
    pub fn nf4(&self, name: &str) -> Result<QuantizedTensor<'_>, Error> {
        self.parts(name).map_err(|fault| match fault {
            Error::InTensor { .. } => fault, // the weight itself is missing
            fault => fault.of(name),
        })
    }

    /// [`Checkpoint::nf4`], before an error gets the weight's name.
    fn parts(&self, name: &str) -> Result<QuantizedTensor<'_>, Error> {
        let packed = self.tensor(name)?;
        let state = self.state(name)?;
        let quantized = Quantized {
            packed: packed.of_dtype("weight", Stored::U8)?,
            table: *self.table::<16>(name, "quant_map")?,
            absmax: self.scales(name, &state)?,
            shape: state.shape,
            dtype: state.dtype,
            block_size: state.block_size,
        };
        quantized.check()?;
        Ok(quantized)
    }

    /// The state of a weight, or that it was quantised in another way, or not at all.
    fn state(&self, name: &str) -> Result<State, Error> {
        let stem = format!("{name}.quant_state.bitsandbytes__");
        let found = self.tensors.keys().find_map(|other| other.strip_prefix(&stem));
        match found {
            Some(quant_type) if !self.tensors.contains_key(&format!("{stem}nf4")) => {
                Err(Error::QuantType { got: quant_type.to_owned() })
            }
            _ => state::parse(self.part(name, "quant_state.bitsandbytes__nf4", Stored::U8)?),
        }
    }

    /// Both levels of the scales.
    fn scales(&self, name: &str, state: &State) -> Result<Scales<&[u8]>, Error> {
        let Some(Nested { block_size, offset }) = state.nested else {
            return Ok(Scales::Single(self.floats(name, "absmax")?));
        };
        Ok(Scales::Double {
            codes: self.part(name, "absmax", Stored::U8)?,
            table: self.table(name, "nested_quant_map")?,
            scales: self.floats(name, "nested_absmax")?,
            block_size,
            offset,
        })
    }

    /// The bytes of a companion tensor.
    fn part(&self, name: &str, part: &'static str, dtype: Stored) -> Result<&[u8], Error> {
        let companion = self.tensor(&format!("{name}.{part}")).map_err(|_| Error::MissingPart { part })?;
        companion.of_dtype(part, dtype)
    }

    /// A companion of f32, copied.
    fn floats(&self, name: &str, part: &'static str) -> Result<Vec<f32>, Error> {
        let bytes = self.part(name, part, Stored::F32)?;
        Ok(bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect())
    }

    /// A companion of exactly `N` f32.
    fn table<const N: usize>(&self, name: &str, part: &'static str) -> Result<Box<[f32; N]>, Error> {
        let values = self.floats(name, part)?;
        values.try_into().map_err(|values: Vec<f32>| Error::Length { what: part, got: values.len(), need: N })
    }
}

/// A tensor's file, by number, and where it lies there.
struct Place {
    file: usize,
    entry: Entry,
}

impl Checkpoint {
    /// One file that holds every tensor.
    fn single(path: &Path) -> Result<Self, Error> {
        Bytes::map(path).and_then(Self::of_one).map_err(|fault| fault.at(path))
    }

    fn of_one(bytes: Bytes) -> Result<Self, Error> {
        let entries = header::parse(bytes.as_slice())?;
        let tensors = entries.into_iter().map(|(name, entry)| (name, Place { file: 0, entry })).collect();
        Ok(Self { files: vec![bytes], tensors })
    }

    /// The files that an index lists, and of each the tensors that the index says it has.
    fn sharded(folder: &Path, listed: &Path) -> Result<Self, Error> {
        let shards = index::read(listed).map_err(|fault| fault.at(listed))?;
        let mut checkpoint = Self { files: Vec::new(), tensors: BTreeMap::new() };
        for (file, names) in shards {
            let path = folder.join(&file);
            checkpoint.add(&path, names).map_err(|fault| fault.at(&path))?;
        }
        Ok(checkpoint)
    }

    /// Maps one shard.
    fn add(&mut self, path: &Path, names: Vec<String>) -> Result<(), Error> {
        let bytes = Bytes::map(path)?;
        let mut entries = header::parse(bytes.as_slice())?;
        for name in names {
            let entry = entries.remove(&name).ok_or_else(|| Error::NotInShard.of(&name))?;
            self.tensors.insert(name, Place { file: self.files.len(), entry });
        }
        self.files.push(bytes);
        Ok(())
    }
}

impl<'a> Tensor<'a> {
    /// The bytes, if they are of the type that is needed.
    fn of_dtype(self, part: &'static str, need: Stored) -> Result<&'a [u8], Error> {
        let wrong = || Error::WrongDtype { part, got: self.dtype.to_string(), need: need.to_string() };
        if self.dtype == need { Ok(self.bytes) } else { Err(wrong()) }
    }
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checkpoint({} tensors in {} files)", self.tensors.len(), self.files.len())
    }
}
