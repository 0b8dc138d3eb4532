//! The seam: what every device can do, and what it counts.
//!
//! A plan (a graph compiled in challenge C, a pass of challenge A) speaks to a device only through this
//! trait, so that the same plan runs on another one. Work is handed over as data - a
//! [`Program`](crate::tile::Program) - that can be printed, checked and counted before it runs.

use std::fmt;
use std::time::Duration;

use crate::buffer::Buffer;
use crate::tile::Program;

/// A machine that allocates, copies and launches.
pub trait Device {
    /// As reports name it: `cpu`, `cuda:0`.
    fn name(&self) -> String;

    /// Zeroed memory; `tag` says what for.
    fn alloc(&self, tag: &'static str, bytes: usize) -> Buffer;

    /// Copies from the host. The lengths must be equal.
    fn upload(&self, to: &mut Buffer, from: &[u8]) -> Result<(), DeviceError>;

    /// Copies to the host. The lengths must be equal.
    fn download(&self, from: &Buffer, to: &mut [u8]) -> Result<(), DeviceError>;

    /// Runs a program over `len` lanes. Nothing runs if the program or a buffer does not fit.
    fn run(
        &self,
        program: &Program,
        len: usize,
        inputs: &[&Buffer],
        output: &mut Buffer,
    ) -> Result<(), DeviceError>;

    /// Waits until everything that was launched is done.
    fn sync(&self);

    /// Time since the device was made, on its own clock.
    fn clock(&self) -> Duration;

    /// What was counted since the device was made.
    fn counts(&self) -> Counts;
}

/// A device's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Passes over an output.
    pub launches: u64,
    /// Bytes that programs read, each input's once a launch.
    pub read_bytes: u64,
    /// Bytes that programs wrote.
    pub written_bytes: u64,
    /// Bytes ever allocated.
    pub allocated_bytes: u64,
}

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
