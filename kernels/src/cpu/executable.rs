//! Plans on the CPU: one step after the other, each on all threads.
//!
//! Everything that a run needs is made when the plan is prepared: the schedule and the strides of each pass, what is
//! bound to a memory, the map of a mask, the memory of the threads. A run looks up where its memories lie, writes that
//! into what is bound, and computes; it takes no memory from the system (`tests/allocation.rs` holds that). What
//! libraries take by themselves is not the plan's: the product library takes a few bytes for each of its calls, also
//! for those on packed blocks and within attention, and memory for copies of whole factors in every choice but
//! [`Choice::Packed`](crate::plan::Choice::Packed); and the threads' queue takes a block for each 63rd piece of work
//! that comes from outside, one a run.

#![allow(unsafe_code)] // hands memory that the plan's check has seen to the engine and to the product

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::attention::{self, AttentionCall, Gradients, MapMemory, Programs, Rows, map_size};
use super::callee::{HostCallee, Inputs};
use super::engine::{Binding, Launch, Pass};
use super::narrow::{Cast, Wide, widened};
use super::product::{Matrices, is_packed, ready};
use super::{Cpu, packed_gemm};
use crate::buffer::{Buffer, cast, cast_mut};
use crate::callee::Callee;
use crate::comm::{Comm, Destination, Ticket};
use crate::device::{Counts, Executable, Links, Memories, Watch};
use crate::error::DeviceError;
use crate::plan::{
    Attention, AttentionGrad, Dequantize, MOST_INPUTS, Memory, Plan, Product, Step, View, prepare_together,
};
use crate::tile::{Element, Program, Schedule};

/// The most bytes of a row's values that a thread keeps for a later phase of a pass: 1 GiB.
pub const MOST_KEPT_BYTES: usize = 1 << 30;

/// A plan that is ready on a CPU.
pub(super) struct CpuPlan<'a> {
    cpu: &'a Cpu,
    plan: Arc<Plan>,
    steps: Vec<Ready<'a>>,
    traffic: Vec<(u64, u64)>, // bytes read and written by each step
    bases: Bases,
    map: MapMemory,
    wide_bytes: usize,
    wide: Option<Buffer>, // copies in f32 of narrow tensors of attention: the last of what is donated
    thread_bytes: usize,
    blocks: AtomicU64, // of attention, by the step that runs
    counts: Counts,
    all: Option<Arc<dyn Comm>>, // all ranks that have a part in the plan
}

/// What is made for a step when its plan is prepared.
enum Ready<'a> {
    Pass { launch: Box<Launch>, inputs: Vec<Binding>, outputs: Vec<Binding> },
    Product(Box<Product>),
    Attention { programs: Box<Programs>, extras: Vec<Binding> },
    Narrow { before: Vec<CastPass>, step: Box<Step>, ready: Box<Ready<'a>>, after: Vec<CastPass> },
    Call { host: &'a dyn HostCallee, checked: [u64; MOST_INPUTS] },
    Scatter,
    Start { comm: Arc<dyn Comm>, ticket: Option<Ticket> }, // the ticket while it is in flight
    Wait { start: usize },                                 // the step that starts it
}

/// A tensor that is copied to another type.
struct CastPass {
    launch: Launch,
    from: View,
    to: View,
}

impl CastPass {
    fn of(Cast { program, space, from, to }: Cast) -> Self {
        let schedule = Arc::new(Schedule::of(&program, &[]));
        let strides = [vec![from.strides.clone()], vec![to.strides.clone()]];
        Self { launch: Launch::new(program, schedule, space, strides, |_| false), from, to }
    }
}

/// Where the memories of a run begin, and what names the inputs' contents.
#[derive(Default)]
struct Bases {
    arena: Base,
    inputs: Vec<Base>,
    donated: Vec<Base>,
    versions: Vec<u64>, // of the inputs
}

/// The first byte of a memory.
#[derive(Clone, Copy)]
struct Base(*mut u8);

// SAFETY: the steps of a run follow each other, and what a step does on several threads is apart.
unsafe impl Send for Base {}
// SAFETY: as above.
unsafe impl Sync for Base {}

impl Default for Base {
    fn default() -> Self {
        Self(std::ptr::null_mut())
    }
}

/// Programs that are scheduled already, by their address and by which inputs are steady along rows.
type Schedules = HashMap<(*const Program, Vec<bool>), Arc<Schedule>>;

/// The schedule of a program whose inputs lie so; one that several steps share is made once.
fn schedule(known: &mut Schedules, program: &Arc<Program>, inputs: &[View]) -> Arc<Schedule> {
    let steady: Vec<bool> = inputs.iter().map(|view| view.strides.last() == Some(&0)).collect();
    let new = || Arc::new(Schedule::of(program, &steady));
    known.entry((Arc::as_ptr(program), steady.clone())).or_insert_with(new).clone()
}

/// The most bytes that a pass of a plan takes for its registers and for the rows that it keeps, on so many threads.
pub fn pass_scratch(plan: &Plan, threads: usize) -> usize {
    let mut known = Schedules::new();
    let of = |step: &Step| match step {
        Step::Pass { program, space, inputs, .. } => {
            let schedule = schedule(&mut known, program, inputs);
            let columns = space.last().filter(|_| program.needs_rows()).copied().unwrap_or(0);
            threads * (schedule.registers * super::engine::TILE + schedule.kept * columns) * size_of::<f32>()
        }
        _ => 0,
    };
    plan.steps.iter().map(of).max().unwrap_or(0)
}

/// The bytes beside its memories that a plan needs of a device, whatever other ranks do.
pub(crate) fn executable_scratch<'a>(
    cpu: &'a Cpu,
    plan: &Arc<Plan>,
    links: &Links<'_, 'a>,
) -> Result<usize, DeviceError> {
    plan.check()?;
    Ok(CpuPlan::of_checked(cpu, Arc::clone(plan), links)?.scratch_bytes())
}

/// A place for what is bound to a view, once a run says where its memory lies.
fn unbound(views: &[View]) -> Vec<Binding> {
    let one = |view: &View| Binding { base: std::ptr::null_mut(), bytes: view.bytes, offset: view.offset };
    views.iter().map(one).collect()
}

fn strides(views: &[View]) -> Vec<Vec<usize>> {
    views.iter().map(|view| view.strides.clone()).collect()
}

impl<'a> CpuPlan<'a> {
    /// Checks a plan and makes everything that its runs need.
    pub fn new(cpu: &'a Cpu, plan: &Arc<Plan>, links: &Links<'_, 'a>) -> Result<Self, DeviceError> {
        prepare_together(plan, links.groups, || {
            let mut ready = Self::of_checked(cpu, Arc::clone(plan), links)?;
            if ready.wide_bytes > 0 {
                ready.wide = Some(Buffer::new("wide", ready.wide_bytes)?);
            }
            Ok(ready)
        })
    }

    fn of_checked(cpu: &'a Cpu, plan: Arc<Plan>, links: &Links<'_, 'a>) -> Result<Self, DeviceError> {
        let mut known = Schedules::new();
        let (mut steps, mut thread_bytes, mut map, mut wide) = (Vec::new(), 0, [0, 0], 0);
        let copies = Memory::InOut(plan.donated.len());
        for (number, step) in plan.steps.iter().enumerate() {
            let ready = match widened(step, copies) {
                Some(widened) => {
                    wide = wide.max(widened.bytes);
                    Ready::narrow(&plan, number, links, widened, &mut known)?
                }
                None => Ready::of(&plan, number, step, links, &mut known)?,
            };
            thread_bytes = thread_bytes.max(ready.thread_bytes(step, cpu));
            let [cells, kept] = ready.map_size(step);
            map = [cells.max(map[0]), kept.max(map[1])];
            steps.push(ready);
        }
        cpu.scratch.grow(thread_bytes)?;
        let bases = Bases {
            inputs: vec![Base::default(); plan.inputs.len()],
            donated: vec![Base::default(); plan.donated.len() + 1],
            versions: vec![0; plan.inputs.len()],
            ..Bases::default()
        };
        Ok(Self {
            cpu,
            traffic: plan.steps.iter().map(Step::traffic).collect(),
            map: MapMemory::new(map)?,
            wide_bytes: wide,
            wide: None,
            plan,
            steps,
            bases,
            thread_bytes,
            blocks: AtomicU64::new(0),
            counts: Counts::default(),
            all: links.groups.first().cloned(),
        })
    }

    /// All steps; waits for other ranks on the calling thread, so that ranks may share the device's threads.
    fn all_steps(&mut self, watch: &mut Option<&mut Watch<'_>>) -> Result<(), DeviceError> {
        let mut first = 0;
        while first < self.steps.len() {
            let is_wait = |ready: &Ready<'_>| matches!(ready, Ready::Wait { .. });
            let computed = self.steps[first..].iter().position(is_wait).unwrap_or(self.steps.len() - first);
            let steps = if computed > 0 { first..first + computed } else { first..first + 1 };
            first = steps.end;
            match &self.cpu.pool {
                Some(pool) if computed > 0 => pool.install(|| self.steps(steps, watch))?, // wakes one thread for all
                _ => self.steps(steps, watch)?,
            }
        }
        Ok(())
    }

    /// Some steps, on one of the device's threads.
    fn steps(&mut self, steps: Range<usize>, watch: &mut Option<&mut Watch<'_>>) -> Result<(), DeviceError> {
        for number in steps {
            let traffic = self.traffic[number];
            self.counts.step(traffic);
            self.cpu.count(traffic);
            let done = self.step(number);
            self.cpu.attention_blocks.fetch_add(self.blocks.swap(0, Relaxed), Relaxed);
            done?;
            if let Some(watch) = watch {
                watch(number, self.cpu.made.elapsed());
            }
        }
        Ok(())
    }

    fn step(&mut self, number: usize) -> Result<(), DeviceError> {
        let run = Run { cpu: self.cpu, bases: &self.bases, blocks: &self.blocks };
        if let Ready::Wait { start } = self.steps[number] {
            // SAFETY: the plan was checked, and its memories have the bytes that it counts on.
            return unsafe { run.wait(&self.plan.steps[start], &mut self.steps[start]) };
        }
        // SAFETY: as above.
        unsafe { run.step(&self.plan.steps[number], &mut self.steps[number], &mut self.map) }
    }

    /// A run that failed ends the communication of all ranks, since they would wait for what this one does not do.
    fn tell(&mut self, error: &DeviceError) {
        if let Some(all) = &self.all {
            all.abort(&format!("plan {}: {error}", self.plan.name));
        }
        for ready in &mut self.steps {
            if let Ready::Start { ticket, .. } = ready {
                *ticket = None;
            }
        }
    }

    /// Notes where the memories of a run lie, if they are what the plan counts on.
    fn bind(&mut self, memories: &mut Memories<'_>) -> Result<(), DeviceError> {
        memories.fit(&self.plan, Buffer::on_host)?;
        let Memories { arena, inputs, donated } = memories;
        self.bases.arena = Base(arena.view_mut::<u8>().as_mut_ptr());
        for (number, input) in inputs.iter().enumerate() {
            self.bases.inputs[number] = Base(input.view::<u8>().as_ptr().cast_mut()); // and only read
            self.bases.versions[number] = input.version();
        }
        let copies = self.wide.iter_mut();
        let donated = donated.iter_mut().map(|buffer| &mut **buffer).chain(copies);
        for (base, buffer) in self.bases.donated.iter_mut().zip(donated) {
            *base = Base(buffer.view_mut::<u8>().as_mut_ptr());
        }
        Ok(())
    }
}

impl Executable for CpuPlan<'_> {
    fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    fn scratch_bytes(&self) -> usize {
        self.cpu.threads * self.thread_bytes + self.map.bytes() + self.wide_bytes
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn run(&mut self, memories: &mut Memories<'_>, watch: Option<&mut Watch<'_>>) -> Result<(), DeviceError> {
        let mut watch = watch;
        let done = self.bind(memories).and_then(|()| self.all_steps(&mut watch));
        done.inspect_err(|error| self.tell(error))
    }
}

impl<'a> Ready<'a> {
    fn of(
        plan: &Plan,
        number: usize,
        step: &Step,
        links: &Links<'_, 'a>,
        known: &mut Schedules,
    ) -> Result<Self, DeviceError> {
        Ok(match step {
            Step::Pass { program, space, inputs, outputs } => {
                let schedule = schedule(known, program, inputs);
                check_kept(plan, number, &schedule)?;
                let is_written = |input: usize| outputs.iter().any(|to| to.may_meet(&inputs[input]));
                let views = [strides(inputs), strides(outputs)];
                let launch = Launch::new(program.clone(), schedule, space.clone(), views, is_written);
                Self::Pass { launch: Box::new(launch), inputs: unbound(inputs), outputs: unbound(outputs) }
            }
            Step::Product(product) => Self::Product(Box::new(ready(product))),
            Step::Attention { attention, .. } => {
                let programs = Box::new(Programs::of(attention));
                Self::Attention { programs, extras: unbound(&attention.extras) }
            }
            Step::AttentionGrad(grad) => {
                let programs = Box::new(Programs::of_grad(grad));
                Self::Attention { programs, extras: unbound(&grad.attention.extras) }
            }
            Step::Scatter { .. } => Self::Scatter,
            Step::Start(start) => Self::Start { comm: Arc::clone(&links.groups[start.group]), ticket: None },
            Step::Wait { ticket } => {
                let starts = |step: &Step| matches!(step, Step::Start(start) if start.ticket == *ticket);
                Self::Wait { start: plan.steps.iter().position(starts).expect("checked with the plan") }
            }
            Step::Call { callee, name, .. } => {
                let (number, given) = (*callee, links.callees.len());
                let missing = || DeviceError::Callee { name: name.clone(), number, given };
                let callee: &'a dyn Callee = *links.callees.get(number).ok_or_else(missing)?;
                let (name, callee_name) = (name.clone(), callee.name().to_owned());
                let none = || DeviceError::Form { name, callee: callee_name, needed: "in Rust" };
                Self::Call { host: callee.host().ok_or_else(none)?, checked: [0; MOST_INPUTS] }
            }
        })
    }

    /// A step in f32 between casts.
    fn narrow(
        plan: &Plan,
        number: usize,
        links: &Links<'_, 'a>,
        wide: Wide,
        known: &mut Schedules,
    ) -> Result<Self, DeviceError> {
        let ready = Box::new(Self::of(plan, number, &wide.step, links, known)?);
        let [before, after] =
            [wide.before, wide.after].map(|casts| casts.into_iter().map(CastPass::of).collect());
        Ok(Self::Narrow { before, step: Box::new(wide.step), ready, after })
    }

    /// Bytes that each thread needs.
    fn thread_bytes(&self, step: &Step, cpu: &Cpu) -> usize {
        match (self, step) {
            (Self::Pass { launch, .. }, _) => launch.machine_bytes(),
            (Self::Narrow { before, step, ready, after }, _) => {
                let casts = before.iter().chain(after).map(|cast| cast.launch.machine_bytes());
                casts.max().unwrap_or(0).max(ready.thread_bytes(step, cpu))
            }
            (Self::Product(product), _) if is_packed(product) => packed_gemm::block_bytes(product, cpu),
            (Self::Attention { programs, .. }, Step::AttentionGrad(grad)) => {
                attention::block_bytes(&grad.attention, programs, true)
            }
            (Self::Attention { programs, .. }, Step::Attention { attention, .. }) => {
                attention::block_bytes(attention, programs, false)
            }
            _ => 0,
        }
    }

    /// Blocks whose mask is looked at, and those whose bits are kept.
    fn map_size(&self, step: &Step) -> [usize; 2] {
        let of = |attention: &Attention, programs: &Programs| match programs.mask {
            Some(_) => map_size(attention, programs.mask_varies),
            None => [0, 0],
        };
        match (self, step) {
            (Self::Narrow { step, ready, .. }, _) => ready.map_size(step),
            (Self::Attention { programs, .. }, Step::AttentionGrad(grad)) => of(&grad.attention, programs),
            (Self::Attention { programs, .. }, Step::Attention { attention, .. }) => of(attention, programs),
            _ => [0, 0],
        }
    }
}

/// Whether no row is too long for what has to be kept of it.
fn check_kept(plan: &Plan, number: usize, schedule: &Schedule) -> Result<(), DeviceError> {
    let Step::Pass { space, .. } = &plan.steps[number] else { return Ok(()) };
    let floats = space.last().and_then(|columns| columns.checked_mul(schedule.kept));
    if schedule.kept > 0 && floats.is_none_or(|floats| floats > MOST_KEPT_BYTES / 4) {
        return Err(plan.refused(number, "rows of which a thread keeps at most 1 GiB"));
    }
    Ok(())
}

/// A run: the device, and where the memories lie.
struct Run<'r> {
    cpu: &'r Cpu,
    bases: &'r Bases,
    blocks: &'r AtomicU64,
}

impl Run<'_> {
    unsafe fn step(
        &self,
        step: &Step,
        ready: &mut Ready<'_>,
        map: &mut MapMemory,
    ) -> Result<(), DeviceError> {
        match (step, ready) {
            (Step::Pass { inputs: from, outputs: to, .. }, Ready::Pass { launch, inputs, outputs }) => {
                self.bind(from, inputs);
                self.bind(to, outputs);
                // SAFETY: checked with the plan.
                unsafe { self.cpu.pass(Pass { launch, origin: &[], inputs, outputs }) }
            }
            (Step::Product(_), Ready::Product(product)) => {
                let views = [&product.a, &product.b, &product.to];
                let [a, b, to] = [0, 1, 2].map(|i| self.elements(views[i], product.elements[i]));
                // SAFETY: checked with the plan.
                unsafe { self.cpu.product(product, Matrices { a: a.cast_const(), b: b.cast_const(), to }) };
                Ok(())
            }
            (_, Ready::Narrow { before, step, ready, after }) => {
                // SAFETY: the caller's, and the copies have memory of their own.
                unsafe {
                    before.iter().try_for_each(|cast| self.cast(cast))?;
                    self.step(step, ready, map)?;
                    after.iter().try_for_each(|cast| self.cast(cast))
                }
            }
            (Step::Attention { attention, output, lse }, Ready::Attention { programs, extras }) => {
                let shape = attention.output_shape();
                let lse = lse.as_ref().map(|lse| self.rows(lse, &shape[..3]));
                let work = self.attention(attention, programs, extras);
                // SAFETY: checked with the plan.
                unsafe { self.cpu.attention(&work, self.rows(output, &shape), lse, map) }
            }
            (Step::AttentionGrad(grad), Ready::Attention { programs, extras }) => {
                let work = self.attention(&grad.attention, programs, extras);
                // SAFETY: checked with the plan.
                unsafe { self.cpu.attention_grad(&work, &self.gradients(grad), map) }
            }
            (Step::Scatter { rows, index, to, count, width, table }, Ready::Scatter) => {
                let [rows_bytes, table_bytes] = [count, table].map(|rows| rows * width * size_of::<f32>());
                // SAFETY: checked with the plan: inside their memory, the table apart from the rest.
                unsafe {
                    scatter(
                        cast(&self.bytes(rows)[..rows_bytes]),
                        cast(&self.bytes(index)[..count * size_of::<i32>()]),
                        cast_mut(&mut self.bytes_mut(to)[..table_bytes]),
                        [*width, *table],
                    )
                }
            }
            (Step::Call { name, what, inputs, output, .. }, Ready::Call { host, checked }) => {
                let versions = self.versions(inputs);
                let is_known = *checked == versions && versions[..inputs.len()].iter().all(|one| *one != 0);
                // SAFETY: checked with the plan: inside their memory, the output apart from the inputs.
                let done = unsafe { self.call(*host, is_known, what, inputs, output) };
                *checked = if done.is_ok() { versions } else { [0; MOST_INPUTS] };
                done.map_err(|reason| DeviceError::Call { name: name.clone(), reason })
            }
            (Step::Start(start), Ready::Start { comm, ticket }) => {
                let (read, bytes) = start.bytes();
                let input = start.input.as_ref().map_or(&[][..], |view| {
                    // SAFETY: checked with the plan: inside its memory, and no step writes it at the same time.
                    unsafe { self.side(view, start.what.element, read) }
                });
                *ticket = Some(comm.start(&start.what, input.into(), Destination::Host { bytes })?);
                Ok(())
            }
            _ => unreachable!("each step's own is made when its plan is prepared"),
        }
    }

    /// Copies a tensor to another type.
    unsafe fn cast(&self, CastPass { launch, from, to }: &CastPass) -> Result<(), DeviceError> {
        let bound =
            |view: &View| Binding { base: self.base(view.memory), bytes: view.bytes, offset: view.offset };
        let (inputs, outputs) = ([bound(from)], [bound(to)]);
        // SAFETY: the caller's.
        unsafe { self.cpu.pass(Pass { launch, origin: &[], inputs: &inputs, outputs: &outputs }) }
    }

    /// Waits for what a step has started.
    unsafe fn wait(&self, step: &Step, ready: &mut Ready<'_>) -> Result<(), DeviceError> {
        let (Step::Start(start), Ready::Start { comm, ticket }) = (step, ready) else {
            unreachable!("a wait knows its start")
        };
        let ticket = ticket.take().expect("checked with the plan: it was started, and is waited for once");
        let output = start.output.as_ref().map_or(&mut [][..], |view| {
            // SAFETY: checked with the plan: inside its memory, and no other step touches it at the same time.
            unsafe { self.side_mut(view, start.what.element, start.bytes().1) }
        });
        Ok(comm.wait(ticket, output.into())?)
    }

    /// Has a callee write its output.
    unsafe fn call(
        &self,
        host: &dyn HostCallee,
        is_known: bool,
        what: &Dequantize,
        inputs: &[View],
        output: &View,
    ) -> Result<(), String> {
        let mut bytes: [&[u8]; MOST_INPUTS] = [&[]; MOST_INPUTS];
        for ((to, view), part) in bytes.iter_mut().zip(inputs).zip(what.inputs()) {
            // SAFETY: the caller's.
            *to = &unsafe { self.bytes(view) }[..what.input_bytes(*part)];
        }
        // SAFETY: the caller's.
        let output = &mut unsafe { self.bytes_mut(output) }[..what.output_bytes()];
        let weight = Inputs::of(what, &bytes[..inputs.len()]).ok_or("its parts are not aligned to f32")?;
        for (weight, first) in weight.pieces(what).into_iter().flatten() {
            if !is_known {
                host.check(&weight)?;
            }
            let element = what.element.bytes();
            let to = &mut output[first * element..][..weight.len * element];
            host.dequantize(self.cpu, &weight, what.element, to)?;
        }
        Ok(())
    }

    /// What names the contents of views of inputs; 0 where a step may have written, such as one that gathers: what it
    /// brings changes with other ranks' buffers, whose versions are not known here.
    fn versions(&self, views: &[View]) -> [u64; MOST_INPUTS] {
        let mut versions = [0; MOST_INPUTS];
        for (version, view) in versions.iter_mut().zip(views) {
            if let Memory::Input(number) = view.memory {
                *version = self.bases.versions[number];
            }
        }
        versions
    }

    /// A memory's first byte; what is given is only read.
    fn base(&self, memory: Memory) -> *mut u8 {
        match memory {
            // SAFETY: inside the arena: checked with the plan.
            Memory::Arena(at) => unsafe { self.bases.arena.0.add(at) },
            Memory::Input(number) => self.bases.inputs[number].0,
            Memory::InOut(number) => self.bases.donated[number].0,
        }
    }

    fn bind(&self, views: &[View], bindings: &mut [Binding]) {
        bindings.iter_mut().zip(views).for_each(|(to, view)| to.base = self.base(view.memory));
    }

    fn elements(&self, view: &View, element: Element) -> *mut u8 {
        // SAFETY: inside its memory: checked with the plan.
        unsafe { self.base(view.memory).add(view.offset * element.bytes()) }
    }

    fn attention<'w>(
        &'w self,
        attention: &'w Attention,
        programs: &'w Programs,
        extras: &'w mut [Binding],
    ) -> AttentionCall<'w> {
        self.bind(&attention.extras, extras);
        let q = self.rows(&attention.q, &attention.q_shape());
        let k = self.rows(&attention.k, &attention.k_shape());
        let v = self.rows(&attention.v, &attention.v_shape());
        AttentionCall { attention, programs, q, k, v, extras, unit: self.cpu.vector(), blocks: self.blocks }
    }

    fn gradients(&self, grad: &AttentionGrad) -> Gradients {
        let rows = |view: &Option<View>, shape: [usize; 4]| view.as_ref().map(|view| self.rows(view, &shape));
        let attention = &grad.attention;
        let like_output = attention.output_shape();
        Gradients {
            output: self.rows(&grad.output, &like_output),
            lse: self.rows(&grad.lse, &like_output[..3]),
            grad: self.rows(&grad.grad, &like_output),
            wrt_q: rows(&grad.wrt_q, attention.q_shape()),
            wrt_k: rows(&grad.wrt_k, attention.k_shape()),
            wrt_v: rows(&grad.wrt_v, attention.v_shape()),
        }
    }

    /// A tensor of up to four dimensions. One without elements stays where it is, since its strides lead anywhere.
    fn rows(&self, view: &View, space: &[usize]) -> Rows {
        let mut strides = [1; 4];
        strides.iter_mut().zip(&view.strides).for_each(|(to, from)| *to = *from);
        if space.contains(&0) {
            strides = [0; 4];
        }
        Rows { at: self.elements(view, Element::F32).cast(), strides }
    }

    /// What lies side by side from the first element of a view on.
    unsafe fn side(&self, view: &View, element: Element, bytes: usize) -> &[u8] {
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts(self.elements(view, element), bytes) }
    }

    #[allow(clippy::mut_from_ref)] // the memory is the arena's, or donated
    unsafe fn side_mut(&self, view: &View, element: Element, bytes: usize) -> &mut [u8] {
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts_mut(self.elements(view, element), bytes) }
    }

    unsafe fn bytes(&self, view: &View) -> &[u8] {
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts(self.base(view.memory), view.bytes) }
    }

    #[allow(clippy::mut_from_ref)] // the memory is the arena's, or donated
    unsafe fn bytes_mut(&self, view: &View) -> &mut [u8] {
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts_mut(self.base(view.memory), view.bytes) }
    }
}

/// Adds rows up where their indices point, given the numbers of a row and the rows of the table.
fn scatter(
    rows: &[f32],
    index: &[i32],
    to: &mut [f32],
    [width, table]: [usize; 2],
) -> Result<(), DeviceError> {
    to.fill(0.0);
    for (lane, got) in index.iter().enumerate() {
        let place = usize::try_from(*got).ok().filter(|place| *place < table);
        let outside =
            || DeviceError::RowIndex { program: "scatter".into(), op: 0, lane, got: *got, rows: table };
        let sums = &mut to[place.ok_or_else(outside)? * width..][..width];
        sums.iter_mut().zip(&rows[lane * width..]).for_each(|(sum, x)| *sum += x);
    }
    Ok(())
}
