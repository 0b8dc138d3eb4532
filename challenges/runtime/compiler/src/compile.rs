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

mod compiled;
mod emit;
mod error;
mod memory_plan;
mod options;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kernels::plan::{Memory, Plan};
use memory_plan::{MemoryPlan, plan_memory};
use reference::graph::{Dim, Dtype, Graph, Id, Symbol};

use crate::calls;
use crate::contract::Compile;
use crate::ir::arena::{Arena, Life};
use crate::ir::sized::Sized;
use crate::memory::donate;
use crate::rewrite::collective::{self, Lowered};
use crate::rewrite::remat::{self, RematPolicy, Rematerialised};
use crate::rewrite::{self, decompose, join, merge};

pub use error::Error;
pub use options::{Level, Options};

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

/// The number of the group of all ranks in a plan: the groups of [`Compiled::axes`] follow it.
pub(crate) const WORLD: usize = 0;
