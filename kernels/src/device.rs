//! The seam: what every device can do, and what it counts.
//!
//! A plan (a graph compiled in challenge C, a pass of challenge A) speaks to a device only through this
//! trait, so that the same plan runs on another one. Work is handed over as data - a
//! [`Program`] - that can be printed, checked and counted before it runs.

use std::time::Duration;

use crate::buffer::Buffer;
use crate::error::DeviceError;
use crate::tile::Program;

/// A machine that allocates, copies and launches.
pub trait Device {
    /// As reports name it: `cpu`, `cuda:0`.
    fn name(&self) -> String;

    /// Zeroed memory; `tag` says what for.
    fn alloc(&self, tag: &'static str, bytes: usize) -> Result<Buffer, DeviceError>;

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

    /// Waits until everything that was launched is done; what went wrong on the way shows here.
    fn sync(&self) -> Result<(), DeviceError>;

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
