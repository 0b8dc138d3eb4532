//! The pieces of a rank on its device: their programs, and what these read and write.

use std::collections::BTreeMap;

use compiler::session::{DeviceTensor, Io, Program, Session};
use reference::graph::{Graph, Type};
use reference::llama::Piece;
use reference::llama::train::STREAM_GRAD;

use super::flight::{Flight, Pool, shape};
use crate::fsdp::Error;
use crate::fsdp::load::Tensors;
use crate::fsdp::programs::{GRADIENT, PieceGraphs, shard_name};
use crate::fsdp::tasks::{self, KEPT, SAVED, Task, Y_GRAD};
use crate::train::Logged;

/// Tensors by canonical names.
type Named = BTreeMap<String, DeviceTensor>;

/// What a rank computes with.
pub(super) struct Work<'a> {
    /// Runs the pieces.
    pub session: Session<'a>,
    /// The pieces of the whole model.
    pub pieces: Vec<PieceGraphs>,
    /// Shards of what is frozen, by own names.
    pub weights: Tensors,
    /// Shards of A, B, moments, sums of gradients, by own names.
    pub trained: Named,
    /// Memory that micro-batches use again.
    pub pool: Pool,
    whole: Named,                  // parts of the piece that ran last
    dense: BTreeMap<usize, Named>, // what was dequantised, by the number of a piece
    loaded: Vec<Loaded>,
    programs: BTreeMap<(usize, Task, bool), Option<usize>>,
    gathers: BTreeMap<usize, Option<usize>>,
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
            pool: Pool::default(),
            whole: Named::new(),
            dense: BTreeMap::new(),
            loaded: Vec::new(),
            programs: BTreeMap::new(),
            gathers: BTreeMap::new(),
        }
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
        let key = (piece, task, self.dense.contains_key(&piece) && task != Task::Dequantize);
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

    fn gather_program(&mut self, piece: usize) -> Result<Option<usize>, Error> {
        if let Some(found) = self.gathers.get(&piece) {
            return Ok(*found);
        }
        let graph = self.pieces[piece].gather.clone();
        let loaded = self.load(graph)?;
        self.gathers.insert(piece, loaded);
        Ok(loaded)
    }

    /// Puts the whole parts of a piece together, in the memory of those of the piece before where they are as large.
    fn gather(&mut self, number: usize) -> Result<(), Error> {
        let loaded = self.gather_program(number)?;
        let Some(loaded) = loaded else {
            self.whole.clear();
            return Ok(());
        };
        let Self { session, loaded: all, pieces, weights, trained, whole, .. } = self;
        let (Loaded { graph, program }, piece) = (&all[loaded], pieces[number].piece);
        let parts: Vec<(&str, &Type)> =
            graph.outputs().iter().map(|(name, id)| (name.as_str(), graph.ty(*id))).collect();
        make_room(session, whole, &parts)?;
        let names: Vec<(String, String)> =
            parts.iter().map(|(name, _)| (shard_name(name), piece.own_name(name))).collect();
        let mut io = Io::default();
        for (shard, own) in &names {
            let tensor = weights.get(own).or_else(|| trained.get(own));
            io.inputs.extend(tensor.map(|tensor| (shard.as_str(), tensor)));
        }
        io.donated = whole.iter_mut().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        session.run(*program, io)?;
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
            let parts: Vec<(&str, &Type)> =
                graph.outputs().iter().map(|(name, id)| (name.as_str(), graph.ty(*id))).collect();
            make_room(session, &mut own, &parts)?;
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

    /// Runs a task of a piece on a micro-batch.
    pub fn run(&mut self, number: usize, task: Task, flight: &mut Flight) -> Result<(), Error> {
        if task == Task::InputGrad {
            flight.y_grads.extend(flight.gradient.take().map(|gradient| (number, gradient)));
        }
        let Some(loaded) = self.program(number, task)? else {
            return self.release(number, task, flight);
        };
        if !self.dense.contains_key(&number) && task != Task::WeightGrad {
            self.gather(number)?;
        }
        let piece = self.pieces[number].piece;
        let mut outputs = self.outputs(loaded, flight)?;
        let Self { session, loaded: all, weights, whole, dense, trained, .. } = self;
        let Loaded { graph, program } = &all[loaded];
        let mut io = Io { sizes: flight.sizes.clone(), ..Io::default() };
        io.inputs.extend(flight.own.iter().map(|(name, tensor)| (*name, tensor)));
        io.inputs.extend(flight.tables.iter().map(|(name, tensor)| (name.as_str(), tensor)));
        add_parts(&mut io, graph, piece, whole, weights);
        for kept in dense.get(&number).into_iter().chain(flight.kept.get(&number)) {
            io.inputs.extend(kept.iter().map(|(name, tensor)| (name.as_str(), tensor)));
        }
        io.inputs.extend(flight.xs.get(&number).map(|x| ("x", x)));
        io.inputs.extend(flight.y_grads.get(&number).map(|gradient| (Y_GRAD, gradient)));
        io.inputs.extend(flight.gradient.as_ref().map(|gradient| (STREAM_GRAD, gradient)));
        let sums: BTreeMap<String, &String> = graph
            .outputs()
            .iter()
            .filter(|(name, _)| name.starts_with(GRADIENT))
            .map(|(name, _)| (piece.own_name(name), name))
            .collect();
        for (name, tensor) in trained.iter_mut() {
            io.donated.extend(sums.get(name).map(|canonical| (canonical.as_str(), tensor)));
        }
        io.donated.extend(outputs.iter_mut().map(|(name, tensor)| (name.as_str(), tensor)));
        let results = session.run(*program, io)?;
        if piece == Piece::Head && graph.find_output("loss").is_some() {
            flight.logged = Logged::of(|name| {
                Ok::<f64, Error>(results.array(name)?.wide().first().copied().unwrap_or(f64::NAN))
            })?;
        }
        for (name, tensor) in outputs {
            let old = match name.as_str() {
                "y" => flight.xs.insert(number + 1, tensor),
                STREAM_GRAD => flight.gradient.replace(tensor),
                _ => flight.kept.entry(number).or_default().insert(name, tensor),
            };
            self.pool.give(old);
        }
        self.release(number, task, flight)
    }

    /// Memory for what a task writes, but for the sums of gradients.
    fn outputs(&mut self, loaded: usize, flight: &mut Flight) -> Result<Named, Error> {
        let Self { session, loaded: all, pool, .. } = self;
        let graph = &all[loaded].graph;
        let mut outputs = Named::new();
        for (name, id) in graph.outputs() {
            let is_made =
                name == "y" || name == STREAM_GRAD || [KEPT, SAVED].iter().any(|kind| name.starts_with(kind));
            if !is_made {
                continue;
            }
            let in_place = if name == STREAM_GRAD { flight.gradient.take() } else { None };
            let ty = graph.ty(*id);
            let tensor = match in_place {
                Some(gradient) => gradient,
                None => pool.take(session.device(), name, shape(ty, &flight.sizes), ty.dtype.bytes())?,
            };
            outputs.insert(name.clone(), tensor);
        }
        Ok(outputs)
    }

    /// Takes back what nothing reads after a task.
    fn release(&mut self, number: usize, task: Task, flight: &mut Flight) -> Result<(), Error> {
        let mut read: Vec<String> = Vec::new(); // by the task that is still to come
        match task {
            Task::Forward | Task::Keep | Task::Recompute | Task::Dequantize => return Ok(()),
            Task::Backward | Task::BackwardKept | Task::WeightGrad => {}
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

/// The parts that a graph reads: gathered, or as this rank has them.
fn add_parts<'b>(io: &mut Io<'b>, graph: &'b Graph, piece: Piece, whole: &'b Named, weights: &'b Tensors) {
    for (name, _) in graph.inputs() {
        let tensor = whole.get(name).or_else(|| weights.get(&piece.own_name(name)));
        io.inputs.extend(tensor.map(|tensor| (name, tensor)));
    }
}

/// Memory for parts, kept where it is as large already.
fn make_room(session: &Session<'_>, all: &mut Named, parts: &[(&str, &Type)]) -> Result<(), Error> {
    let shape_of = |ty: &Type| shape(ty, &BTreeMap::new());
    let fits = |(name, ty): &(&str, &Type)| {
        all.get(*name).is_some_and(|old| {
            old.shape == shape_of(ty)
                && old.buffer.bytes() == old.shape.iter().product::<usize>() * ty.dtype.bytes()
        })
    };
    if all.len() == parts.len() && parts.iter().all(fits) {
        return Ok(());
    }
    all.clear(); // first, so that both are never there together
    for (name, ty) in parts {
        let shape = shape_of(ty);
        let alloc = session.device().alloc("parts", shape.iter().product::<usize>() * ty.dtype.bytes());
        let buffer = alloc.map_err(|source| Error::Device { input: (*name).to_owned(), source })?;
        all.insert((*name).to_owned(), DeviceTensor { shape, buffer });
    }
    Ok(())
}
