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
mod outputs;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernels::callee::HostCallee;
use kernels::plan::Step;
use kernels::{Buffer, Callee, Device, DeviceError, Executable, Links, Memories, Watch};
use reference::graph::{Dim, Facts, Graph, Id, Symbol};

use crate::compile::{self, Compiled, Level, Options, compile};
use crate::contract::Compile;
use crate::groups::{Collectives, Groups, sizes_of_groups};
use crate::ir::sized;
use crate::memory::profile::MemoryProfile;
use crate::rewrite::pad;
use crate::store::{Found, Store};
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

    /// Takes a graph to be run later. Nothing is compiled yet.
    ///
    /// # Errors
    /// Where a symbol cannot be padded, or its buckets are not what they have to be.
    pub fn load(&mut self, graph: &Graph) -> Result<Program, Error> {
        let symbols: Vec<Symbol> = if self.settings.exact { Vec::new() } else { symbols(graph) };
        let collectives = Collectives::of(graph, &symbols);
        let padded = Arc::new(pad::pad(graph, &symbols).map_err(Error::Pad)?.graph);
        let buckets = symbols.into_iter().map(|symbol| self.chosen(graph, symbol));
        let buckets = buckets.collect::<Result<_, _>>()?;
        let (ready, staged) = (BTreeMap::new(), BTreeMap::new());
        let fixed = Sizes::new();
        let graph = graph.clone();
        self.loaded.push(Loaded { graph, padded, buckets, collectives, fixed, ready, staged, last: None });
        Ok(Program(self.loaded.len() - 1))
    }

    /// Takes what is compiled already, to be run at the sizes that it was compiled for.
    ///
    /// # Errors
    /// What the device says of the plan.
    pub fn load_compiled(&mut self, compiled: Compiled) -> Result<Program, Error> {
        let graph = compiled.graph.clone();
        let fixed = compiled.sizes().clone();
        let (key, ready) = (fixed.values().copied().collect(), self.ready(Arc::new(compiled))?);
        let (buckets, staged) = (BTreeMap::new(), BTreeMap::new());
        let padded = Arc::new(graph.clone());
        let ready = BTreeMap::from([(key, ready)]);
        let collectives = Collectives::of(&graph, &[]);
        self.loaded.push(Loaded { graph, padded, buckets, collectives, fixed, ready, staged, last: None });
        Ok(Program(self.loaded.len() - 1))
    }

    /// A plan with its callee and its groups, on the device.
    fn ready(&self, compiled: Arc<Compiled>) -> Result<Ready<'a>, Error> {
        let groups = self.groups.links(compiled.axes()).map_err(Error::Groups)?;
        let ranks: Vec<usize> = groups.iter().skip(1).map(|group| group.rank()).collect();
        let links = Links { callees: &[self.dequantizer], groups: &groups };
        let executable = self.device.prepare(compiled.plan_on_rank(&ranks), &links).map_err(Error::Device)?;
        let launches = Launches::of(&compiled);
        Ok(Ready { compiled, executable, launches })
    }

    /// The sizes that a symbol is rounded up to.
    fn chosen(&self, graph: &Graph, symbol: Symbol) -> Result<(Symbol, Vec<i64>), Error> {
        let facts = graph.known().get(&symbol).copied();
        if let Some(buckets) = self.settings.buckets.get(&symbol) {
            return Ok((symbol, buckets.clone()));
        }
        let chosen = facts.map_or_else(Vec::new, |facts| self.passes.buckets(facts));
        check(&symbol, facts, &chosen)?;
        Ok((symbol, chosen))
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

    /// What is compiled for the sizes of some inputs; compiles it, if need be.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn compiled(&mut self, program: Program, io: &Io<'_>) -> Result<Arc<Compiled>, Error> {
        let resolved = self.sized(program, io)?;
        Ok(self.loaded[program.0].ready[&resolved.key].compiled.clone())
    }

    /// Compiles and prepares a program for the sizes of some symbols, if need be, before a run has them. Ranks prepare
    /// what they do together at the same time: one that will not run these sizes calls this where another one does.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn prepare_for(&mut self, program: Program, sizes: &BTreeMap<Symbol, i64>) -> Result<(), Error> {
        let mut all = self.loaded[program.0].fixed.clone();
        all.extend(sizes.clone());
        self.loaded[program.0].collectives.bind(&self.groups, &mut all).map_err(Error::Groups)?;
        let rounded = self.rounded(program, &all)?;
        let message = self.others(program);
        self.ensure_ready(program, &rounded)
            .map(|_| ())
            .inspect_err(|error| message.abort(&error.to_string()))
    }

    /// What is compiled of a program so far, by the sizes of its symbols.
    pub fn all_compiled(&self, program: Program) -> impl Iterator<Item = &Arc<Compiled>> {
        self.loaded[program.0].ready.values().map(|ready| &ready.compiled)
    }

    /// Bytes beside the arena and its tensors that runs with these sizes need of the device.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn scratch_bytes(&mut self, program: Program, io: &Io<'_>) -> Result<usize, Error> {
        let resolved = self.sized(program, io)?;
        Ok(self.loaded[program.0].ready[&resolved.key].executable.scratch_bytes())
    }

    /// The bytes alive during each step of a program, at any size: read from whatever is compiled of it. If nothing
    /// is, it is compiled for `sizes`.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn memory_profile(
        &mut self,
        program: Program,
        sizes: &BTreeMap<Symbol, i64>,
    ) -> Result<MemoryProfile, Error> {
        if self.loaded[program.0].ready.is_empty() {
            let rounded = self.rounded(program, sizes)?;
            self.ensure_ready(program, &rounded)?;
        }
        let compiled = self.all_compiled(program).next();
        Ok(compiled.map(|compiled| compiled.memory_profile()).unwrap_or_default())
    }

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
    fn others(&self, program: Program) -> Groups {
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

    /// How long each step of a run took.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn profile<'r>(
        &'r mut self,
        program: Program,
        io: impl Into<Io<'r>>,
    ) -> Result<Vec<Duration>, Error> {
        let (mut before, mut times) = (self.device.clock(), Vec::new());
        let mut watch = |_: usize, now: Duration| {
            times.push(now.saturating_sub(before));
            before = now;
        };
        self.watched(program, io, Some(&mut watch))?;
        Ok(times)
    }

    /// Where the outputs are found.
    fn outputs<'r>(
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

    /// The size of each symbol, the size that is compiled, and what is. A rank that has none tells the others.
    fn sized(&mut self, program: Program, io: &Io<'_>) -> Result<Arc<Resolved>, Error> {
        let message = self.others(program);
        let sized = self.as_before(program, io).map_or_else(|| self.resolve(program, io).map(Arc::new), Ok);
        let sized = sized.and_then(|resolved| {
            let collectives = &self.loaded[program.0].collectives;
            collectives.agree(&self.groups, &resolved.sizes).map_err(Error::Groups)?;
            self.counters.hits += usize::from(self.ensure_ready(program, &resolved.rounded)?);
            Ok(resolved)
        });
        sized.inspect_err(|error| message.abort(&error.to_string()))
    }

    /// What follows from the sizes of the run before, if this one has the same.
    fn as_before(&self, program: Program, io: &Io<'_>) -> Option<Arc<Resolved>> {
        let last = self.loaded[program.0].last.as_ref()?;
        let is_same = |given: &InputShape| {
            let found = self.input(&given.name, io);
            found.is_ok_and(|found| found.shape == given.shape && found.buffer.bytes() == given.bytes)
        };
        (last.given == io.sizes && last.inputs.iter().all(is_same)).then(|| Arc::clone(last))
    }

    /// The size of each symbol, and the size that is compiled: its bucket. Every input fits one of both.
    fn resolve(&self, program: Program, io: &Io<'_>) -> Result<Resolved, Error> {
        let sizes = self.sizes(program, io)?;
        let rounded = self.rounded(program, &sizes)?;
        let graph = &self.loaded[program.0].graph;
        let mut inputs = Vec::new();
        for (name, id) in graph.inputs() {
            let given = self.input(name, io)?;
            let is_compiled = shape(graph, id, &rounded).is_ok_and(|padded| padded == given.shape);
            let has_bucket = is_compiled && !io.sizes.is_empty();
            fits(graph, name, id, given, if has_bucket { &rounded } else { &sizes })?;
            let (name, shape, bytes) = (name.to_owned(), given.shape.clone(), given.buffer.bytes());
            inputs.push(InputShape { name, shape, bytes, is_padded: !is_compiled });
        }
        let outputs = graph.outputs().iter().map(|(name, id)| Ok((name.clone(), shape(graph, *id, &sizes)?)));
        let outputs = outputs.collect::<Result<_, Error>>()?;
        let key = rounded.values().copied().collect();
        Ok(Resolved { given: io.sizes.clone(), inputs, sizes, rounded, key, outputs })
    }

    /// The size of each symbol: as it is given, or else as the groups and the inputs have it.
    fn sizes(&self, program: Program, io: &Io<'_>) -> Result<Sizes, Error> {
        let Loaded { graph, collectives, fixed, .. } = &self.loaded[program.0];
        let mut sizes = fixed.clone();
        sizes.extend(io.sizes.clone());
        collectives.bind(&self.groups, &mut sizes).map_err(Error::Groups)?;
        for (name, id) in graph.inputs() {
            for (dim, size) in graph.ty(id).shape.iter().zip(&self.input(name, io)?.shape) {
                if let Some(symbol) = dim.as_symbol() {
                    sizes.entry(symbol.clone()).or_insert(*size as i64);
                }
            }
        }
        for (symbol, size) in &sizes {
            let facts = graph.known().get(symbol);
            if let Some(facts) = facts.filter(|facts| !facts.hold(*size)) {
                return Err(Error::Size { symbol: symbol.clone(), got: *size, need: facts.to_string() });
            }
        }
        Ok(sizes)
    }

    /// An input of a run, wherever it comes from.
    fn input<'b>(&'b self, name: &str, io: &'b Io<'_>) -> Result<&'b DeviceTensor, Error> {
        let donated = || io.donated.get(name).map(|tensor| &**tensor);
        let found = io.inputs.get(name).copied().or_else(donated).or_else(|| self.kept.get(name));
        found.ok_or_else(|| Error::Missing { name: name.to_owned() })
    }

    /// Compiles for these sizes, which are buckets, if need be; whether that was done already.
    fn ensure_ready(&mut self, program: Program, rounded: &Sizes) -> Result<bool, Error> {
        let key: Vec<i64> = rounded.values().copied().collect();
        let is_there = self.loaded[program.0].ready.contains_key(&key);
        if !is_there {
            let ready = self.prepare(program, rounded)?;
            self.loaded[program.0].ready.insert(key, ready);
        }
        Ok(is_there)
    }

    /// The sizes that a program is compiled for when its symbols have these, all of them: each rounded up to its
    /// bucket, or, once sealed, to what is compiled, if anything holds them.
    ///
    /// # Errors
    /// If a size is larger than every bucket.
    pub fn rounded(
        &self,
        program: Program,
        sizes: &BTreeMap<Symbol, i64>,
    ) -> Result<BTreeMap<Symbol, i64>, Error> {
        let round = |(symbol, size): (&Symbol, &i64)| {
            let Some(buckets) = self.loaded[program.0].buckets.get(symbol) else {
                return Ok((symbol.clone(), *size));
            };
            let (bucket, symbol) = (buckets.iter().find(|bucket| *bucket >= size), symbol.clone());
            match bucket {
                Some(bucket) => Ok((symbol, *bucket)),
                None => Err(Error::Buckets { symbol, size: *size, buckets: buckets.clone() }),
            }
        };
        let rounded: Sizes = sizes.iter().map(round).collect::<Result<_, _>>()?;
        let compiled = if self.sealed { self.compiled_for(program, &rounded) } else { None };
        Ok(compiled.unwrap_or(rounded))
    }

    /// The smallest sizes that are compiled and hold these: a symbol without buckets has to have its own size. `None`
    /// if none do.
    fn compiled_for(&self, program: Program, sizes: &Sizes) -> Option<Sizes> {
        let Loaded { ready, buckets, .. } = &self.loaded[program.0];
        let holds =
            |key: &&Vec<i64>| {
                let mut pairs = sizes.iter().zip(key.iter());
                key.len() == sizes.len()
                    && pairs.all(|((symbol, size), compiled)| {
                        if buckets.contains_key(symbol) { compiled >= size } else { compiled == size }
                    })
            };
        let waste = |key: &&Vec<i64>| key.iter().fold(1_i64, |all, size| all.saturating_mul(*size));
        let key = ready.keys().filter(holds).min_by_key(waste)?;
        Some(sizes.keys().cloned().zip(key.iter().copied()).collect())
    }

    /// Compiles, tunes and prepares a program for some sizes.
    fn prepare(&mut self, program: Program, sizes: &Sizes) -> Result<Ready<'a>, Error> {
        if self.sealed {
            let names: Vec<&Symbol> = sizes.keys().collect();
            let compiled = self.loaded[program.0].ready.keys().map(|key| listed(&names, key)).collect();
            let key: Vec<i64> = sizes.values().copied().collect();
            return Err(Error::Sealed { sizes: listed(&names, &key), compiled });
        }
        let start = Instant::now();
        let (padded, options) = (&self.loaded[program.0].padded, self.settings.passes(self.device));
        let found = self.store.get(padded, sizes, options, || compile(self.passes, padded, sizes, options));
        let Found { mut compiled, was_there } = found.map_err(Error::Compile)?;
        if self.settings.level.tunes() {
            let tuned = Arc::make_mut(&mut compiled);
            tuned.tune(self.passes, self.device, &mut self.tuned).map_err(Error::Device)?;
        }
        if let Some(path) = &self.settings.tuned {
            self.tuned.write(path).map_err(Error::Tuned)?;
        }
        let ready = self.ready(compiled)?;
        self.counters.compilations += usize::from(!was_there);
        self.counters.compiling += start.elapsed();
        (self.counters.trials, self.counters.tuning) = (self.tuned.trials, self.tuned.time);
        Ok(ready)
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

impl DeviceTensor {
    /// Elements in a device's memory.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn new(device: &dyn Device, shape: &[usize], bytes: &[u8]) -> Result<Self, DeviceError> {
        Self::tagged(device, "tensor", shape, bytes)
    }

    /// The same, counted as what they are for.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn tagged(
        device: &dyn Device,
        tag: &'static str,
        shape: &[usize],
        bytes: &[u8],
    ) -> Result<Self, DeviceError> {
        let mut buffer = device.alloc(tag, bytes.len())?;
        device.upload(&mut buffer, bytes)?;
        Ok(Self { shape: shape.to_vec(), buffer })
    }
}

impl<'a> From<&'a BTreeMap<String, DeviceTensor>> for Io<'a> {
    fn from(inputs: &'a BTreeMap<String, DeviceTensor>) -> Self {
        let inputs = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        Self { inputs, ..Self::default() }
    }
}

/// What a plan launches.
#[derive(Clone, Copy)]
struct Launches {
    all: usize,
    programs: usize, // different ones
    dequantized: usize,
}

impl Launches {
    fn of(compiled: &Compiled) -> Self {
        let steps = &compiled.plan().steps;
        let program = |step: &Step| match step {
            Step::Pass { program, .. } => Some(Arc::as_ptr(program) as usize),
            _ => None,
        };
        let programs: BTreeSet<usize> = steps.iter().filter_map(program).collect();
        let dequantized = steps.iter().filter(|step| matches!(step, Step::Call { .. })).count();
        Self { all: steps.len(), programs: programs.len(), dequantized }
    }
}

impl Resolved {
    /// Whether every input has the size that is compiled: nothing of it is copied.
    fn is_given_as_compiled(&self) -> bool {
        self.inputs.iter().all(|input| !input.is_padded)
    }
}

impl Counters {
    fn count(&mut self, launches: Launches) {
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

fn read(device: &dyn Device, buffer: &Buffer) -> Result<Vec<u8>, DeviceError> {
    let mut bytes = vec![0; buffer.bytes()];
    device.download(buffer, &mut bytes)?;
    Ok(bytes)
}

/// Whether an input has the dimensions and the bytes of its type.
fn fits(graph: &Graph, name: &str, id: Id, given: &DeviceTensor, sizes: &Sizes) -> Result<(), Error> {
    let ty = graph.ty(id);
    let bytes = given.shape.iter().product::<usize>() * ty.dtype.bytes();
    let is_shaped = ty.shape.len() == given.shape.len() && shape(graph, id, sizes)? == given.shape;
    if is_shaped && given.buffer.bytes() == bytes {
        return Ok(());
    }
    Err(Error::Shape { name: name.to_owned(), got: given.shape.clone(), need: ty.to_string() })
}

/// The symbols that some input has as a dimension, but for sizes of groups, which are what they are.
fn symbols(graph: &Graph) -> Vec<Symbol> {
    let dims = graph.inputs().flat_map(|(_, id)| &graph.ty(id).shape);
    let symbols: BTreeSet<&Symbol> = dims.filter_map(Dim::as_symbol).collect();
    symbols.difference(&sizes_of_groups(graph)).copied().cloned().collect()
}

/// A node's dimensions in numbers.
fn shape(graph: &Graph, id: Id, sizes: &Sizes) -> Result<Vec<usize>, Error> {
    sized::shape(graph, id, sizes).map_err(|error| Error::Compile(compile::Error::Graph(error)))
}

/// That buckets grow, keep to the facts, and leave nothing out.
fn check(symbol: &Symbol, facts: Option<Facts>, buckets: &[i64]) -> Result<(), Error> {
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
