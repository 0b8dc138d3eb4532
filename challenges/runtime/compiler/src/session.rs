//! Running graphs again and again, at any length, on one device.
//!
//! A session owns everything that lives longer than a run: what is compiled, by program and by bucket; one arena, as
//! large as the largest of them needs; padded copies of inputs; named tensors that are uploaded once, such as weights.
//! There is no other way to run a compiled graph: challenge C is graded through it, challenge E's chunks, a training
//! run.
//!
//! A graph with symbolic sizes is compiled when a size is first met, and not again: sizes are rounded up to buckets,
//! inputs are padded, results are cut to what they really are. What is asked of a size is never more than what its
//! facts say, and nothing is ever asked of a value.
//!
//! Everything that costs is counted. A session that was [sealed](Session::seal) compiles nothing any more: a size runs
//! in the smallest bucket that is compiled and holds it, and what would have been a compilation in the middle of
//! training is an error that names the size. What cannot be compiled is an error, never a slower run.

mod error;
mod load;
mod outputs;
mod prepare;
mod profile;
mod run;
mod sizes;
mod tensor;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kernels::callee::HostCallee;
use kernels::{Buffer, Callee, Device, Executable};
use reference::graph::{Graph, Symbol};

use crate::compile::{Compiled, Level, Options};
use crate::contract::Compile;
use crate::groups::{Collectives, Groups};
use crate::store::Store;
use crate::tune::Tuned;

pub use error::Error;
pub use outputs::Outputs;

/// Numbers of some type in a device's memory, row-major.
#[derive(Debug)]
pub struct DeviceTensor {
    /// Dimensions.
    pub shape: Vec<usize>,
    /// The elements.
    pub buffer: Buffer,
}

/// How a session compiles.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How much is done.
    pub level: Level,
    /// Passes, where they are not the level's.
    pub options: Option<Options>,
    /// Whether each size is compiled for itself instead of for its bucket.
    pub exact: bool,
    /// The sizes that symbols are rounded up to, where they are not what C.2 chooses.
    pub buckets: BTreeMap<Symbol, Vec<i64>>,
    /// Where answers of tuning are kept.
    pub tuned: Option<PathBuf>,
    /// The largest arena in bytes, for every size, if there is a bound beyond that of the options.
    pub cap: Option<usize>,
    /// Whether the arena is filled with NaN before each run, so that what nobody writes is seen. For tests.
    pub poison: bool,
    /// Whether an output that has the name and the type of an input ends in that input's memory. The input then has to
    /// be donated to the run, or kept by the session.
    pub donate: bool,
}

/// What was done, and what it took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// Runs.
    pub runs: usize,
    /// Compilations, but for those that another session of the [store](Store) has made.
    pub compilations: usize,
    /// Runs whose sizes were compiled already.
    pub hits: usize,
    /// What compilations took, tuning and the wait for those of other sessions included.
    pub compiling: Duration,
    /// What runs took, without compilations: copies into buckets and the work itself.
    pub running: Duration,
    /// Products that were run to find out how to cut them.
    pub trials: usize,
    /// What that took.
    pub tuning: Duration,
    /// Launches of the last run.
    pub launches: usize,
    /// Different tile programs of the last run.
    pub programs: usize,
    /// Dequantisations of the last run.
    pub dequantized: usize,
    /// Bytes of the arena.
    pub arena_bytes: usize,
}

/// A graph that a session has loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program(usize);

/// What a run works on, beside the tensors that its session keeps.
#[derive(Debug, Default)]
pub struct Io<'a> {
    /// Tensors to be read.
    pub inputs: BTreeMap<&'a str, &'a DeviceTensor>,
    /// Tensors to be updated: after a run each is the output of its name; after one that failed it may be so in part.
    pub donated: BTreeMap<&'a str, &'a mut DeviceTensor>,
    /// Sizes of symbols. Any that is missing is read from the shapes of the inputs. Where a size is given here, a
    /// tensor may have its bucket's size ([`Session::rounded`]) in that dimension instead, and is then not copied;
    /// what its padding holds makes no difference.
    pub sizes: BTreeMap<Symbol, i64>,
}

/// What graphs without quantised weights are run with: a plan that dequantises is refused when it is prepared.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDequantizer;

impl Callee for NoDequantizer {
    fn name(&self) -> &'static str {
        "no dequantizer"
    }

    fn host(&self) -> Option<&dyn HostCallee> {
        None
    }
}

/// Graphs on a device.
pub struct Session<'a> {
    passes: &'a dyn Compile,
    device: &'a dyn Device,
    dequantizer: &'a dyn Callee,
    settings: Settings,
    groups: Groups,
    store: Store,
    loaded: Vec<Loaded<'a>>,
    kept: BTreeMap<String, DeviceTensor>,
    arena: Option<Buffer>,
    tuned: Tuned,
    counters: Counters,
    sealed: bool,
}

/// A graph with what was compiled of it.
struct Loaded<'a> {
    graph: Graph,
    padded: Arc<Graph>,
    buckets: BTreeMap<Symbol, Vec<i64>>,
    collectives: Collectives,
    fixed: Sizes,                         // of what was compiled before it was loaded
    ready: BTreeMap<Vec<i64>, Ready<'a>>, // by the size of each symbol, in their order
    staged: BTreeMap<String, DeviceTensor>,
    last: Option<Arc<Resolved>>, // of the run before
}

/// A plan that was prepared.
struct Ready<'a> {
    compiled: Arc<Compiled>,
    executable: Box<dyn Executable + 'a>,
    launches: Launches,
}

/// What follows from the sizes of a run. Most runs are sized as the one before them, and take it from there: it is most
/// of what a run costs the host.
struct Resolved {
    given: Sizes,
    inputs: Vec<InputShape>,
    sizes: Sizes,
    rounded: Sizes,
    key: Vec<i64>,
    outputs: BTreeMap<String, Vec<usize>>,
}

/// An input as it was given.
struct InputShape {
    name: String,
    shape: Vec<usize>,
    bytes: usize,
    is_padded: bool, // to the size that is compiled
}

type Sizes = BTreeMap<Symbol, i64>;

impl Settings {
    /// The passes for a device, under the tighter of both caps.
    fn passes(&self, device: &dyn Device) -> Options {
        let options = self.options.unwrap_or(self.level.options());
        let cap = options.cap.into_iter().chain(self.cap).min();
        let (narrow_attention, side_by_side) = (device.attends_narrow(), device.runs_side_by_side());
        Options { cap, donate: self.donate, narrow_attention, side_by_side, ..options }
    }
}

impl<'a> Session<'a> {
    /// One that has loaded nothing yet. Dequantisations call `dequantizer`.
    pub fn new(
        passes: &'a dyn Compile,
        device: &'a dyn Device,
        dequantizer: &'a dyn Callee,
        settings: Settings,
    ) -> Self {
        let tuned = settings.tuned.as_deref().map(Tuned::read).unwrap_or_default();
        Self {
            passes,
            device,
            dequantizer,
            settings,
            groups: Groups::default(),
            store: Store::default(),
            loaded: Vec::new(),
            kept: BTreeMap::new(),
            arena: None,
            tuned,
            counters: Counters::default(),
            sealed: false,
        }
    }

    /// The same, working with other ranks: see [`groups`].
    #[must_use]
    pub fn with_groups(self, groups: Groups) -> Self {
        Self { groups, ..self }
    }

    /// The same, compiling only what a store lacks: one that the sessions of other ranks share.
    #[must_use]
    pub fn with_store(self, store: Store) -> Self {
        Self { store, ..self }
    }

    /// The device that it runs on.
    pub fn device(&self) -> &'a dyn Device {
        self.device
    }

    /// From now on a compilation is an error.
    pub fn seal(&mut self) {
        self.sealed = true;
        self.loaded.iter_mut().for_each(|loaded| loaded.last = None); // sizes are rounded otherwise from now on
    }

    /// What was done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The sizes that a symbol is rounded up to; none, if each size is compiled for itself.
    pub fn buckets(&self, program: Program, symbol: &str) -> &[i64] {
        self.loaded[program.0].buckets.get(symbol).map_or(&[], Vec::as_slice)
    }

    /// What was found out about products.
    pub fn tuned(&self) -> &Tuned {
        &self.tuned
    }

    /// Keeps a tensor under a name: every run of every program reads it where it is given no other. Gives back the one
    /// that had the name.
    pub fn keep(&mut self, name: &str, tensor: DeviceTensor) -> Option<DeviceTensor> {
        self.kept.insert(name.to_owned(), tensor)
    }

    /// A tensor that is kept; `None` if none has the name.
    pub fn kept(&self, name: &str) -> Option<&DeviceTensor> {
        self.kept.get(name)
    }

    /// Gives a tensor back; `None` if none has the name.
    pub fn release(&mut self, name: &str) -> Option<DeviceTensor> {
        self.kept.remove(name)
    }
}

/// What a plan launches.
#[derive(Clone, Copy)]
struct Launches {
    all: usize,
    programs: usize, // different ones
    dequantized: usize,
}
