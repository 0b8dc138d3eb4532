//! The reader and the writer of GGUF: keys with values, and tensors in blocks, in one file.
//!
//! ```text
//! "GGUF" | u32 version | u64 tensors | u64 keys
//! each key:     string name, u32 type, value              string: u64 length, bytes of UTF-8
//! each tensor:  string name, u32 dimensions, u64 sizes, u32 type, u64 offset
//! zeros to a multiple of the alignment | data; each tensor's offset counts from here, a multiple of it too
//! ```
//!
//! Numbers are little endian, or all of them big endian: the version, read the wrong way round, is above 65535. Sizes
//! begin with the one that runs fastest: a matrix of 20 rows of 512 has the sizes 512, 20.
//!
//! **Untrusted.** A count is believed only as far as the rest of the file could hold as many of the smallest, so
//! memory stays within a few times the file. What is read is what every reader reads the same way: a name twice, an
//! offset off the alignment, tensors that overlap, a Boolean of 2 are refused, although some readers take them.
//!
//! Source: the format's description in the repository of ggml, `docs/gguf.md`, versions 2 and 3.

mod cursor;
mod dequantize;
mod problem;
mod quantize;
mod split;
mod tensor_type;
mod value;
mod write;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::path::Path;

use super::bytes::Bytes;
use super::{Error, element_count};
use crate::file_kind::FileKind;
use cursor::Cursor;
pub use dequantize::dequantize;
pub use problem::Problem;
pub use quantize::quantize;
pub use tensor_type::TensorType;
pub use value::{Array, Value, ValueType};
pub use write::{Content, Writer};

/// The four bytes that a file begins with.
pub const MAGIC: [u8; 4] = *b"GGUF";

/// The version that is written.
pub const VERSION: u32 = 3;

/// The key that says what offsets are multiples of, and what they are without it, in bytes.
pub const ALIGNMENT: (&str, u32) = ("general.alignment", 32);

/// The most dimensions of a tensor.
pub const MOST_DIMS: usize = 4;

/// The order of a number's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endian {
    /// The least significant byte first.
    Little,
    /// The most significant byte first.
    Big,
}

/// A GGUF file, mapped; or the parts of a split model, whose keys are those of the first part.
pub struct Gguf {
    parts: Vec<Part>,
    version: u32,
    alignment: usize,
    data: usize, // where it begins
    keys: Vec<(String, Value)>,
    tensors: Vec<Info>,
    part_of: Vec<usize>, // the part that holds each tensor
    by_name: HashMap<String, usize>,
}

/// One file.
struct Part {
    file: Bytes,
    endian: Endian,
}

/// A tensor's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its name.
    pub name: String,
    /// The type of its blocks.
    pub ty: TensorType,
    /// Its sizes, the one that runs fastest first.
    pub sizes: Vec<usize>,
    /// Bytes of the file; in a split model, of the part that holds it.
    pub bytes: Range<usize>,
}

/// A tensor as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct GgufTensor<'a> {
    /// The type of its blocks.
    pub ty: TensorType,
    /// Its sizes, the one that runs fastest first.
    pub sizes: &'a [usize],
    /// Its bytes, unaligned.
    pub bytes: &'a [u8],
    /// The order of the bytes of plain numbers. Blocks and bf16 are little endian in every file, as the public package
    /// writes them.
    pub endian: Endian,
}

impl Gguf {
    /// Opens a file. If it is the first part of a split model, this opens the other parts, too.
    ///
    /// Fails where it is missing, cut short, or says something that does not fit it, and where a part of a split model
    /// is missing or belongs to another model. It stays mapped: a program that changes the file changes the weights or
    /// ends the process; replace a file by renaming a new one over it instead.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let first = Self::single(path)?;
        split::joined(first, path)
    }

    fn single(path: &Path) -> Result<Self, Error> {
        Bytes::map(path).and_then(Self::of).map_err(|fault| fault.at(path))
    }

    /// Reads one file that is in memory already. A part of a split model stays alone.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Error> {
        Self::of(Bytes::Owned(bytes))
    }

    /// 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The order of its numbers' bytes.
    pub fn endian(&self) -> Endian {
        self.parts[0].endian
    }

    /// What offsets are multiples of, in bytes.
    pub fn alignment(&self) -> usize {
        self.alignment
    }

    /// Where the data begins, in bytes.
    pub fn data_offset(&self) -> usize {
        self.data
    }

    /// Its keys, in the file's order.
    pub fn keys(&self) -> &[(String, Value)] {
        &self.keys
    }

    /// A key's value; `None` if the file has no such key.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.keys.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Its tensors, in the file's order.
    pub fn tensors(&self) -> &[Info] {
        &self.tensors
    }

    /// A tensor by its name, as it is stored.
    pub fn tensor(&self, name: &str) -> Result<GgufTensor<'_>, Error> {
        let number = self.by_name.get(name).ok_or_else(|| Error::MissingTensor.of(name))?;
        let Info { ty, sizes, bytes, .. } = &self.tensors[*number];
        let Part { file, endian } = &self.parts[self.part_of[*number]];
        Ok(GgufTensor { ty: *ty, sizes, bytes: &file.as_slice()[bytes.clone()], endian: *endian })
    }
}

impl Gguf {
    fn of(file: Bytes) -> Result<Self, Error> {
        let mut cursor = Cursor::new(file.as_slice());
        let version = cursor.begin().map_err(|problem| match FileKind::of(file.as_slice()) {
            None | Some(FileKind::Gguf) => problem.into(),
            Some(got) => Error::Foreign { need: "GGUF", got },
        })?;
        let [tensors, keys] = [cursor.u64()?, cursor.u64()?];
        let keys = read_keys(&mut cursor, keys)?;
        let alignment = alignment(&keys)?;
        let mut tensors = read_tensors(&mut cursor, tensors)?;
        let (endian, data) = (cursor.endian(), cursor.at().next_multiple_of(alignment));
        let by_name = tensors.iter().enumerate().map(|(number, info)| (info.name.clone(), number)).collect();
        place(&mut tensors, data, alignment, file.as_slice().len())?;
        let (parts, part_of) = (vec![Part { file, endian }], vec![0; tensors.len()]);
        Ok(Self { parts, version, alignment, data, keys, tensors, part_of, by_name })
    }
}

/// The fewest bytes of a key: its length, a type, one byte. An empty name is refused.
const LEAST_KEY: usize = 8 + 1 + 4 + 1;

/// The fewest bytes of a tensor's entry: its length, its dimensions, its type, its offset.
const LEAST_TENSOR: usize = 8 + 1 + 4 + 4 + 8;

fn read_keys(cursor: &mut Cursor, count: u64) -> Result<Vec<(String, Value)>, Error> {
    let count = cursor.count("keys", count, LEAST_KEY)?;
    let (mut keys, mut names) = (Vec::with_capacity(count), HashSet::with_capacity(count));
    for _ in 0..count {
        let name = cursor.name("a key")?;
        let value = Value::read(cursor).map_err(|problem| problem.of_key(&name))?;
        if !names.insert(name.clone()) {
            return Err(Problem::Twice { what: "key", name }.into());
        }
        keys.push((name, value));
    }
    Ok(keys)
}

fn alignment(keys: &[(String, Value)]) -> Result<usize, Error> {
    let (key, without) = ALIGNMENT;
    match keys.iter().find(|(name, _)| name == key).map(|(_, value)| value) {
        None => Ok(without as usize),
        Some(Value::U32(number)) if number.is_power_of_two() => Ok(*number as usize),
        Some(value) => Err(Problem::Alignment { got: value.to_string() }.into()),
    }
}

/// The entries, whose bytes begin where their offsets say, counted from the data.
fn read_tensors(cursor: &mut Cursor, count: u64) -> Result<Vec<Info>, Error> {
    let count = cursor.count("tensors", count, LEAST_TENSOR)?;
    let (mut tensors, mut names) = (Vec::with_capacity(count), HashSet::with_capacity(count));
    for _ in 0..count {
        let name = cursor.name("a tensor")?;
        let info = read_tensor(cursor, &name).map_err(|fault| fault.of(&name))?;
        if !names.insert(name.clone()) {
            return Err(Problem::Twice { what: "tensor", name }.into());
        }
        tensors.push(info);
    }
    Ok(tensors)
}

fn read_tensor(cursor: &mut Cursor, name: &str) -> Result<Info, Error> {
    let dims = cursor.u32()?;
    if dims as usize > MOST_DIMS {
        return Err(Problem::Dims { got: dims }.into());
    }
    let sizes = (0..dims).map(|_| cursor.u64()).collect::<Result<Vec<u64>, Problem>>()?;
    let number = cursor.u32()?;
    let ty = TensorType::of(number).ok_or(Problem::TensorType { got: number })?;
    let offset = cursor.u64()?;
    let whole = || sizes.iter().map(|size| usize::try_from(*size).ok()).collect::<Option<Vec<usize>>>();
    let too_large = || Problem::Sizes { sizes: sizes.clone() };
    let sizes_here = whole().ok_or_else(too_large)?;
    let elements = element_count(&sizes_here).ok_or_else(too_large)?;
    let [elements_a_block, bytes_a_block] = ty.block();
    if !sizes_here.first().unwrap_or(&1).is_multiple_of(elements_a_block) {
        return Err(Problem::Blocks { ty, row: sizes_here.first().copied().unwrap_or(1) }.into());
    }
    let bytes = (elements / elements_a_block).checked_mul(bytes_a_block).ok_or_else(too_large)?;
    let begin = usize::try_from(offset).map_err(|_| Problem::PastEnd { begin: offset, bytes, data: 0 })?;
    let end = begin.checked_add(bytes).ok_or(Problem::PastEnd { begin: offset, bytes, data: 0 })?;
    Ok(Info { name: name.into(), ty, sizes: sizes_here, bytes: begin..end })
}

/// Places the entries in the file, where each has bytes of its own.
fn place(tensors: &mut [Info], data: usize, alignment: usize, len: usize) -> Result<(), Error> {
    let data_bytes = len.saturating_sub(data);
    for info in tensors.iter() {
        let Range { start, end } = info.bytes;
        if !start.is_multiple_of(alignment) {
            return Err(Error::from(Problem::Misaligned { offset: start, alignment }).of(&info.name));
        }
        if end > data_bytes {
            let problem = Problem::PastEnd { begin: start as u64, bytes: end - start, data: data_bytes };
            return Err(Error::from(problem).of(&info.name));
        }
    }
    let mut order: Vec<&Info> = tensors.iter().filter(|info| !info.bytes.is_empty()).collect();
    order.sort_by_key(|info| info.bytes.start);
    if let Some(pair) = order.windows(2).find(|pair| pair[1].bytes.start < pair[0].bytes.end) {
        let problem = Problem::Overlap { other: pair[0].name.clone(), end: pair[0].bytes.end };
        return Err(Error::from(problem).of(&pair[1].name));
    }
    for Info { bytes, .. } in tensors {
        let begin = (data + bytes.start).min(len); // a file may end before its data, if all of it is empty
        *bytes = begin..begin + bytes.len();
    }
    Ok(())
}

impl fmt::Debug for Gguf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gguf({} keys, {} tensors)", self.keys.len(), self.tensors.len())
    }
}
