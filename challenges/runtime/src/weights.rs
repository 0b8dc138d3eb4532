//! The weights of a checkpoint on a device.
//!
//! ```text
//! mapped file --copy--> device
//! ```
//!
//! A weight is never numbers on its way: what the file has are the bytes that the device gets, whatever their type, and
//! the packed codes of a quantised weight are as good as any. So a load takes the memory of the weights once, and the
//! time of a copy; each page of the file is read when the copy comes to it. Scales were checked when the model was
//! opened, and a callee checks them again when it first sees them on the device.

use std::collections::BTreeMap;
use std::fmt;

use compiler::session::DeviceTensor;
use kernels::{Device, DeviceError};
use reference::llama::{self, Llama, StoredInput};

mod quantize;

pub use quantize::{load_quantized, part_bytes, quantize, storages};

/// Files are little endian, and so is every machine that has been tried; where one is not, bytes cannot stay as they
/// are.
const _: () = assert!(cfg!(target_endian = "little"), "weights are copied as their files store them");

/// Why weights are not on a device.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The checkpoint.
    Model(llama::Error),
    /// A weight that is to be quantised has a number that is not finite.
    NotFinite {
        /// The name of the graph's input.
        input: String,
    },
    /// The device has no room for a tensor, or cannot copy it.
    Device {
        /// The name of the graph's input.
        input: String,
        /// What the device says.
        source: DeviceError,
    },
}

/// Every weight of a model in a device's memory, under the names of the graph's inputs.
///
/// # Errors
/// If a weight cannot be read, or the device has no room for it.
pub fn load(device: &dyn Device, model: &Llama) -> Result<BTreeMap<String, DeviceTensor>, Error> {
    load_stored(device, model.stored().map_err(Error::Model)?)
}

/// Weights in a device's memory, as they are stored.
///
/// # Errors
/// If the device has no room for one.
pub fn load_stored(
    device: &dyn Device,
    inputs: Vec<StoredInput<'_>>,
) -> Result<BTreeMap<String, DeviceTensor>, Error> {
    inputs.into_iter().map(|input| put(device, input)).collect()
}

/// The one copy.
fn put(device: &dyn Device, input: StoredInput<'_>) -> Result<(String, DeviceTensor), Error> {
    let StoredInput { name, shape, bytes, .. } = input;
    match DeviceTensor::new(device, &shape, &bytes) {
        Ok(tensor) => Ok((name, tensor)),
        Err(source) => Err(Error::Device { input: name, source }),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Model(error) => error.fmt(f),
            Error::NotFinite { input } => write!(f, "input `{input}`: expected finite numbers to quantise"),
            Error::Device { input, source } => write!(f, "input `{input}`: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Model(error) => Some(error),
            Error::NotFinite { .. } => None,
            Error::Device { source, .. } => Some(source),
        }
    }
}
