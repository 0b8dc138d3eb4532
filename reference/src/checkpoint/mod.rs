//! The reader of checkpoints: any safetensors file, or several with an index, as tensors by name.
//!
//! Files are mapped into memory, not read: opening 30 GB costs a header, and bytes are fetched when somebody looks at
//! them. A tensor is borrowed from the map as it is stored: little endian, and aligned to nothing. What several tensors
//! mean together, such as the parts of a quantised weight, is said where that format is ([`crate::nf4`]).

mod bytes;
mod error;
pub mod gguf;
mod header;
mod index;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use bytes::Bytes;
pub use error::Error;
use header::Entry;
use safetensors::tensor::Dtype;

use crate::file_kind::FileKind;

/// One or more safetensors files, mapped.
pub struct Checkpoint {
    files: Vec<Bytes>,
    tensors: BTreeMap<String, Located>,
}

/// A tensor as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// The type of each element.
    pub dtype: Dtype,
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

    /// The same tensors, each under the name that `renamed` gives for its own; one whose new name is taken keeps its own.
    #[must_use]
    pub fn renamed(mut self, renamed: impl Fn(&str) -> Option<String>) -> Self {
        let names: Vec<(String, String)> =
            self.names().filter_map(|name| Some((name.to_owned(), renamed(name)?))).collect();
        for (old, new) in names {
            if !self.tensors.contains_key(&new) {
                let located = self.tensors.remove(&old);
                self.tensors.extend(located.map(|located| (new, located)));
            }
        }
        self
    }

    /// A tensor by its name, as it is stored.
    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>, Error> {
        let place = self.tensors.get(name).ok_or_else(|| Error::MissingTensor.of(name))?;
        let bytes = &self.files[place.file].as_slice()[place.entry.bytes.clone()];
        Ok(Tensor { dtype: place.entry.dtype, shape: &place.entry.shape, bytes })
    }
}

/// A tensor's file, by number, and where it lies there.
struct Located {
    file: usize,
    entry: Entry,
}

impl Checkpoint {
    /// One file that holds every tensor.
    fn single(path: &Path) -> Result<Self, Error> {
        Bytes::map(path).and_then(Self::of_one).map_err(|fault| fault.at(path))
    }

    fn of_one(bytes: Bytes) -> Result<Self, Error> {
        let entries = entries(&bytes)?;
        let tensors = entries.into_iter().map(|(name, entry)| (name, Located { file: 0, entry })).collect();
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
        let mut entries = entries(&bytes)?;
        for name in names {
            let entry = entries.remove(&name).ok_or_else(|| Error::NotInShard.of(&name))?;
            self.tensors.insert(name, Located { file: self.files.len(), entry });
        }
        self.files.push(bytes);
        Ok(())
    }
}

/// The tensors of a safetensors file.
///
/// Fails with the name of the file's format if that is not safetensors.
fn entries(bytes: &Bytes) -> Result<BTreeMap<String, Entry>, Error> {
    header::parse(bytes.as_slice()).map_err(|fault| match FileKind::of(bytes.as_slice()) {
        None | Some(FileKind::Safetensors) => fault,
        Some(got) => Error::Foreign { need: "safetensors", got },
    })
}

/// Product of the dimensions; `None` if it overflows.
pub(crate) fn element_count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |count, dim| count.checked_mul(*dim))
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checkpoint({} tensors in {} files)", self.tensors.len(), self.files.len())
    }
}
