//! Running a graph again and again, at any length.
//!
//! A graph with symbolic sizes is compiled when a size is first met, and not again: sizes are rounded up to buckets,
//! inputs are padded, results are cut to what they really are. All buckets share one arena, as large as the largest of
//! them needs. What is asked of a size is never more than what its facts say, and nothing is ever asked of a value.
//!
//! Everything that costs is counted. An executor that was [sealed](Executor::seal) compiles nothing any more: what would
//! have been a compilation in the middle of training is an error that names the size. There is no other way to run: what
//! cannot be compiled is an error, never a slower run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernels::plan::Step;
use kernels::{Buffer, Cpu, Device, DeviceError};
use reference::graph::{Dim, Graph, Id, Symbol};

use crate::compile::{self, Compiled, Dequantizer, Level, Options, Tuner, compile};
use crate::contract::Compile;
use crate::ir::sized;
use crate::rewrite::pad;
use crate::tune::{self, Tuned};

/// Numbers of some type in memory, row-major.
#[derive(Debug)]
pub struct Given {
    /// Dimensions.
    pub shape: Vec<usize>,
    /// The elements.
    pub buffer: Buffer,
}

/// How an executor compiles.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How much is done.
    pub level: Level,
    /// Passes, where they are not the level's.
    pub options: Option<Options>,
    /// Whether each size is compiled for itself instead of for its bucket.
    pub exact: bool,
    /// Where answers of tuning are kept.
    pub tuned: Option<PathBuf>,
    /// The largest arena in bytes, for every size, if there is a bound beyond that of the options.
    pub cap: Option<usize>,
}

/// What was done, and what it took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// Runs.
    pub runs: usize,
    /// Compilations.
    pub compilations: usize,
    /// Runs whose sizes were compiled already.
    pub hits: usize,
    /// What compilations took, tuning included.
    pub compiling: Duration,
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

/// Why a graph does not run.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Padding would change a result.
    Pad(pad::Error),
    /// It does not compile, or its run failed.
    Compile(compile::Error),
    /// The file of tuning.
    Tuned(tune::Error),
    /// An input is not given.
    Missing {
        /// Its name.
        name: String,
    },
    /// An input has other dimensions.
    Shape {
        /// Its name.
        name: String,
        /// The dimensions given.
        got: Vec<usize>,
        /// Those of the graph.
        need: String,
    },
    /// A size is not what is known of its symbol.
    Size {
        /// The symbol.
        symbol: Symbol,
        /// Its size.
        got: i64,
        /// What is known.
        need: String,
    },
    /// The buckets of a symbol leave a size out, or go beyond what is known of it.
    Buckets {
        /// The symbol.
        symbol: Symbol,
        /// The size.
        size: i64,
        /// The buckets.
        buckets: Vec<i64>,
    },
    /// It would have to be compiled again, and it is sealed.
    Sealed {
        /// The sizes.
        sizes: String,
        /// Those that are compiled.
        compiled: Vec<String>,
    },
}

/// A graph that runs at any length.
pub struct Executor<'a> {
    passes: &'a dyn Compile,
    device: &'a Cpu,
    settings: Settings,
    graph: Graph,
    padded: Graph,
    buckets: BTreeMap<Symbol, Vec<i64>>,
    compiled: BTreeMap<Vec<i64>, Arc<Compiled>>, // by the size of each symbol, in their order
    arena: Option<Buffer>,
    tuned: Tuned,
    counters: Counters,
    sealed: bool,
}

impl Settings {
    /// The passes, under the tighter of both caps.
    fn passes(&self) -> Options {
        let options = self.options.unwrap_or(self.level.options());
        Options { cap: options.cap.into_iter().chain(self.cap).min(), carry: false, ..options }
    }
}

impl<'a> Executor<'a> {
    /// One that has compiled nothing yet.
    ///
    /// Fails where a symbol cannot be padded, or its buckets are not what they have to be.
    pub fn new(
        passes: &'a dyn Compile,
        device: &'a Cpu,
        graph: &Graph,
        settings: Settings,
    ) -> Result<Self, Error> {
        let symbols: Vec<Symbol> = if settings.exact { Vec::new() } else { symbols(graph) };
        let padded = pad::pad(graph, &symbols).map_err(Error::Pad)?.graph;
        let tuned = settings.tuned.as_deref().map(Tuned::read).unwrap_or_default();
        let mut buckets = BTreeMap::new();
        for symbol in symbols {
            let facts = graph.known().get(&symbol).copied();
            let chosen = facts.map_or_else(Vec::new, |facts| passes.buckets(facts));
            check(&symbol, facts, &chosen)?;
            buckets.insert(symbol, chosen);
        }
        Ok(Self {
            passes,
            device,
            settings,
            graph: graph.clone(),
            padded,
            buckets,
            compiled: BTreeMap::new(),
            arena: None,
            tuned,
            counters: Counters::default(),
            sealed: false,
        })
    }

    /// From now on a compilation is an error.
    pub fn seal(&mut self) {
        self.sealed = true;
    }

    /// What was done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The sizes that a symbol is rounded up to; none, if each size is compiled for itself.
    pub fn buckets(&self, symbol: &str) -> &[i64] {
        self.buckets.get(symbol).map_or(&[], Vec::as_slice)
    }

    /// What is compiled for the sizes of some inputs; compiles it, if need be.
    pub fn compiled(&mut self, inputs: &BTreeMap<String, Given>) -> Result<Arc<Compiled>, Error> {
        let sizes = self.sizes(inputs)?;
        let rounded = self.rounded(&sizes)?;
        self.at(&rounded)
    }

    /// What was found out about products.
    pub fn tuned(&self) -> &Tuned {
        &self.tuned
    }

    /// The outputs for some inputs, by name.
    pub fn run(
        &mut self,
        inputs: &BTreeMap<String, Given>,
        dequantizer: &dyn Dequantizer,
    ) -> Result<BTreeMap<String, Given>, Error> {
        let sizes = self.sizes(inputs)?;
        let rounded = self.rounded(&sizes)?;
        let compiled = self.at(&rounded)?;
        let staged = self.stage(inputs, &sizes, &rounded)?;
        let all: BTreeMap<&str, &Buffer> = inputs
            .iter()
            .map(|(name, given)| (name.as_str(), &given.buffer))
            .chain(staged.iter().map(|(name, buffer)| (name.as_str(), buffer)))
            .collect();
        let arena = arena(self.device, &mut self.arena, compiled.arena.bytes).map_err(device)?;
        compiled.run(self.device, arena, &all, dequantizer).map_err(Error::Compile)?;
        self.counters.count(&compiled);
        self.counters.arena_bytes = arena.bytes();
        let outputs = self.graph.outputs().iter().map(|(name, id)| {
            let port = compiled.outputs().iter().find(|port| port.name == *name);
            let bytes = compiled.output(name, arena, &all);
            let (port, bytes) = port.zip(bytes).ok_or_else(|| lost(name))?;
            let shape = sized(&self.graph, *id, &sizes)?;
            let narrow = pad::narrow(bytes, port.dtype.bytes(), &shape, &port.shape);
            Ok((name.clone(), Given::new(self.device, &shape, &narrow).map_err(device)?))
        });
        outputs.collect()
    }

    /// The size of each symbol, as the inputs have them.
    fn sizes(&self, inputs: &BTreeMap<String, Given>) -> Result<BTreeMap<Symbol, i64>, Error> {
        let mut sizes = BTreeMap::new();
        for (name, id) in self.graph.inputs() {
            let given = inputs.get(name).ok_or_else(|| Error::Missing { name: name.to_owned() })?;
            for (dim, size) in self.graph.ty(id).shape.iter().zip(&given.shape) {
                if let Some(symbol) = dim.as_symbol() {
                    sizes.entry(symbol.clone()).or_insert(*size as i64);
                }
            }
        }
        for (symbol, size) in &sizes {
            let facts = self.graph.known().get(symbol);
            if let Some(facts) = facts.filter(|facts| !facts.hold(*size)) {
                return Err(Error::Size { symbol: symbol.clone(), got: *size, need: facts.to_string() });
            }
        }
        for (name, id) in self.graph.inputs() {
            let (ty, given) = (self.graph.ty(id), &inputs[name]);
            let fits = ty.shape.len() == given.shape.len() && sized(&self.graph, id, &sizes)? == given.shape;
            let bytes = given.shape.iter().product::<usize>() * ty.dtype.bytes();
            if !fits || given.buffer.bytes() != bytes {
                let (name, got, need) = (name.to_owned(), given.shape.clone(), ty.to_string());
                return Err(Error::Shape { name, got, need });
            }
        }
        Ok(sizes)
    }

    /// Each size rounded up to its bucket.
    fn rounded(&self, sizes: &BTreeMap<Symbol, i64>) -> Result<BTreeMap<Symbol, i64>, Error> {
        let round = |(symbol, size): (&Symbol, &i64)| {
            let Some(buckets) = self.buckets.get(symbol) else { return Ok((symbol.clone(), *size)) };
            let bucket = buckets.iter().find(|bucket| *bucket >= size);
            let (symbol, buckets) = (symbol.clone(), buckets.clone());
            match bucket {
                Some(bucket) => Ok((symbol, *bucket)),
                None => Err(Error::Buckets { symbol, size: *size, buckets }),
            }
        };
        sizes.iter().map(round).collect()
    }

    fn at(&mut self, sizes: &BTreeMap<Symbol, i64>) -> Result<Arc<Compiled>, Error> {
        let key: Vec<i64> = sizes.values().copied().collect();
        if let Some(compiled) = self.compiled.get(&key) {
            self.counters.hits += 1;
            return Ok(compiled.clone());
        }
        if self.sealed {
            let names: Vec<&Symbol> = sizes.keys().collect();
            let compiled = self.compiled.keys().map(|key| listed(&names, key)).collect();
            return Err(Error::Sealed { sizes: listed(&names, &key), compiled });
        }
        let start = Instant::now();
        let options = self.settings.passes();
        let tuner =
            self.settings.level.tunes().then_some(Tuner { device: self.device, tuned: &mut self.tuned });
        let compiled = compile(self.passes, &self.padded, sizes, options, tuner).map_err(Error::Compile)?;
        if let Some(path) = &self.settings.tuned {
            self.tuned.write(path).map_err(Error::Tuned)?;
        }
        let compiled = Arc::new(compiled);
        self.counters.compilations += 1;
        self.counters.compiling += start.elapsed();
        (self.counters.trials, self.counters.tuning) = (self.tuned.trials, self.tuned.time);
        self.compiled.insert(key, compiled.clone());
        Ok(compiled)
    }

    /// The inputs that have to be padded, and the real sizes for the graph to know.
    fn stage(
        &self,
        inputs: &BTreeMap<String, Given>,
        sizes: &BTreeMap<Symbol, i64>,
        rounded: &BTreeMap<Symbol, i64>,
    ) -> Result<BTreeMap<String, Buffer>, Error> {
        let mut staged = BTreeMap::new();
        let given = |shape: &[usize], bytes: &[u8]| Given::new(self.device, shape, bytes).map_err(device);
        for (name, id) in self.graph.inputs() {
            let (real, padded) = (sized(&self.graph, id, sizes)?, sized(&self.graph, id, rounded)?);
            if real != padded {
                let element = self.graph.ty(id).dtype.bytes();
                let wide = pad::widen(inputs[name].buffer.view::<u8>(), element, &real, &padded);
                staged.insert(name.to_owned(), given(&padded, &wide)?.buffer);
            }
        }
        for symbol in self.buckets.keys() {
            let need = format!("at most {}, what an i32 holds", i32::MAX);
            let size = sizes[symbol];
            let size =
                i32::try_from(size).map_err(|_| Error::Size { symbol: symbol.clone(), got: size, need })?;
            staged.insert(pad::length_name(symbol), given(&[], &size.to_ne_bytes())?.buffer);
        }
        Ok(staged)
    }
}

impl Given {
    /// Elements in a device's memory.
    pub fn new(device: &Cpu, shape: &[usize], bytes: &[u8]) -> Result<Self, DeviceError> {
        let mut buffer = device.alloc("tensor", bytes.len())?;
        device.upload(&mut buffer, bytes)?;
        Ok(Self { shape: shape.to_vec(), buffer })
    }
}

impl Counters {
    fn count(&mut self, compiled: &Compiled) {
        let steps = &compiled.plan().steps;
        let programs: BTreeSet<usize> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Pass { program, .. } => Some(Arc::as_ptr(program) as usize),
                _ => None,
            })
            .collect();
        self.runs += 1;
        self.launches = steps.len();
        self.programs = programs.len();
        self.dequantized = steps.iter().filter(|step| matches!(step, Step::Call { .. })).count();
    }
}

/// The arena, larger if it has to be.
fn arena<'b>(
    device: &Cpu,
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

fn device(error: DeviceError) -> Error {
    Error::Compile(compile::Error::Device(error))
}

/// The symbols that some input has as a dimension.
fn symbols(graph: &Graph) -> Vec<Symbol> {
    let dims = graph.inputs().flat_map(|(_, id)| &graph.ty(id).shape);
    let symbols: BTreeSet<Symbol> = dims.filter_map(Dim::as_symbol).cloned().collect();
    symbols.into_iter().collect()
}

/// A node's dimensions in numbers.
fn sized(graph: &Graph, id: Id, sizes: &BTreeMap<Symbol, i64>) -> Result<Vec<usize>, Error> {
    sized::shape(graph, id, sizes).map_err(|error| Error::Compile(compile::Error::Graph(error)))
}

/// That a compiled graph lacks an output.
fn lost(name: &str) -> Error {
    Error::Compile(compile::Error::Internal { what: format!("the output `{name}` is nowhere") })
}

/// That buckets grow, keep to the facts, and leave nothing out.
fn check(symbol: &Symbol, facts: Option<reference::graph::Facts>, buckets: &[i64]) -> Result<(), Error> {
    let Some(facts) = facts else { return Ok(()) };
    let wrong = |size: i64| Error::Buckets { symbol: symbol.clone(), size, buckets: buckets.to_vec() };
    if let Some(size) = buckets.iter().find(|size| !facts.hold(**size)) {
        return Err(wrong(*size));
    }
    if let Some(pair) = buckets.windows(2).find(|pair| pair[0] >= pair[1]) {
        return Err(wrong(pair[1]));
    }
    let largest = facts.max / facts.multiple.max(1) * facts.multiple.max(1);
    if buckets.last() == Some(&largest) { Ok(()) } else { Err(wrong(largest)) }
}

fn listed(names: &[&Symbol], sizes: &[i64]) -> String {
    let one = |(name, size): (&&Symbol, &i64)| format!("{name} = {size}");
    names.iter().zip(sizes).map(one).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Pad(error) => error.fmt(f),
            Error::Compile(error) => error.fmt(f),
            Error::Tuned(error) => error.fmt(f),
            Error::Missing { name } => write!(f, "input `{name}` is not given"),
            Error::Shape { name, got, need } => {
                write!(f, "input `{name}` has the shape {got:?}, needed is {need}")
            }
            Error::Size { symbol, got, need } => write!(f, "{symbol} is {got}, needed is {need}"),
            Error::Buckets { symbol, size, buckets } => {
                write!(
                    f,
                    "the buckets {buckets:?} of {symbol} are not fit for {size}: needed are growing sizes within "
                )?;
                write!(f, "what is known of it, up to the largest")
            }
            Error::Sealed { sizes, compiled } => {
                write!(f, "{sizes} would have to be compiled, and nothing is compiled any more; there is ")?;
                write!(
                    f,
                    "{}: warm up with this size, or let its bucket be one of these",
                    compiled.join("; ")
                )
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Pad(error) => Some(error),
            Error::Compile(error) => Some(error),
            Error::Tuned(error) => Some(error),
            _ => None,
        }
    }
}
