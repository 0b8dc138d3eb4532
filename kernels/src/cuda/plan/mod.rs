//! Plans on a card: what the CPU runs, from the same compiler, tests and grader.
//!
//! ```text
//! passes      a tile program's schedule as CUDA C++, flat or in rows       text: its operations as statements
//! products    cuBLASLt (../blas.rs), or the room's own kernel              params: a kernel's one argument
//! attention   one template, an attention's programs spliced in: score
//! scatter     rows added up in their order
//! call        A's dequantiser, a kernel of the attempt's
//! ```
//!
//! Everything that a run needs is made when the plan is prepared. Equal layers share the text of their kernels, and a
//! text that is in no compilation on disk is compiled together with the plan's others like it. A run writes where its
//! memories lie into the kernels' arguments and queues them on the card's one stream. The second run over the same
//! memories is *captured*: what it queues becomes a graph that later runs queue with one call, as long as nothing moves.
//!
//! A run returns when its work is queued. What goes wrong on the way - an index outside its table, a division by zero -
//! is noted on the card and comes up at the next [`Device::sync`](crate::Device::sync) or copy to the host: see
//! [`fault`].
//!
//! Operations between ranks have no form here yet; a plan with one is refused.

mod attention;
mod call;
pub(super) mod fault;
mod params;
mod passes;
mod products;
mod score;
mod text;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use self::attention::Limits;
use self::call::Call;
use self::fault::StepIds;
use self::params::{MAX_PARAMS, Param};
use super::blas::{self, Matmul};
use super::callee::CardDequantizer;
use super::compile::digest;
use super::memory::Allocation;
use super::module::{self, Function};
use super::order::{Graph, Stream};
use super::probe::Gpu;
use crate::buffer::Buffer;
use crate::callee::Callee;
use crate::device::{Counts, Executable, Links, Memories, Watch};
use crate::error::DeviceError;
use crate::plan::{Choice, Memory, Plan, Product, Step, View};
use crate::tile::Element;

/// What every kernel of a plan may use.
const PRELUDE: &str = include_str!("../../../cu/plan.cuh");

/// The template of a scatter.
const SCATTER: &str = include_str!("../../../cu/scatter.cuh");

/// Bytes of shared memory that a block gets without asking.
const STATIC_SHARED: u32 = 48 << 10;

/// Bytes of the scratch memory that steps share, unless one of them needs more.
const SCRATCH: usize = blas::WORKSPACE;

/// Captured graphs that a plan holds, for memories that take turns.
const GRAPHS: usize = 4;

/// Blocks and threads of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grid {
    blocks: usize,
    threads: u32,
    shared_bytes: u32,
}

/// A kernel of a step by its name in the step's text.
struct NamedKernel {
    name: String,
    grid: Grid,
}

/// A plan that is ready on a card.
pub(super) struct CudaPlan<'a> {
    gpu: &'a Gpu,
    plan: Arc<Plan>,
    steps: Vec<Vec<Launch<'a>>>,
    traffic: Vec<(u64, u64)>, // bytes read and written by each step
    waits: Vec<Vec<usize>>,   // the steps that each step waits for, see `Plan::waits`
    scratch_bytes: usize,
    scratch: Option<Arc<Allocation>>, // of the last run
    bound: Addresses,
    graphs: Vec<(Addresses, Graph, u64)>, // the latest last, each with its launches
    counts: Counts,
    _step_ids: StepIds, // held as long as a fault may name a step
}

/// Where the memories of a run begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Addresses {
    arena: u64,
    inputs: Vec<u64>,
    donated: Vec<u64>,
    scratch: u64,
    fault: u64,
    calls: u64, // changes with what calls were told of their weights
}

/// What a step queues.
enum Launch<'a> {
    Kernel { function: Function, params: Vec<Param>, values: Vec<u64>, grid: Grid },
    Product { matmul: Box<Matmul>, views: [(Memory, u64); 3], scratch: u64 },
    Zeros { to: Memory, bytes: usize },
    Call(Box<Call<'a>>),
}

/// What a step queues, before its text is compiled.
enum PendingLaunch<'a> {
    Kernel { text: usize, name: String, params: Vec<Param>, grid: Grid },
    Ready(Launch<'a>),
}

/// The texts of a plan's kernels, each of them once.
#[derive(Default)]
struct Texts {
    all: Vec<String>,
    known: HashMap<String, usize>, // by the name of their kernels
}

impl Texts {
    /// The number of a text, and a name of it with what stands for `KERNEL`: that says what is in the text, which may
    /// be compiled beside any others.
    fn add(&mut self, text: &str, name: &str) -> (usize, String) {
        let own = format!("k{}", &digest(text)[..16]);
        let name = name.replace("KERNEL", &own);
        let number = *self.known.entry(own).or_insert_with_key(|own| {
            self.all.push(text.replace("KERNEL", own));
            self.all.len() - 1
        });
        (number, name)
    }

    /// All of them as one text.
    fn whole(&self) -> String {
        self.all.iter().fold(PRELUDE.to_owned(), |whole, text| whole + "\n" + text)
    }
}

impl<'a> CudaPlan<'a> {
    /// Checks a plan, compiles its kernels, and makes everything that its runs need.
    pub fn new(gpu: &'a Gpu, plan: Arc<Plan>, links: &Links<'_, 'a>) -> Result<Self, DeviceError> {
        plan.check()?;
        let step_ids = gpu.step_ids(&plan);
        let mut lowering = Lowering::new(Some(gpu), gpu.card().capability, &plan, links, step_ids.first);
        let pending =
            (0..plan.steps.len()).map(|number| lowering.step(number)).collect::<Result<Vec<_>, _>>()?;
        let Lowering { texts, scratch, .. } = lowering;
        let scratch_bytes = scratch.iter().map(|bytes| bytes.end).max().unwrap_or(0);
        let steps = compiled(gpu, &texts, pending)?;
        gpu.grow_scratch(scratch_bytes)?;
        Ok(Self {
            gpu,
            traffic: plan.steps.iter().map(Step::traffic).collect(),
            waits: plan.waits(&scratch),
            plan,
            steps,
            scratch_bytes,
            scratch: None,
            bound: Addresses::default(),
            graphs: Vec::new(),
            counts: Counts::default(),
            _step_ids: step_ids,
        })
    }

    /// Where everything lies in this run.
    fn addresses(&mut self, memories: &mut Memories<'_>) -> Result<Addresses, DeviceError> {
        memories.fit(&self.plan, |buffer| buffer.on_card().map(|_| ()))?;
        let of = |buffer: &Buffer| buffer.on_card().map(Allocation::address);
        let inputs = memories.inputs.iter().map(|buffer| of(buffer)).collect::<Result<_, _>>()?;
        let arena = memories.arena.on_card_mut()?.address();
        let donated = memories.donated.iter_mut().map(|buffer| Ok(buffer.on_card_mut()?.address()));
        let donated = donated.collect::<Result<_, DeviceError>>()?;
        let scratch = self.gpu.scratch();
        let at_scratch = scratch.as_ref().map_or(0, |scratch| scratch.address());
        self.scratch = scratch;
        let fault = self.gpu.fault_address()?;
        let mut calls = self.bound.calls;
        for launch in self.steps.iter_mut().flatten() {
            if let Launch::Call(call) = launch {
                calls += u64::from(call.learn(self.gpu, memories.inputs)?);
            }
        }
        Ok(Addresses { arena, inputs, donated, scratch: at_scratch, fault, calls })
    }

    /// Writes the addresses into the kernels' arguments.
    fn bind(&mut self, addresses: Addresses) {
        for launch in self.steps.iter_mut().flatten() {
            if let Launch::Kernel { params, values, .. } = launch {
                let params = params.iter().zip(values);
                params.for_each(|(param, value)| *value = addresses.value(*param));
            }
        }
        self.bound = addresses;
    }

    /// Queues a step on a stream.
    fn queue(
        gpu: &Gpu,
        stream: &Stream,
        bound: &Addresses,
        step: &mut [Launch<'a>],
    ) -> Result<(), DeviceError> {
        for launch in step {
            match launch {
                Launch::Kernel { function, values, grid, .. } => {
                    let blocks = u32::try_from(grid.blocks).unwrap_or(u32::MAX); // refused when it was prepared
                    let Grid { threads, shared_bytes, .. } = *grid;
                    let grid = module::Grid { blocks, threads, shared_bytes, overlap: false };
                    gpu.launch_with(stream, function, grid, values)?;
                }
                Launch::Product { matmul, views, scratch } => {
                    let at = views.map(|(memory, first)| bound.of(memory) + first);
                    gpu.multiply(stream, matmul, at, bound.scratch + *scratch)?;
                }
                Launch::Zeros { to, bytes } => stream.zero(bound.of(*to), *bytes)?,
                Launch::Call(call) => call.queue(gpu, stream, bound)?,
            }
        }
        Ok(())
    }

    /// Queues all steps, by the graph that was captured over the same memories, if there is one.
    fn all(&mut self, is_repeated: bool) -> Result<(), DeviceError> {
        let (gpu, bound) = (self.gpu, &self.bound);
        if let Some(place) = self.graphs.iter().position(|(addresses, ..)| addresses == bound) {
            let (addresses, graph, launches) = self.graphs.remove(place);
            graph.launch(gpu.stream())?;
            gpu.inner.launches.fetch_add(launches, Relaxed);
            self.graphs.push((addresses, graph, launches));
            return Ok(());
        }
        let steps = &mut self.steps;
        if !is_repeated {
            return steps.iter_mut().try_for_each(|step| Self::queue(gpu, gpu.stream(), bound, step));
        }
        let before = gpu.launches();
        let mut refused = None;
        let captured = gpu.new_stream()?; // of its own: what other threads queue meanwhile is none of this graph's
        let graph = gpu.capture_side_by_side(&captured, &self.waits, |stream, step| {
            Self::queue(gpu, stream, bound, &mut steps[step]).map_err(|error| {
                if let DeviceError::Driver(refusal) = &error
                    && let Some(error) = refusal.error::<super::CudaError>()
                {
                    return error.clone();
                }
                let text = error.to_string();
                refused = Some(error);
                super::CudaError::Library { call: "capture", text }
            })
        });
        let graph = graph.map_err(|error| refused.take().unwrap_or_else(|| error.into()))?;
        let launches = gpu.launches() - before; // counted while they were captured: this run's
        graph.launch(gpu.stream())?;
        if self.graphs.len() == GRAPHS {
            gpu.stream().sync()?; // it may still run
            self.graphs.remove(0);
        }
        self.graphs.push((self.bound.clone(), graph, launches));
        Ok(())
    }

    fn count(&mut self, step: usize) {
        let traffic = self.traffic[step];
        self.counts.step(traffic);
        self.gpu.inner.read.fetch_add(traffic.0, Relaxed);
        self.gpu.inner.written.fetch_add(traffic.1, Relaxed);
    }
}

impl Addresses {
    /// Where a memory begins.
    fn of(&self, memory: Memory) -> u64 {
        match memory {
            Memory::Arena(at) => self.arena + at as u64,
            Memory::Input(number) => self.inputs[number],
            Memory::InOut(number) => self.donated[number],
        }
    }

    fn value(&self, param: Param) -> u64 {
        match param {
            Param::Number(value) => value,
            Param::Address(memory, first) => self.of(memory) + first,
            Param::Scratch(first) => self.scratch + first,
            Param::Fault => self.fault,
        }
    }
}

impl Drop for CudaPlan<'_> {
    /// Waits for what is queued: its kernels and graphs are unloaded, and may still run.
    fn drop(&mut self) {
        let _ = self.gpu.stream().sync(); // an error of the card comes up again at the next call
    }
}

impl Executable for CudaPlan<'_> {
    fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    fn scratch_bytes(&self) -> usize {
        self.scratch_bytes
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn run(&mut self, memories: &mut Memories<'_>, watch: Option<&mut Watch<'_>>) -> Result<(), DeviceError> {
        let addresses = self.addresses(memories)?;
        let is_repeated = addresses == self.bound && self.counts.launches > 0;
        if !is_repeated {
            self.bind(addresses);
        }
        let gpu = self.gpu;
        gpu.may_have_failed();
        let alone = || gpu.inner.queueing.lock().unwrap_or_else(PoisonError::into_inner);
        match watch {
            None => {
                let _alone = alone();
                self.all(is_repeated)?;
                (0..self.steps.len()).for_each(|step| self.count(step));
            }
            Some(watch) => {
                for number in 0..self.steps.len() {
                    let alone = alone();
                    Self::queue(gpu, gpu.stream(), &self.bound, &mut self.steps[number])?;
                    self.count(number);
                    drop(alone);
                    gpu.stream().sync()?;
                    watch(number, gpu.inner.made.elapsed());
                }
            }
        }
        Ok(())
    }
}

/// Writes the kernels of a plan's steps.
struct Lowering<'d, 'a> {
    gpu: Option<&'a Gpu>, // none if the texts are all that is wanted
    capability: (i32, i32),
    plan: &'d Plan,
    links: &'d Links<'d, 'a>,
    first_id: usize,
    texts: Texts,
    scratch: Vec<Range<usize>>, // what each step so far has of the memory that all share
    kernels: HashMap<(usize, Element), Arc<dyn CardDequantizer>>, // by callee and what it writes
}

/// The text of a plan's kernels: what is compiled when it is prepared on a card of a compute capability. Products that
/// the library computes have none, nor have calls.
///
/// # Errors
/// What [`Plan::check`] says, and steps that no card runs.
pub fn text_of(plan: &Plan, capability: (i32, i32)) -> Result<String, DeviceError> {
    plan.check()?;
    let links = Links::default();
    let mut lowering = Lowering::new(None, capability, plan, &links, 1);
    (0..plan.steps.len()).try_for_each(|number| lowering.step(number).map(|_| ()))?;
    Ok(lowering.texts.whole())
}

impl<'d, 'a> Lowering<'d, 'a> {
    fn new(
        gpu: Option<&'a Gpu>,
        capability: (i32, i32),
        plan: &'d Plan,
        links: &'d Links<'d, 'a>,
        first_id: usize,
    ) -> Self {
        Self {
            gpu,
            capability,
            plan,
            links,
            first_id,
            texts: Texts::default(),
            scratch: Vec::new(),
            kernels: HashMap::new(),
        }
    }

    fn step(&mut self, number: usize) -> Result<Vec<PendingLaunch<'a>>, DeviceError> {
        self.scratch.push(0..0);
        let step_id = fault::step_id(self.first_id, number);
        Ok(match &self.plan.steps[number] {
            Step::Pass { program, space, inputs, outputs } => {
                let passes::Kernel { text, params, blocks, threads } =
                    passes::kernel(program, space, inputs, outputs, step_id);
                let grid = Grid { blocks, threads: threads as u32, shared_bytes: 0 };
                vec![self.kernel(number, &text, "KERNEL", params, grid)?]
            }
            Step::Product(product) => self.product(number, product)?,
            Step::Attention { attention, output, lse } => self.attention(
                number,
                attention::forward(attention, output, lse.as_ref(), step_id, self.limits()),
            )?,
            Step::AttentionGrad(grad) => {
                self.attention(number, attention::backward(grad, step_id, self.limits()))?
            }
            Step::Scatter { rows, index, to, count, width, table } => {
                let mut params = params::KernelParams::default();
                for (name, view) in [("rows", rows), ("index", index), ("to", to)] {
                    params.push(name, Param::Address(view.memory, 0));
                }
                let sizes = [("count", *count), ("width", *width), ("table", *table)];
                for (name, size) in sizes {
                    params.number(name, size);
                }
                params.fault(step_id);
                let text = format!("{}{SCATTER}", params.declaration("KERNEL_params"));
                let zeros = Launch::Zeros { to: to.memory, bytes: table * width * size_of::<f32>() };
                let grid = Grid { blocks: *count, threads: 256, shared_bytes: 0 };
                vec![
                    PendingLaunch::Ready(zeros),
                    self.kernel(number, &text, "KERNEL", params.finish(), grid)?,
                ]
            }
            Step::Call { callee, name, what, inputs, output } => {
                let Some(gpu) = self.gpu else { return Ok(Vec::new()) };
                let kernel = self.dequantizer(gpu, *callee, name, what.element)?;
                let refused = |needed| self.plan.refused(number, needed);
                vec![PendingLaunch::Ready(Launch::Call(Box::new(Call::new(
                    kernel, name, what, inputs, output, &refused,
                )?)))]
            }
            Step::Start(_) | Step::Wait { .. } => {
                return Err(self
                    .plan
                    .refused(number, "ranks of the CPU: a card's ranks do not communicate yet"));
            }
        })
    }

    /// Where a step's part of the scratch memory begins: behind its predecessor's, so that neighbours may run side by
    /// side, and at the front again where the memory is used up.
    fn reserve(&mut self, bytes: usize) -> usize {
        let used = self.scratch.iter().rev().find(|bytes| !bytes.is_empty()).map_or(0, |bytes| bytes.end);
        let next = used.next_multiple_of(256);
        let first = if next + bytes > SCRATCH { 0 } else { next };
        if let Some(own) = self.scratch.last_mut() {
            *own = first..first + bytes;
        }
        first
    }

    /// What the card can do; without one, as much as any of its capability.
    fn limits(&self) -> Limits {
        let card = self.gpu.map(Gpu::card);
        Limits {
            capability: self.capability,
            shared_bytes: card.map_or(usize::MAX, |card| card.shared_bytes),
            sms: card.map_or(1, |card| card.sms as usize),
        }
    }

    fn kernel(
        &mut self,
        step: usize,
        text: &str,
        name: &str,
        params: Vec<Param>,
        grid: Grid,
    ) -> Result<PendingLaunch<'a>, DeviceError> {
        if params.len() > MAX_PARAMS {
            return Err(self.plan.refused(step, "views that fit a kernel's argument, which has 4 KiB"));
        }
        if i32::try_from(grid.blocks).is_err() {
            return Err(self.plan.refused(step, "less than 2^31 blocks on this device"));
        }
        let (text, name) = self.texts.add(text, name);
        Ok(PendingLaunch::Kernel { text, name, params, grid })
    }

    fn product(&mut self, number: usize, product: &Product) -> Result<Vec<PendingLaunch<'a>>, DeviceError> {
        let sizes = product.batch.iter().chain([&product.m, &product.n]);
        if sizes.copied().product::<usize>() == 0 {
            return Ok(Vec::new());
        }
        if blas::is_expressible(product) {
            let Some(gpu) = self.gpu else { return Ok(Vec::new()) };
            if let Some(matmul) = gpu.matmul(product, algorithm(product.choice))? {
                let scratch = self.reserve(matmul.workspace) as u64;
                let of =
                    |(view, element): (&View, Element)| (view.memory, (view.offset * element.bytes()) as u64);
                let [a, b, to] = product.elements;
                let views = [(&product.a, a), (&product.b, b), (&product.to, to)].map(of);
                let product = Launch::Product { matmul: Box::new(matmul), views, scratch };
                return Ok(vec![PendingLaunch::Ready(product)]);
            }
        }
        let products::Kernel { text, params, grid } = products::kernel(product);
        Ok(vec![self.kernel(number, &text, "KERNEL", params, grid)?])
    }

    fn attention(
        &mut self,
        number: usize,
        kernels: attention::Kernels,
    ) -> Result<Vec<PendingLaunch<'a>>, DeviceError> {
        let attention::Kernels { text, mut params, launches, scratch } = kernels;
        let first = self.reserve(scratch) as u64;
        for param in &mut params {
            if let Param::Scratch(at) = param {
                *at += first;
            }
        }
        let pending = launches
            .into_iter()
            .filter(|kernel| kernel.grid.blocks > 0)
            .map(|kernel| self.kernel(number, &text, &kernel.name, params.clone(), kernel.grid));
        pending.collect()
    }

    /// A callee's kernel, compiled once for what it writes.
    fn dequantizer(
        &mut self,
        gpu: &Gpu,
        number: usize,
        name: &str,
        element: Element,
    ) -> Result<Arc<dyn CardDequantizer>, DeviceError> {
        if let Some(kernel) = self.kernels.get(&(number, element)) {
            return Ok(Arc::clone(kernel));
        }
        let (name, given) = (name.to_owned(), self.links.callees.len());
        let missing = || DeviceError::Callee { name: name.clone(), number, given };
        let callee: &'a dyn Callee = *self.links.callees.get(number).ok_or_else(missing)?;
        let none = || DeviceError::Form { name, callee: callee.name().to_owned(), needed: "in CUDA C++" };
        let kernel: Arc<dyn CardDequantizer> = callee.card().ok_or_else(none)?.load(gpu, element)?.into();
        self.kernels.insert((number, element), Arc::clone(&kernel));
        Ok(kernel)
    }
}

/// The number of the library's algorithm that a choice stands for.
fn algorithm(choice: Choice) -> usize {
    if let Choice::Algorithm(number) = choice { usize::from(number) } else { 0 }
}

/// Compiles the texts that are not compiled yet, and takes each kernel from where it is.
fn compiled<'a>(
    gpu: &Gpu,
    texts: &Texts,
    pending: Vec<Vec<PendingLaunch<'a>>>,
) -> Result<Vec<Vec<Launch<'a>>>, DeviceError> {
    let modules = gpu.build_together("plan.cu", PRELUDE, &texts.all)?;
    let ready = |pending: PendingLaunch<'a>| {
        Ok(match pending {
            PendingLaunch::Ready(launch) => launch,
            PendingLaunch::Kernel { text, name, params, grid } => {
                let (values, function) = (vec![0; params.len()], modules[text].function(&name)?);
                if grid.shared_bytes > STATIC_SHARED {
                    function.allow_shared(grid.shared_bytes)?;
                }
                Launch::Kernel { function, params, values, grid }
            }
        })
    };
    pending.into_iter().map(|step| step.into_iter().map(ready).collect()).collect()
}
