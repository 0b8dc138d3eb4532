//! The writer: keys and entries first, then each tensor's bytes as they come.

use std::io::{self, Write};

use super::value::{bytes, string};
use super::{ALIGNMENT, Error, MAGIC, Problem, TensorType, VERSION, Value};
use crate::checkpoint::element_count;

/// What readers take of a tensor's name, with the zero that ends it in their memory: `GGML_MAX_NAME` of ggml.
const NAME_LIMIT: usize = 64;

/// A tensor that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Its name, fewer than 64 bytes.
    pub name: String,
    /// The type of its blocks.
    pub ty: TensorType,
    /// Its sizes, the one that runs fastest first.
    pub sizes: Vec<usize>,
}

impl Content {
    /// Bytes of its data.
    ///
    /// # Errors
    /// If its rows are not whole blocks, or too many.
    pub fn bytes(&self) -> Result<usize, Error> {
        let overflow = || Problem::Sizes { sizes: self.sizes.iter().map(|size| *size as u64).collect() };
        let row = self.sizes.first().copied().unwrap_or(1);
        if !row.is_multiple_of(self.ty.block()[0]) {
            return Err(Error::from(Problem::Blocks { ty: self.ty, row }).of(&self.name));
        }
        let elements = element_count(&self.sizes).ok_or_else(overflow)?;
        Ok(self.ty.bytes(elements).ok_or_else(overflow)?)
    }
}

/// A file that is being written: version 3, little endian, offsets in the order of the entries.
pub struct Writer<W> {
    to: W,
    left: std::vec::IntoIter<Content>, // tensors whose bytes have not come
}

impl<W: Write> Writer<W> {
    /// Writes keys and entries. Offsets are multiples of 32, and no key says another alignment.
    ///
    /// # Errors
    /// A name twice, or too long for readers; rows that are not whole blocks; what keeps `to` from being written.
    pub fn begin(mut to: W, keys: &[(String, Value)], tensors: Vec<Content>) -> Result<Self, Error> {
        unique("key", keys.iter().map(|(name, _)| name))?;
        unique("tensor", tensors.iter().map(|tensor| &tensor.name))?;
        if let Some((_, value)) =
            keys.iter().find(|(name, value)| name == ALIGNMENT.0 && *value != Value::U32(ALIGNMENT.1))
        {
            return Err(Problem::Alignment { got: value.to_string() }.into());
        }
        let mut head = MAGIC.to_vec();
        head.extend(VERSION.to_le_bytes());
        head.extend((tensors.len() as u64).to_le_bytes());
        head.extend((keys.len() as u64).to_le_bytes());
        for (name, value) in keys {
            string(name, &mut head);
            head.extend((value.ty() as u32).to_le_bytes());
            bytes(value, &mut head);
        }
        let mut offset = 0_usize;
        for tensor in &tensors {
            if tensor.name.len() >= NAME_LIMIT {
                return Err(Problem::LongName { name: tensor.name.clone(), limit: NAME_LIMIT }.into());
            }
            string(&tensor.name, &mut head);
            head.extend((tensor.sizes.len() as u32).to_le_bytes());
            head.extend(tensor.sizes.iter().flat_map(|size| (*size as u64).to_le_bytes()));
            head.extend(tensor.ty.number().to_le_bytes());
            head.extend((offset as u64).to_le_bytes());
            offset += aligned(tensor.bytes()?);
        }
        head.resize(aligned(head.len()), 0);
        to.write_all(&head).map_err(written)?;
        Ok(Self { to, left: tensors.into_iter() })
    }

    /// Writes the bytes of the next tensor, and zeros up to the one after it.
    ///
    /// # Errors
    /// If they are not as many as it needs, or cannot be written.
    ///
    /// # Panics
    /// If all tensors were written.
    pub fn write(&mut self, data: &[u8]) -> Result<(), Error> {
        let tensor = self.left.next().expect("a tensor that was announced");
        let need = tensor.bytes()?;
        if data.len() != need {
            return Err(Error::from(Problem::ByteCount { got: data.len(), need }).of(&tensor.name));
        }
        self.to.write_all(data).map_err(written)?;
        self.to.write_all(&[0; ALIGNMENT.1 as usize][..aligned(need) - need]).map_err(written)
    }

    /// The tensor whose bytes are next.
    pub fn next(&self) -> Option<&Content> {
        self.left.as_slice().first()
    }

    /// Ends the file.
    ///
    /// # Panics
    /// If the bytes of a tensor did not come.
    pub fn finish(self) -> W {
        assert!(self.left.as_slice().is_empty(), "the bytes of every tensor that was announced");
        self.to
    }
}

fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT.1 as usize)
}

fn unique<'a>(what: &'static str, names: impl Iterator<Item = &'a String>) -> Result<(), Error> {
    let mut seen = std::collections::HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Problem::Twice { what, name: name.clone() }.into());
        }
    }
    Ok(())
}

fn written(source: io::Error) -> Error {
    Error::Write { source }
}
