//! A rank's shards on its device.
//!
//! ```text
//! mapped file --the rank's rows--> device
//! ```
//!
//! A rank reads the pages of the file that its shards lie in, and no others. Tables are the same for every weight of a
//! checkpoint, or nearly; a rank holds each different one once.

use std::collections::{BTreeMap, HashMap};

use compiler::session::DeviceTensor;
use kernels::Device;
use reference::llama::{Llama, StoredInput};

use super::Error;
use super::programs::Layout;

/// Tensors by name; several names may mean one tensor.
#[derive(Debug, Default)]
pub struct Tensors {
    tensors: Vec<DeviceTensor>,
    names: BTreeMap<String, usize>,
}

impl Tensors {
    /// A tensor by its name; `None` if none has it.
    pub fn get(&self, name: &str) -> Option<&DeviceTensor> {
        self.names.get(name).map(|number| &self.tensors[*number])
    }

    /// Bytes of all of them, each once.
    pub fn bytes(&self) -> usize {
        self.tensors.iter().map(|tensor| tensor.buffer.bytes()).sum()
    }

    fn add(&mut self, name: String, tensor: DeviceTensor) -> usize {
        self.tensors.push(tensor);
        self.names.insert(name, self.tensors.len() - 1);
        self.tensors.len() - 1
    }
}

/// A rank's shards of every frozen weight, by the names of the graphs' inputs.
///
/// # Errors
/// If a weight cannot be read, or the device has no room for a shard.
pub fn load(device: &dyn Device, model: &Llama, layout: &Layout, rank: usize) -> Result<Tensors, Error> {
    let mut all = Tensors::default();
    let mut tables: HashMap<Vec<u8>, usize> = HashMap::new();
    for StoredInput { name, shape, bytes, .. } in model.stored().map_err(Error::Model)? {
        let Some((part, shards)) = layout.part(&name) else { continue }; // something else is trained in its place
        let on_device = |shape: &[usize], bytes: &[u8]| {
            let made = DeviceTensor::new(device, shape, bytes);
            made.map_err(|source| Error::Device { input: name.clone(), source })
        };
        if !shards.is_replicated() {
            let shard = shards.cut(&bytes, part.dtype.bytes(), rank);
            let tensor = on_device(&[shards.len], &shard)?;
            all.add(name, tensor);
            continue;
        }
        if let Some(number) = tables.get(&*bytes) {
            all.names.insert(name, *number);
            continue;
        }
        let tensor = on_device(&shape, &bytes)?;
        let number = all.add(name, tensor);
        if part.covers.is_none() {
            tables.insert(bytes.into_owned(), number);
        }
    }
    Ok(all)
}
