//! From a graph to a plan: the passes in their order.
//!
//! ```text
//! Compilation   attention that has no step   rewrite::attend        in simpler operations, with C.8's programs
//!               prune, join, merge           C.3, join, merge       sums of padded tensors; products of one factor
//!               widen, prune                 decompose, C.3         products between casts
//!               collectives                  rewrite::collective    as operations that have a step
//!               donated inputs               memory::donate         each has an output of its own
//! rematerialise remat                        rewrite::remat         what is computed again instead of kept
//!               dequantisations              rewrite::decompose     one for each use of a weight
//! plan_memory   parts and their buffers      fuse, C.4, C.6         tile programs, products, calls, ...
//!               starts and waits             fuse::overlap          moved apart
//!               donation, passes in place    memory                 outputs where inputs were, writes where reads were
//!               places                       C.5, ir::arena         a place in the arena for each buffer
//! finish        the plan                     Planned::step          a step for each part; checked
//! ```
//!
//! What comes out is [`Compiled`]: the plan with the names and shapes of its inputs and outputs. It has no device; a
//! [session](crate::session) prepares and runs it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use kernels::callee::Dequantize;
use kernels::comm::{Collective, Kind};
use kernels::plan::{self, Memory, Plan, Product, Step, View};
use kernels::tile::Program;
use kernels::{Device, DeviceError};
use reference::graph::{self, Dim, Dtype, Fault, Graph, Id, Op, Symbol};

use crate::calls;
use crate::contract::Compile;
use crate::fuse::attend;
use crate::fuse::collective::Transfer;
use crate::fuse::emit::{Layout, LowerError};
use crate::fuse::{self, Attend, Fused, Part, overlap};
use crate::ir::arena::{self, Arena, Life};
use crate::ir::code::element;
use crate::ir::sized::Sized;
use crate::memory::donate;
use crate::memory::profile::{self, MemoryProfile};
use crate::memory::reuse;
use crate::rewrite::collective::{self, Lowered};
use crate::rewrite::remat::{self, RematPolicy, Rematerialised};
use crate::rewrite::{self, decompose, join, merge};
use crate::tune::Tuned;

/// Why a graph cannot be compiled or run.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The graph is not sound, or does not have the sizes given.
    Graph(graph::Error),
    /// A size is given for a symbol that the graph does not have.
    Unknown {
        /// The symbol.
        symbol: Symbol,
    },
    /// No kernel computes this.
    NoKernel {
        /// The operation and its scope.
        node: String,
        /// What stood in the way.
        stop: LowerError,
    },
    /// Buffers meet, or lie outside their arena.
    Arena {
        /// Which, and how.
        fault: String,
    },
    /// Whatever is computed again, the arena is larger than it may be.
    Cap {
        /// The most bytes allowed.
        cap: usize,
        /// The least arena that was reached.
        least: usize,
        /// What runs when the most bytes of it are alive.
        part: String,
        /// What is alive then: the largest buffers first, with their bytes.
        alive: Vec<(String, usize)>,
    },
    /// The device refused.
    Device(DeviceError),
    /// A pass left a collective out, merged two, or exchanged their order: ranks would not meet.
    Collectives {
        /// What is there and what has to be.
        what: String,
    },
    /// The compiler contradicts itself.
    Internal {
        /// What is there and what has to be.
        what: String,
    },
}

/// Where an input or output lies, for the caller.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Its name in the graph.
    pub name: String,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its dimensions.
    pub shape: Vec<usize>,
    pub(crate) memory: Memory,
}

/// A group of ranks that a plan works with: those that differ along one axis of the mesh alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The axis.
    pub name: String,
    /// How many ranks there are along it.
    pub size: usize,
}

/// Which passes are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each pass is there or not, whatever the others are
pub struct Options {
    /// C.3: without what is dead, double or idle.
    pub prune: bool,
    /// C.4: kernels of more than one operation.
    pub fuse: bool,
    /// C.5: buffers that share bytes.
    pub place: bool,
    /// C.8: attention as one launch.
    pub flex: bool,
    /// Whether what costs next to nothing is computed again for the backward part.
    pub remat: bool,
    /// Whether every layer is computed again from its input for the backward part (gradient checkpointing), and with
    /// it what costs next to nothing. A cap decides otherwise.
    pub remat_layers: bool,
    /// The largest arena in bytes, if there is a bound: then as much is computed again as that takes, and no more.
    pub cap: Option<usize>,
    /// Whether an output with the name and the type of an input ends in that input's memory. See
    /// [`Compiled::donated`].
    pub donate: bool,
    /// Whether an attention in f16 or bf16 is a step in that type; else it is one in f32, between casts. A step in the
    /// type reads half the bytes and multiplies on tensor cores; its gradients read the output as it is stored,
    /// rounded, as those of `FlashAttention` do. [`Session`](crate::session::Session) asks the device.
    pub narrow_attention: bool,
    /// Whether the device runs steps that do not wait for each other side by side. Then memory that is free again is
    /// left alone for a while, where that takes few bytes more: see [`arena::apart`]. The session asks the device. With
    /// [`remat_layers`](Self::remat_layers) bytes are what is short, and none are left alone.
    pub side_by_side: bool,
    /// How many operations between ranks may be in flight while this rank computes. With none, each is waited for where
    /// it is started; all ranks have to agree. See [`overlap`].
    pub in_flight: usize,
}

/// How much is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Every operation as it is written, a launch each, in memory of its own.
    O0,
    /// Without what is dead or computed twice, over one arena; still a launch for each operation.
    O1,
    /// Fused.
    #[default]
    O2,
    /// And tuned.
    O3,
}

impl Level {
    /// Each of them, from the least on.
    pub const ALL: [Level; 4] = [Level::O0, Level::O1, Level::O2, Level::O3];

    /// Whether products are tuned.
    pub fn tunes(self) -> bool {
        self >= Level::O3
    }

    /// Its passes.
    pub fn options(self) -> Options {
        let from = |level: Level| self >= level;
        let (prune, place) = (from(Level::O1), from(Level::O1));
        let (fuse, remat) = (from(Level::O2), from(Level::O2));
        Options {
            prune,
            place,
            fuse,
            flex: true,
            remat,
            remat_layers: false,
            cap: None,
            donate: false,
            narrow_attention: false,
            side_by_side: false,
            in_flight: 0,
        }
    }
}

/// A graph for given sizes, ready to run.
#[derive(Clone)]
pub struct Compiled {
    /// The graph that was lowered.
    pub graph: Graph,
    sizes: BTreeMap<Symbol, i64>,
    plan: Arc<Plan>,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    /// Where the buffers lie.
    pub arena: Arena,
    /// How long they live.
    pub lives: Vec<Option<Life>>,
    /// The bytes of each buffer, at any size.
    pub bytes: Vec<Dim>,
    /// The nodes that each step computes.
    pub nodes: Vec<BTreeSet<Id>>,
    /// What is computed again.
    pub rematerialised: Rematerialised,
    axes: Vec<Axis>,
}

/// What is compiled so far.
struct MemoryPlan<'a> {
    sized: &'a Sized<'a>,
    labels: &'a [String],
    fused: Fused,
    lives: Vec<Option<Life>>,
    arena: Arena,
}

/// Compiles a graph for given sizes of its symbols. No device is asked: products are computed as their shape suggests,
/// until [`Compiled::tune`] knows better.
///
/// # Errors
/// If the graph is not sound, a size breaks its facts, no kernel computes a node, or no arena is within the cap.
pub fn compile(
    passes: &dyn Compile,
    graph: &Graph,
    sizes: &BTreeMap<Symbol, i64>,
    options: Options,
) -> Result<Compiled, Error> {
    let job = Compilation::new(passes, graph, sizes, options)?;
    let policy = match options.cap {
        Some(cap) => job.choose(cap)?,
        None if options.remat_layers => RematPolicy::every_layer(&job.graph),
        None if options.remat => RematPolicy::cheap(),
        None => RematPolicy::none(),
    };
    job.finish(&policy)
}

/// [`compile`] where what is computed again is chosen already, whatever the options say of it.
pub fn compile_with_policy(
    passes: &dyn Compile,
    graph: &Graph,
    sizes: &BTreeMap<Symbol, i64>,
    options: Options,
    policy: &RematPolicy,
) -> Result<Compiled, Error> {
    Compilation::new(passes, graph, sizes, options)?.finish(policy)
}

/// A graph to be compiled: simplified, in the machine's terms, and nothing in it twice.
struct Compilation<'a> {
    passes: &'a dyn Compile,
    graph: Graph,
    labels: Vec<String>, // of its collectives
    sizes: &'a BTreeMap<Symbol, i64>,
    options: Options,
}

impl<'a> Compilation<'a> {
    fn new(
        passes: &'a dyn Compile,
        graph: &Graph,
        sizes: &'a BTreeMap<Symbol, i64>,
        options: Options,
    ) -> Result<Self, Error> {
        calls::count();
        graph.check().map_err(Error::Graph)?;
        known(graph, sizes)?;
        let flex = options.flex.then_some(passes);
        let open = rewrite::attend::decompose_unsupported_attention(flex, &sized(graph, sizes)?)
            .map_err(Error::Graph)?;
        let simpler = simpler(passes, open, options)?;
        let Lowered { graph, labels } = collective::lower(&simpler, sizes).map_err(Error::Graph)?;
        let graph =
            if options.donate { donate::separate_outputs(&graph).map_err(Error::Graph)? } else { graph };
        Ok(Self { passes, graph, labels, sizes, options })
    }

    /// The graph with what is computed again.
    fn rematerialise(&self, policy: &RematPolicy) -> Result<(Graph, Rematerialised), Error> {
        let (graph, rematerialised) =
            remat::rematerialise(&sized(&self.graph, self.sizes)?, policy).map_err(Error::Graph)?;
        Ok((decompose::clone_dequantize_per_use(&graph).map_err(Error::Graph)?, rematerialised))
    }

    fn finish(&self, policy: &RematPolicy) -> Result<Compiled, Error> {
        let (graph, rematerialised) = self.rematerialise(policy)?;
        let sized = sized(&graph, self.sizes)?;
        self.plan_memory(&sized)?.finish(rematerialised)
    }

    /// The cheapest choice whose arena is no larger than a cap.
    fn choose(&self, cap: usize) -> Result<RematPolicy, Error> {
        let policies = remat::policies(&sized(&self.graph, self.sizes)?);
        let mut tried: BTreeMap<usize, usize> = BTreeMap::new();
        let mut fits = |number: usize| {
            let bytes = self.arena(&policies[number])?;
            tried.insert(number, bytes);
            Ok(bytes <= cap)
        };
        match remat::cheapest(policies.len(), &mut fits)? {
            Some(number) => Ok(policies[number].clone()),
            None => Err(self.refusal(cap, &policies, &tried)?),
        }
    }

    /// Bytes of the arena that a choice needs.
    fn arena(&self, policy: &RematPolicy) -> Result<usize, Error> {
        let (graph, _) = self.rematerialise(policy)?;
        Ok(self.plan_memory(&sized(&graph, self.sizes)?)?.arena.bytes)
    }

    /// Why none of the choices fits, given the bytes that each needs.
    fn refusal(
        &self,
        cap: usize,
        policies: &[RematPolicy],
        tried: &BTreeMap<usize, usize>,
    ) -> Result<Error, Error> {
        let least = tried.iter().min_by_key(|(_, bytes)| **bytes).map_or(0, |(number, _)| *number);
        let (graph, _) = self.rematerialise(&policies[least])?;
        Ok(self.plan_memory(&sized(&graph, self.sizes)?)?.misses(cap))
    }

    fn plan_memory<'s>(&'s self, sized: &'s Sized<'s>) -> Result<MemoryPlan<'s>, Error> {
        plan_memory(self.passes, sized, &self.labels, self.options)
    }
}

/// That the graph has every symbol that a size is given for.
fn known(graph: &Graph, sizes: &BTreeMap<Symbol, i64>) -> Result<(), Error> {
    let shapes = || graph.nodes().iter().flat_map(|node| &node.ty.shape);
    let used = |symbol: &Symbol| shapes().any(|dim| dim.symbols().any(|one| one == symbol));
    match sizes.keys().find(|symbol| !graph.known().contains_key(*symbol) && !used(symbol)) {
        Some(symbol) => Err(Error::Unknown { symbol: symbol.clone() }),
        None => Ok(()),
    }
}

fn sized<'g>(graph: &'g Graph, sizes: &BTreeMap<Symbol, i64>) -> Result<Sized<'g>, Error> {
    Sized::new(graph, sizes).map_err(Error::Graph)
}

/// The graph in the machine's terms.
fn simpler(passes: &dyn Compile, graph: Graph, options: Options) -> Result<Graph, Error> {
    let prune = |graph: Graph| {
        let pruned = if options.prune { passes.prune(&graph).map_err(Error::Graph)? } else { graph.clone() };
        pruned.check().map_err(Error::Graph)?;
        collective::kept(&graph, &pruned).map_err(|what| Error::Collectives { what })?;
        Ok(pruned)
    };
    let pruned = prune(graph)?;
    let joined = if options.prune { join::join_padded(&pruned).map_err(Error::Graph)? } else { pruned };
    let merged = if options.fuse { merge::merge_products(&joined).map_err(Error::Graph)? } else { joined };
    prune(decompose::upcast_contractions(&merged, options.narrow_attention).map_err(Error::Graph)?)
}

/// Fuses a graph and plans its memory.
fn plan_memory<'a>(
    passes: &dyn Compile,
    sized: &'a Sized<'a>,
    labels: &'a [String],
    options: Options,
) -> Result<MemoryPlan<'a>, Error> {
    let donated = if options.donate { donate::pairs(sized.graph) } else { Vec::new() };
    let mut fused = fuse::fuse(passes, sized, !options.fuse, &donated).map_err(|missing| {
        let node = sized.graph.node(missing.node);
        Error::NoKernel {
            node: format!("%{} {} {}", missing.node.0, node.op.name(), node.scope).trim_end().to_owned(),
            stop: missing.stop,
        }
    })?;
    overlap::overlap(sized, &mut fused.parts, options.in_flight);
    donate::alias_outputs(sized, &mut fused, &donated, options.fuse);
    if options.fuse {
        reuse::in_place(sized, &mut fused);
    }
    let lives = lives(sized, &fused);
    let arena = match options {
        Options { place: false, .. } => arena::without_reuse(&lives),
        Options { side_by_side: true, remat_layers: false, cap, .. } => {
            arena::apart(&lives, cap, |lives| passes.place(lives))
        }
        Options { .. } => passes.place(&lives),
    };
    match arena::fault(&lives, &arena) {
        Some(fault) => Err(Error::Arena { fault }),
        None => Ok(MemoryPlan { sized, labels, fused, lives, arena }),
    }
}

impl MemoryPlan<'_> {
    fn finish(self, rematerialised: Rematerialised) -> Result<Compiled, Error> {
        let Self { sized, labels, fused, lives, arena } = self;
        let graph = sized.graph;
        let axes = axes(sized)?;
        let lowered = Planned { sized, axes: &axes, labels, fused: &fused, arena: &arena };
        let plan = lowered.plan()?;
        let inputs = graph.inputs().map(|(name, id)| lowered.port(name, id, None));
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let outputs = graph.outputs().iter().map(|(name, id)| lowered.port(name, *id, lowered.donated(*id)));
        let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        let nodes = fused.parts.iter().map(Part::nodes).collect();
        plan.check().map_err(Error::Device)?;
        let (graph, bytes, plan) = (graph.clone(), profile::sizes(sized, &fused), Arc::new(plan));
        Ok(Compiled {
            graph,
            sizes: sized.sizes().clone(),
            plan,
            inputs,
            outputs,
            arena,
            lives,
            bytes,
            nodes,
            rematerialised,
            axes,
        })
    }

    /// That its arena is larger than a cap, and why.
    fn misses(&self, cap: usize) -> Error {
        let alive = |part: usize| {
            let lives = self.lives.iter().enumerate().filter_map(|(i, life)| Some((i, life.as_ref()?)));
            lives.filter(move |(_, life)| life.parts.contains(&part))
        };
        let bytes = |part: &usize| alive(*part).map(|(_, life)| life.bytes).sum::<usize>();
        let peak = (0..=self.fused.parts.len()).max_by_key(bytes).unwrap_or(0);
        let part = self.fused.parts.get(peak).and_then(|part| part.nodes().last().copied());
        let part = part.map_or_else(|| "results".to_owned(), |id| self.describe(id));
        let named = |buffer: usize| {
            let id = self.fused.layouts.iter().find(|(_, layout)| layout.buffer == buffer);
            id.map_or_else(|| "of an attention".to_owned(), |(id, _)| self.describe(*id))
        };
        let mut largest: Vec<(usize, usize)> = alive(peak).map(|(i, life)| (i, life.bytes)).collect();
        largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let alive = largest.into_iter().take(SHOWN).map(|(buffer, bytes)| (named(buffer), bytes)).collect();
        Error::Cap { cap, least: self.arena.bytes, part, alive }
    }

    /// A node for a message.
    fn describe(&self, id: Id) -> String {
        let node = self.sized.graph.node(id);
        format!("%{} {} {}", id.0, node.op.name(), node.scope).trim_end().to_owned()
    }
}

/// How many buffers a refusal names.
const SHOWN: usize = 8;

/// From the first part that writes a buffer to the last that reads it; outputs live to the end, but for those that end
/// in a donated buffer.
fn lives(sized: &Sized, fused: &Fused) -> Vec<Option<Life>> {
    let mut lives: Vec<Option<Life>> = vec![None; fused.bytes.len()];
    let mut touch = |buffer: usize, part: usize| {
        if fused.given.contains_key(&buffer) {
            return;
        }
        let bytes = fused.bytes[buffer];
        let life = lives[buffer].get_or_insert(Life { bytes, parts: part..=part });
        life.parts = *life.parts.start().min(&part)..=*life.parts.end().max(&part);
    };
    for (number, part) in fused.parts.iter().enumerate() {
        part.reads().into_iter().chain(part.writes()).for_each(|buffer| touch(buffer, number));
    }
    let outputs = sized.graph.outputs().iter().filter(|(_, id)| !fused.donated.values().any(|out| out == id));
    for (_, id) in outputs {
        touch(fused.layouts[id].buffer, fused.parts.len());
    }
    lives
}

/// Lets equal programs be one: equal layers are prepared once.
fn share(steps: &mut [Step]) {
    let mut known: HashMap<String, Vec<Arc<Program>>> = HashMap::new(); // by name
    for step in steps {
        let Step::Pass { program, .. } = step else { continue };
        let alike = known.entry(program.name.clone()).or_default();
        match alike.iter().find(|other| other.is(program)) {
            Some(same) => *program = same.clone(),
            None => alike.push(program.clone()),
        }
    }
}

/// The groups that the collectives of a graph name, by the axis.
fn axes(sized: &Sized) -> Result<Vec<Axis>, Error> {
    let mut axes: BTreeMap<&str, (Id, usize)> = BTreeMap::new();
    for (id, _, group) in collective::all(sized.graph) {
        let size = collective::size(sized.graph, id, group, sized.sizes()).map_err(Error::Graph)?;
        let (other, known) = *axes.entry(&group.axis).or_insert((id, size));
        if known != size {
            let need = format!("{known} ranks along {:?}, as {}", group.axis, sized.graph.site(other));
            let fault = Fault::Ranks { got: size.to_string(), need };
            return Err(Error::Graph(graph::Error { at: sized.graph.site(id), fault, source: None }));
        }
    }
    Ok(axes.into_iter().map(|(name, (_, size))| Axis { name: name.to_owned(), size }).collect())
}

/// What becomes a plan.
struct Planned<'a> {
    sized: &'a Sized<'a>,
    axes: &'a [Axis],
    labels: &'a [String],
    fused: &'a Fused,
    arena: &'a Arena,
}

impl Planned<'_> {
    fn memory(&self, buffer: usize) -> Result<Memory, Error> {
        if let Some(at) = self.arena.places[buffer] {
            return Ok(Memory::Arena(at));
        }
        let donated = || self.fused.donated.keys().position(|donated| *donated == buffer);
        let given = || self.given().position(|given| given == buffer);
        let memory = donated().map(Memory::InOut).or_else(|| given().map(Memory::Input));
        memory.ok_or_else(|| internal(format!("buffer {buffer} has no place and is not given")))
    }

    /// The buffers that are given.
    fn given(&self) -> impl Iterator<Item = usize> {
        self.fused.given.keys().copied().filter(|buffer| !self.fused.donated.contains_key(buffer))
    }

    fn view(&self, layout: &Layout) -> Result<View, Error> {
        let Layout { buffer, offset, strides } = layout.clone();
        Ok(View { memory: self.memory(buffer)?, bytes: self.fused.bytes[buffer], offset, strides })
    }

    fn views(&self, layouts: &[Layout]) -> Result<Vec<View>, Error> {
        layouts.iter().map(|layout| self.view(layout)).collect()
    }

    /// The buffer in which an output ends, if it is donated.
    fn donated(&self, output: Id) -> Option<usize> {
        self.fused.donated.iter().find(|(_, out)| **out == output).map(|(buffer, _)| *buffer)
    }

    /// Where a node lies: in its own buffer, or in another one where it ends.
    fn port(&self, name: &str, id: Id, ends: Option<usize>) -> Result<Port, Error> {
        let ty = self.sized.graph.ty(id);
        let buffer = ends.or_else(|| Some(self.fused.layouts.get(&id)?.buffer));
        let buffer = buffer.ok_or_else(|| internal(format!("%{} of `{name}` has no buffer", id.0)))?;
        let (name, shape, memory) = (name.to_owned(), self.sized.shape(id).to_vec(), self.memory(buffer)?);
        Ok(Port { name, dtype: ty.dtype, shape, memory })
    }

    fn plan(&self) -> Result<Plan, Error> {
        let steps = self.fused.parts.iter().map(|part| self.step(part));
        let mut steps: Vec<Step> = steps.collect::<Result<_, _>>()?;
        share(&mut steps);
        let given = self.given().map(|buffer| self.fused.bytes[buffer]).collect();
        let donated = self.fused.donated.keys().map(|buffer| self.fused.bytes[*buffer]).collect();
        let name = self.sized.graph.name.clone();
        Ok(Plan { name, arena_bytes: self.arena.bytes, inputs: given, donated, steps })
    }

    fn attention(&self, attend: &Attend) -> Result<plan::Attention, Error> {
        let [q, k, v] = [0, 1, 2].map(|i| self.sized.shape(attend::inputs(self.sized, attend.node)[i]));
        let of = attend::of(&self.sized.graph.node(attend.node).op);
        let of = of.ok_or_else(|| internal(format!("%{} is no attention", attend.node.0)))?;
        let program = |program: &Option<Program>| program.clone().map(Arc::new);
        let (score, mask) = (program(&attend.flex.score), program(&attend.flex.mask));
        let extras = self.views(&attend.flex.extras)?;
        let [batch, heads, queries, depth] = [q[0], q[1], q[2], q[3]];
        let (groups, keys, width) = (k[1], k[2], v[3]);
        let first = attend::inputs(self.sized, attend.node)[0];
        let element = element(self.sized.graph.ty(first).dtype);
        let [q, k, v] = attend.qkv.each_ref().map(|layout| self.view(layout));
        let (q, k, v, scale) = (q?, k?, v?, of.scale as f32);
        Ok(plan::Attention {
            batch,
            heads,
            groups,
            queries,
            keys,
            depth,
            width,
            element,
            scale,
            score,
            mask,
            q,
            k,
            v,
            extras,
        })
    }

    /// The number of a collective among all, which is its ticket too.
    fn ticket(&self, id: Id) -> Result<usize, Error> {
        let ticket = collective::all(self.sized.graph).position(|(other, ..)| other == id);
        ticket.ok_or_else(|| internal(format!("%{} is no collective", id.0)))
    }

    /// The start of a collective, on rank 0 of its group.
    fn start(&self, transfer: &Transfer) -> Result<plan::Start, Error> {
        let (id, ticket) = (transfer.node, self.ticket(transfer.node)?);
        let Op::Collective { kind, group } = &self.sized.graph.node(id).op else {
            return Err(internal(format!("%{} is no collective", id.0)));
        };
        let axis = self.axes.iter().position(|axis| axis.name == group.axis);
        let axis = axis.ok_or_else(|| internal(format!("the axis of %{} has no number", id.0)))?;
        let world = self.axes[axis].size;
        let element = element(self.sized.graph.ty(id).dtype);
        let (count, shard) =
            (self.sized.elements(id), self.sized.elements(self.sized.graph.node(id).inputs[0]));
        let peer = |by: i64| by.rem_euclid(world as i64) as usize;
        let what = match *kind {
            graph::Collective::AllGather { .. } => Collective::all_gather(element, shard),
            graph::Collective::ReduceScatter { .. } => Collective::reduce_scatter(element, count),
            graph::Collective::AllReduce => Collective::all_reduce(element, count),
            graph::Collective::Send { by } => Collective::send(peer(by), element, count),
            graph::Collective::Receive { by } => Collective::receive(peer(by), element, count),
        };
        let label = self.labels.get(ticket).cloned();
        let label = label.ok_or_else(|| internal(format!("%{} has no label", id.0)))?;
        let [input, output] = [&transfer.input, &transfer.output]
            .map(|side| side.as_ref().map(|layout| self.view(layout)).transpose());
        Ok(plan::Start {
            ticket,
            group: WORLD + 1 + axis,
            world,
            what,
            input: input?,
            output: output?,
            label,
        })
    }

    fn step(&self, part: &Part) -> Result<Step, Error> {
        Ok(match part {
            Part::Start(transfer) => Step::Start(Box::new(self.start(transfer)?)),
            Part::Wait(transfer) => Step::Wait { ticket: self.ticket(transfer.node)? },
            Part::Kernel(kernel) => Step::Pass {
                program: Arc::new(kernel.program.clone()),
                space: kernel.space.clone(),
                inputs: self.views(&kernel.inputs)?,
                outputs: self.views(&kernel.outputs)?,
            },
            Part::Product { node, a, b, elements, to, scale, add } => {
                let shape = self.sized.shape(*node);
                let factor = self.sized.shape(self.sized.graph.node(*node).inputs[0]);
                let (batch, last) = shape.split_at(shape.len() - 2);
                let (a, b, to) = (self.view(a)?, self.view(b)?, self.view(to)?);
                let (m, n, k) = (last[0], last[1], factor[shape.len() - 1]);
                Step::Product(Product {
                    batch: batch.to_vec(),
                    m,
                    n,
                    k,
                    a,
                    b,
                    elements: *elements,
                    to,
                    add: *add,
                    scale: *scale,
                    choice: plan::Choice::by_shape(m, n, k),
                })
            }
            Part::Attention(attend) => Step::Attention {
                attention: Box::new(self.attention(attend)?),
                output: self.view(&attend.output)?,
                lse: attend.lse.as_ref().map(|lse| self.view(lse)).transpose()?,
            },
            Part::AttentionGrad { of, grad, wrt } => {
                let [wrt_q, wrt_k, wrt_v] =
                    wrt.each_ref().map(|to| to.as_ref().map(|to| self.view(to)).transpose());
                let no_sums = || internal(format!("the attention of %{} keeps no sums", of.node.0));
                Step::AttentionGrad(Box::new(plan::AttentionGrad {
                    attention: self.attention(of)?,
                    slope: of.flex.slope.clone().map(Arc::new),
                    output: self.view(&of.output)?,
                    lse: self.view(of.lse.as_ref().ok_or_else(no_sums)?)?,
                    grad: self.view(grad)?,
                    wrt_q: wrt_q?,
                    wrt_k: wrt_k?,
                    wrt_v: wrt_v?,
                }))
            }
            Part::Scatter { node, rows, index, to } => {
                let (shape, inputs) = (self.sized.shape(*node), &self.sized.graph.node(*node).inputs);
                let (table, width) = (shape[0], shape[1..].iter().product());
                let count = self.sized.elements(inputs[1]);
                let (rows, index, to) = (self.view(rows)?, self.view(index)?, self.view(to)?);
                Step::Scatter { rows, index, to, count, width, table }
            }
            Part::Dequantize { node, inputs, to } => {
                let ty = &self.sized.graph.node(*node).ty;
                let Op::Dequantize { block_size, nested } = self.sized.graph.node(*node).op else {
                    return Err(internal(format!("%{} is no dequantisation", node.0)));
                };
                let (len, element) = (self.sized.elements(*node), element(ty.dtype));
                Step::Call {
                    callee: 0,
                    what: Dequantize::whole(len, block_size, nested, element),
                    name: format!("{}: dequantize", self.sized.graph.node(*node).scope),
                    inputs: self.views(inputs)?,
                    output: self.view(to)?,
                }
            }
        })
    }
}

/// The number of the group of all ranks in a plan: the groups of [`Compiled::axes`] follow it.
pub(crate) const WORLD: usize = 0;

/// The rank that a message goes to or comes from.
fn peer_of(what: &Collective) -> Option<usize> {
    if let Kind::Send { to: peer } | Kind::Receive { from: peer } = what.kind { Some(peer) } else { None }
}

fn place_peers(steps: &mut [Step], ranks: &[usize]) {
    for step in steps {
        let Step::Start(start) = step else { continue };
        let rank = ranks.get(start.group - WORLD - 1).copied().unwrap_or(0);
        if let Kind::Send { to: peer } | Kind::Receive { from: peer } = &mut start.what.kind {
            *peer = (*peer + rank) % start.world;
        }
    }
}

/// That the compiler contradicts itself.
fn internal(what: String) -> Error {
    Error::Internal { what }
}

impl Compiled {
    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The groups of ranks that it works with. Linked to its plan are first a group of all ranks, then these, in order.
    ///
    /// A message goes to a rank that is so much further along its axis: the [plan](Self::plan) is that of the first
    /// rank along each of them.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The plan of one rank, whose number along each of [`axes`](Self::axes) is given. Without messages it is the same
    /// on every rank.
    pub(crate) fn plan_on_rank(&self, ranks: &[usize]) -> Arc<Plan> {
        let mut plan = self.plan.clone();
        if plan.steps.iter().any(|step| matches!(step, Step::Start(start) if peer_of(&start.what).is_some()))
        {
            place_peers(&mut Arc::make_mut(&mut plan).steps, ranks);
        }
        plan
    }

    /// The sizes that it was compiled for.
    pub fn sizes(&self) -> &BTreeMap<Symbol, i64> {
        &self.sizes
    }

    /// Computes each product as it is fastest on a device, as far as `tuned` knows or finds out.
    ///
    /// # Errors
    /// What the device says of a product that it tries.
    pub fn tune(
        &mut self,
        passes: &dyn Compile,
        device: &dyn Device,
        tuned: &mut Tuned,
    ) -> Result<(), DeviceError> {
        for step in &mut Arc::make_mut(&mut self.plan).steps {
            if let Step::Product(product) = step {
                product.choice = tuned.choice(passes, device, product)?;
            }
        }
        Ok(())
    }

    /// The parts of the model that a step belongs to, such as `layers.3.mlp`.
    pub fn scopes(&self, step: usize) -> BTreeSet<&str> {
        let nodes = self.nodes.get(step).into_iter().flatten();
        nodes.map(|id| self.graph.node(*id).scope.as_str()).filter(|scope| !scope.is_empty()).collect()
    }

    /// The bytes alive during each step, at any size.
    pub fn memory_profile(&self) -> MemoryProfile {
        let scope = |nodes: &BTreeSet<Id>| {
            nodes.last().map(|id| self.graph.node(*id).scope.clone()).unwrap_or_default()
        };
        let steps = self.plan().steps.iter().zip(&self.nodes);
        let parts = steps.map(|(step, nodes)| (step.name(), scope(nodes))).collect();
        profile::profile(parts, &self.lives, &self.bytes)
    }

    /// What has to be given.
    pub fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    /// What comes out.
    pub fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    /// The names of the inputs that a run reads, in the plan's order.
    pub fn given(&self) -> impl Iterator<Item = &str> {
        (0..self.plan.inputs.len()).map(|number| self.name_of(Memory::Input(number)))
    }

    /// The names of the inputs that a run updates, in the plan's order: see [`Options::donate`].
    pub fn donated(&self) -> Vec<&str> {
        (0..self.plan.donated.len()).map(|number| self.name_of(Memory::InOut(number))).collect()
    }

    /// The name of the input in a memory.
    pub(crate) fn name_of(&self, memory: Memory) -> &str {
        self.inputs.iter().find(|port| port.memory == memory).map_or("", |port| &port.name)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Graph(error) => error.fmt(f),
            Error::Unknown { symbol } => {
                write!(f, "a size is given for {symbol}, which is no symbol of the graph")
            }
            Error::NoKernel { node, stop } => write!(f, "{node}: {stop}"),
            Error::Arena { fault } => write!(f, "the arena: {fault}"),
            Error::Cap { cap, least, part, alive } => {
                let list: Vec<String> =
                    alive.iter().map(|(what, bytes)| format!("{what} of {bytes}")).collect();
                write!(
                    f,
                    "the arena may have {cap} bytes, and the least that is reached by computing again is {least}: "
                )?;
                write!(f, "at {part}, when there are alive {}", list.join(", "))
            }
            Error::Device(error) => error.fmt(f),
            Error::Collectives { what } => write!(f, "pruning: {what}"),
            Error::Internal { what } => write!(f, "internal error: {what}"),
        }
    }
}

impl std::error::Error for Error {}
