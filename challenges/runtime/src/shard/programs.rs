//! The graphs that a rank runs: a piece of the model, with what its ranks do together written around it.
//!
//! ```text
//! gather      shards                     -> whole parts, as they are stored
//! forward     x, whole parts             -> y
//! training    x, whole parts, stream.grad, sums of gradients in shards -> y, the same two
//! update      shards of A, B, moments, gradients, rates -> grad_norm, the same but for the rates
//! ```
//!
//! All but `update` are under [canonical names](Piece), so that layers that are alike share them. What a graph changes
//! is an input and an output of one name, also where nothing of the old value is read: a session that donates then
//! leaves the result in the memory that the caller gives.
//!
//! Ranks that share a layer compute it as a smaller model does ([`reference::fsdp::local`]), and add up what follows its
//! projections; each of them computes the loss, and counts it in part.
//!
//! [`tasks`](super::tasks) cuts the training graph into parts that run at different times.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use reference::fsdp::{Cut, Parameter, Part, Placement, Shards, Shared, check, local};
use reference::graph::ranks::Mesh;
use reference::graph::{Builder, Dim, Dtype, Graph, Group, Id, Tape, Tensor, Type};
use reference::llama::train::{self, Recipe, STREAM_GRAD};
use reference::llama::{Piece, Spec, Storage};

use super::flat::{self, Row};
use super::{Error, FSDP, Fsdp, Gradient, Sharding, TP};

/// Where every parameter of a model lies.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The model that one of the ranks that share a layer computes.
    pub spec: Spec,
    parameters: Vec<Placed>,
    parts: BTreeMap<String, (usize, usize)>, // by the name of a graph's input: a parameter and its part, by number
    rows: Vec<Row>,                          // if what is frozen lies in flat rows
    ranks: usize,                            // along the axis of the shards
    sharing: usize,                          // a layer
}

/// A parameter and where it lies.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The parameter, under its name in the model, as large as it is for ranks that share its layer.
    pub parameter: Parameter,
    /// How ranks share it.
    pub shared: Shared,
    /// The shards of its parts.
    pub placement: Placement,
    /// Whether it is trained.
    pub is_trained: bool,
}

/// A piece of the model for a rank.
#[derive(Clone, Debug)]
pub struct PieceGraphs {
    /// The piece.
    pub piece: Piece,
    /// The number of the first piece that has these graphs.
    pub first: usize,
    graphs: Arc<Graphs>,
}

/// The graphs of a piece, or of several that are alike.
#[derive(Debug)]
pub struct Graphs {
    /// From shards to whole parts, each (elements), so that a gather may write where its result is to lie; `None` where
    /// there is nothing to gather.
    pub gather: Option<Graph>,
    /// The whole parts that it gathers.
    pub gathered: Vec<PartSpec>,
    /// The shards that it reads.
    pub shards: Vec<ShardName>,
    /// The shapes in which the other graphs read whole parts.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// The piece without a gradient.
    pub forward: Graph,
    /// The piece as it is evaluated: without dropout.
    pub evaluation: Graph,
    /// The piece with its gradients; the same as `forward` where nothing needs one.
    pub training: Graph,
    /// The graphs of the [`Piece::Head`] around a loss that is computed in chunks; `None` for other pieces.
    pub chunked: Option<ChunkedHead>,
}

/// The head around a loss that is computed in chunks.
#[derive(Debug)]
pub struct ChunkedHead {
    /// From `x` to `hidden`, what the output layer is given.
    pub states: Graph,
    /// From the parts of the output layer to its `weight`, in the compute type.
    pub weight: Graph,
    /// From `weight.grad` to the sums of gradients; `None` if the output layer is not trained.
    pub weight_grad: Option<Graph>,
    /// From `x` and `hidden.grad` to the gradient of `x`, and to the sums of gradients of the last norm.
    pub states_grad: Graph,
}

/// A tensor whose size does not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartSpec {
    /// The canonical name.
    pub name: String,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// All of its bytes.
    pub bytes: usize,
}

/// A shard that a graph gathers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardName {
    /// The input that it is.
    pub input: String,
    /// The name of that input where it is gathered early, for the piece that comes next.
    pub next_input: String,
    /// The canonical name of what it is a shard of.
    pub of: String,
}

/// The outputs of a graph.
pub fn part_specs(graph: &Graph) -> Vec<PartSpec> {
    let spec = |(name, id): &(String, Id)| {
        let ty = graph.ty(*id);
        let shape: Vec<usize> = ty.shape.iter().filter_map(Dim::as_fixed).map(|size| size as usize).collect();
        let bytes = shape.iter().product::<usize>() * ty.dtype.bytes();
        PartSpec { name: name.clone(), shape, bytes }
    };
    graph.outputs().iter().map(spec).collect()
}

fn shard_names(gather: &Graph) -> Vec<ShardName> {
    let shard = |(name, _): (&str, Id)| {
        let of = name.strip_suffix(SHARD)?.to_owned();
        Some(ShardName { input: name.to_owned(), next_input: format!("{NEXT}{name}"), of })
    };
    gather.inputs().filter_map(shard).collect()
}

impl Deref for PieceGraphs {
    type Target = Graphs;

    fn deref(&self) -> &Graphs {
        &self.graphs
    }
}

impl PieceGraphs {
    /// Bytes of the whole parts that are gathered for it.
    pub fn gathered_bytes(&self) -> usize {
        self.gathered.iter().map(|part| part.bytes).sum()
    }

    /// Whether it reads a parameter, a part of one, or a flat row, by its name in the model.
    pub fn reads(&self, name: &str) -> bool {
        let canonical = self.piece.canonical_name(name);
        let gathers = |gather: &Graph| gather.find_input(&shard_name(&canonical)).is_some();
        (self.training.find_input(&canonical).is_some() || self.gather.as_ref().is_some_and(gathers))
            && self.piece.own_name(&canonical) == name
    }
}

/// The name of a part's shard as an input of a graph that gathers it.
pub fn shard_name(part: &str) -> String {
    format!("{part}{SHARD}")
}

/// The suffix of the name of a part, or of a flat row, whose shard a graph reads.
pub const SHARD: &str = ".shard";

impl Layout {
    /// The placement of every parameter that the pieces of a model read, by an attempt; each is checked.
    ///
    /// # Errors
    /// If sizes cannot be shared, a placement is none, or a graph cannot be written.
    pub fn new(attempt: &dyn Fsdp, spec: &Spec, mesh: &Mesh, sharding: Sharding) -> Result<Self, Error> {
        let [ranks, sharing] = [FSDP, TP].map(|axis| mesh.size(axis).unwrap_or(1));
        let own = local(spec, sharing).map_err(Error::Uneven)?;
        let mut layout = Self {
            spec: own,
            parameters: Vec::new(),
            parts: BTreeMap::new(),
            rows: Vec::new(),
            ranks,
            sharing,
        };
        let whole = parameters(spec)?;
        for (name, (parameter, is_trained)) in parameters(&layout.spec)? {
            layout.add(attempt, parameter, &whole[&name].0.shape, is_trained)?;
        }
        if sharding == Sharding::Flat {
            layout.flatten(attempt)?;
        }
        Ok(layout)
    }

    /// Lays everything frozen into flat rows, but for tables.
    fn flatten(&mut self, attempt: &dyn Fsdp) -> Result<(), Error> {
        if self.sharing > 1 {
            return Err(Error::Flat { found: "ranks that share layers" });
        }
        for piece in self.spec.pieces() {
            let graph = self.spec.piece(piece)?;
            let names = graph.inputs().map(|(name, _)| piece.own_name(name));
            let frozen = names.filter(|name| !self.is_trained(name)).filter_map(|name| self.part(&name));
            let members = frozen.filter(|(part, _)| part.covers.is_some());
            let members = members.map(|(part, _)| (part.name.clone(), part.dtype, part.elements()));
            self.rows.extend(flat::rows(piece, members));
        }
        let members = self.rows.iter().flat_map(|row| &row.members);
        members.for_each(|(name, _)| _ = self.parts.remove(name));
        for row in self.rows.clone() {
            let shape = row.parameter.shape.clone();
            self.add(attempt, row.parameter, &shape, false)?;
        }
        Ok(())
    }

    /// The flat rows; none, if each parameter has shards of its own.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    fn rows_of(&self, piece: Piece) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.piece == piece)
    }

    fn add(
        &mut self,
        attempt: &dyn Fsdp,
        parameter: Parameter,
        whole_shape: &[usize],
        is_trained: bool,
    ) -> Result<(), Error> {
        let cut = if self.sharing == 1 { Cut::Whole } else { attempt.cut(&parameter.name) };
        let shared = Shared { cut, whole: whole_shape.to_vec(), local: parameter.shape.clone() };
        if !shared.is_complete(self.sharing) {
            let found = format!("{cut:?} of {whole_shape:?}");
            let expected = format!("a cut into parts of {:?}", parameter.shape);
            return Err(Error::Step { step: "B.7", name: parameter.name, found, expected });
        }
        let placement = attempt.place(&parameter, self.ranks);
        check(&parameter, &placement, self.ranks).map_err(Error::Placement)?;
        let number = self.parameters.len();
        let parts = parameter.parts().into_iter().enumerate();
        self.parts.extend(parts.map(|(part, Part { name, .. })| (name, (number, part))));
        self.parameters.push(Placed { parameter, shared, placement, is_trained });
        Ok(())
    }

    /// A parameter, by the name of one of its parts; `None` if none has the name.
    pub fn placed(&self, name: &str) -> Option<&Placed> {
        self.parts.get(name).map(|(parameter, _)| &self.parameters[*parameter])
    }

    /// The parameters, in the order in which the model reads them.
    pub fn parameters(&self) -> &[Placed] {
        &self.parameters
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// A part and its shards, by the name of a graph's input; `None` if none has the name.
    pub fn part(&self, name: &str) -> Option<(Part, &Shards)> {
        let (parameter, part) = *self.parts.get(name)?;
        let Placed { parameter, placement, .. } = &self.parameters[parameter];
        Some((parameter.parts().swap_remove(part), &placement.parts[part]))
    }

    /// Whether a graph's input is a parameter that is trained.
    pub fn is_trained(&self, name: &str) -> bool {
        self.parts.get(name).is_some_and(|(parameter, _)| self.parameters[*parameter].is_trained)
    }

    /// The trained parameters: names, and types of this rank's shards.
    pub fn trained(&self) -> Vec<(String, Type)> {
        let trained = self.parameters.iter().filter(|placed| placed.is_trained);
        let typed = trained.map(|placed| {
            (placed.parameter.name.clone(), Type::new(Dtype::F32, [placed.placement.parts[0].len]))
        });
        typed.collect()
    }

    fn group(&self) -> Group {
        Group::new(FSDP, self.ranks)
    }

    fn sharers(&self) -> Group {
        Group::new(TP, self.sharing)
    }
}

/// Everything that the pieces of a model read and that is its own, by name, and whether it is trained.
fn parameters(spec: &Spec) -> Result<BTreeMap<String, (Parameter, bool)>, Error> {
    let mut weights: BTreeMap<String, Parameter> = BTreeMap::new(); // by the names of their parts
    for tensor in spec.config.tensor_specs() {
        let storage = spec.storages.get(&tensor.name).copied();
        let storage = storage.unwrap_or(Storage::Dense(spec.compute));
        let parameter = Parameter { name: tensor.name, shape: tensor.shape, storage };
        weights.extend(parameter.parts().into_iter().map(|part| (part.name, parameter.clone())));
    }
    let mut all = BTreeMap::new();
    for piece in spec.pieces() {
        let graph = spec.piece(piece)?;
        for (name, id) in graph.inputs() {
            let own = piece.own_name(name);
            let found = match weights.get(&own) {
                Some(weight) => (weight.clone(), false),
                None if name.starts_with("base_model.") => (trained(own, graph.ty(id))?, true),
                None => continue,
            };
            all.insert(found.0.name.clone(), found);
        }
    }
    Ok(all)
}

/// A trained parameter.
fn trained(name: String, ty: &Type) -> Result<Parameter, Error> {
    let shape: Vec<usize> = ty.shape.iter().filter_map(Dim::as_fixed).map(|size| size as usize).collect();
    if ty.dtype == Dtype::F32 && shape.len() == ty.shape.len() {
        return Ok(Parameter { name, shape, storage: Storage::Dense(Dtype::F32) });
    }
    Err(Error::Trained { name })
}

/// The graphs of every piece, in the order of the pieces.
///
/// # Errors
/// If what the attempt writes is not what its steps ask for.
pub fn pieces(attempt: &dyn Fsdp, layout: &Layout) -> Result<Vec<PieceGraphs>, Error> {
    let mut is_needed = false; // whether a piece before has a gradient
    let mut all: Vec<PieceGraphs> = Vec::new();
    let mut last: Option<Source> = None; // of the piece before
    for piece in layout.spec.pieces() {
        let source = Source::of(layout, piece, is_needed)?;
        let graphs = if let Some(alike) = all.last().filter(|_| last.as_ref() == Some(&source)) {
            PieceGraphs { piece, ..alike.clone() }
        } else {
            let (first, graphs) = (all.len(), Arc::new(written(attempt, layout, piece, &source)?));
            PieceGraphs { piece, first, graphs }
        };
        is_needed |= graphs.training.outputs().iter().any(|(name, _)| name.starts_with(GRADIENT));
        last = Some(source);
        all.push(graphs);
    }
    Ok(all)
}

/// The inputs from which a piece's graphs are written; two layers with equal sources share their graphs.
#[derive(PartialEq)]
struct Source {
    graph: Graph,
    shards: Vec<Option<(Shards, Cut, bool)>>, // of each input, and of each flat row
    is_stream_needed: bool,
}

impl Source {
    fn of(layout: &Layout, piece: Piece, is_stream_needed: bool) -> Result<Self, Error> {
        let graph = layout.spec.piece(piece)?;
        let of = |name: &str| {
            let own = piece.own_name(name);
            let (_, shards) = layout.part(&own)?;
            Some((shards.clone(), layout.placed(&own)?.shared.cut, layout.is_trained(&own)))
        };
        let rows = layout.rows_of(piece).map(|row| piece.canonical_name(&row.parameter.name));
        let names = graph.inputs().map(|(name, _)| name.to_owned()).chain(rows);
        let shards = names.map(|name| of(&name)).collect();
        Ok(Self { graph, shards, is_stream_needed })
    }
}

fn written(attempt: &dyn Fsdp, layout: &Layout, piece: Piece, source: &Source) -> Result<Graphs, Error> {
    let forward = shared(attempt, layout, source.graph.clone())?;
    let evaluation = shared(attempt, layout, layout.spec.evaluation_piece(piece)?)?;
    let share = 1.0 / layout.sharing as f64;
    let training = train::piece_graph_of(forward.clone(), layout.spec.compute, piece, share)?;
    let gather = gather(attempt, layout, piece, &training)?;
    let fixed =
        |id: Id| training.ty(id).shape.iter().filter_map(Dim::as_fixed).map(|size| size as usize).collect();
    let shapes = training.inputs().map(|(name, id)| (name.to_owned(), fixed(id))).collect();
    let training = in_shards(attempt, layout, piece, training, source.is_stream_needed)?;
    let gathered = gather.as_ref().map(part_specs).unwrap_or_default();
    let shards = gather.as_ref().map(shard_names).unwrap_or_default();
    let is_next_token = layout.spec.config.classifier.is_none(); // no other loss is computed in chunks
    let chunked =
        (piece == Piece::Head && is_next_token).then(|| chunked_head(attempt, layout, source)).transpose()?;
    Ok(Graphs { gather, gathered, shards, shapes, forward, evaluation, training, chunked })
}

fn chunked_head(attempt: &dyn Fsdp, layout: &Layout, source: &Source) -> Result<ChunkedHead, Error> {
    let spec = &layout.spec;
    let reduced = |graph: Graph| in_shards(attempt, layout, Piece::Head, graph, source.is_stream_needed);
    let weight_grad = spec.has_trained_head().then(|| train::gradients_from_weight(spec)).transpose()?;
    Ok(ChunkedHead {
        states: spec.head_states()?,
        weight: spec.output_layer()?,
        weight_grad: weight_grad.map(reduced).transpose()?,
        states_grad: reduced(train::gradients_from_states(spec)?)?,
    })
}

/// A piece with what ranks that share it do together.
fn shared(attempt: &dyn Fsdp, layout: &Layout, graph: Graph) -> Result<Graph, Error> {
    if layout.sharing == 1 {
        return Ok(graph);
    }
    let modules = layout.spec.config.projections().map(|(module, ..)| module);
    let module = |scope: &str| modules.into_iter().find(|module| scope.ends_with(module));
    let mut last: BTreeMap<&str, Id> = BTreeMap::new(); // the node that a projection ends with
    for id in graph.ids() {
        last.extend(module(&graph.node(id).scope).map(|module| (module, id)));
    }
    let mut wrong = None;
    let written = graph.rewrite(|to, id| {
        let here = to.copy(id)?;
        let Some((module, _)) = last.iter().find(|(_, last)| **last == id) else { return Ok(Some(here)) };
        let node = to.node(id);
        let builder = Builder::new("join");
        let y = builder.tape().input("y", node.ty.dtype, &node.ty.shape);
        let joined = attempt.join(module, &y, &layout.sharers());
        wrong = wrong.take().or(expect("B.7", module, &joined, &node.ty).err());
        builder.tape().output("y", &joined);
        to.inline(&builder.finish()?, &[here], Some(&node.scope)).map(|outputs| outputs.first().copied())
    });
    wrong.map_or(Ok(written?.graph), Err)
}

/// From shards to the whole parts that a piece reads.
fn gather(attempt: &dyn Fsdp, layout: &Layout, piece: Piece, reader: &Graph) -> Result<Option<Graph>, Error> {
    let builder = Builder::new("gather");
    let tape = builder.tape();
    let mut is_empty = true;
    for (name, _) in reader.inputs() {
        let Some((part, shards)) = layout.part(&piece.own_name(name)) else { continue };
        if shards.is_replicated() && !layout.is_trained(&piece.own_name(name)) {
            continue;
        }
        is_empty = false;
        let shard = tape.input(&shard_name(name), part.dtype, [shards.len]);
        let whole = attempt.gather(&shard, shards, &layout.group());
        let expected = Type::new(part.dtype, [part.elements()]);
        expect("B.2", name, &whole, &expected)?;
        tape.output(name, &whole);
        let _unread = tape.input(name, part.dtype, [part.elements()]);
    }
    for row in layout.rows_of(piece) {
        is_empty = false;
        gather_row(attempt, layout, row, tape)?;
    }
    if is_empty { Ok(None) } else { Ok(Some(builder.finish()?)) }
}

/// From a shard of a flat row to the parts that it holds.
fn gather_row(attempt: &dyn Fsdp, layout: &Layout, row: &Row, tape: &Tape) -> Result<(), Error> {
    let (part, shards) = layout.part(&row.parameter.name).expect("a row is a parameter");
    let name = row.piece.canonical_name(&part.name);
    let shard = tape.input(&shard_name(&name), part.dtype, [shards.len]);
    let whole = attempt.gather(&shard, shards, &layout.group());
    expect("B.2", &name, &whole, &Type::new(part.dtype, [part.elements()]))?;
    for (member, range) in &row.members {
        let name = row.piece.canonical_name(member);
        tape.output(&name, &whole.slice(0, range.start as i64, range.end as i64));
        let _unread = tape.input(&name, part.dtype, [range.len()]);
    }
    Ok(())
}

/// A piece with its gradients, those of what is trained handed out in shards and added to the sums. Of the first one
/// that is trained nobody needs the gradient of its x.
fn in_shards(
    attempt: &dyn Fsdp,
    layout: &Layout,
    piece: Piece,
    mut graph: Graph,
    is_stream_needed: bool,
) -> Result<Graph, Error> {
    let outputs: Vec<(String, Id)> = graph.outputs().to_vec();
    graph.clear_outputs();
    let builder = Builder::onto(graph);
    for (name, id) in outputs.into_iter().filter(|(name, _)| name != STREAM_GRAD || is_stream_needed) {
        let value = builder.tensor(id);
        let value = match name.strip_prefix(GRADIENT) {
            Some(parameter) => reduced(attempt, layout, &piece.own_name(parameter), &name, &value)?,
            None => value,
        };
        builder.tape().output(&name, &value);
    }
    Ok(builder.finish()?)
}

/// The prefix of the names of a piece whose parts are gathered while a different piece runs.
pub(super) const NEXT: &str = "next.";

/// The prefix of [`train::gradient`].
pub(super) const GRADIENT: &str = "grad.";

/// The sum so far of a gradient in shards, and what this micro-batch adds.
fn reduced(
    attempt: &dyn Fsdp,
    layout: &Layout,
    parameter: &str,
    name: &str,
    gradient: &Tensor,
) -> Result<Tensor, Error> {
    let (Some((_, shards)), Some(placed)) = (layout.part(parameter), layout.placed(parameter)) else {
        return Err(Error::Trained { name: parameter.to_owned() });
    };
    let mut total = gradient.clone();
    if layout.sharing > 1 {
        total = attempt.total(gradient, placed.shared.cut, &layout.sharers());
        expect("B.7", name, &total, gradient.ty())?;
    }
    let new = attempt.reduce(&total, shards, &layout.group());
    let ty = Type::new(Dtype::F32, [shards.len]);
    expect("B.4", name, &new, &ty)?;
    let sum = gradient.tape().input(name, ty.dtype, &ty.shape);
    Ok(&sum + &new)
}

fn expect(step: &'static str, name: &str, tensor: &Tensor, expected: &Type) -> Result<(), Error> {
    if tensor.ty() == expected {
        return Ok(());
    }
    let (found, expected) = (tensor.ty().to_string(), expected.to_string());
    Err(Error::Step { step, name: name.to_owned(), found, expected })
}

/// The end of a step, on the shards of some of what is trained.
///
/// # Errors
/// If the attempt's norm is not a number.
pub fn update(
    attempt: &dyn Fsdp,
    layout: &Layout,
    trained: &[(String, Type)],
    recipe: &Recipe,
    mesh: &Mesh,
) -> Result<Graph, Error> {
    let copies = |name: &str| match layout.placed(name) {
        Some(placed) if placed.shared.cut == Cut::Whole => layout.sharing,
        _ => 1,
    };
    let groups = mesh.axes().map(|axis| Group::new(axis, mesh.size(axis).unwrap_or(1)));
    let groups: Vec<Group> = groups.filter(|group| !group.size.is_one()).collect();
    let norm = |tape: &Tape, shards: &[Tensor]| {
        let shards = trained.iter().zip(shards);
        let gradients: Vec<Gradient> = shards
            .map(|((name, _), shard)| Gradient { shard: shard.clone(), copies: copies(name) })
            .collect();
        attempt.norm(tape, &gradients, &groups)
    };
    Ok(train::update_graph_with(trained, recipe, layout.spec.compute, &norm)?)
}
