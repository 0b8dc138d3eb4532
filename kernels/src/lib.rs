//! What you may use: the machine.
//!
//! A device runs work and counts it: launches, bytes, time. [`Cpu`] is the device that is always there.
//! Nothing in this room knows a challenge or an oracle; a challenge is given a device and told what to
//! compute.

pub mod buffer;
pub mod bytes;
pub mod callee;
pub mod comm;
pub mod cpu;
pub mod cuda;
pub mod device;
mod element;
mod error;
pub mod paper;
pub mod philox;
pub mod plan;
pub mod threads;
pub mod tile;
mod which;

pub use buffer::Buffer;
pub use callee::Callee;
pub use cpu::{Cpu, Vector};
pub use device::{Counts, Device, Executable, Links, Memories, Trial, Watch, Watermark};
pub use error::{DeviceError, Refusal};
pub use paper::Paper;
pub use which::{NoDevice, Which};
