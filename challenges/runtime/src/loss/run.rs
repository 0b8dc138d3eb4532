//! Running a plan: chunk by chunk, each compiled by challenge C, in one session.
//!
//! The rows of a chunk are copied side by side, so that a chunk may be any rows; what it computes lies in one arena
//! that all chunks share, and the gradient of the weight is added to in its own place. So above inputs and returned
//! gradients there are: the arena, the chunk's rows, and two numbers for each row.
//!
//! **Chunk lengths are padded to buckets** of which there are 32 an octave ([`buckets`]), so the lengths that a
//! training run meets, whose batches differ in how many rows count, are compiled once, and a chunk computes at most a
//! thirty-second more rows than it has. The seeds and the loss, from the values of all rows, are programs of the same
//! session. A budget of bytes is answered by the forecast of what is compiled: the first chunk is compiled for as many
//! rows as its logits allow, and what the forecast says there holds for every other number of rows.

mod check;
mod error;
mod rows;

use std::collections::BTreeMap;

use compiler::compile::{Level, Options};
use compiler::session::{DeviceTensor, Io, NoDequantizer, Program, Session, Settings};
use kernels::{Buffer, Device};
use reference::graph::{Dim, Graph, Type};

use super::groups::{Groups, OF_WHOLE, ROWS_OF_CHUNK};
use super::plan::{ChunkPlan, Graphs, Passes};
use super::problem::{LARGEST, ROWS, is_of_rows};
use super::{Chunked, Cost, Problem};
use compiler::Compile;

pub use check::{NOT_ASKED, ONLY_SEEDS};
pub use error::Error;
use rows::{Made, gather, put, row_bytes};

/// How large chunks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// At most so many rows.
    Rows(usize),
    /// At most so many bytes above inputs and returned gradients.
    Bytes(usize),
}

/// The hidden states.
#[derive(Debug)]
pub enum Hidden<'a> {
    /// To be read: their gradient gets memory of its own.
    Borrowed(&'a Buffer),
    /// To be used up: their gradient takes over their memory.
    Donated(Buffer),
}

/// What a run works on.
#[derive(Debug)]
pub struct Job<'a> {
    /// (N, H) in the problem's type.
    pub hidden: Hidden<'a>,
    /// `weight`, `bias`, and what the loss asks for.
    pub given: &'a BTreeMap<String, DeviceTensor>,
    /// Which rows count.
    pub counts: &'a [bool],
    /// What is upstream, for each number of the loss; 1 if `None`.
    pub upstream: Option<&'a [f32]>,
    /// How large chunks are.
    pub size: Size,
    /// Gradients of weight and bias so far, in the problem's `accumulate_dtype`, to be added to.
    pub so_far: BTreeMap<String, Buffer>,
}

/// What a run gives.
#[derive(Debug)]
pub struct Results {
    /// The loss: one number, or one for each row.
    pub loss: Vec<f32>,
    /// What was computed of each row by itself; 0 of a row that does not count.
    pub values: BTreeMap<String, Vec<f32>>,
    /// `hidden.grad` in the problem's type, `weight.grad` and `bias.grad` in its `accumulate_dtype`, as far as they
    /// are trained.
    pub gradients: BTreeMap<String, Buffer>,
    /// The rows of each chunk, in order.
    pub chunks: Vec<usize>,
}

impl Results {
    /// Bytes of the gradients.
    pub fn gradient_bytes(&self) -> usize {
        self.gradients.values().map(Buffer::bytes).sum()
    }
}

/// A problem on a device. What is compiled for a chunk's length is kept from run to run.
pub struct Runner<'a> {
    attempt: &'a dyn Chunked,
    problem: &'a Problem,
    session: Session<'a>,
    loaded: Vec<(Graph, Program)>,
    staged: BTreeMap<String, DeviceTensor>,
    graphs: Option<Read>,
}

/// An attempt's graphs, read once.
struct Read {
    anywhere: Graphs,
    by_groups: Option<(Groups, Graphs)>,
}

impl<'a> Runner<'a> {
    /// Nothing is compiled yet.
    pub fn new(
        device: &'a dyn Device,
        passes: &'a dyn Compile,
        attempt: &'a dyn Chunked,
        problem: &'a Problem,
    ) -> Self {
        let buckets = BTreeMap::from([(ROWS.into(), buckets())]);
        let settings = Settings { options: Some(options()), buckets, donate: true, ..Settings::default() };
        let session = Session::new(passes, device, &NoDequantizer, settings);
        Self { attempt, problem, session, loaded: Vec::new(), staged: BTreeMap::new(), graphs: None }
    }

    /// The session of its graphs, to be counted, or sealed when every length has been met.
    pub fn session(&mut self) -> &mut Session<'a> {
        &mut self.session
    }

    /// The bytes above inputs and returned gradients during each part of a chunk's work, for `rows` in all: of a chunk
    /// of n rows those of its bucket. What a device keeps for good beside its programs is not among them.
    ///
    /// # Errors
    /// If a graph is not sound or does not compile.
    pub fn costs(&mut self, size: Size, rows: usize) -> Result<Vec<Cost>, Error> {
        let (_, graphs) = self.fitting(size, rows)?;
        self.costs_of(&graphs, size, rows)
    }

    /// The graphs that a batch runs: for chunks that split no group of rows, and the groups, where these spare a pass
    /// and the longest fits in a chunk. Which rows count makes no difference to the answer, so no batch asks for other
    /// graphs than the last.
    fn fitting(&mut self, size: Size, rows: usize) -> Result<(Option<Groups>, Graphs), Error> {
        let Read { anywhere, by_groups } = self.graphs()?;
        let anywhere = anywhere.clone();
        let Some((groups, by_groups)) = by_groups.clone() else { return Ok((None, anywhere)) };
        let longest = groups.longest();
        let fits = match size {
            Size::Rows(most) => longest <= most,
            Size::Bytes(budget) => {
                highest(&self.costs_of(&by_groups, size, rows)?, bucket(longest)) <= budget
            }
        };
        Ok(if fits { (Some(groups), by_groups) } else { (None, anywhere) })
    }

    /// The attempt's graphs. They are asked for once: a problem has the same ones for every batch.
    fn graphs(&mut self) -> Result<&Read, Error> {
        let read = if let Some(read) = self.graphs.take() {
            read
        } else {
            let anywhere = Graphs::new(self.attempt, self.problem).map_err(Error::Graph)?;
            let by_groups = anywhere.by_groups(self.problem).map_err(Error::Graph)?;
            Read { anywhere, by_groups }
        };
        Ok(self.graphs.insert(read))
    }

    /// The bytes of some graphs.
    fn costs_of(&mut self, graphs: &Graphs, size: Size, rows: usize) -> Result<Vec<Cost>, Error> {
        let mut costs = Vec::new();
        for graph in graphs.of_chunks() {
            let likely = BTreeMap::from([(ROWS.into(), likely(graph, size, rows) as i64)]);
            let program = self.program(graph)?;
            let profile = self.session.memory_profile(program, &likely).map_err(Error::Session)?;
            costs.extend(profile.steps.iter().map(|step| cost(&step.alive)));
        }
        let staged: BTreeMap<&str, &Type> = graphs.of_chunks().flat_map(rows_of).collect();
        let staged: usize = staged.into_values().map(row_bytes).sum();
        let kept = rows * self.problem.loss.values().count() * kept(&graphs.passes);
        let all = |cost: Cost| Cost { fixed: cost.fixed + kept, row: cost.row + staged };
        Ok(costs.into_iter().map(all).collect())
    }

    /// The rows of a chunk, of `rows` in all. Of bytes, the attempt's choice, in more chunks if a bucket asks for it.
    ///
    /// # Errors
    /// As [`Self::costs`], and if one row is too much.
    pub fn size(&mut self, size: Size, rows: usize) -> Result<usize, Error> {
        let budget = match size {
            Size::Rows(rows) => return Ok(rows),
            Size::Bytes(budget) => budget,
        };
        let costs = self.costs(size, rows)?;
        let highest = |n: usize| highest(&costs, n);
        let chosen = self.attempt.size(&costs, rows, budget);
        let chosen = chosen.ok_or_else(|| Error::Budget { budget, least: highest(1) })?;
        let mut chosen = chosen.clamp(1, rows.max(1)); // with more rows than there are a chunk has all of them
        let mut chunks = rows.div_ceil(chosen);
        while chosen > 1 && highest(chosen) <= budget && highest(bucket(chosen)) > budget {
            chunks += 1;
            chosen = rows.div_ceil(chunks).max(1);
        }
        Ok(chosen)
    }

    /// The attempt's plan; its chunks cut at groups where these spare a pass and fit.
    ///
    /// # Errors
    /// As [`Self::size`].
    pub fn plan(&mut self, counts: &[bool], size: Size) -> Result<ChunkPlan, Error> {
        let rows = counts.iter().filter(|counts| **counts).count().max(1);
        let most = self.size(size, rows)?;
        let chunks = self.attempt.cut(counts, most);
        check::chunks(&chunks, counts)?;
        match self.fitting(size, rows)? {
            (Some(groups), graphs) if groups.rows() == counts.len() => {
                Ok(ChunkPlan { chunks: groups.cut(chunks.concat(), most), graphs })
            }
            (Some(_), _) => Ok(ChunkPlan { chunks, graphs: self.graphs()?.anywhere.clone() }),
            (None, graphs) => Ok(ChunkPlan { chunks, graphs }),
        }
    }

    /// Runs a job.
    ///
    /// # Errors
    /// If an input is missing or does not fit, a label of a row that counts is outside the vocabulary, the attempt's
    /// chunks or graphs are not what they have to be, and what the session says.
    pub fn run(&mut self, job: Job<'_>) -> Result<Results, Error> {
        check::job(self.session.device(), self.problem, &job)?;
        let ChunkPlan { chunks, graphs } = self.plan(job.counts, job.size)?;
        if let Passes::Two(values) = &graphs.passes {
            check::inputs(self.problem, values, &job)?;
        }
        check::inputs(self.problem, &graphs.each, &job)?;
        check::outputs(self.problem, &graphs.each)?;
        check::seeds(self.problem, &graphs.seeds)?;
        let mut work = Work::new(self.session.device(), self.problem, job)?;
        self.passes(&graphs, &chunks, &mut work)?;
        let loss = self.all(&graphs.whole, &work)?.into_iter().next().map(|(_, loss)| loss);
        Ok(work.finish(&chunks, loss.unwrap_or_default()))
    }

    /// What is computed of each row by itself. The loss is not made, and what only it asks for need not be given. Where
    /// a run takes one pass, it is that pass whose values these are, to the bit. Donated hidden states are used up.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn values(&mut self, job: Job<'_>) -> Result<BTreeMap<String, Vec<f32>>, Error> {
        check::job(self.session.device(), self.problem, &job)?;
        let chunks = self.plan(job.counts, job.size)?.chunks;
        let Graphs { passes, each, .. } = self.graphs()?.anywhere.clone();
        let graph = if let Passes::Two(values) = &passes { values } else { &each };
        check::inputs(self.problem, graph, &job)?;
        let mut work = Work::new(self.session.device(), self.problem, job)?;
        let seeded = if let Passes::OneThenScale { value, .. } = &passes { value } else { "" };
        work.seeds = work.unit_seeds(self.problem, seeded);
        self.pass(graph, &chunks, &mut work)?;
        Ok(work.made.values)
    }

    /// All passes over the chunks, and the seeds when they can be known.
    fn passes(&mut self, graphs: &Graphs, chunks: &[Vec<usize>], work: &mut Work<'_>) -> Result<(), Error> {
        match &graphs.passes {
            Passes::One => {
                work.seeds = self.seeds(&graphs.seeds, work)?;
                self.pass(&graphs.each, chunks, work)
            }
            Passes::OneThenScale { value, scale } => {
                work.seeds = work.unit_seeds(self.problem, value);
                self.pass(&graphs.each, chunks, work)?;
                work.seeds = self.seeds(&graphs.seeds, work)?;
                work.scales = true;
                self.pass(scale, chunks, work)
            }
            Passes::OneByGroups(graph) => {
                check::whole(&graphs.seeds, self.problem, work.given, work.rows)?;
                work.of_upstream = work.upstream(self.session.device(), &graphs.seeds)?;
                self.pass(graph, chunks, work)
            }
            Passes::Two(values) => {
                self.pass(values, chunks, work)?;
                work.seeds = self.seeds(&graphs.seeds, work)?;
                self.pass(&graphs.each, chunks, work)
            }
        }
    }

    /// One pass over all chunks.
    fn pass(&mut self, graph: &Graph, chunks: &[Vec<usize>], work: &mut Work<'_>) -> Result<(), Error> {
        chunks.iter().try_for_each(|rows| self.chunk(graph, rows, work))
    }

    /// One pass over one chunk.
    fn chunk(&mut self, graph: &Graph, rows: &[usize], work: &mut Work<'_>) -> Result<(), Error> {
        let program = self.program(graph)?;
        let sizes = BTreeMap::from([(ROWS.into(), rows.len() as i64)]);
        let padded = self.session.rounded(program, &sizes).map_err(Error::Session)?[ROWS] as usize;
        let of_rows: Vec<(&str, &Type)> = rows_of(graph).collect();
        for (name, ty) in &of_rows {
            self.stage(name, ty, rows, padded, work)?;
        }
        let inputs = of_rows.iter().map(|(name, _)| (*name, &self.staged[*name])).collect();
        let Work { given, of_upstream, sums, made, .. } = work;
        let find = |name: &str| match name.strip_prefix(OF_WHOLE) {
            Some("upstream") => of_upstream.as_ref(),
            Some(name) => given.get(name),
            None => given.get(name),
        };
        let io = Io { sizes, ..lend(find, sums, graph, inputs)? };
        let outputs = self.session.run(program, io).map_err(Error::Session)?;
        made.take_all(rows, &outputs)
    }

    /// Copies a chunk's rows of an input side by side, into a tensor as long as its bucket.
    fn stage(
        &mut self,
        name: &str,
        ty: &Type,
        rows: &[usize],
        padded: usize,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let (device, bytes) = (self.session.device(), row_bytes(ty));
        let to = staged(device, &mut self.staged, name, ty, padded)?;
        if let Some(seeds) = name.strip_prefix("seed.").and_then(|name| work.seeds.get(name)) {
            let numbers: Vec<u8> = rows.iter().flat_map(|row| seeds[*row].to_ne_bytes()).collect();
            return put(device, &mut to.buffer, &numbers);
        }
        if name == ROWS_OF_CHUNK {
            let numbers: Vec<u8> = rows.iter().flat_map(|row| (*row as i32).to_ne_bytes()).collect();
            return put(device, &mut to.buffer, &numbers);
        }
        let missing = || Error::Missing { name: name.to_owned() };
        let from = match name {
            "hidden" => work.made.hidden.buffer(),
            "unscaled" if work.scales => {
                work.made.of_hidden.as_ref().unwrap_or_else(|| work.made.hidden.buffer())
            }
            name => &work.given.get(name).ok_or_else(missing)?.buffer,
        };
        gather(device, from, bytes, rows, &mut to.buffer)
    }

    /// The gradient of the loss with respect to each row's values.
    fn seeds(&mut self, graph: &Graph, work: &Work<'_>) -> Result<BTreeMap<String, Vec<f32>>, Error> {
        let found = self.all(graph, work)?;
        let of = |name: &str| name.strip_prefix("seed.").unwrap_or(name).to_owned();
        let seeds: BTreeMap<String, Vec<f32>> =
            found.into_iter().map(|(name, seeds)| (of(&name), seeds)).collect();
        for name in self.problem.loss.values() {
            check::seed(name, seeds.get(name), work.rows)?;
        }
        Ok(seeds)
    }

    /// The outputs of a graph over all rows, by name and in order.
    fn all(&mut self, graph: &Graph, work: &Work<'_>) -> Result<Vec<(String, Vec<f32>)>, Error> {
        let program = self.program(graph)?;
        let own = work.own_inputs(self.session.device(), graph)?;
        let mut io = Io::default();
        for (name, id) in graph.inputs() {
            let given = own.get(name).or_else(|| work.given.get(name));
            let given = given.ok_or_else(|| Error::Missing { name: name.to_owned() })?;
            check::fits(given, name, graph.ty(id), work.rows)?;
            io.inputs.insert(name, given);
        }
        if graph.known().contains_key(ROWS) {
            io.sizes.insert(ROWS.into(), work.rows as i64);
        }
        let outputs = self.session.run(program, io).map_err(Error::Session)?;
        let read = |(name, _): &(String, _)| {
            let floats =
                |bytes: &[u8]| bytes.as_chunks().0.iter().map(|four| f32::from_ne_bytes(*four)).collect();
            Ok((name.clone(), outputs.read(name, floats).map_err(Error::Session)?))
        };
        graph.outputs().iter().map(read).collect()
    }

    /// A graph in the session; the same one is loaded once.
    fn program(&mut self, graph: &Graph) -> Result<Program, Error> {
        if let Some((_, program)) = self.loaded.iter().find(|(known, _)| known == graph) {
            return Ok(*program);
        }
        let program = self.session.load(graph).map_err(Error::Session)?;
        self.loaded.push((graph.clone(), program));
        Ok(program)
    }
}

/// Bytes of each row and each output of the loss that live through a run: its value, and its seed where a chunk does
/// not compute its own.
fn kept(passes: &Passes) -> usize {
    if matches!(passes, Passes::OneByGroups(_)) { 4 } else { 8 }
}

/// The most bytes that are alive at once for a chunk of so many rows.
fn highest(costs: &[Cost], rows: usize) -> usize {
    costs.iter().map(|cost| cost.of(rows)).max().unwrap_or(0)
}

/// How a chunk's graph is compiled. What chunks add up stays in its place. A chunk is forward and backward at once, and
/// nothing of it is kept for later: so there is nothing to be computed again.
pub fn options() -> Options {
    Options { donate: true, remat: false, ..Level::O2.options() }
}

/// The lengths that chunks are padded to: each up to 32, then 32 an octave.
pub fn buckets() -> Vec<i64> {
    let mut buckets = vec![1];
    while let Some(last) = buckets.last().copied().filter(|last| *last < LARGEST) {
        buckets.push(bucket(last as usize + 1) as i64);
    }
    buckets
}

/// The length that a chunk of so many rows is padded to.
pub fn bucket(rows: usize) -> usize {
    let octave = rows.saturating_sub(1).checked_ilog2().unwrap_or(0);
    rows.next_multiple_of(1 << octave.saturating_sub(5))
}

/// The rows for which a chunk is likely to be compiled: as many as its largest tensor allows.
fn likely(graph: &Graph, size: Size, rows: usize) -> usize {
    let of_rows = graph.nodes().iter().filter(|node| is_of_rows(&node.ty));
    let row = of_rows.map(|node| row_bytes(&node.ty)).max().unwrap_or(1).max(1);
    let most = match size {
        Size::Rows(most) => most,
        Size::Bytes(budget) => rows.div_ceil(rows.div_ceil((budget / row).max(1))),
    };
    most.clamp(1, rows.max(1))
}

/// A number of bytes as a function of the rows.
fn cost(bytes: &Dim) -> Cost {
    let at = |rows: i64| bytes.value(&BTreeMap::from([(ROWS.into(), rows)])).unwrap_or(0).max(0) as usize;
    Cost { fixed: at(0), row: at(1) - at(0) }
}

/// The inputs that belong to rows.
fn rows_of(graph: &Graph) -> impl Iterator<Item = (&str, &Type)> {
    let typed = graph.inputs().map(|(name, id)| (name, graph.ty(id)));
    typed.filter(|(_, ty)| is_of_rows(ty))
}

/// A tensor of exactly so many rows under a name.
fn staged<'b>(
    device: &dyn Device,
    all: &'b mut BTreeMap<String, DeviceTensor>,
    name: &str,
    ty: &Type,
    rows: usize,
) -> Result<&'b mut DeviceTensor, Error> {
    let bytes = row_bytes(ty) * rows;
    if all.get(name).is_none_or(|tensor| tensor.buffer.bytes() != bytes) {
        all.remove(name); // first, so that both are never there together
        let buffer = device.alloc("chunk", bytes).map_err(error::device)?;
        all.insert(name.to_owned(), DeviceTensor { shape: Vec::new(), buffer });
    }
    let tensor = all.get_mut(name).ok_or_else(|| Error::Missing { name: name.to_owned() })?;
    let rest = ty.shape[1..].iter().filter_map(Dim::as_fixed).map(|size| size as usize);
    tensor.shape = std::iter::once(rows).chain(rest).collect();
    Ok(tensor)
}

/// Adds what is whole for every chunk, and what chunks add up.
fn lend<'b>(
    find: impl Fn(&str) -> Option<&'b DeviceTensor>,
    sums: &'b mut BTreeMap<String, DeviceTensor>,
    graph: &'b Graph,
    mut inputs: BTreeMap<&'b str, &'b DeviceTensor>,
) -> Result<Io<'b>, Error> {
    for (name, _) in
        graph.inputs().filter(|(name, id)| !is_of_rows(graph.ty(*id)) && !sums.contains_key(*name))
    {
        let found = find(name).ok_or_else(|| Error::Missing { name: name.to_owned() })?;
        inputs.insert(name, found);
    }
    let asked = |(name, _): &(&String, &mut DeviceTensor)| graph.find_input(name).is_some();
    let donated = sums.iter_mut().filter(asked).map(|(name, tensor)| (name.as_str(), tensor)).collect();
    Ok(Io { inputs, donated, ..Io::default() })
}

/// What a run has made so far.
struct Work<'a> {
    given: &'a BTreeMap<String, DeviceTensor>,
    upstream: Option<&'a [f32]>,
    rows: usize,
    of_upstream: Option<DeviceTensor>, // where chunks compute their seeds
    seeds: BTreeMap<String, Vec<f32>>,
    scales: bool, // gradients that are there: `unscaled` is no input of the loss's any more
    sums: BTreeMap<String, DeviceTensor>,
    made: Made<'a>,
}

impl<'a> Work<'a> {
    fn new(device: &'a dyn Device, problem: &Problem, job: Job<'a>) -> Result<Self, Error> {
        let mut so_far = job.so_far;
        let trained = [
            ("weight.grad", problem.trains.weight, vec![problem.vocab, problem.width]),
            ("bias.grad", problem.trains.bias && problem.bias, vec![problem.vocab]),
        ];
        let mut sums = BTreeMap::new();
        for (name, _, shape) in trained.into_iter().filter(|(_, trains, _)| *trains) {
            let bytes = shape.iter().product::<usize>() * problem.accumulate_dtype.bytes();
            let buffer = match so_far.remove(name) {
                None => device.alloc("gradient", bytes).map_err(error::device)?,
                Some(buffer) => check::so_far(name, buffer, bytes)?,
            };
            sums.insert(name.to_owned(), DeviceTensor { shape, buffer });
        }
        let made = Made::new(device, problem, job.hidden, job.counts)?;
        let (given, upstream, rows) = (job.given, job.upstream, job.counts.len());
        let (of_upstream, seeds) = (None, BTreeMap::new());
        Ok(Self { given, upstream, rows, of_upstream, seeds, scales: false, sums, made })
    }

    /// Seeds of 1 for one value, of 0 for the others.
    fn unit_seeds(&self, problem: &Problem, value: &str) -> BTreeMap<String, Vec<f32>> {
        let seed = |name: &str| f32::from(u8::from(name == value));
        problem.loss.values().map(|name| (name.to_owned(), vec![seed(name); self.rows])).collect()
    }

    /// What a graph over all rows asks for beside what is given: values of rows, and what is upstream.
    fn own_inputs(
        &self,
        device: &dyn Device,
        graph: &Graph,
    ) -> Result<BTreeMap<String, DeviceTensor>, Error> {
        let mut own = BTreeMap::new();
        for (name, id) in graph.inputs() {
            let numbers = match (name, self.made.values.get(name)) {
                ("upstream", _) => check::upstream(self.upstream, graph.ty(id), self.rows)?,
                (_, Some(values)) => values.clone(),
                (_, None) => continue,
            };
            own.insert(name.to_owned(), numbers_of(device, graph.ty(id), &numbers)?);
        }
        Ok(own)
    }

    /// What is upstream, if a graph asks for it.
    fn upstream(&self, device: &dyn Device, graph: &Graph) -> Result<Option<DeviceTensor>, Error> {
        let Some(id) = graph.find_input("upstream") else { return Ok(None) };
        let numbers = check::upstream(self.upstream, graph.ty(id), self.rows)?;
        numbers_of(device, graph.ty(id), &numbers).map(Some)
    }

    fn finish(self, chunks: &[Vec<usize>], loss: Vec<f32>) -> Results {
        let Made { hidden, of_hidden, values, .. } = self.made;
        let hidden = match (of_hidden, hidden) {
            (Some(own), _) => Some(own),
            (None, Hidden::Donated(buffer)) => Some(buffer),
            (None, Hidden::Borrowed(_)) => None,
        };
        let sums = self.sums.into_iter().map(|(name, tensor)| (name, tensor.buffer));
        let gradients = sums.chain(hidden.map(|buffer| ("hidden.grad".to_owned(), buffer))).collect();
        Results { loss, values, gradients, chunks: chunks.iter().map(Vec::len).collect() }
    }
}

/// One number or many, in a device's memory.
fn numbers_of(device: &dyn Device, ty: &Type, numbers: &[f32]) -> Result<DeviceTensor, Error> {
    let shape = if ty.rank() == 0 { vec![] } else { vec![numbers.len()] };
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    DeviceTensor::new(device, &shape, &bytes).map_err(error::device)
}

impl Hidden<'_> {
    fn buffer(&self) -> &Buffer {
        match self {
            Self::Borrowed(buffer) => buffer,
            Self::Donated(buffer) => buffer,
        }
    }
}
