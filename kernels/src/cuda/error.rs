//! What the driver refused: the call, the driver's name for the reason, and what it means.

use std::fmt;

use super::compile::CompileError;
use super::library;
use crate::error::{DeviceError, Refusal};

/// A call of the driver that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CudaError {
    /// The driver refused a call, or a kernel that ran before it had failed.
    Driver {
        /// The driver's function.
        call: &'static str,
        /// The driver's number for the reason.
        code: u32,
        /// What the driver says.
        text: String,
    },
    /// The card has not enough free memory.
    Memory {
        /// What it was for.
        tag: &'static str,
        /// Bytes that were asked for.
        asked: usize,
        /// Bytes that are free.
        free: usize,
    },
    /// A module has no kernel or global of this name.
    Missing {
        /// The name.
        name: String,
        /// What the module is called.
        module: String,
        /// The driver's number for the reason.
        code: u32,
    },
    /// A global that is smaller than what is written to it.
    Small {
        /// The name.
        name: String,
        /// Bytes that were to be written.
        needed: usize,
        /// Bytes that it has.
        bytes: usize,
    },
    /// Code that the driver cannot load.
    Image {
        /// What the module is called.
        module: String,
        /// What the driver says.
        text: String,
    },
    /// A launch that no card of this kind takes.
    Launch {
        /// The kernel.
        kernel: String,
        /// What is there and what is needed.
        text: String,
    },
    /// A text that does not compile.
    Compile(CompileError),
    /// A library that is not there.
    NoLibrary(library::NotFound),
    /// A library's call that failed.
    Library {
        /// Its function.
        call: &'static str,
        /// The library's name for the reason.
        text: String,
    },
}

/// Numbers of `CUresult` after which a process can use the card no more: an illegal address, a launch timeout,
/// a trap or assertion in a kernel, an illegal instruction, a misaligned or wrong address space, a bad program
/// counter, a failed launch, an uncorrectable memory error.
const STICKY: [u32; 10] = [214, 700, 702, 710, 714, 715, 716, 717, 718, 719];

impl CudaError {
    /// Whether this process can no longer use the card; a new process can.
    pub fn is_sticky(&self) -> bool {
        matches!(self, Self::Driver { code, .. } if STICKY.contains(code))
    }

    /// What a kernel did, where the driver's number tells.
    fn cause(code: u32) -> Option<&'static str> {
        Some(match code {
            700 => "a kernel read or wrote an address that belongs to no buffer",
            702 => "a kernel ran longer than the system allows",
            710 => "an assertion in a kernel failed",
            715 => "a kernel reached an illegal instruction or a trap",
            716 => "a kernel loaded or stored at an address that is not a multiple of the access's size",
            717 | 718 => "a kernel used an address that no global memory has: a pointer went wild",
            719 => "a kernel failed, as by an access outside its shared memory or stack",
            1 => "an argument is not valid",
            2 => "the card's memory is exhausted",
            209 => "the code was made for another architecture",
            218 => "the PTX is not valid, or newer than this driver",
            222 => "the PTX is of a newer version than this driver reads",
            _ => return None,
        })
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver { call, code, text } => match Self::cause(*code) {
                Some(cause) => write!(f, "{cause} ({call}: error {code}, {text})"),
                None => write!(f, "{call} failed: error {code}, {text}"),
            },
            Self::Memory { tag, asked, free } => {
                write!(f, "expected {asked} free bytes of the card's memory for {tag}, found {free}")
            }
            Self::Missing { name, module, code } => {
                write!(
                    f,
                    "{module} has no `{name}` (error {code}); it must be declared `extern \"C\"`, under that name"
                )
            }
            Self::Small { name, needed, bytes } => {
                write!(f, "global `{name}`: expected at least {needed} bytes, found {bytes}")
            }
            Self::Image { module, text } => write!(f, "the driver does not load {module}: {text}"),
            Self::Launch { kernel, text } => write!(f, "kernel {kernel} cannot be launched: {text}"),
            Self::Compile(error) => error.fmt(f),
            Self::NoLibrary(reason) => write!(f, "{reason}; {}", reason.fix()),
            Self::Library { call, text } => write!(f, "{call} failed: {text}"),
        }
    }
}

impl std::error::Error for CudaError {}

impl From<CompileError> for CudaError {
    fn from(error: CompileError) -> Self {
        Self::Compile(error)
    }
}

impl From<CudaError> for DeviceError {
    fn from(error: CudaError) -> Self {
        Self::Driver(Refusal::new(error))
    }
}
