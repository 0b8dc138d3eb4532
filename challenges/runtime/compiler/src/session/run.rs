//! Running a program: inputs into their buckets, the arena, the work itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use kernels::{Buffer, Device, DeviceError, Memories, Watch};

use super::sizes::shape;
use super::{
    Counters, DeviceTensor, Error, Io, Launches, Loaded, Outputs, Program, Ready, Resolved, Session,
};
use crate::compile::Compiled;
use crate::groups::Groups;
use crate::rewrite::pad;

impl Session<'_> {
    /// Runs a program. Its outputs lie in the session's arena, until the next run.
    ///
    /// # Errors
    /// If an input is missing or does not fit, if a size breaks its facts, if the program cannot be compiled, or would
    /// have to be and the session is sealed, and what the device says.
    pub fn run<'r>(&'r mut self, program: Program, io: impl Into<Io<'r>>) -> Result<Outputs<'r>, Error> {
        self.watched(program, io, None)
    }

    /// [`Self::run`], telling `watch` after each step its number and the device's clock.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn watched<'r>(
        &'r mut self,
        program: Program,
        io: impl Into<Io<'r>>,
        watch: Option<&mut Watch<'_>>,
    ) -> Result<Outputs<'r>, Error> {
        let message = self.others(program);
        self.run_here(program, io.into(), watch).inspect_err(|error| message.abort(&error.to_string()))
    }

    /// The ranks that wait for what a program does here.
    pub(super) fn others(&self, program: Program) -> Groups {
        let is_alone = self.loaded[program.0].collectives.is_empty();
        if is_alone { Groups::default() } else { self.groups.clone() }
    }

    fn run_here<'r>(
        &'r mut self,
        program: Program,
        mut io: Io<'r>,
        watch: Option<&mut Watch<'_>>,
    ) -> Result<Outputs<'r>, Error> {
        let (start, compiling) = (Instant::now(), self.counters.compiling);
        let before = self.loaded[program.0].last.clone();
        let resolved = self.sized(program, &io)?;
        if !(before.is_some_and(|before| Arc::ptr_eq(&before, &resolved)) && resolved.is_given_as_compiled())
        {
            self.loaded[program.0].last = None; // until what it stages is there
            self.stage(program, &io, &resolved)?;
        }
        self.loaded[program.0].last = Some(Arc::clone(&resolved));
        let Ready { compiled, launches, .. } = &self.loaded[program.0].ready[&resolved.key];
        let (compiled, launches) = (compiled.clone(), *launches);
        let names = compiled.donated();
        self.fill_their_buckets(program, &names, &io)?;
        let mut own: BTreeMap<&str, DeviceTensor> = BTreeMap::new(); // kept tensors, while the run updates them
        for name in names.iter().filter(|name| !io.donated.contains_key(**name)) {
            let Some(tensor) = self.kept.remove(*name) else {
                self.kept.extend(own.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)));
                return Err(Error::NotDonated { name: (*name).to_owned() });
            };
            own.insert(name, tensor);
        }
        let done = self.execute(program, &resolved.key, &mut io, &mut own, watch);
        self.kept.extend(own.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)));
        done?;
        self.counters.count(launches);
        self.counters.running +=
            start.elapsed().saturating_sub(self.counters.compiling.saturating_sub(compiling));
        Ok(self.outputs(program, compiled, io, resolved))
    }

    /// That what the run updates is not padded.
    fn fill_their_buckets(&self, program: Program, donated: &[&str], io: &Io<'_>) -> Result<(), Error> {
        let staged = &self.loaded[program.0].staged;
        let padded = donated.iter().find_map(|name| Some((*name, staged.get(*name)?)));
        let Some((name, copy)) = padded else { return Ok(()) };
        let (got, need) = (self.input(name, io)?.shape.clone(), copy.shape.clone());
        Err(Error::DonatedSize { name: name.to_owned(), got, need })
    }

    /// The work itself: the memories in the plan's order.
    fn execute(
        &mut self,
        program: Program,
        key: &[i64],
        io: &mut Io<'_>,
        own: &mut BTreeMap<&str, DeviceTensor>,
        watch: Option<&mut Watch<'_>>,
    ) -> Result<(), Error> {
        let Self { loaded, kept, arena, device, .. } = self;
        let Loaded { ready, staged, .. } = &mut loaded[program.0];
        let Some(Ready { compiled, executable, .. }) = ready.get_mut(key) else { return Ok(()) };
        let arena = grown(*device, arena, compiled.arena.bytes).map_err(Error::Device)?;
        self.counters.arena_bytes = arena.bytes();
        if self.settings.poison {
            device.upload(arena, &vec![0xff; arena.bytes()]).map_err(Error::Device)?;
        }
        let inputs = compiled.given().map(|name| {
            let found = staged.get(name).or(io.inputs.get(name).copied()).or(kept.get(name));
            found.map(|tensor| &tensor.buffer).ok_or_else(|| Error::Missing { name: name.to_owned() })
        });
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let mut lent: BTreeMap<&str, &mut Buffer> =
            io.donated.iter_mut().map(|(name, tensor)| (*name, &mut tensor.buffer)).collect();
        lent.extend(own.iter_mut().map(|(name, tensor)| (*name, &mut tensor.buffer)));
        let donated = compiled
            .donated()
            .into_iter()
            .map(|name| lent.remove(name).ok_or_else(|| Error::NotDonated { name: name.to_owned() }));
        let mut donated = donated.collect::<Result<Vec<_>, _>>()?;
        let mut memories = Memories { arena, inputs: &inputs, donated: &mut donated };
        executable.run(&mut memories, watch).map_err(Error::Device)
    }

    /// Where the outputs are found.
    pub(super) fn outputs<'r>(
        &'r self,
        program: Program,
        compiled: Arc<Compiled>,
        io: Io<'r>,
        resolved: Arc<Resolved>,
    ) -> Outputs<'r> {
        let Loaded { staged, .. } = &self.loaded[program.0];
        let (device, arena) = (self.device, self.arena.as_ref());
        Outputs { device, arena, compiled, resolved, io, staged, kept: &self.kept }
    }

    /// The inputs that have to be padded, and the real sizes for the graph to know.
    fn stage(&mut self, program: Program, io: &Io<'_>, resolved: &Resolved) -> Result<(), Error> {
        let mut all = Vec::new();
        let Loaded { graph, buckets, .. } = &self.loaded[program.0];
        for ((name, id), _) in graph.inputs().zip(&resolved.inputs).filter(|(_, given)| given.is_padded) {
            let (given, padded) = (self.input(name, io)?, shape(graph, id, &resolved.rounded)?);
            let element = graph.ty(id).dtype.bytes();
            let narrow = read(self.device, &given.buffer).map_err(Error::Device)?;
            let wide = pad::widen(&narrow, element, &given.shape, &padded);
            all.push((name.to_owned(), padded, wide));
        }
        for symbol in buckets.keys() {
            let size = resolved.sizes[symbol];
            let need = format!("at most {}, what an i32 holds", i32::MAX);
            let size =
                i32::try_from(size).map_err(|_| Error::Size { symbol: symbol.clone(), got: size, need })?;
            all.push((pad::length_name(symbol), Vec::new(), size.to_ne_bytes().to_vec()));
        }
        let staged = &mut self.loaded[program.0].staged;
        staged.retain(|name, _| all.iter().any(|(other, ..)| other == name));
        all.into_iter().try_for_each(|(name, shape, bytes)| put(self.device, staged, &name, shape, &bytes))
    }
}

/// Uploads a tensor into the memory of the one of its name, or into new memory if that has another size.
fn put(
    device: &dyn Device,
    all: &mut BTreeMap<String, DeviceTensor>,
    name: &str,
    shape: Vec<usize>,
    bytes: &[u8],
) -> Result<(), Error> {
    if let Some(tensor) = all.get_mut(name).filter(|tensor| tensor.buffer.bytes() == bytes.len()) {
        device.upload(&mut tensor.buffer, bytes).map_err(Error::Device)?;
        tensor.shape = shape;
        return Ok(());
    }
    all.remove(name); // first, so that both are never there together
    all.insert(name.to_owned(), DeviceTensor::new(device, &shape, bytes).map_err(Error::Device)?);
    Ok(())
}

impl Counters {
    pub(super) fn count(&mut self, launches: Launches) {
        self.runs += 1;
        self.launches = launches.all;
        self.programs = launches.programs;
        self.dequantized = launches.dequantized;
    }
}

/// The arena, larger if it has to be.
fn grown<'b>(
    device: &dyn Device,
    arena: &'b mut Option<Buffer>,
    bytes: usize,
) -> Result<&'b mut Buffer, DeviceError> {
    if arena.as_ref().is_none_or(|arena| arena.bytes() < bytes) {
        *arena = None; // the old one first, so that both are never there together
    }
    match arena {
        Some(arena) => Ok(arena),
        none => Ok(none.insert(device.alloc("arena", bytes)?)),
    }
}

pub(super) fn read(device: &dyn Device, buffer: &Buffer) -> Result<Vec<u8>, DeviceError> {
    let mut bytes = vec![0; buffer.bytes()];
    device.download(buffer, &mut bytes)?;
    Ok(bytes)
}
