//! What can be wrong with a weight or with the file that it comes from.
//!
//! Each case says what is there and what is needed; [`Error::InTensor`] adds the tensor's name.

use std::error;
use std::fmt;

/// Why a weight cannot be quantised, decoded or read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The block size is no power of two of 32..=4096.
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
    /// One of the other cases, with the tensor that it happened to.
    InTensor {
        /// The tensor's name.
        tensor: String,
        /// What is wrong with it.
        fault: Box<Error>,
    },
}

impl Error {
    /// The same error, naming the tensor.
    pub(super) fn of(self, tensor: &str) -> Self {
        Error::InTensor { tensor: tensor.to_owned(), fault: Box::new(self) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::BlockSize { what, got } => {
                write!(f, "{what} is {got}, needed is a power of two from 32 to 4096")
            }
            Error::Length { what, got, need } => write!(f, "{what}: {got} there, {need} needed"),
            Error::NotFinite { what, index, value } => {
                write!(f, "{what}[{index}] is {value}, needed is a finite number")
            }
            Error::ShapeOverflow { shape } => {
                write!(f, "shape {shape:?} has more elements than fit in memory")
            }
            Error::InTensor { tensor, fault } => write!(f, "tensor `{tensor}`: {fault}"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Error::InTensor { fault, .. } => fault.source(),
            _ => None,
        }
    }
}
