//! The seam: what every device can do, and what it counts.
//!
//! A device takes a [`Plan`] once, by [`Device::prepare`], and runs it often, by [`Executable::run`]. Everything that
//! can be refused is refused when the plan is prepared: a plan that is not sound, a callee that is missing or has no
//! form for this device. A run then reads and writes the memories that it is handed, and allocates nothing.
//!
//! Work is handed over as data that can be printed, checked and counted before it runs; so the same plan runs on
//! another device, and nothing above this file names one.

use std::sync::Arc;
use std::time::Duration;

use crate::buffer::Buffer;
use crate::bytes::Peak;
use crate::callee::Callee;
use crate::comm::Comm;
use crate::error::DeviceError;
use crate::plan::{Choice, Plan, Product};

/// A machine that allocates, copies and runs plans.
pub trait Device: Send + Sync {
    /// As reports name it: `cpu`, `cuda:0`.
    fn name(&self) -> String;

    /// Zeroed memory; `tag` says what for.
    fn alloc(&self, tag: &'static str, bytes: usize) -> Result<Buffer, DeviceError>;

    /// Copies from the host into the bytes of a buffer from `first` on, which has to have them all.
    fn upload_at(&self, to: &mut Buffer, first: usize, from: &[u8]) -> Result<(), DeviceError>;

    /// Copies the bytes of a buffer from `first` on to the host; it has to have them all.
    fn download_at(&self, from: &Buffer, first: usize, to: &mut [u8]) -> Result<(), DeviceError>;

    /// Copies a whole buffer from the host. The lengths must be equal.
    fn upload(&self, to: &mut Buffer, from: &[u8]) -> Result<(), DeviceError> {
        to.same_length(from.len())?;
        self.upload_at(to, 0, from)
    }

    /// Copies a whole buffer to the host. The lengths must be equal.
    fn download(&self, from: &Buffer, to: &mut [u8]) -> Result<(), DeviceError> {
        from.same_length(to.len())?;
        self.download_at(from, 0, to)
    }

    /// Copies bytes of one buffer to another one of this device: `bytes` from byte `at` of `from` on, to byte `first`
    /// of `to` and on. Both have to have them all.
    fn copy_at(
        &self,
        to: &mut Buffer,
        first: usize,
        from: &Buffer,
        at: usize,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        from.has(at, bytes)?;
        let mut host = vec![0; bytes];
        self.download_at(from, at, &mut host)?;
        self.upload_at(to, first, &host)
    }

    /// Waits until everything that was launched is done; what went wrong on the way shows here.
    fn sync(&self) -> Result<(), DeviceError>;

    /// Time since the device was made, on its own clock.
    fn clock(&self) -> Duration;

    /// What was counted since the device was made.
    fn counts(&self) -> Counts;

    /// Begins to count the most bytes that are taken of its memory at once. Of the host's memory that is what the
    /// process has allocated, where its allocator counts ([`crate::bytes`]).
    ///
    /// # Errors
    /// If as many are held as there may be, and what the driver says.
    fn watermark(&self) -> Result<Box<dyn Watermark + '_>, DeviceError> {
        Ok(Box::new(Peak::begin().ok_or(DeviceError::Watermarks)?))
    }

    /// The ways in which a product can be computed here that differ from each other: the candidates of tuning. Never
    /// empty.
    fn choices(&self, product: &Product) -> Vec<Choice>;

    /// Whether it attends faster in f16 and bf16 than in f32, so that an attention in such a type is best left in it.
    fn attends_narrow(&self) -> bool {
        false
    }

    /// Whether it runs steps that do not wait for each other at the same time, so that a plan is best laid out with few
    /// of them waiting.
    fn runs_side_by_side(&self) -> bool {
        false
    }

    /// What an answer of tuning holds for: the device, as far as it decides how fast a product is, on one line.
    fn identity(&self) -> String;

    /// A product on memory of its own, to be timed choice by choice.
    fn trial<'a>(&'a self, product: &Product) -> Result<Box<dyn Trial + 'a>, DeviceError>;

    /// Checks a plan, and makes everything that its runs need.
    ///
    /// # Errors
    /// What [`Plan::check`] says; a step that this device does not run; a callee that `links` lacks, or that has no
    /// form for this device; a group that `links` lacks, or plans of other ranks that do not fit; memory that there is
    /// not.
    fn prepare<'a>(
        &'a self,
        plan: Arc<Plan>,
        links: &Links<'_, 'a>,
    ) -> Result<Box<dyn Executable + 'a>, DeviceError>;
}

/// A plan that is ready on a device.
pub trait Executable: Send {
    /// The plan.
    fn plan(&self) -> &Arc<Plan>;

    /// Bytes beside the memories of a run that it needs of its device: registers, rows that are kept, copies of
    /// factors. Executables of one device share them: together they take as much as the one that needs most.
    fn scratch_bytes(&self) -> usize;

    /// What was counted of its own runs.
    fn counts(&self) -> Counts;

    /// Runs the plan: writes the arena, reads the inputs, updates what was donated. `watch`, if there is one, is told
    /// after each step its number and the device's clock.
    ///
    /// Nothing runs if a memory is missing, too short or another device's; the first step that fails ends the run, and
    /// what was donated may then be updated in part.
    fn run(&mut self, memories: &mut Memories<'_>, watch: Option<&mut Watch<'_>>) -> Result<(), DeviceError>;
}

/// The bytes of a device's memory that are taken, from its beginning on, as long as it is held.
pub trait Watermark {
    /// The most bytes that were taken at once above those that were when it began: buffers, and what the device holds
    /// for itself.
    fn bytes(&self) -> u64;

    /// How much less memory the driver calls free than when it began: all that was asked of the driver since, other
    /// processes' included. `None` where no driver tells.
    ///
    /// # Errors
    /// What the driver says.
    fn driver_bytes(&self) -> Result<Option<u64>, DeviceError> {
        Ok(None)
    }
}

impl Watermark for Peak {
    fn bytes(&self) -> u64 {
        self.bytes() as u64 // its own method: everything in the process
    }
}

/// A product that is timed.
pub trait Trial {
    /// How long one run takes, by this choice.
    fn time(&mut self, choice: Choice) -> Result<Duration, DeviceError>;
}

/// Told of each step that is done: its number, and the device's clock.
pub type Watch<'a> = dyn FnMut(usize, Duration) + Send + 'a;

/// The memory of a run.
#[derive(Debug)]
pub struct Memories<'a> {
    /// At least [`Plan::arena_bytes`].
    pub arena: &'a mut Buffer,
    /// One for each of [`Plan::inputs`], at least as long.
    pub inputs: &'a [&'a Buffer],
    /// One for each of [`Plan::donated`], at least as long.
    pub donated: &'a mut [&'a mut Buffer],
}

/// What a plan reaches beyond its device. `'a` is how long it is there: at least as long as the executable.
#[derive(Clone, Copy, Default)]
pub struct Links<'s, 'a> {
    /// What its calls call, by number.
    pub callees: &'s [&'a dyn Callee],
    /// The groups of ranks that its operations between ranks name, by number. The first has all ranks of the others;
    /// all of them prepare at the same time, and are refused if their plans do not fit together.
    pub groups: &'s [Arc<dyn Comm>],
}

/// What a device, or an executable, has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Steps of plans, and passes beside them.
    pub launches: u64,
    /// Bytes that steps read: each element that a step touches once, as [`Step::traffic`](crate::plan::Step::traffic)
    /// counts them.
    pub read_bytes: u64,
    /// Bytes that steps wrote, counted alike.
    pub written_bytes: u64,
    /// Bytes of buffers ever allocated.
    pub allocated_bytes: u64,
    /// Bytes of buffers that are there, without what the device holds for itself. 0 of an executable.
    pub live_bytes: u64,
    /// The most of them that were there at once. 0 of an executable.
    pub peak_bytes: u64,
    /// Bytes that the device holds for its executables: the most that one of them needed so far. 0 of an executable.
    pub scratch_bytes: u64,
    /// Bytes copied from the host.
    pub uploaded_bytes: u64,
    /// Bytes copied to the host.
    pub downloaded_bytes: u64,
}

impl Memories<'_> {
    /// Whether they are what a plan counts on, and each where it has to be.
    pub(crate) fn fit(
        &self,
        plan: &Plan,
        is_here: impl Fn(&Buffer) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        for (needed, given) in
            [(plan.inputs.len(), self.inputs.len()), (plan.donated.len(), self.donated.len())]
        {
            if needed != given {
                return Err(DeviceError::Inputs { program: plan.name.clone(), needed, given });
            }
        }
        let donated = self.donated.iter().map(|buffer| &**buffer).zip(&plan.donated);
        let inputs = self.inputs.iter().copied().zip(&plan.inputs);
        for (buffer, needed) in inputs.chain(donated).chain([(&*self.arena, &plan.arena_bytes)]) {
            is_here(buffer)?;
            if buffer.bytes() < *needed {
                let (program, tag) = (plan.name.clone(), buffer.tag());
                return Err(DeviceError::Short { program, tag, needed: *needed, given: buffer.bytes() });
            }
        }
        Ok(())
    }
}

impl Counts {
    /// Counts a step.
    pub(crate) fn step(&mut self, (read, written): (u64, u64)) {
        self.launches += 1;
        self.read_bytes += read;
        self.written_bytes += written;
    }
}

/// A product as a plan of its own, on memory of its own: how any device can time it.
pub(crate) struct PlanTrial<'a> {
    device: &'a dyn Device,
    product: Product,
    arena: Buffer,
}

impl<'a> PlanTrial<'a> {
    /// Zeroed memory for both factors and the result.
    pub fn new(device: &'a dyn Device, product: &Product) -> Result<Self, DeviceError> {
        let mut product = product.clone();
        let bytes = product.move_to_arena();
        Ok(Self { device, arena: device.alloc("tuning", bytes)?, product })
    }
}

impl Trial for PlanTrial<'_> {
    fn time(&mut self, choice: Choice) -> Result<Duration, DeviceError> {
        let plan = Plan::of_product(Product { choice, ..self.product.clone() }, self.arena.bytes());
        let mut executable = self.device.prepare(Arc::new(plan), &Links::default())?;
        let before = self.device.clock();
        let (inputs, donated) = (&[], &mut []);
        executable.run(&mut Memories { arena: &mut self.arena, inputs, donated }, None)?;
        self.device.sync()?;
        Ok(self.device.clock().saturating_sub(before))
    }
}
