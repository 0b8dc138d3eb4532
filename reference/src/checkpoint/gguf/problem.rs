//! What can be wrong with a GGUF file.

use std::{error, fmt};

use super::super::Error;
use super::{MOST_DIMS, TensorType};

/// What a GGUF file says that does not fit it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// It does not begin with "GGUF".
    Magic {
        /// What it begins with.
        got: [u8; 4],
    },
    /// A version that is not read.
    Version {
        /// The version.
        got: u32,
    },
    /// It ends in the middle of something.
    Ended {
        /// Where that begins.
        at: usize,
        /// Bytes of it.
        need: usize,
        /// Bytes of the file.
        len: usize,
    },
    /// More of something than the rest of the file can hold.
    Count {
        /// Of what.
        what: &'static str,
        /// How many it says.
        got: u64,
        /// Bytes that are left.
        left: usize,
    },
    /// A name without a character, or one that is too long.
    NameLength {
        /// Of what.
        of: &'static str,
        /// Its bytes.
        got: u64,
    },
    /// A string that is not UTF-8.
    Utf8 {
        /// Where it begins.
        at: usize,
    },
    /// A key's value has a type that there is not.
    ValueType {
        /// The type's number.
        got: u32,
    },
    /// A Boolean that is neither 0 nor 1.
    Boolean {
        /// What it is.
        got: u8,
    },
    /// Arrays in arrays, too many of them.
    Nested {
        /// The most.
        limit: usize,
    },
    /// What is wrong with a key's value.
    InKey {
        /// The key.
        key: String,
        /// What is wrong.
        problem: Box<Problem>,
    },
    /// The same name twice.
    Twice {
        /// Of what.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// An alignment that is no power of two, or not written as a u32.
    Alignment {
        /// What it is.
        got: String,
    },
    /// Too many dimensions.
    Dims {
        /// How many.
        got: u32,
    },
    /// A tensor's type that there is not.
    TensorType {
        /// The type's number.
        got: u32,
    },
    /// More elements than fit in memory.
    Sizes {
        /// The sizes.
        sizes: Vec<u64>,
    },
    /// Rows that are not whole blocks.
    Blocks {
        /// The type.
        ty: TensorType,
        /// Elements of a row.
        row: usize,
    },
    /// Data that begins off the alignment.
    Misaligned {
        /// Where it begins, counted from the data.
        offset: usize,
        /// What that has to be a multiple of.
        alignment: usize,
    },
    /// Data that ends after the file.
    PastEnd {
        /// Where it begins, counted from the data.
        begin: u64,
        /// Its bytes.
        bytes: usize,
        /// Bytes of data in the file.
        data: usize,
    },
    /// Data of two tensors in one place.
    Overlap {
        /// The other tensor.
        other: String,
        /// Where the other ends, counted from the data.
        end: usize,
    },
    /// A later part of a split model, where the first one is needed.
    LaterPart {
        /// The number of the part, from 1.
        part: usize,
        /// The number of parts that the model has.
        count: usize,
        /// The name of the first part.
        first: String,
    },
    /// The first part of a split model has a name that does not lead to the others.
    PartName {
        /// The number of parts that the model has.
        count: usize,
        /// The end that the name needs.
        need: String,
    },
    /// A part of a split model is missing.
    MissingPart {
        /// The number of the part, from 1.
        part: usize,
        /// The number of parts that the model has.
        count: usize,
    },
    /// A key that says how a model is split has a value that does not fit.
    Split {
        /// The key.
        key: &'static str,
        /// The value.
        got: String,
        /// The expected value.
        need: String,
    },
    /// A type whose numbers are not read.
    NotRead {
        /// The type.
        ty: TensorType,
    },
    /// A type that is not written.
    NotWritten {
        /// The type.
        ty: TensorType,
    },
    /// A name that is written has as many bytes, or more, than readers take.
    LongName {
        /// The name.
        name: String,
        /// The most bytes.
        limit: usize,
    },
    /// A tensor that is written has not as many bytes as its type and sizes need.
    ByteCount {
        /// Bytes that came.
        got: usize,
        /// Bytes that are needed.
        need: usize,
    },
}

impl Problem {
    pub(super) fn of_key(self, key: &str) -> Self {
        Problem::InKey { key: key.into(), problem: Box::new(self) }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Error::Gguf(problem)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Magic { got } => {
                write!(f, "expected a file that begins with `GGUF`, found `{}`", got.escape_ascii())
            }
            Problem::Version { got } => write!(f, "expected version 2 or 3 of GGUF, found {got}"),
            Problem::Ended { at, need, len } => {
                write!(f, "expected {need} bytes from byte {at} on, found the end of the file at {len}")
            }
            Problem::Count { what, got, left } => {
                write!(f, "expected no more {what} than the {left} bytes left can hold, found {got}")
            }
            Problem::NameLength { of, got } => {
                write!(f, "the name of {of}: expected 1 to {} bytes, found {got}", u16::MAX)
            }
            Problem::Utf8 { at } => write!(f, "expected UTF-8 in the string at byte {at}"),
            Problem::ValueType { got } => write!(f, "expected the type of a value, 0 to 12, found {got}"),
            Problem::Boolean { got } => write!(f, "expected a Boolean, 0 or 1, found {got}"),
            Problem::Nested { limit } => write!(f, "expected at most {limit} arrays in each other"),
            Problem::InKey { key, problem } => write!(f, "key `{key}`: {problem}"),
            Problem::Twice { what, name } => write!(f, "two of the {what} `{name}`"),
            Problem::Alignment { got } => {
                write!(f, "key `general.alignment`: expected a power of two as a u32, found {got}")
            }
            Problem::Dims { got } => write!(f, "expected at most {MOST_DIMS} dimensions, found {got}"),
            Problem::TensorType { got } => write!(f, "expected the number of a type of tensors, found {got}"),
            Problem::Sizes { sizes } => write!(f, "sizes {sizes:?} have more elements than fit in memory"),
            Problem::Blocks { ty, row } => {
                write!(f, "expected rows of whole blocks of {} ({ty}), found {row} elements", ty.block()[0])
            }
            Problem::Misaligned { offset, alignment } => {
                write!(f, "expected an offset that is a multiple of {alignment}, found {offset}")
            }
            Problem::PastEnd { begin, bytes, data } => {
                write!(f, "{bytes} bytes from byte {begin} of the data on, the file holds {data}")
            }
            Problem::Overlap { other, end } => {
                write!(f, "its data begins before that of `{other}` ends, at byte {end} of the data")
            }
            Problem::LaterPart { part, count, first } => {
                write!(f, "it is part {part} of {count} of a split model: give the first part, `{first}`")
            }
            Problem::PartName { count, need } => {
                write!(f, "it is part 1 of {count} of a split model: expected a name that ends with `{need}`")
            }
            Problem::MissingPart { part, count } => write!(
                f,
                "part {part} of {count} of a split model: the file is missing; put it into the folder of the first \
                 part"
            ),
            Problem::Split { key, got, need } => write!(f, "key `{key}`: expected {need}, found {got}"),
            Problem::NotRead { ty } => write!(f, "tensors of type {ty} are not read"),
            Problem::NotWritten { ty } => {
                write!(f, "expected F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0 or Q5_1 to be written, found {ty}")
            }
            Problem::LongName { name, limit } => {
                write!(f, "`{name}`: expected a name of fewer than {limit} bytes, found {}", name.len())
            }
            Problem::ByteCount { got, need } => write!(f, "expected {need} bytes of data, found {got}"),
        }
    }
}

impl error::Error for Problem {}
