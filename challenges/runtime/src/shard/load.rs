//! A rank's shards on its device.
//!
//! ```text
//! mapped file --the rank's rows--> device
//! ```
//!
//! A rank reads the pages of the file that its shards lie in, and no others; where several ranks share a layer, it
//! first
//! takes its part of each weight. Tables are the same for every weight of a
//! checkpoint, or nearly; a rank holds each different one once.
//!
//! A weight that the file has as numbers and the model as NF4 is quantised on the way, all of it on every rank: its
//! second-level scales and their offset depend on every block.

use std::collections::{BTreeMap, HashMap};
use std::thread;

use compiler::session::DeviceTensor;
use kernels::Device;
use reference::fsdp::{Cut, Part};
use reference::llama::{Llama, Storage, Storages, StoredInput};
use reference::nf4::Quantized;

use super::Error;
use super::flat::Row;
use super::programs::{Layout, Placed};
use crate::weights;

/// Tensors by name; several names may mean one tensor.
#[derive(Debug, Default)]
pub struct Tensors {
    all: Vec<Option<DeviceTensor>>, // none of one that was taken
    names: BTreeMap<String, usize>,
    /// Shards that lie on the host, each with the number of its elements.
    pub on_host: BTreeMap<String, (usize, Vec<u8>)>,
}

impl Tensors {
    /// A tensor by its name; `None` if none has it.
    pub fn get(&self, name: &str) -> Option<&DeviceTensor> {
        self.names.get(name).and_then(|number| self.all[*number].as_ref())
    }

    /// Takes a tensor, which has to be put back; `None` if none has the name.
    pub fn take(&mut self, name: &str) -> Option<DeviceTensor> {
        self.names.get(name).and_then(|number| self.all[*number].take())
    }

    /// Puts a tensor back that was taken by this name.
    pub fn put_back(&mut self, name: &str, tensor: DeviceTensor) {
        self.all[self.names[name]] = Some(tensor);
    }

    /// Bytes of all of them, each once.
    pub fn bytes(&self) -> usize {
        self.all.iter().flatten().map(|tensor| tensor.buffer.bytes()).sum()
    }

    fn add(&mut self, name: String, tensor: DeviceTensor) -> usize {
        self.all.push(Some(tensor));
        self.names.insert(name, self.all.len() - 1);
        self.all.len() - 1
    }
}

/// Where a rank is along the axes of its mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coordinates {
    /// The number of its shard.
    pub shard: usize,
    /// The number of its part of a layer.
    pub part: usize,
    /// The number of ranks that share a layer.
    pub sharing: usize,
    /// The number of its stage in the pipeline.
    pub stage: usize,
    /// The number of stages.
    pub stages: usize,
}

/// A rank's shards of every frozen weight that is its own, by the names of the graphs' inputs: on its device, or, what
/// is gathered before it is read, on the host. `storages` say how the whole model's weights are stored there: as in the
/// file, or as NF4.
///
/// # Errors
/// If a weight cannot be read, or the device has no room for a shard.
pub fn load(
    device: &dyn Device,
    model: &Llama,
    storages: &Storages,
    layout: &Layout,
    at: Coordinates,
    is_on_host: bool,
    is_own: impl Fn(&str) -> bool,
) -> Result<Tensors, Error> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = (cores / (layout.ranks() * at.sharing * at.stages)).max(1);
    let is_dense =
        |input: &StoredInput<'_>| matches!(model.storages().get(&input.name), Some(Storage::Dense(_)));
    let mut loader =
        Loader { device, layout, at, is_on_host, all: Tensors::default(), tables: HashMap::new() };
    let stored = model.stored().map_err(Error::from)?;
    let by_name: HashMap<&str, &StoredInput<'_>> =
        stored.iter().map(|input| (input.name.as_str(), input)).collect();
    for row in layout.rows().iter().filter(|row| is_own(&row.parameter.name)) {
        loader.row(row, &by_name)?;
    }
    for input in stored.into_iter().filter(|input| is_own(&input.name)) {
        let Some(placed) = layout.placed(&input.name) else { continue }; // another is trained in its place
        match (placed.shared.cut, placed.parameter.storage) {
            (_, Storage::Nf4 { block_size, .. }) if is_dense(&input) => {
                let is_nested = matches!(storages[&input.name], Storage::Nf4 { nested: Some(_), .. });
                let whole = weights::quantize(&input, is_nested, threads)
                    .map_err(|error| Error::Weights(Box::new(error)))?;
                loader.parts(&whole, placed, block_size)?;
            }
            (Cut::Whole, _) => loader.add(input.name, &input.bytes)?,
            (_, Storage::Dense(dtype)) => {
                let bytes = placed.shared.part(&input.bytes, dtype.bytes(), at.part);
                loader.add(input.name, &bytes)?;
            }
            (_, Storage::Nf4 { block_size, .. }) if input.name == placed.parameter.name => {
                let whole = model.quantized(&input.name).map_err(Error::from)?;
                loader.parts(&whole, placed, block_size)?; // all of them at once
            }
            (_, Storage::Nf4 { .. }) => {}
        }
    }
    Ok(loader.all)
}

/// Allocates the same shards without setting their bytes. Weights that are equal tables share one tensor.
///
/// # Errors
/// If the device has no room for a shard.
pub fn blank(
    device: &dyn Device,
    layout: &Layout,
    is_on_host: bool,
    is_own: impl Fn(&str) -> bool,
) -> Result<Tensors, Error> {
    let (mut all, mut tables) = (Tensors::default(), HashMap::new());
    for placed in layout.parameters().iter().filter(|placed| !placed.is_trained) {
        let parts = placed.parameter.parts().into_iter().zip(&placed.placement.parts);
        for (part, shards) in
            parts.filter(|(part, _)| layout.part(&part.name).is_some() && is_own(&part.name))
        {
            let table = is_table(&part).then(|| (part.dtype, part.elements()));
            if let Some(number) = table.and_then(|table| tables.get(&table)) {
                all.names.insert(part.name, *number);
                continue;
            }
            if is_on_host && !shards.is_replicated() {
                all.on_host.insert(part.name, (shards.len, vec![0; shards.len * part.dtype.bytes()]));
                continue;
            }
            let shape = if shards.is_replicated() { part.shape.clone() } else { vec![shards.len] };
            let made = device.alloc("weights", shape.iter().product::<usize>() * part.dtype.bytes());
            let buffer = made.map_err(|source| Error::Device { input: part.name.clone(), source })?;
            let number = all.add(part.name, DeviceTensor { shape, buffer });
            tables.extend(table.map(|table| (table, number)));
        }
    }
    Ok(all)
}

/// Whether a part is a table that weights share; an offset is each weight's own.
fn is_table(part: &Part) -> bool {
    part.covers.is_none() && part.elements() > 1
}

/// Tensors on their way to a device.
struct Loader<'l> {
    device: &'l dyn Device,
    layout: &'l Layout,
    at: Coordinates,
    is_on_host: bool,
    all: Tensors,
    tables: HashMap<Vec<u8>, usize>,
}

impl Loader<'_> {
    /// A rank's shard of a part.
    fn add(&mut self, name: String, bytes: &[u8]) -> Result<(), Error> {
        let Some((part, shards)) = self.layout.part(&name) else { return Ok(()) };
        let is_shared = shards.is_replicated();
        if let Some(number) = self.tables.get(bytes).filter(|_| is_shared) {
            self.all.names.insert(name, *number);
            return Ok(());
        }
        if !is_shared {
            return self.put(name, shards.len, shards.cut(bytes, part.dtype.bytes(), self.at.shard));
        }
        let number = self.on_device(name, &part.shape, bytes)?;
        if is_table(&part) {
            self.tables.insert(bytes.to_vec(), number);
        }
        Ok(())
    }

    /// A rank's shard, wherever shards lie.
    fn put(&mut self, name: String, elements: usize, shard: Vec<u8>) -> Result<(), Error> {
        if self.is_on_host {
            self.all.on_host.insert(name, (elements, shard));
            return Ok(());
        }
        self.on_device(name, &[elements], &shard).map(|_| ())
    }

    fn on_device(&mut self, name: String, shape: &[usize], bytes: &[u8]) -> Result<usize, Error> {
        let made = DeviceTensor::tagged(self.device, "weights", shape, bytes);
        let tensor = made.map_err(|source| Error::Device { input: name.clone(), source })?;
        Ok(self.all.add(name, tensor))
    }

    /// A rank's shard of a flat row.
    fn row(&mut self, row: &Row, stored: &HashMap<&str, &StoredInput<'_>>) -> Result<(), Error> {
        let (part, shards) = self.layout.part(&row.parameter.name).expect("a row is a parameter");
        let (element, held) = (part.dtype.bytes(), shards.ranges[self.at.shard].clone());
        let mut shard = vec![0; shards.len * element];
        for (member, range) in &row.members {
            let (first, end) = (range.start.max(held.start), range.end.min(held.end));
            if first < end {
                let bytes = &stored[member.as_str()].bytes;
                let from = &bytes[(first - range.start) * element..(end - range.start) * element];
                shard[(first - held.start) * element..][..from.len()].copy_from_slice(from);
            }
        }
        self.put(part.name, shards.len, shard)
    }

    /// A rank's shards of its part of a quantised weight.
    fn parts<B: AsRef<[u8]>>(
        &mut self,
        whole: &Quantized<B>,
        placed: &Placed,
        block: usize,
    ) -> Result<(), Error> {
        if placed.shared.cut == Cut::Whole {
            return self.add_parts(whole, placed);
        }
        self.add_parts(&placed.shared.quantized(whole, block, self.at.part), placed)
    }

    fn add_parts<B: AsRef<[u8]>>(&mut self, own: &Quantized<B>, placed: &Placed) -> Result<(), Error> {
        let weight = own.view();
        weight.parts().try_for_each(|(part, values)| {
            self.add(part.part.of(&placed.parameter.name), &weights::part_bytes(values))
        })
    }
}
