//! Tensors in a device's memory.

use std::collections::BTreeMap;

use kernels::{Device, DeviceError};

use super::{DeviceTensor, Io};

impl DeviceTensor {
    /// Elements in a device's memory.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn new(device: &dyn Device, shape: &[usize], bytes: &[u8]) -> Result<Self, DeviceError> {
        Self::tagged(device, "tensor", shape, bytes)
    }

    /// The same, counted as what they are for.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn tagged(
        device: &dyn Device,
        tag: &'static str,
        shape: &[usize],
        bytes: &[u8],
    ) -> Result<Self, DeviceError> {
        let mut buffer = device.alloc(tag, bytes.len())?;
        device.upload(&mut buffer, bytes)?;
        Ok(Self { shape: shape.to_vec(), buffer })
    }
}

impl<'a> From<&'a BTreeMap<String, DeviceTensor>> for Io<'a> {
    fn from(inputs: &'a BTreeMap<String, DeviceTensor>) -> Self {
        let inputs = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        Self { inputs, ..Self::default() }
    }
}
