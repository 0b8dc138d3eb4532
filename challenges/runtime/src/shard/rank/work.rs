//! The pieces of a rank on its device: their programs, and what these read and write.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use compiler::session::{DeviceTensor, Io, Program, Session};
use reference::graph::{Graph, Id, Symbol};
use reference::llama::Piece;
use reference::llama::train::STREAM_GRAD;

use super::flight::{Flight, HostTensor, Pool, shape};
use super::trace::{EventKind, Trace};
use crate::shard::load::Tensors;
use crate::shard::programs::{GRADIENT, NEXT, PartSpec, PieceGraphs, part_specs};
use crate::shard::tasks::{self, HIDDEN, KEPT, SAVED, Task, WEIGHT, Y_GRAD};
use crate::shard::{Activations, Error, LayerBytes};
use crate::step::chunks::ChunkLoss;
use crate::step::{Evaluated, Logged};

/// Tensors by canonical names.
type Named = BTreeMap<String, DeviceTensor>;

/// The pieces of a rank with their memory.
pub(super) struct Work<'a> {
    /// Runs the pieces.
    pub session: Session<'a>,
    /// The pieces of the whole model.
    pub pieces: Vec<PieceGraphs>,
    /// Shards of what is frozen, by own names.
    pub weights: Tensors,
    /// Shards of A, B, moments, sums of gradients, by own names.
    pub trained: Named,
    /// Tensors that no step changes and every rank has.
    pub constants: Named,
    /// Memory that micro-batches use again.
    pub pool: Pool,
    /// The sizes of all micro-batches of a step, on whatever rank: what one rank runs, all prepare.
    pub sizes: BTreeSet<BTreeMap<Symbol, i64>>,
    /// The bytes moved so far.
    pub traffic: Traffic,
    /// When what was done, in the last step.
    pub trace: Trace,
    /// The loss, if it is computed in chunks.
    pub loss: Option<ChunkLoss<'a>>,
    /// The factor of the gradient of a chunked loss.
    pub factor: f64,
    /// The tensors that stay of each layer between forward and backward; the x alone, unless set.
    pub activations: BTreeMap<usize, Activations>,
    keeps: Vec<bool>,               // whose whole parts stay, by the number of a piece
    next: BTreeMap<Gather, Gather>, // what is gathered while another one's work is done
    kept: BTreeMap<usize, Named>,   // whole parts that stay
    prefetched: Option<(usize, Named)>,
    pub whole: Named,                  // parts of the piece that ran last
    spare: Named,                      // memory for those of the next one
    pub dense: BTreeMap<usize, Named>, // what was dequantised, by the number of a piece
    loaded: Vec<Loaded>,
    programs: BTreeMap<(usize, Task, bool), Option<usize>>, // by the first piece of its kind
    overlapped: BTreeMap<(usize, usize), usize>,            // a program with another piece's gather
    gathers: BTreeMap<usize, Option<usize>>,                // by the first piece of its kind
}

/// The bytes that a rank has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Pieces whose parts were gathered.
    pub gathers: u64,
    /// The number of them whose gather was started while a different piece computed.
    pub early: u64,
    /// Bytes of whole parts that were gathered, those of this rank's own shards among them.
    pub gathered_bytes: u64,
    /// Bytes of activations that went to the host.
    pub offloaded_bytes: u64,
}

/// A gather of a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Gather {
    /// The piece whose parts are gathered.
    pub piece: usize,
    /// Whether they are for the backward; the head's are for both.
    pub is_backward: bool,
}

/// A graph in the session; pieces that are alike share it.
struct Loaded {
    graph: Graph,
    program: Program,
}

impl<'a> Work<'a> {
    pub fn new(session: Session<'a>, pieces: Vec<PieceGraphs>, weights: Tensors) -> Self {
        Self {
            session,
            pieces,
            weights,
            trained: Named::new(),
            constants: Named::new(),
            pool: Pool::default(),
            sizes: BTreeSet::new(),
            traffic: Traffic::default(),
            trace: Trace::default(),
            loss: None,
            factor: 1.0,
            activations: BTreeMap::new(),
            keeps: Vec::new(),
            next: BTreeMap::new(),
            kept: BTreeMap::new(),
            prefetched: None,
            whole: Named::new(),
            spare: Named::new(),
            dense: BTreeMap::new(),
            loaded: Vec::new(),
            programs: BTreeMap::new(),
            overlapped: BTreeMap::new(),
            gathers: BTreeMap::new(),
        }
    }

    /// The gathers of a micro-batch, in order, if some whole parts stay.
    pub fn order(&self, keeps: &[bool]) -> Vec<Gather> {
        let has_gather = |number: &usize| self.pieces[*number].gather.is_some();
        let forward = (0..self.pieces.len()).filter(has_gather);
        let forward = forward.map(|piece| Gather { piece, is_backward: false });
        let has_backward = |piece: &usize| {
            let outputs = self.pieces[*piece].training.outputs();
            outputs.iter().any(|(name, _)| name == STREAM_GRAD || name.starts_with(GRADIENT))
        };
        let back = (0..self.pieces.len() - 1).rev().filter(has_gather).filter(has_backward);
        let back = back.filter(|piece| !keeps[*piece]).map(|piece| Gather { piece, is_backward: true });
        forward.chain(back).collect()
    }

    /// From now on some whole parts stay, and some gathers start while the work before them is done.
    pub fn follow(&mut self, keeps: Vec<bool>, order: impl Iterator<Item = (Gather, bool)>) {
        let order: Vec<(Gather, bool)> = order.collect();
        let early = order.windows(2).filter(|pair| pair[1].1).map(|pair| (pair[0].0, pair[1].0));
        (self.keeps, self.next) = (keeps, early.collect());
    }

    /// Bytes of a layer's x, and of what its backward reads beside it.
    pub fn activation_bytes(
        &mut self,
        piece: usize,
        sizes: &BTreeMap<Symbol, i64>,
    ) -> Result<LayerBytes, Error> {
        let Some(loaded) = self.program(piece, Task::Keep)? else { return Ok(LayerBytes::default()) };
        let graph = &self.loaded[loaded].graph;
        let bytes = |(_, id): &(String, Id)| {
            let ty = graph.ty(*id);
            shape(ty, sizes).iter().product::<usize>() * ty.dtype.bytes()
        };
        let of = |prefix: &str| {
            graph.outputs().iter().filter(|(name, _)| name.starts_with(prefix)).map(bytes).sum()
        };
        Ok(LayerBytes { x: of("y"), kept: of(KEPT) })
    }

    /// A graph in the session, loaded once.
    fn load(&mut self, graph: Option<Graph>) -> Result<Option<usize>, Error> {
        let Some(graph) = graph else { return Ok(None) };
        if let Some(found) = self.loaded.iter().position(|loaded| loaded.graph == graph) {
            return Ok(Some(found));
        }
        let program = self.session.load(&graph)?;
        self.loaded.push(Loaded { graph, program });
        Ok(Some(self.loaded.len() - 1))
    }

    /// The program of a piece's task; `None` where there is nothing to do.
    fn program(&mut self, piece: usize, task: Task) -> Result<Option<usize>, Error> {
        let first = self.pieces[piece].first;
        let key = (first, task, self.dense.contains_key(&piece) && task != Task::Dequantize);
        if let Some(found) = self.programs.get(&key) {
            return Ok(*found);
        }
        let graph = tasks::graph(&self.pieces[piece], task, key.2)?;
        let loaded = self.load(graph)?;
        self.programs.insert(key, loaded);
        Ok(loaded)
    }

    /// A program by which sizes are rounded.
    pub fn any_program(&mut self, piece: usize) -> Result<Program, Error> {
        let number = self.program(piece, Task::Forward)?;
        Ok(self.loaded[number.expect("every piece gives something")].program)
    }

    fn count(&mut self, piece: usize) {
        self.traffic.gathers += 1;
        self.traffic.gathered_bytes += self.pieces[piece].gathered_bytes() as u64;
    }

    fn gather_program(&mut self, piece: usize) -> Result<Option<usize>, Error> {
        let first = self.pieces[piece].first;
        if let Some(found) = self.gathers.get(&first) {
            return Ok(*found);
        }
        let graph = self.pieces[piece].gather.clone();
        let loaded = self.load(graph)?;
        self.gathers.insert(first, loaded);
        Ok(loaded)
    }

    /// Puts the whole parts of a piece together, in the memory of those of the piece before where they are as large.
    fn gather(&mut self, number: usize) -> Result<(), Error> {
        if let Some((_, parts)) = self.prefetched.take_if(|(piece, _)| *piece == number) {
            self.spare = std::mem::replace(&mut self.whole, parts);
            return Ok(());
        }
        if let Some(parts) = self.kept.remove(&number) {
            self.whole = parts;
            return Ok(());
        }
        let loaded = self.gather_program(number)?;
        let Some(loaded) = loaded else {
            self.whole.clear();
            return Ok(());
        };
        self.count(number);
        let begin = Instant::now();
        let Self { session, loaded: all, pieces, weights, trained, whole, trace, .. } = self;
        let Loaded { program, .. } = &all[loaded];
        allocate(session, whole, &pieces[number].gathered)?;
        let shards = shards_of(session, weights, &pieces[number])?;
        let mut io = Io::default();
        io.inputs.extend(own_shards(weights, trained, &shards, &pieces[number], false));
        io.donated = whole.iter_mut().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        session.run(*program, io)?;
        as_read(whole, &pieces[number]);
        trace.record(number, EventKind::Gather, begin);
        Ok(())
    }

    /// Puts the parts of a piece where its tasks read them until [`Self::forget`].
    pub fn dequantize(&mut self, piece: usize) -> Result<(), Error> {
        self.dense.remove(&piece);
        self.gather(piece)?;
        let mut own = Named::new();
        if let Some(loaded) = self.program(piece, Task::Dequantize)? {
            let Self { session, loaded: all, pieces, weights, whole, .. } = self;
            let Loaded { graph, program } = &all[loaded];
            allocate(session, &mut own, &part_specs(graph))?;
            let mut io = Io::default();
            add_parts(&mut io, graph, pieces[piece].piece, whole, weights);
            io.donated = own.iter_mut().map(|(name, tensor)| (name.as_str(), tensor)).collect();
            session.run(*program, io)?;
        }
        self.whole.clear();
        self.dense.insert(piece, own);
        Ok(())
    }

    /// Frees what [`Self::dequantize`] wrote.
    pub fn forget(&mut self, piece: usize) {
        self.dense.remove(&piece);
    }

    /// The program that also gathers the parts of another piece.
    fn overlapped(&mut self, loaded: usize, next: usize) -> Result<Option<usize>, Error> {
        let key = (loaded, self.pieces[next].first);
        if let Some(found) = self.overlapped.get(&key) {
            return Ok(Some(*found));
        }
        let Some(gather) = self.pieces[next].gather.as_ref() else { return Ok(None) };
        let graph = tasks::with_gather(&self.loaded[loaded].graph, gather)?;
        let found = self.load(Some(graph))?;
        self.overlapped.extend(found.map(|found| (key, found)));
        Ok(found)
    }

    /// Memory for the parts of a piece that are gathered while another one's work is done.
    fn room_for_next(&mut self, next: usize) -> Result<Named, Error> {
        let mut parts = std::mem::take(&mut self.spare);
        allocate(&self.session, &mut parts, &self.pieces[next].gathered)?;
        Ok(parts.into_iter().map(|(name, tensor)| (format!("{NEXT}{name}"), tensor)).collect())
    }

    /// Runs a task of a piece on a micro-batch.
    pub fn run(&mut self, number: usize, task: Task, flight: &mut Flight) -> Result<(), Error> {
        if task == Task::InputGrad {
            flight.y_grads.extend(flight.gradient.take().map(|gradient| (number, gradient)));
        }
        let Some(loaded) = self.program(number, task)? else {
            return self.release(number, task, flight);
        };
        if !self.dense.contains_key(&number) && !task.follows() {
            self.gather(number)?;
        }
        let is_backward = !matches!(task, Task::Forward | Task::Keep) && number + 1 < self.pieces.len();
        let is_last = !matches!(
            task,
            Task::Evaluate | Task::States | Task::OutputWeight | Task::OutputGrad // the head goes on
        );
        let next = self.next.get(&Gather { piece: number, is_backward }).filter(|_| is_last);
        let next = next.map(|next| next.piece);
        let (mut loaded, mut coming) = (loaded, Named::new());
        if let Some(next) = next {
            loaded = self.overlapped(loaded, next)?.unwrap_or(loaded);
            coming = self.room_for_next(next)?;
            self.count(next);
            self.traffic.early += 1;
        }
        for sizes in &self.sizes {
            let Loaded { graph, program } = &self.loaded[loaded];
            let read = sizes.iter().filter(|(symbol, _)| graph.known().contains_key(*symbol));
            self.session
                .prepare_for(*program, &read.map(|(symbol, size)| (symbol.clone(), *size)).collect())?;
        }
        let piece = self.pieces[number].piece;
        let begin = Instant::now();
        let mut outputs = self.outputs(loaded, flight)?;
        let mut summed = self.take_sums(loaded, piece);
        let Self { session, loaded: all, weights, whole, dense, trained, pieces, constants, .. } = self;
        let Loaded { graph, program } = &all[loaded];
        let own = flight.sizes.iter().filter(|(symbol, _)| graph.known().contains_key(*symbol));
        let sizes = own.map(|(symbol, size)| (symbol.clone(), *size)).collect();
        let mut io = Io { sizes, ..Io::default() };
        io.inputs.extend(flight.own.iter().map(|(name, tensor)| (*name, tensor)));
        io.inputs.extend(constants.iter().map(|(name, tensor)| (name.as_str(), tensor)));
        io.inputs.extend(flight.tables.iter().map(|(name, tensor)| (name.as_str(), tensor)));
        add_parts(&mut io, graph, piece, whole, weights);
        for kept in dense.get(&number).into_iter().chain(flight.kept.get(&number)) {
            io.inputs.extend(kept.iter().map(|(name, tensor)| (name.as_str(), tensor)));
        }
        io.inputs.extend(flight.xs.get(&number).map(|x| ("x", x)));
        io.inputs.extend(flight.y_grads.get(&number).map(|gradient| (Y_GRAD, gradient)));
        io.inputs.extend(flight.gradient.as_ref().map(|gradient| (STREAM_GRAD, gradient)));
        let coming_shards = next.map(|next| shards_of(session, weights, &pieces[next])).transpose()?;
        let coming_shards = coming_shards.unwrap_or_default();
        let own = next.map(|next| own_shards(weights, trained, &coming_shards, &pieces[next], true));
        io.inputs.extend(own.into_iter().flatten());
        io.donated.extend(summed.iter_mut().map(|(name, tensor)| (name.as_str(), tensor)));
        io.donated.extend(coming.iter_mut().map(|(name, tensor)| (name.as_str(), tensor)));
        io.donated.extend(outputs.iter_mut().map(|(name, tensor)| (name.as_str(), tensor)));
        let has_loss = piece == Piece::Head && graph.find_output("loss").is_some();
        let result = session.run(*program, io).map_err(Error::from).and_then(|results| {
            let number =
                |name: &str| results.array(name).map(|it| it.wide().first().copied().unwrap_or(f64::NAN));
            if !has_loss {
                return Ok(None);
            }
            let logged = Logged::of(|name| Ok::<f64, Error>(number(name)?))?;
            let logits = match graph.find_output("logits") {
                Some(_) => results.array("logits")?.as_floats().to_vec(),
                None => Vec::new(),
            };
            Ok(Some(Evaluated::new(logged, &flight.batch, &logits)))
        });
        trained.extend(summed.into_iter().map(|(name, tensor)| (piece.own_name(&name), tensor)));
        flight.result = result?.unwrap_or_else(|| std::mem::take(&mut flight.result));
        let is_forward =
            matches!(task, Task::Evaluate | Task::Forward | Task::Keep | Task::Recompute | Task::States);
        self.trace.record(number, if is_forward { EventKind::Forward } else { EventKind::Backward }, begin);
        if let Some(next) = next {
            self.trace.record(next, EventKind::Gather, begin);
        }
        if let Some(next) = next {
            let plain = |name: String| name.strip_prefix(NEXT).map_or(name.clone(), str::to_owned);
            let mut parts = coming.into_iter().map(|(name, tensor)| (plain(name), tensor)).collect();
            as_read(&mut parts, &self.pieces[next]);
            self.prefetched = Some((next, parts));
        }
        for (name, tensor) in outputs {
            let old = match name.as_str() {
                "y" => flight.xs.insert(number + 1, tensor),
                STREAM_GRAD => flight.gradient.replace(tensor),
                _ => flight.kept.entry(number).or_default().insert(name, tensor),
            };
            self.pool.give(old);
        }
        if matches!(task, Task::Forward | Task::Keep) && self.keeps.get(number) == Some(&true) {
            self.kept.insert(number, std::mem::take(&mut self.whole));
        }
        self.release(number, task, flight)
    }

    /// The sums of gradients that a program adds to, by canonical names. They have to be put back.
    fn take_sums(&mut self, loaded: usize, piece: Piece) -> Named {
        let outputs = self.loaded[loaded].graph.outputs();
        let sums = outputs.iter().map(|(name, _)| name).filter(|name| name.starts_with(GRADIENT));
        let taken = sums.filter_map(|name| Some((name.clone(), self.trained.remove(&piece.own_name(name))?)));
        taken.collect()
    }

    /// Moves the kept tensors of a layer to the host.
    pub fn offload(&mut self, number: usize, flight: &mut Flight) -> Result<(), Error> {
        let kept = flight.kept.remove(&number).unwrap_or_default();
        let x = flight.xs.remove(&number).map(|x| ("x".to_owned(), x));
        let mut there = Vec::new();
        for (name, tensor) in kept.into_iter().chain(x) {
            let mut bytes = vec![0; tensor.buffer.bytes()];
            let copied = self.session.device().download(&tensor.buffer, &mut bytes);
            copied.map_err(|source| Error::Device { input: name.clone(), source })?;
            self.traffic.offloaded_bytes += bytes.len() as u64;
            there.push(HostTensor { name, shape: tensor.shape.clone(), bytes });
            self.pool.give([tensor]);
        }
        flight.on_host.insert(number, there);
        Ok(())
    }

    /// Moves the kept tensors of a layer from the host back to the device.
    pub fn reload(&mut self, number: usize, flight: &mut Flight) -> Result<(), Error> {
        for HostTensor { name, shape, bytes } in flight.on_host.remove(&number).unwrap_or_default() {
            let device = self.session.device();
            let element = bytes.len() / shape.iter().product::<usize>().max(1);
            let mut tensor = self.pool.take(device, &name, shape, element)?;
            let copied = device.upload(&mut tensor.buffer, &bytes);
            copied.map_err(|source| Error::Device { input: name.clone(), source })?;
            match name.as_str() {
                "x" => _ = flight.xs.insert(number, tensor),
                _ => _ = flight.kept.entry(number).or_default().insert(name, tensor),
            }
        }
        Ok(())
    }

    /// Memory for what a task writes, but for the sums of gradients.
    fn outputs(&mut self, loaded: usize, flight: &mut Flight) -> Result<Named, Error> {
        let Self { session, loaded: all, pool, .. } = self;
        let graph = &all[loaded].graph;
        let mut outputs = Named::new();
        for (name, id) in graph.outputs() {
            let is_made = ["y", STREAM_GRAD, HIDDEN, WEIGHT].contains(&name.as_str())
                || [KEPT, SAVED].iter().any(|kind| name.starts_with(kind));
            if !is_made {
                continue;
            }
            let in_place = if name == STREAM_GRAD { flight.gradient.take() } else { None };
            let ty = graph.ty(*id);
            let tensor = match in_place {
                Some(gradient) => gradient,
                None => pool.take(session.device(), name, shape(ty, &flight.compiled), ty.dtype.bytes())?,
            };
            outputs.insert(name.clone(), tensor);
        }
        Ok(outputs)
    }

    /// Takes back what nothing reads after a task.
    pub fn release(&mut self, number: usize, task: Task, flight: &mut Flight) -> Result<(), Error> {
        let mut read: Vec<String> = Vec::new(); // by the task that is still to come
        match task {
            Task::Forward | Task::Keep | Task::Recompute | Task::Dequantize => return Ok(()),
            Task::States | Task::OutputWeight | Task::OutputGrad => return Ok(()),
            Task::StatesGrad | Task::Evaluate | Task::Backward | Task::BackwardKept | Task::WeightGrad => {}
            Task::InputGrad => {
                if let Some(next) = self.program(number, Task::WeightGrad)? {
                    read.extend(self.loaded[next].graph.inputs().map(|(name, _)| name.to_owned()));
                }
            }
        }
        let is_read = |name: &str| read.iter().any(|other| other == name);
        let kept = flight.kept.remove(&number).unwrap_or_default();
        let (kept, free): (Named, Named) = kept.into_iter().partition(|(name, _)| is_read(name));
        let x = if is_read("x") { None } else { flight.xs.remove(&number) };
        let y_grad = if is_read(Y_GRAD) { None } else { flight.y_grads.remove(&number) };
        self.pool.give(free.into_values().chain(x).chain(y_grad));
        if !kept.is_empty() {
            flight.kept.insert(number, kept);
        }
        Ok(())
    }
}

/// Shards that lie on the host, brought to the device to be gathered; by their own names.
fn shards_of(session: &Session<'_>, weights: &Tensors, graphs: &PieceGraphs) -> Result<Named, Error> {
    let mut shards = Named::new();
    if weights.on_host.is_empty() {
        return Ok(shards);
    }
    for own in graphs.shards.iter().map(|shard| graphs.piece.own_name(&shard.of)) {
        if let Some((elements, bytes)) = weights.on_host.get(&own) {
            let made = DeviceTensor::new(session.device(), &[*elements], bytes);
            shards.insert(own.clone(), made.map_err(|source| Error::Device { input: own, source })?);
        }
    }
    Ok(shards)
}

/// The shards that a gather reads, by the names of its inputs; those of a gather that is started early have others.
fn own_shards<'b>(
    weights: &'b Tensors,
    trained: &'b Named,
    from_host: &'b Named,
    graphs: &'b PieceGraphs,
    is_early: bool,
) -> impl Iterator<Item = (&'b str, &'b DeviceTensor)> {
    graphs.shards.iter().filter_map(move |shard| {
        let own = graphs.piece.own_name(&shard.of);
        let tensor = weights.get(&own).or_else(|| from_host.get(&own)).or_else(|| trained.get(&own))?;
        Some((if is_early { shard.next_input.as_str() } else { shard.input.as_str() }, tensor))
    })
}

/// The parts that a graph reads: gathered, or as this rank has them.
fn add_parts<'b>(io: &mut Io<'b>, graph: &'b Graph, piece: Piece, whole: &'b Named, weights: &'b Tensors) {
    for (name, _) in graph.inputs() {
        let tensor = whole.get(name).or_else(|| weights.get(&piece.own_name(name)));
        io.inputs.extend(tensor.map(|tensor| (name, tensor)));
    }
}

/// Gives whole parts, which were gathered as rows of elements, the shapes in which they are read.
fn as_read(parts: &mut Named, graphs: &PieceGraphs) {
    for (name, tensor) in parts {
        tensor.shape.clone_from(&graphs.shapes[name]);
    }
}

/// Memory for tensors, kept where it is as large already.
fn allocate(session: &Session<'_>, all: &mut Named, specs: &[PartSpec]) -> Result<(), Error> {
    let fits = |spec: &PartSpec| all.get(&spec.name).is_some_and(|old| old.buffer.bytes() == spec.bytes);
    if all.len() == specs.len() && specs.iter().all(fits) {
        for PartSpec { name, shape, .. } in specs {
            let old = all.get_mut(name).expect("it fits");
            old.shape.clone_from(shape);
        }
        return Ok(());
    }
    all.clear(); // first, so that both are never there together
    for PartSpec { name, shape, bytes } in specs {
        let buffer = session.device().alloc("parts", *bytes);
        let buffer = buffer.map_err(|source| Error::Device { input: name.clone(), source })?;
        all.insert(name.clone(), DeviceTensor { shape: shape.clone(), buffer });
    }
    Ok(())
}
