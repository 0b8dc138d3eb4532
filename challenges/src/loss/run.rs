//! Running a plan: chunk by chunk, each compiled by challenge C.
//!
//! The rows of a chunk are copied side by side, so that a chunk may be any rows; what it computes lies in one arena
//! that all chunks share, and the gradient of the weight is added to in its own place. So above inputs and returned
//! gradients there are: the arena, the chunk's rows, and two numbers for each row.

use std::collections::BTreeMap;
use std::fmt;

use kernels::{Buffer, Cpu, Device, DeviceError, cpu};
use reference::graph::interpret::Values;
use reference::graph::{self, Array, Dim, Dtype, Graph, Type, interpret};

use super::plan::Plan;
use super::problem::{ROWS, is_of_rows};
use super::{Chunked, Cost, Problem};
use crate::graph::Compile;
use compiler::compile::{Compiled, Level, Options, compile};
use compiler::session::{self, DeviceTensor, Io, NoDequantizer, Outputs, Program, Session, Settings};

/// Why a plan does not run.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A graph is not sound.
    Graph(graph::Error),
    /// A graph does not compile, or its run failed.
    Session(session::Error),
    /// An input is not given.
    Missing {
        /// Its name.
        name: String,
    },
    /// An input or a result has another type.
    Shape {
        /// Its name.
        name: String,
        /// What there is.
        got: String,
        /// What is needed.
        need: String,
    },
    /// A row that counts has a label that is no entry of the vocabulary.
    Label {
        /// The row, from 0.
        row: usize,
        /// Its label.
        got: i32,
        /// The entries of the vocabulary.
        vocab: usize,
    },
    /// The chunks are not the rows that count, each once.
    Chunks {
        /// What is wrong.
        fault: String,
    },
    /// Even one row takes more than there is.
    Budget {
        /// Bytes that there are.
        budget: usize,
        /// Bytes that one row takes.
        least: usize,
    },
}

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
    Lent(&'a Buffer),
    /// To be used up: their gradient takes over their memory.
    Handed(Buffer),
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
    /// What is upstream, for each number of the loss; 1 if there is nothing.
    pub upstream: Option<&'a [f32]>,
    /// How large chunks are.
    pub size: Size,
    /// Gradients of weight and bias so far, in the type of the problem's sums, to be added to.
    pub so_far: BTreeMap<String, Buffer>,
}

/// What a run gives.
#[derive(Debug)]
pub struct Results {
    /// The loss: one number, or one for each row.
    pub loss: Vec<f32>,
    /// What was computed of each row by itself; 0 of a row that does not count.
    pub values: BTreeMap<String, Vec<f32>>,
    /// `hidden.grad` in the problem's type, `weight.grad` and `bias.grad` in that of its sums, as far as they are
    /// trained.
    pub gradients: BTreeMap<String, Buffer>,
    /// The rows of each chunk, in order.
    pub chunks: Vec<usize>,
}

/// A problem on a machine. What is compiled for a chunk's size is kept from run to run.
pub struct Runner<'a> {
    device: &'a Cpu,
    passes: &'a dyn Compile,
    attempt: &'a dyn Chunked,
    problem: &'a Problem,
    session: Session<'a>,
    loaded: Vec<(Graph, Program)>,
    staged: BTreeMap<String, DeviceTensor>,
}

impl<'a> Runner<'a> {
    /// Nothing is compiled yet.
    pub fn new(
        device: &'a Cpu,
        passes: &'a dyn Compile,
        attempt: &'a dyn Chunked,
        problem: &'a Problem,
    ) -> Self {
        let settings =
            Settings { options: Some(options()), exact: true, donate: true, ..Settings::default() };
        let session = Session::new(passes, device, &NoDequantizer, settings);
        Self { device, passes, attempt, problem, session, loaded: Vec::new(), staged: BTreeMap::new() }
    }

    /// The bytes above inputs and returned gradients during each part of a chunk's work, for `rows` in all.
    pub fn costs(&self, rows: usize) -> Result<Vec<Cost>, Error> {
        let plan = Plan::new(self.attempt, self.problem, &[true], 1).map_err(Error::Graph)?;
        let mut costs = Vec::new();
        for graph in plan.first.iter().chain([&plan.each]) {
            let compiled = self.compile(graph, PROBE)?;
            let scratch = cpu::pass_scratch(compiled.plan(), self.device.threads());
            let stairs = compiled.forecast().stairs;
            let of = |cost: Cost| Cost { fixed: cost.fixed + scratch, ..cost };
            costs.extend(stairs.iter().map(|stair| of(cost(&stair.alive))));
        }
        let staged: usize = rows_of(&plan.each).map(|(_, ty)| row_bytes(ty)).sum();
        let kept = rows * self.problem.loss.values().count() * KEPT;
        let all = |cost: Cost| Cost { fixed: cost.fixed + kept, row: cost.row + staged };
        Ok(costs.into_iter().map(all).collect())
    }

    /// The rows of a chunk.
    pub fn size(&self, size: Size, rows: usize) -> Result<usize, Error> {
        let budget = match size {
            Size::Rows(rows) => return Ok(rows),
            Size::Bytes(budget) => budget,
        };
        let costs = self.costs(rows)?;
        let least = || costs.iter().map(|cost| cost.of(1)).max().unwrap_or(0);
        self.attempt.size(&costs, rows, budget).ok_or_else(|| Error::Budget { budget, least: least() })
    }

    /// The attempt's plan.
    pub fn plan(&self, counts: &[bool], size: Size) -> Result<Plan, Error> {
        let rows = counts.iter().filter(|counts| **counts).count();
        let size = self.size(size, rows.max(1))?;
        Plan::new(self.attempt, self.problem, counts, size).map_err(Error::Graph)
    }

    /// Runs a job.
    pub fn run(&mut self, job: Job<'_>) -> Result<Results, Error> {
        self.accept(&job)?;
        let plan = self.plan(job.counts, job.size)?;
        cut_well(&plan, job.counts)?;
        plan.first.iter().chain([&plan.each]).try_for_each(|graph| self.takes(graph, &job))?;
        self.gives(&plan.each)?;
        self.seeds_only(&plan.seeds)?;
        let mut work = Work::new(self.device, self.problem, job)?;
        if let Some(first) = &plan.first {
            for rows in &plan.chunks {
                self.chunk(first, rows, &mut work)?;
            }
        }
        work.seed(self.problem, &plan.seeds)?;
        for rows in &plan.chunks {
            self.chunk(&plan.each, rows, &mut work)?;
        }
        work.finish(&plan)
    }

    /// Whether everything is there and fits.
    fn accept(&self, job: &Job<'_>) -> Result<(), Error> {
        let Problem { width, vocab, dtype, bias, loss, .. } = self.problem;
        let rows = job.counts.len();
        let hidden = job.hidden.buffer();
        if hidden.bytes() != rows * width * dtype.bytes() {
            let (got, need) = (format!("{} bytes", hidden.bytes()), format!("{dtype:?} ({rows}, {width})"));
            return Err(Error::Shape { name: "hidden".into(), got, need });
        }
        let fits = |name: &str, ty: &Type| fits(job.given, name, ty, rows);
        fits("weight", &Type::new(*dtype, [*vocab, *width]))?;
        if *bias {
            fits("bias", &Type::new(*dtype, [*vocab]))?;
        }
        loss.extras().try_for_each(|(name, ty)| fits(name, ty))?;
        let is_labels = |(name, ty): &(&str, &Type)| *name == "labels" && ty.dtype == Dtype::I32;
        match loss.extras().find(is_labels) {
            Some((_, ty)) if ty.rank() == 1 && job.given["labels"].shape == [rows] => labels(job, *vocab),
            Some((name, ty)) => {
                let need = "a label for each row, i32 (N)".to_owned();
                Err(Error::Shape { name: name.to_owned(), got: ty.to_string(), need })
            }
            None => Ok(()),
        }
    }

    /// Whether a chunk's graph takes its inputs for what they are.
    fn takes(&self, graph: &Graph, job: &Job<'_>) -> Result<(), Error> {
        for (name, id) in graph.inputs() {
            let ty = graph.ty(id);
            match self.own(name) {
                Some(need) if need == *ty => {}
                Some(need) => {
                    let (name, got, need) = (name.to_owned(), ty.to_string(), need.to_string());
                    return Err(Error::Shape { name, got, need });
                }
                None => fits(job.given, name, ty, job.counts.len())?,
            }
        }
        Ok(())
    }

    /// The type of an input that is not given by its name: hidden states, sums and seeds.
    fn own(&self, name: &str) -> Option<Type> {
        let Problem { width, vocab, dtype, sums, bias, trains, loss } = self.problem;
        let rows = || Dim::symbol(ROWS);
        match name {
            "hidden" => Some(Type::new(*dtype, [rows(), (*width).into()])),
            "weight.grad" if trains.weight => Some(Type::new(*sums, [*vocab, *width])),
            "bias.grad" if trains.bias && *bias => Some(Type::new(*sums, [*vocab])),
            name => {
                let of = name.strip_prefix("seed.")?;
                loss.values().any(|value| value == of).then(|| Type::new(Dtype::F32, [rows()]))
            }
        }
    }

    /// Whether a chunk's graph gives what is asked for, and adds up what chunks share.
    fn gives(&self, graph: &Graph) -> Result<(), Error> {
        let Problem { width, vocab, dtype, sums, bias, trains, loss } = self.problem;
        let rows = || Dim::symbol(ROWS);
        let mut need: Vec<(&str, Type)> =
            loss.values().map(|name| (name, Type::new(Dtype::F32, [rows()]))).collect();
        let gradients = [
            ("hidden.grad", trains.hidden, Type::new(*dtype, [rows(), (*width).into()])),
            ("weight.grad", trains.weight, Type::new(*sums, [*vocab, *width])),
            ("bias.grad", trains.bias && *bias, Type::new(*sums, [*vocab])),
        ];
        need.extend(gradients.into_iter().filter(|(_, wanted, _)| *wanted).map(|(name, _, ty)| (name, ty)));
        for (name, ty) in &need {
            let got = graph.find_output(name).map(|id| graph.ty(id));
            if got != Some(ty) {
                let got = got.map_or_else(|| "no output".to_owned(), Type::to_string);
                return Err(Error::Shape { name: (*name).to_owned(), got, need: ty.to_string() });
            }
            if is_of_rows(ty) || graph.find_input(name).is_some() {
                continue;
            }
            let (got, need) =
                ("what one chunk adds".into(), "an input of that name plus what the chunk adds".into());
            return Err(Error::Shape { name: (*name).to_owned(), got, need });
        }
        match graph.outputs().iter().find(|(name, _)| need.iter().all(|(known, _)| known != name)) {
            Some((name, _)) => {
                let (got, need) = ("an output".into(), NOT_ASKED.into());
                Err(Error::Shape { name: name.clone(), got, need })
            }
            None => Ok(()),
        }
    }

    /// Whether seeds are all that comes out: anything else may ask for values, and every chunk is computed twice for
    /// it.
    fn seeds_only(&self, seeds: &Graph) -> Result<(), Error> {
        let is_seed = |name: &str| {
            name.strip_prefix("seed.").is_some_and(|of| self.problem.loss.values().any(|value| value == of))
        };
        match seeds.outputs().iter().find(|(name, _)| !is_seed(name)) {
            Some((name, _)) => {
                let (got, need) = ("an output of `seeds`".into(), ONLY_SEEDS.into());
                Err(Error::Shape { name: name.clone(), got, need })
            }
            None => Ok(()),
        }
    }

    fn compile(&self, graph: &Graph, rows: usize) -> Result<Compiled, Error> {
        let sizes = BTreeMap::from([(ROWS.into(), rows as i64)]);
        compile(self.passes, graph, &sizes, options()).map_err(|error| Error::Session(error.into()))
    }

    /// One pass over one chunk.
    fn chunk(&mut self, graph: &Graph, rows: &[usize], work: &mut Work<'_>) -> Result<(), Error> {
        let program = self.program(graph)?;
        let cut: Vec<(&str, &Type)> = rows_of(graph).collect();
        for (name, ty) in &cut {
            let staged = staged(self.device, &mut self.staged, name, ty, rows.len())?;
            work.gather(name, row_bytes(ty), rows, &mut staged.buffer)?;
        }
        let inputs = cut.iter().map(|(name, _)| (*name, &self.staged[*name])).collect();
        let Work { given, sums, made, .. } = work;
        let io = lend(given, sums, graph, inputs)?;
        let outputs = self.session.run(program, io).map_err(Error::Session)?;
        made.take_all(rows, &outputs)
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

/// What is said of an output that keeps more of a chunk than what was asked for.
pub const NOT_ASKED: &str = "no such output: nobody asked for it";

/// What is said of an output of `seeds` that is none.
pub const ONLY_SEEDS: &str =
    "`seed.NAME` for each value and no other: what else comes out may take a second pass over the chunks";

/// Rows that the forecast is made with; it holds for any other number.
const PROBE: usize = 64;

/// Bytes of each row and each output of the loss that live through a run: its value and its seed.
const KEPT: usize = 8;

/// How a chunk's graph is compiled. What chunks add up stays in its place. A chunk is forward and backward at once, and
/// nothing of it is kept for later: so there is nothing to be computed again.
pub fn options() -> Options {
    Options { carry: true, again: false, ..Level::O2.options() }
}

/// A number of bytes as a function of the rows.
fn cost(bytes: &Dim) -> Cost {
    let at = |rows: i64| bytes.value(&BTreeMap::from([(ROWS.into(), rows)])).unwrap_or(0).max(0) as usize;
    Cost { fixed: at(0), row: at(1) - at(0) }
}

/// Bytes of one row of a tensor of rows.
fn row_bytes(ty: &Type) -> usize {
    let elements: i64 = ty.shape[1..].iter().filter_map(Dim::as_fixed).product();
    elements as usize * ty.dtype.bytes()
}

/// The inputs that belong to rows.
fn rows_of(graph: &Graph) -> impl Iterator<Item = (&str, &Type)> {
    let typed = graph.inputs().map(|(name, id)| (name, graph.ty(id)));
    typed.filter(|(_, ty)| is_of_rows(ty))
}

/// A tensor of exactly so many rows under a name.
fn staged<'b>(
    device: &Cpu,
    all: &'b mut BTreeMap<String, DeviceTensor>,
    name: &str,
    ty: &Type,
    rows: usize,
) -> Result<&'b mut DeviceTensor, Error> {
    let bytes = row_bytes(ty) * rows;
    if all.get(name).is_none_or(|tensor| tensor.buffer.bytes() != bytes) {
        all.remove(name); // first, so that both are never there together
        let buffer = device.alloc("chunk", bytes).map_err(device_error)?;
        all.insert(name.to_owned(), DeviceTensor { shape: Vec::new(), buffer });
    }
    let tensor = all.get_mut(name).ok_or_else(|| Error::Missing { name: name.to_owned() })?;
    let rest = ty.shape[1..].iter().filter_map(Dim::as_fixed).map(|size| size as usize);
    tensor.shape = std::iter::once(rows).chain(rest).collect();
    Ok(tensor)
}

/// Whether an input is given with its type, for so many rows.
fn fits(given: &BTreeMap<String, DeviceTensor>, name: &str, ty: &Type, rows: usize) -> Result<(), Error> {
    let given = given.get(name).ok_or_else(|| Error::Missing { name: name.to_owned() })?;
    let bound = BTreeMap::from([(ROWS.into(), rows as i64)]);
    let shape: Option<Vec<usize>> =
        ty.shape.iter().map(|dim| usize::try_from(dim.value(&bound).ok()?).ok()).collect();
    let bytes = given.shape.iter().product::<usize>() * ty.dtype.bytes();
    if shape.as_ref() == Some(&given.shape) && given.buffer.bytes() == bytes {
        return Ok(());
    }
    let got = format!("{:?} in {} bytes", given.shape, given.buffer.bytes());
    Err(Error::Shape { name: name.to_owned(), got, need: format!("{ty} with N = {rows}") })
}

/// Whether every row that counts has an entry of the vocabulary.
fn labels(job: &Job<'_>, vocab: usize) -> Result<(), Error> {
    let labels: &[i32] = job.given["labels"].buffer.view();
    let is_entry = |label: i32| usize::try_from(label).is_ok_and(|label| label < vocab);
    match (0..labels.len()).find(|row| job.counts[*row] && !is_entry(labels[*row])) {
        Some(row) => Err(Error::Label { row, got: labels[row], vocab }),
        None => Ok(()),
    }
}

/// Whether the chunks are the rows that count, each once.
fn cut_well(plan: &Plan, counts: &[bool]) -> Result<(), Error> {
    let mut left = counts.to_vec();
    for (number, chunk) in plan.chunks.iter().enumerate() {
        if chunk.is_empty() {
            return Err(Error::Chunks { fault: format!("chunk {number} is empty") });
        }
        for row in chunk {
            match left.get_mut(*row) {
                Some(left) if *left => *left = false,
                _ => {
                    let fault = format!("row {row} of chunk {number} does not count, or was there before");
                    return Err(Error::Chunks { fault });
                }
            }
        }
    }
    match left.iter().position(|left| *left) {
        Some(row) => Err(Error::Chunks { fault: format!("row {row} counts, and no chunk has it") }),
        None => Ok(()),
    }
}

/// Adds what is whole for every chunk, and what chunks add up.
fn lend<'b>(
    given: &'b BTreeMap<String, DeviceTensor>,
    sums: &'b mut BTreeMap<String, DeviceTensor>,
    graph: &Graph,
    mut inputs: BTreeMap<&'b str, &'b DeviceTensor>,
) -> Result<Io<'b>, Error> {
    for (name, _) in
        graph.inputs().filter(|(name, id)| !is_of_rows(graph.ty(*id)) && !sums.contains_key(*name))
    {
        let found = given.get_key_value(name).ok_or_else(|| Error::Missing { name: name.to_owned() })?;
        inputs.insert(found.0, found.1);
    }
    let asked = |(name, _): &(&String, &mut DeviceTensor)| graph.find_input(name).is_some();
    let donated = sums.iter_mut().filter(asked).map(|(name, tensor)| (name.as_str(), tensor)).collect();
    Ok(Io { inputs, donated })
}

fn device_error(error: DeviceError) -> Error {
    Error::Session(session::Error::Device(error))
}

impl Hidden<'_> {
    fn buffer(&self) -> &Buffer {
        match self {
            Self::Lent(buffer) => buffer,
            Self::Handed(buffer) => buffer,
        }
    }
}

/// What a run has made so far.
struct Work<'a> {
    given: &'a BTreeMap<String, DeviceTensor>,
    upstream: Option<&'a [f32]>,
    rows: usize,
    seeds: BTreeMap<String, Vec<f32>>,
    sums: BTreeMap<String, DeviceTensor>,
    made: Made<'a>,
}

/// What belongs to rows.
struct Made<'a> {
    hidden: Hidden<'a>,
    of_hidden: Option<Buffer>, // its gradient, where that has memory of its own
    values: BTreeMap<String, Vec<f32>>,
    row: usize, // bytes of a hidden state
}

impl<'a> Work<'a> {
    fn new(device: &Cpu, problem: &Problem, job: Job<'a>) -> Result<Self, Error> {
        let rows = job.counts.len();
        let row = problem.width * problem.dtype.bytes();
        let mut so_far = job.so_far;
        let trained = [
            ("weight.grad", problem.trains.weight, vec![problem.vocab, problem.width]),
            ("bias.grad", problem.trains.bias && problem.bias, vec![problem.vocab]),
        ];
        let mut sums = BTreeMap::new();
        for (name, _, shape) in trained.into_iter().filter(|(_, trains, _)| *trains) {
            let bytes = shape.iter().product::<usize>() * problem.sums.bytes();
            let buffer = match so_far.remove(name) {
                None => device.alloc("gradient", bytes).map_err(device_error)?,
                Some(buffer) if buffer.bytes() == bytes => buffer,
                Some(other) => {
                    let (got, need) = (format!("{} bytes", other.bytes()), format!("{bytes} bytes"));
                    return Err(Error::Shape { name: name.into(), got, need });
                }
            };
            sums.insert(name.to_owned(), DeviceTensor { shape, buffer });
        }
        let is_lent = matches!(job.hidden, Hidden::Lent(_));
        let own = (problem.trains.hidden && is_lent).then(|| device.alloc("gradient", rows * row));
        let mut made = Made {
            hidden: job.hidden,
            of_hidden: own.transpose().map_err(device_error)?,
            values: problem.loss.values().map(|name| (name.to_owned(), vec![0.0; rows])).collect(),
            row,
        };
        made.clear(job.counts);
        Ok(Self { given: job.given, upstream: job.upstream, rows, seeds: BTreeMap::new(), sums, made })
    }

    /// Copies rows of an input side by side.
    fn gather(&self, name: &str, bytes: usize, rows: &[usize], to: &mut Buffer) -> Result<(), Error> {
        let seeds = name.strip_prefix("seed.").and_then(|name| self.seeds.get(name));
        let to = to.view_mut::<u8>();
        if let Some(seeds) = seeds {
            let numbers = rows.iter().flat_map(|row| seeds[*row].to_ne_bytes());
            to.iter_mut().zip(numbers).for_each(|(to, byte)| *to = byte);
            return Ok(());
        }
        let from = match name {
            "hidden" => self.made.hidden.buffer(),
            name => &self.given.get(name).ok_or_else(|| Error::Missing { name: name.to_owned() })?.buffer,
        };
        let from = from.view::<u8>();
        let pairs = to.chunks_mut(bytes.max(1)).zip(rows);
        pairs.for_each(|(to, row)| to.copy_from_slice(&from[row * bytes..][..bytes]));
        Ok(())
    }

    /// The outputs of a graph over all rows, by name.
    fn all(&self, graph: &Graph) -> Result<Vec<(String, Array<f32>)>, Error> {
        let size = BTreeMap::from([(ROWS.into(), Dim::from(self.rows))]);
        let graph = graph.substitute(&size).map_err(Error::Graph)?; // nothing else may say how many rows there are
        let needed = graph.ancestors(graph.outputs().iter().map(|(_, id)| *id));
        let inputs = graph.inputs().filter(|(_, id)| needed.contains(id));
        let values: Result<Values<f32>, Error> =
            inputs.map(|(name, id)| Ok((name.to_owned(), self.array(name, graph.ty(id))?))).collect();
        let found = interpret(&graph, &values?).map_err(Error::Graph)?;
        Ok(graph.outputs().iter().map(|(name, _)| name.clone()).zip(found).collect())
    }

    fn array(&self, name: &str, ty: &Type) -> Result<Array<f32>, Error> {
        if name == "upstream" {
            let shape: Vec<usize> = if ty.rank() == 0 { vec![] } else { vec![self.rows] };
            let count = shape.iter().product();
            let all = self.upstream.map_or(vec![1.0; count], <[f32]>::to_vec);
            if all.len() != count {
                let (got, need) = (format!("{} numbers", all.len()), count.to_string());
                return Err(Error::Shape { name: name.into(), got, need });
            }
            return Ok(Array::floats(Dtype::F32, &shape, all.into_iter().map(f64::from)));
        }
        if let Some(values) = self.made.values.get(name) {
            return Ok(Array::floats(Dtype::F32, &[self.rows], values.iter().copied().map(f64::from)));
        }
        fits(self.given, name, ty, self.rows)?;
        let given = &self.given[name];
        Ok(Array::from_memory(ty.dtype, &given.shape, given.buffer.view()))
    }

    /// The gradient of the loss with respect to each row's values.
    fn seed(&mut self, problem: &Problem, seeds: &Graph) -> Result<(), Error> {
        for (name, seeds) in self.all(seeds)? {
            self.seeds.insert(name.trim_start_matches("seed.").to_owned(), seeds.as_floats().to_vec());
        }
        for name in problem.loss.values() {
            let got = self.seeds.get(name).map(Vec::len);
            if got != Some(self.rows) {
                let got =
                    got.map_or_else(|| "no output of `seeds`".to_owned(), |got| format!("{got} numbers"));
                let need = format!("{} numbers", self.rows);
                return Err(Error::Shape { name: format!("seed.{name}"), got, need });
            }
        }
        Ok(())
    }

    fn finish(mut self, plan: &Plan) -> Result<Results, Error> {
        let loss = self.all(&plan.whole)?.into_iter().next().map(|(_, loss)| loss.as_floats().to_vec());
        let loss = loss.unwrap_or_default();
        let hidden = match (self.made.of_hidden.take(), self.made.hidden) {
            (Some(own), _) => Some(own),
            (None, Hidden::Handed(buffer)) => Some(buffer),
            (None, Hidden::Lent(_)) => None,
        };
        let mut gradients: BTreeMap<String, Buffer> =
            self.sums.into_iter().map(|(name, tensor)| (name, tensor.buffer)).collect();
        gradients.extend(hidden.map(|buffer| ("hidden.grad".to_owned(), buffer)));
        Ok(Results {
            loss,
            values: self.made.values,
            gradients,
            chunks: plan.chunks.iter().map(Vec::len).collect(),
        })
    }
}

impl Made<'_> {
    /// Rows that do not count have no gradient: where it takes over the states' memory, they are emptied.
    fn clear(&mut self, counts: &[bool]) {
        if let Hidden::Handed(buffer) = &mut self.hidden {
            let rows = buffer.view_mut::<u8>().chunks_mut(self.row.max(1));
            rows.zip(counts).filter(|(_, counts)| !**counts).for_each(|(row, _)| row.fill(0));
        }
    }

    /// Puts the results of a chunk where they belong.
    fn take_all(&mut self, rows: &[usize], outputs: &Outputs<'_>) -> Result<(), Error> {
        let names: Vec<&str> = outputs.names().filter(|name| self.wants(name)).collect();
        for name in names {
            outputs.read(name, |bytes| self.take(name, rows, bytes)).map_err(Error::Session)?;
        }
        Ok(())
    }

    /// Whether an output belongs to rows: what chunks add up stays where it is.
    fn wants(&self, name: &str) -> bool {
        name == "hidden.grad" || self.values.contains_key(name)
    }

    /// Puts a chunk's result where it belongs.
    fn take(&mut self, name: &str, rows: &[usize], bytes: &[u8]) {
        if let Some(values) = self.values.get_mut(name) {
            let numbers = bytes.as_chunks().0.iter().map(|four| f32::from_ne_bytes(*four));
            rows.iter().zip(numbers).for_each(|(row, value)| values[*row] = value);
            return;
        }
        let own = match (&mut self.of_hidden, &mut self.hidden) {
            (Some(own), _) => own,
            (None, Hidden::Handed(buffer)) => buffer,
            (None, Hidden::Lent(_)) => return, // nobody asked for it
        };
        let (to, row) = (own.view_mut::<u8>(), self.row);
        let pairs = bytes.chunks(row.max(1)).zip(rows);
        pairs.for_each(|(from, at)| to[at * row..][..row].copy_from_slice(from));
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Graph(error) => error.fmt(f),
            Error::Session(error) => error.fmt(f),
            Error::Missing { name } => write!(f, "input `{name}` is not given"),
            Error::Shape { name, got, need } => write!(f, "`{name}` is {got}, needed is {need}"),
            Error::Label { row, got, vocab } => {
                write!(
                    f,
                    "`labels`[{row}] is {got}, and the row counts: needed is 0 to {}",
                    *vocab as i64 - 1
                )
            }
            Error::Chunks { fault } => write!(f, "the chunks: {fault}"),
            Error::Budget { budget, least } => {
                write!(f, "a chunk of one row takes {least} bytes, and there are {budget}")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Graph(error) => Some(error),
            Error::Session(error) => Some(error),
            _ => None,
        }
    }
}
