//! The header of a safetensors file, believed only where it agrees with the file.
//!
//! ```text
//! u64 n, little endian | n bytes of JSON: {name: {dtype, shape, data_offsets: [begin, end]}} | data
//! ```
//!
//! Offsets count from the start of the data, which they cover without a gap or an overlap. A header may
//! lie about all of it, by accident (a download that broke off) or not, and every number in it would be
//! used to slice the file. The checks here are our own: the `safetensors` crate, whose types they use,
//! does not say which tensor is at fault, and adds offsets without a check for overflow.

use std::collections::BTreeMap;
use std::ops::Range;

use safetensors::tensor::{Dtype, TensorInfo};
use serde_json::{Map, Value};

use super::{Error, element_count};

/// Where a tensor lies in its file. The range is checked against the file and against the shape.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The type of each element.
    pub dtype: Dtype,
    /// Dimensions, row-major.
    pub shape: Vec<usize>,
    /// Bytes of the file.
    pub bytes: Range<usize>,
}

/// The tensors of a file, given all its bytes.
pub(super) fn parse(file: &[u8]) -> Result<BTreeMap<String, Entry>, Error> {
    let json = json_part(file)?;
    let data_start = LENGTH_BYTES + json.len();
    let tensors = in_order_of_offsets(json)?;
    check_layout(&tensors, file.len() - data_start)?;
    Ok(tensors.into_iter().map(|(name, info)| (name, entry(info, data_start))).collect())
}

/// Size of the number that a file begins with.
const LENGTH_BYTES: usize = 8;

/// The format's own limit on the JSON, in bytes.
const JSON_LIMIT: u64 = 100_000_000;

/// The n bytes after the first eight.
fn json_part(file: &[u8]) -> Result<&[u8], Error> {
    let got = file.len();
    let Some((length, rest)) = file.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(Error::HeaderLength { got: got as u64, need: LENGTH_BYTES as u64 });
    };
    let need = u64::from_le_bytes(*length);
    if need > JSON_LIMIT {
        return Err(Error::HeaderTooLong { got: need, limit: JSON_LIMIT });
    }
    rest.get(..need as usize).ok_or(Error::HeaderLength { got: got as u64, need: LENGTH_BYTES as u64 + need })
}

/// The entries of the JSON, sorted as their data lies.
fn in_order_of_offsets(json: &[u8]) -> Result<Vec<(String, TensorInfo)>, Error> {
    let mut object: Map<String, Value> =
        serde_json::from_slice(json).map_err(|source| Error::HeaderJson { source })?;
    object.remove("__metadata__");
    let mut tensors = object.into_iter().map(named_info).collect::<Result<Vec<_>, _>>()?;
    tensors.sort_by_key(|(_, info)| info.data_offsets);
    Ok(tensors)
}

/// One entry, typed.
fn named_info((name, value): (String, Value)) -> Result<(String, TensorInfo), Error> {
    match serde_json::from_value(value) {
        Ok(info) => Ok((name, info)),
        Err(source) => Err(Error::HeaderEntry { source }.of(&name)),
    }
}

/// That the tensors cover the data's `len` bytes exactly, each with the bytes that its shape needs.
fn check_layout(tensors: &[(String, TensorInfo)], len: usize) -> Result<(), Error> {
    let mut covered = 0;
    for (name, info) in tensors {
        covered = check_entry(info, covered, len).map_err(|fault| fault.of(name))?;
    }
    if covered == len { Ok(()) } else { Err(Error::TrailingBytes { got: len, need: covered }) }
}

/// That a tensor begins where the one before ended; where it ends itself.
fn check_entry(info: &TensorInfo, covered: usize, len: usize) -> Result<usize, Error> {
    let (begin, end) = info.data_offsets;
    if begin != covered {
        return Err(Error::Offset { got: begin, need: covered });
    }
    if end < begin || end > len {
        return Err(Error::PastEnd { begin, end, len });
    }
    let need = byte_count(info)?;
    if end - begin != need {
        return Err(Error::ByteCount {
            got: end - begin,
            need,
            dtype: info.dtype.to_string(),
            shape: info.shape.clone(),
        });
    }
    Ok(end)
}

/// Bytes that the shape needs; types of less than a byte fill the last one.
fn byte_count(info: &TensorInfo) -> Result<usize, Error> {
    let bits = element_count(&info.shape).and_then(|elements| elements.checked_mul(info.dtype.bitsize()));
    bits.map(|bits| bits.div_ceil(8)).ok_or_else(|| Error::ShapeOverflow { shape: info.shape.clone() })
}

/// A checked entry with its offsets counted from the start of the file.
fn entry(info: TensorInfo, data_start: usize) -> Entry {
    let (begin, end) = info.data_offsets;
    Entry { dtype: info.dtype, shape: info.shape, bytes: data_start + begin..data_start + end }
}
