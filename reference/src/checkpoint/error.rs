//! What can be wrong with a checkpoint: a file, its header, a folder, an index.
//!
//! A case says what is there and what is needed. Where that happened is said once, around it:
//! [`Error::InTensor`] adds the tensor's name and [`Error::InFile`] the path.

use std::error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::file_kind::FileKind;
use crate::json;

/// Why a checkpoint or one of its tensors cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// One of the other cases, with the tensor that it happened to.
    InTensor {
        /// The tensor's name.
        tensor: String,
        /// What is wrong with it.
        fault: Box<Error>,
    },
    /// One of the other cases, with the file that it happened in.
    InFile {
        /// The file's path.
        path: PathBuf,
        /// What is wrong with it.
        fault: Box<Error>,
    },

    // A tensor.
    /// The product of the dimensions does not fit in memory.
    ShapeOverflow {
        /// The dimensions.
        shape: Vec<usize>,
    },
    /// No tensor of that name.
    MissingTensor,

    /// The file has another format.
    Foreign {
        /// The format that the reader expects.
        need: &'static str,
        /// The format that it recognised.
        got: FileKind,
    },

    // A safetensors file.
    /// The file cannot be opened or mapped.
    Open {
        /// The system's reason.
        source: io::Error,
    },
    /// The file ends before its header does.
    HeaderLength {
        /// Bytes of the file.
        got: u64,
        /// Bytes up to the header's end.
        need: u64,
    },
    /// The header is longer than the format allows.
    HeaderTooLong {
        /// Its length in bytes.
        got: u64,
        /// The format's limit.
        limit: u64,
    },
    /// The header is no JSON object.
    HeaderJson {
        /// Where and why.
        source: serde_json::Error,
    },
    /// A tensor's entry in the header has not the form of one.
    HeaderEntry {
        /// Why.
        source: serde_json::Error,
    },
    /// A tensor's data does not begin where the one before it ends: a gap or an overlap.
    Offset {
        /// Where it begins.
        got: usize,
        /// Where it should.
        need: usize,
    },
    /// A tensor's data ends before it begins, or after the file.
    PastEnd {
        /// Where it begins.
        begin: usize,
        /// Where it ends.
        end: usize,
        /// Bytes of data in the file.
        len: usize,
    },
    /// A tensor has more or fewer bytes than its shape needs.
    ByteCount {
        /// Bytes between its offsets.
        got: usize,
        /// Bytes that the shape needs.
        need: usize,
        /// The type of an element.
        dtype: String,
        /// The dimensions.
        shape: Vec<usize>,
    },
    /// The file goes on after its last tensor.
    TrailingBytes {
        /// Bytes of data in the file.
        got: usize,
        /// Bytes that the tensors cover.
        need: usize,
    },

    // A GGUF file.
    /// It says something that does not fit it.
    Gguf(super::gguf::Problem),
    /// It cannot be written.
    Write {
        /// The system's reason.
        source: io::Error,
    },

    // A folder.
    /// The folder holds no checkpoint.
    EmptyFolder,
    /// The index is not the JSON that it should be.
    IndexJson {
        /// Where and why.
        source: json::Error,
    },
    /// The index names a file that does not lie beside it.
    ShardName {
        /// The name.
        got: String,
    },
    /// The index says that the tensor is in a file, and it is not.
    NotInShard,
}

impl Error {
    /// The same error, naming the tensor.
    pub(super) fn of(self, tensor: &str) -> Self {
        Error::InTensor { tensor: tensor.to_owned(), fault: Box::new(self) }
    }

    /// The same error, naming the file.
    pub(super) fn at(self, path: &Path) -> Self {
        Error::InFile { path: path.to_owned(), fault: Box::new(self) }
    }

    /// The case itself, without the names around it.
    pub fn fault(&self) -> &Error {
        match self {
            Error::InTensor { fault, .. } | Error::InFile { fault, .. } => fault.fault(),
            fault => fault,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::InTensor { tensor, fault } => write!(f, "tensor `{tensor}`: {fault}"),
            Error::InFile { path, fault } => write!(f, "`{}`: {fault}", path.display()),
            Error::ShapeOverflow { shape } => {
                write!(f, "shape {shape:?} has more elements than fit in memory")
            }
            Error::MissingTensor => write!(f, "not in the checkpoint"),
            Error::Foreign { need, got } => write!(f, "expected {need}, found {got}"),
            Error::Open { source } => write!(f, "cannot be opened: {source}"),
            Error::HeaderLength { got, need } => {
                write!(f, "file of {got} bytes, its header alone needs {need}")
            }
            Error::HeaderTooLong { got, limit } => {
                write!(f, "header of {got} bytes, the format allows {limit}")
            }
            Error::HeaderJson { source } => write!(f, "header does not parse: {source}"),
            Error::HeaderEntry { source } => write!(f, "header entry does not parse: {source}"),
            Error::Offset { got, need } => write!(f, "data offset: expected {need}, found {got}"),
            Error::PastEnd { begin, end, len } => {
                write!(f, "data from byte {begin} to {end}, the file holds {len} bytes of data")
            }
            Error::ByteCount { got, need, dtype, shape } => {
                write!(f, "expected {need} bytes of data for {shape:?} of {dtype}, found {got}")
            }
            Error::TrailingBytes { got, need } => {
                write!(f, "{got} bytes of data, the header describes {need}")
            }
            Error::Gguf(problem) => problem.fmt(f),
            Error::Write { source } => write!(f, "cannot be written: {source}"),
            Error::EmptyFolder => {
                write!(f, "neither model.safetensors nor model.safetensors.index.json in this folder")
            }
            Error::IndexJson { source } => write!(f, "index does not parse: {source}"),
            Error::ShardName { got } => write!(f, "expected a name in the index's own folder, found `{got}`"),
            Error::NotInShard => write!(f, "not in this file, where the index places it"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Error::InTensor { fault, .. } | Error::InFile { fault, .. } => fault.source(),
            Error::Open { source } | Error::Write { source } => Some(source),
            Error::HeaderJson { source } | Error::HeaderEntry { source } => Some(source),
            Error::IndexJson { source } => Some(source),
            _ => None,
        }
    }
}
