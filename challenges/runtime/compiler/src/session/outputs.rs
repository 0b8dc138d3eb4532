//! The outputs of a run, where it left them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use kernels::plan::Memory;
use kernels::{Buffer, Device};
use reference::graph::Array;

use super::{DeviceTensor, Error, Io, Resolved};
use crate::compile::{Compiled, Port};
use crate::rewrite::pad;

/// The outputs of a run, where it left them.
pub struct Outputs<'r> {
    pub(super) device: &'r dyn Device,
    pub(super) arena: Option<&'r Buffer>,
    pub(super) compiled: Arc<Compiled>,
    pub(super) resolved: Arc<Resolved>,
    pub(super) io: Io<'r>,
    pub(super) staged: &'r BTreeMap<String, DeviceTensor>,
    pub(super) kept: &'r BTreeMap<String, DeviceTensor>,
}

impl Outputs<'_> {
    /// The names of all outputs, donated ones included.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.resolved.outputs.keys().map(String::as_str)
    }

    /// What was run.
    pub fn compiled(&self) -> &Arc<Compiled> {
        &self.compiled
    }

    /// The bytes of an output, copied to the host.
    ///
    /// # Errors
    /// If the graph has no output of this name, and what the device says.
    pub fn bytes(&self, name: &str) -> Result<Vec<u8>, Error> {
        self.read(name, <[u8]>::to_vec)
    }

    /// What a function makes of the bytes of an output. They are copied only where they are padded, or not on the host.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub fn read<T>(&self, name: &str, work: impl FnOnce(&[u8]) -> T) -> Result<T, Error> {
        let (port, shape) = self.port(name)?;
        let (buffer, first) = self.place(port)?;
        let len = port.shape.iter().product::<usize>() * port.dtype.bytes();
        let narrowed = |bytes: &[u8]| {
            if port.shape.get(1..) == shape.get(1..) {
                work(&bytes[..shape.iter().product::<usize>() * port.dtype.bytes()]) // the leading part
            } else {
                work(&pad::narrow(bytes, port.dtype.bytes(), shape, &port.shape))
            }
        };
        if let Some(bytes) = buffer.host().and_then(|bytes| bytes.get(first..first + len)) {
            return Ok(narrowed(bytes));
        }
        let mut bytes = vec![0; len];
        self.device.download_at(buffer, first, &mut bytes).map_err(Error::Device)?;
        Ok(narrowed(&bytes))
    }

    /// An output on the host.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub fn array(&self, name: &str) -> Result<Array<f32>, Error> {
        let (port, shape) = self.port(name)?;
        self.read(name, |bytes| Array::from_memory(port.dtype, shape, bytes))
    }

    /// Copies some of an output's bytes to byte `first` of another buffer of the device and on. They pass the host only
    /// where the output is padded in more than its first dimension.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub fn copy_to(
        &self,
        name: &str,
        bytes: Range<usize>,
        to: &mut Buffer,
        first: usize,
    ) -> Result<(), Error> {
        let (port, shape) = self.port(name)?;
        let copied = if port.shape.get(1..) == shape.get(1..) {
            let (from, begin) = self.place(port)?;
            self.device.copy_at(to, first, from, begin + bytes.start, bytes.len())
        } else {
            self.read(name, |all| self.device.upload_at(to, first, &all[bytes]))?
        };
        copied.map_err(Error::Device)
    }

    /// An output in memory of its own on the device. Its bytes pass the host only as [`Self::copy_to`] says.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub fn tensor(&self, name: &str) -> Result<DeviceTensor, Error> {
        let (port, shape) = self.port(name)?;
        let bytes = shape.iter().product::<usize>() * port.dtype.bytes();
        let mut buffer = self.device.alloc("tensor", bytes).map_err(Error::Device)?;
        self.copy_to(name, 0..bytes, &mut buffer, 0)?;
        Ok(DeviceTensor { shape: shape.clone(), buffer })
    }

    /// All outputs that were not donated, each in memory of its own.
    ///
    /// # Errors
    /// What the device says.
    pub fn tensors(&self) -> Result<BTreeMap<String, DeviceTensor>, Error> {
        let donated = self.compiled.donated();
        let names = self.names().filter(|name| !donated.contains(name));
        names.map(|name| Ok((name.to_owned(), self.tensor(name)?))).collect()
    }

    fn port(&self, name: &str) -> Result<(&Port, &Vec<usize>), Error> {
        let port = self.compiled.outputs().iter().find(|port| port.name == name);
        port.zip(self.resolved.outputs.get(name)).ok_or_else(|| Error::NoOutput { name: name.to_owned() })
    }

    /// The memory that an output begins in, and where.
    fn place(&self, port: &Port) -> Result<(&Buffer, usize), Error> {
        let lost = || Error::NoOutput { name: port.name.clone() };
        if let Memory::Arena(at) = port.memory {
            return Ok((self.arena.ok_or_else(lost)?, at));
        }
        let name = self.compiled.name_of(port.memory);
        let donated = || self.io.donated.get(name).map(|tensor| &**tensor);
        let given = self.staged.get(name).or_else(|| self.io.inputs.get(name).copied());
        let found = given.or_else(donated).or_else(|| self.kept.get(name));
        Ok((&found.ok_or_else(lost)?.buffer, 0))
    }
}
