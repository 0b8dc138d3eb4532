//! What can be wrong with a weight or with its parts in a checkpoint.
//!
//! A case says what is there and what is needed; [`Error::InTensor`] adds the weight's name around it.

use std::error;
use std::fmt;

use crate::checkpoint;

/// Why a weight cannot be quantised, decoded or read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// One of the other cases, with the weight that it happened to.
    InTensor {
        /// The weight's name.
        tensor: String,
        /// What is wrong with it.
        fault: Box<Error>,
    },

    // The weight.
    /// A block size is no power of two of 32..=4096.
    BlockSize {
        /// `blocksize` or `nested_blocksize`.
        what: &'static str,
        /// The size found.
        got: usize,
    },
    /// A part is longer or shorter than the weight calls for.
    Length {
        /// The part.
        what: &'static str,
        /// Its length.
        got: usize,
        /// The length called for.
        need: usize,
    },
    /// A value is NaN or infinite.
    NotFinite {
        /// The part that holds it.
        what: &'static str,
        /// Where in the part.
        index: usize,
        /// The value.
        value: f32,
    },
    /// The product of the dimensions does not fit in memory.
    ShapeOverflow {
        /// The dimensions.
        shape: Vec<usize>,
    },

    // Its parts in a checkpoint.
    /// The tensor of the weight's codes cannot be read.
    Checkpoint(checkpoint::Error),
    /// A companion tensor is not there.
    MissingPart {
        /// What follows the weight's name and a dot.
        part: &'static str,
    },
    /// A tensor has another type than its part of a weight needs.
    WrongDtype {
        /// What follows the weight's name and a dot; `weight` for the codes.
        part: &'static str,
        /// The type found, as the header writes it.
        got: String,
        /// The type needed.
        need: String,
    },
    /// A weight cannot be decoded to this type.
    OutputDtype {
        /// Its name.
        got: &'static str,
    },
    /// The weight was quantised to another data type.
    QuantType {
        /// Its name, such as `fp4`.
        got: String,
    },
    /// The quantisation state is not the JSON that it should be.
    QuantState {
        /// Where and why.
        source: serde_json::Error,
    },
    /// The quantisation state has a part of the second level's fields only.
    StateField {
        /// The field that is not there.
        need: &'static str,
    },
    /// The quantisation state names a type that is not known here.
    StateDtype {
        /// The field.
        what: &'static str,
        /// The type's name.
        got: String,
        /// The names that are known.
        need: &'static str,
    },
}

impl Error {
    /// The same error, naming the weight.
    pub(super) fn of(self, tensor: &str) -> Self {
        Error::InTensor { tensor: tensor.to_owned(), fault: Box::new(self) }
    }

    /// The case itself, without the name around it.
    pub fn fault(&self) -> &Error {
        if let Error::InTensor { fault, .. } = self { fault.fault() } else { self }
    }
}

impl From<checkpoint::Error> for Error {
    fn from(fault: checkpoint::Error) -> Self {
        Error::Checkpoint(fault)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::InTensor { tensor, fault } => write!(f, "tensor `{tensor}`: {fault}"),
            Error::BlockSize { what, got } => {
                write!(f, "{what}: expected a power of two from 32 to 4096, found {got}")
            }
            Error::Length { what, got, need } => write!(f, "length of {what}: expected {need}, found {got}"),
            Error::NotFinite { what, index, value } => {
                write!(f, "{what}[{index}]: expected a finite number, found {value}")
            }
            Error::ShapeOverflow { shape } => {
                write!(f, "shape {shape:?} has more elements than fit in memory")
            }
            Error::Checkpoint(fault) => fault.fmt(f),
            Error::MissingPart { part } => write!(f, "its companion `.{part}` is not in the checkpoint"),
            Error::OutputDtype { got } => write!(f, "output: expected f32, f16 or bf16, found {got}"),
            Error::WrongDtype { part, got, need } => write!(f, "{part}: expected {need}, found {got}"),
            Error::QuantType { got } => write!(f, "expected quantisation `nf4`, found `{got}`"),
            Error::QuantState { source } => write!(f, "its quantisation state does not parse: {source}"),
            Error::StateField { need } => write!(f, "its quantisation state lacks `{need}`"),
            Error::StateDtype { what, got, need } => {
                write!(f, "its quantisation state: expected {what} {need}, found `{got}`")
            }
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Error::InTensor { fault, .. } => fault.source(),
            Error::Checkpoint(fault) => fault.source(),
            Error::QuantState { source } => Some(source),
            _ => None,
        }
    }
}
