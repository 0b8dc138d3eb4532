//! Why a device refuses: names the program or buffer, what is there and what is needed.

use std::fmt;

use crate::cuda::CudaError;

/// Why a device refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// A copy between lengths that differ.
    Length {
        /// The buffer's tag.
        tag: &'static str,
        /// Bytes of the buffer.
        buffer: usize,
        /// Bytes on the host.
        host: usize,
    },
    /// A buffer that another device made.
    Elsewhere {
        /// The buffer's tag.
        tag: &'static str,
        /// The device that was given it.
        device: &'static str,
    },
    /// The GPU's driver or compiler refused.
    Cuda(CudaError),
    /// A program wants more inputs than it was given.
    Inputs {
        /// The program's name.
        program: String,
        /// Inputs that it names.
        needed: usize,
        /// Inputs that it was given.
        given: usize,
    },
    /// A buffer is too short for the lanes.
    Short {
        /// The program's name.
        program: String,
        /// The buffer's tag.
        tag: &'static str,
        /// Bytes that the program touches.
        needed: usize,
        /// Bytes that there are.
        given: usize,
    },
    /// An operation takes a value that comes later, or of the other kind.
    Value {
        /// The program's name.
        program: String,
        /// The operation's number.
        op: usize,
        /// What it needs.
        needed: &'static str,
    },
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { tag, buffer, host } => {
                write!(f, "buffer {tag} has {buffer} bytes, the host's side of the copy {host}")
            }
            Self::Elsewhere { tag, device } => {
                write!(f, "buffer {tag} is in another device's memory, and was given to {device}")
            }
            Self::Cuda(error) => error.fmt(f),
            Self::Inputs { program, needed, given } => {
                write!(f, "program {program} needs {needed} inputs, it was given {given}")
            }
            Self::Short { program, tag, needed, given } => {
                write!(f, "program {program} touches {needed} bytes of buffer {tag}, which has {given}")
            }
            Self::Value { program, op, needed } => {
                write!(f, "operation {op} of program {program} needs {needed}")
            }
        }
    }
}

impl std::error::Error for DeviceError {}

impl From<CudaError> for DeviceError {
    fn from(error: CudaError) -> Self {
        Self::Cuda(error)
    }
}
