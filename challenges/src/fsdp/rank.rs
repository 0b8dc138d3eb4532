//! One rank: its shards, its micro-batches, its part of an update.
//!
//! ```text
//! kept on the device    shards of weights, A and B, moments, sums of gradients; the x of every layer
//! a micro-batch         pieces forward, the loss, pieces backward; a piece's whole parts are there while it runs
//! the end of a step     the rates -> the norm; A, B and moments change in place, the sums are 0
//! ```
//!
//! All ranks run the same pieces in the same order, each on its own micro-batch; a rank that has none runs one of
//! padding. Its [`Session`] has the rank's groups, so that a program that gathers meets those of the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use compiler::groups::Groups;
use compiler::session::{Counters, DeviceTensor, Io, Program, Session, Settings};
use kernels::comm::{Collective, Comm};
use kernels::tile::Element;
use reference::fsdp::Cut;
use reference::graph::interpret::Values;
use reference::graph::ranks::Mesh;
use reference::graph::{Array, Dim, Graph, Symbol, Type};
use reference::llama::train::{self, LOSS_SCALE, Recipe, STREAM_GRAD};
use reference::llama::{DROPOUT_KEY, Llama, Piece, Spec, rope};
use reference::optim::AdamW;

use super::load::{Coordinates, Tensors, load};
use super::programs::{self, Layout, PieceGraphs, Placed, shard_name};
use super::{Error, FSDP, Fsdp, TP};
use crate::train::{Logged, LossScale, Machine, Microbatch};

/// A model on one of several ranks, with everything that its training changes.
pub struct Rank<'a> {
    session: Session<'a>,
    place: Place,
    layout: Layout,
    pieces: Vec<Programs>,
    update: Program,
    spec: Spec,
    optimizer: AdamW,
    scale: Option<LossScale>,                // of a model that computes in f16
    weights: Tensors,                        // shards of what is frozen
    trained: BTreeMap<String, DeviceTensor>, // shards of A, B, moments, sums of gradients
    whole: BTreeMap<String, DeviceTensor>,   // of the piece that runs, by canonical names
    stream: Vec<DeviceTensor>,               // the x of each piece, and the gradient of the last y
    tables: BTreeMap<String, DeviceTensor>,  // of the last length
}

/// A rank among the others.
struct Place {
    world: Arc<dyn Comm>,
    mesh: Mesh,
    at: Coordinates,
}

/// What a rank runs of a piece.
struct Programs {
    piece: Piece,
    gather: Option<Gather>,
    forward: Option<Program>,
    backward: Option<Program>,
    inputs: Vec<String>, // canonical names of its parameters' parts that nothing is gathered of
    grads: Vec<String>,  // canonical names of the sums that it adds to
    has_stream_grad: bool, // whether a piece before needs it
}

/// How a piece's whole parts come about.
struct Gather {
    program: Program,
    parts: Vec<(String, Type)>, // canonical names
}

impl<'a> Rank<'a> {
    /// This rank's part of a model, where it was when `state` was saved: A, B and, but at the beginning, moments, all of
    /// them whole. Every rank of the world calls this.
    ///
    /// # Errors
    /// If a placement is none, what the attempt writes is not what its steps ask for, there is nothing to train, or the
    /// device lacks the memory.
    pub fn new(
        on: Machine<'a>,
        (world, mesh): (Arc<dyn Comm>, &Mesh),
        attempt: &dyn Fsdp,
        model: &Llama,
        spec: Spec,
        recipe: &Recipe,
        state: &Values<f32>,
    ) -> Result<Self, Error> {
        let Machine { passes, device, dequantizer } = on;
        let place = Place::new(world, mesh)?;
        if let Some(ranks) = Some(place.at.sharing).filter(|ranks| *ranks > 1 && drops(&spec)) {
            return Err(Error::Dropout { ranks });
        }
        let layout = Layout::new(attempt, &spec, mesh)?;
        let settings = Settings { donate: true, ..Settings::default() };
        let groups = Groups::mesh(mesh, Arc::clone(&place.world)).map_err(Error::Groups)?;
        let mut session = Session::new(passes, device, dequantizer, settings).with_groups(groups);
        let mut loader = Loader { session: &mut session, loaded: Vec::new() };
        let pieces = programs::pieces(attempt, &layout)?;
        let pieces: Vec<Programs> =
            pieces.into_iter().map(|graphs| loader.piece(graphs, &layout)).collect::<Result<_, Error>>()?;
        let update = loader.load(&programs::update(attempt, &layout, recipe)?)?;
        let weights = load(device, model, &layout, place.at)?;
        let mut rank = Self {
            session,
            layout,
            pieces,
            update,
            optimizer: recipe.optimizer,
            scale: train::is_scaled(spec.compute).then(LossScale::default),
            weights,
            trained: BTreeMap::new(),
            whole: BTreeMap::new(),
            stream: Vec::new(),
            tables: BTreeMap::new(),
            spec,
            place,
        };
        rank.begin(state)?;
        Ok(rank)
    }

    /// Puts this rank's shards of a state on the device; what it has not is zeros.
    fn begin(&mut self, state: &Values<f32>) -> Result<(), Error> {
        for (name, ty) in self.layout.trained() {
            let (part, shards) = self.layout.part(&name).expect("what is trained is a parameter");
            let Placed { shared, .. } = self.layout.placed(&name).expect("as well");
            let (element, at) = (part.dtype.bytes(), self.place.at);
            let [first, second] = train::moments(&name);
            for kept in [name.clone(), first, second, train::gradient(&name)] {
                let bytes = match state.get(&kept) {
                    Some(value) => {
                        let own = shared.part(&value.to_memory(), element, at.part);
                        shards.cut(&own, element, at.shard)
                    }
                    None => vec![0; shards.len * part.dtype.bytes()],
                };
                let tensor = self.on_device(&kept, &numbers(&ty), &bytes)?;
                self.trained.insert(kept, tensor);
            }
        }
        Ok(())
    }

    fn on_device(&self, name: &str, shape: &[usize], bytes: &[u8]) -> Result<DeviceTensor, Error> {
        let made = DeviceTensor::new(self.session.device(), shape, bytes);
        made.map_err(|source| Error::Device { input: name.to_owned(), source })
    }

    fn upload(&self, name: &str, value: &Array<f32>) -> Result<DeviceTensor, Error> {
        self.on_device(name, &value.shape, &value.to_memory())
    }

    /// Adds the micro-batches of a step, those of all ranks, each with what the masks of its dropout are drawn from;
    /// `items` are the tokens that count in all of them. They are dealt out in turn, and this rank computes its own. What
    /// is logged of each, on every rank.
    ///
    /// # Errors
    /// What the session says, or another rank.
    pub fn accumulate(&mut self, all: &[(Microbatch, [i32; 2])], items: u64) -> Result<Vec<Logged>, Error> {
        let (own, ranks) = (self.place.at.shard, self.layout.ranks());
        let mut logged = Vec::new();
        for round in all.chunks(ranks) {
            let shape = common_shape(round.iter().map(|(batch, _)| batch));
            let (batch, key) = match round.get(own) {
                Some((batch, key)) => (batch.padded(shape), *key),
                None => (Microbatch::padding(shape), [0; 2]),
            };
            logged.push(self.microbatch(&batch, items, key)?);
        }
        self.in_turn(&logged, all.len())
    }

    /// What every rank logged, in the order in which micro-batches are dealt out.
    fn in_turn(&self, own: &[Logged], count: usize) -> Result<Vec<Logged>, Error> {
        let text: Vec<String> = own.iter().map(Logged::to_bits_text).collect();
        let texts = self.place.world.exchange(&text.join("\n"))?;
        let of_lane = |rank: usize| texts[rank].lines().filter_map(Logged::from_bits_text).collect();
        let all: Vec<Vec<Logged>> = self.place.lanes().map(of_lane).collect();
        let one = |number: usize| all[number % all.len()][number / all.len()];
        Ok((0..count).map(one).collect())
    }

    /// Adds this rank's micro-batch of a round.
    fn microbatch(&mut self, batch: &Microbatch, items: u64, key: [i32; 2]) -> Result<Logged, Error> {
        let sizes = self.rounded(batch)?;
        let batch = batch.padded(["B", "T"].map(|symbol| sizes[symbol] as usize));
        self.fit(&batch)?;
        let own = self.own_inputs(&batch, items, key)?;
        let head = self.pieces.len() - 1;
        for piece in 0..head {
            self.gather(piece)?;
            self.forward(piece, &own, &sizes)?;
        }
        self.gather(head)?;
        let logged = self.backward(head, &own, &sizes)?;
        for piece in (0..head).rev() {
            if self.pieces[piece].backward.is_some() {
                self.gather(piece)?;
                self.backward(piece, &own, &sizes)?;
            }
        }
        Ok(logged)
    }

    /// The sizes that are compiled for a batch.
    fn rounded(&self, batch: &Microbatch) -> Result<BTreeMap<Symbol, i64>, Error> {
        let sizes =
            BTreeMap::from([("B".into(), batch.shape[0] as i64), ("T".into(), batch.shape[1] as i64)]);
        let program = self.pieces.iter().find_map(|piece| piece.forward).expect("an embedding");
        Ok(self.session.rounded(program, &sizes)?)
    }

    /// The rotary tables of a batch, and memory for the residual stream between the pieces.
    fn fit(&mut self, batch: &Microbatch) -> Result<(), Error> {
        let length = if self.spec.rows.positions { self.spec.config.positions } else { batch.shape[1] };
        if self.tables.values().all(|table| table.shape[0] != length) {
            let tables: Values<f32> = rope::values(&self.spec.config, length);
            let tables =
                tables.into_iter().map(|(name, table)| Ok((name.clone(), self.upload(&name, &table)?)));
            self.tables = tables.collect::<Result<_, Error>>()?;
        }
        let [rows, tokens] = batch.shape;
        let shape = vec![rows, tokens, self.spec.config.hidden];
        if self.stream.first().is_none_or(|x| x.shape != shape) {
            self.stream.clear(); // first, so that both are never there together
            let bytes = shape.iter().product::<usize>() * self.spec.compute.bytes();
            for _ in 0..self.pieces.len() {
                let alloc = self.session.device().alloc("stream", bytes);
                let buffer = alloc.map_err(|source| Error::Device { input: "x".into(), source })?;
                self.stream.push(DeviceTensor { shape: shape.clone(), buffer });
            }
        }
        Ok(())
    }

    /// What changes from micro-batch to micro-batch. A graph takes of it what it has.
    fn own_inputs(
        &self,
        batch: &Microbatch,
        items: u64,
        key: [i32; 2],
    ) -> Result<Vec<(&'static str, DeviceTensor)>, Error> {
        let factor = self.scale.map_or(1.0, |scale| scale.factor);
        let rows = |values: &Vec<i32>| Array::integers(&batch.shape, values.clone());
        let all = [
            ("ids", rows(&batch.ids)),
            ("labels", rows(&batch.labels)),
            ("positions", rows(&batch.positions)),
            ("documents", rows(&batch.documents)),
            (DROPOUT_KEY, Array::integers(&[2], key.to_vec())),
            ("items", Array::scalar(items as f64)),
            (LOSS_SCALE, Array::scalar(factor)),
        ];
        all.into_iter().map(|(name, value)| Ok((name, self.upload(name, &value)?))).collect()
    }

    /// Puts the whole parts of a piece together, in the memory of those of the piece before where they are as large.
    fn gather(&mut self, piece: usize) -> Result<(), Error> {
        let Programs { piece, gather, .. } = &self.pieces[piece];
        let Some(Gather { program, parts }) = gather else { return Ok(()) };
        let shape_of = |ty: &Type| numbers(ty);
        let fits = |whole: &BTreeMap<String, DeviceTensor>| {
            let same =
                |(name, ty): &(String, Type)| whole.get(name).is_some_and(|old| old.shape == shape_of(ty));
            whole.len() == parts.len() && parts.iter().all(same)
        };
        if !fits(&self.whole) {
            self.whole.clear(); // first, so that both are never there together
            for (name, ty) in parts {
                let shape = shape_of(ty);
                let bytes = shape.iter().product::<usize>() * ty.dtype.bytes();
                let alloc = self.session.device().alloc("whole", bytes);
                let buffer = alloc.map_err(|source| Error::Device { input: name.clone(), source })?;
                self.whole.insert(name.clone(), DeviceTensor { shape, buffer });
            }
        }
        let mut io = Io::default();
        let names: Vec<(String, String)> =
            parts.iter().map(|(name, _)| (shard_name(name), piece.own_name(name))).collect();
        for (shard, own) in &names {
            let tensor = self.weights.get(own).or_else(|| self.trained.get(own));
            io.inputs.extend(tensor.map(|tensor| (shard.as_str(), tensor)));
        }
        io.donated = self.whole.iter_mut().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        self.session.run(*program, io)?;
        Ok(())
    }

    /// From a piece's x to its y, which is the next piece's x.
    fn forward(
        &mut self,
        number: usize,
        own: &[(&'static str, DeviceTensor)],
        sizes: &BTreeMap<Symbol, i64>,
    ) -> Result<(), Error> {
        let Self { session, pieces, weights, whole, stream, tables, .. } = self;
        let piece = &pieces[number];
        let Some(program) = piece.forward else { return Ok(()) };
        let mut io = Io { sizes: sizes.clone(), ..Io::default() };
        let (before, after) = stream.split_at_mut(number);
        piece.given(&mut io, own, weights, whole, tables);
        io.inputs.extend(before.last().map(|x| ("x", x)));
        io.donated.insert("y", &mut after[0]);
        session.run(program, io)?;
        Ok(())
    }

    /// From the gradient of a piece's y to that of its x, and what is logged of the last piece.
    fn backward(
        &mut self,
        number: usize,
        own: &[(&'static str, DeviceTensor)],
        sizes: &BTreeMap<Symbol, i64>,
    ) -> Result<Logged, Error> {
        let Self { session, pieces, weights, whole, stream, tables, trained, .. } = self;
        let piece = &pieces[number];
        let Some(program) = piece.backward else { return Ok(Logged::default()) };
        let mut io = Io { sizes: sizes.clone(), ..Io::default() };
        piece.given(&mut io, own, weights, whole, tables);
        let (xs, gradient) = stream.split_at_mut(pieces.len() - 1);
        io.inputs.extend(number.checked_sub(1).map(|before| ("x", &xs[before])));
        if piece.has_stream_grad {
            io.donated.insert(STREAM_GRAD, &mut gradient[0]);
        } else {
            io.inputs.insert(STREAM_GRAD, &gradient[0]);
        }
        let sums: BTreeMap<String, &String> =
            piece.grads.iter().map(|name| (piece.piece.own_name(name), name)).collect();
        for (name, tensor) in trained.iter_mut() {
            io.donated.extend(sums.get(name).map(|canonical| (canonical.as_str(), tensor)));
        }
        let outputs = session.run(program, io)?;
        if piece.piece != Piece::Head {
            return Ok(Logged::default());
        }
        let number = |name: &str| {
            let value = outputs.array(name)?;
            Ok::<f64, Error>(value.wide().first().copied().unwrap_or(f64::NAN))
        };
        Ok(Logged {
            loss: number("loss")?,
            counted: number("counted")?,
            correct: number("correct")?,
            entropy: number("entropy")?,
        })
    }

    /// Ends a step; `step` counts the updates that were made, this one among them. The norm of its gradient before the
    /// bound, the same on every rank: where it is not finite, A, B and the moments are what they were, and the update is
    /// not to be counted.
    ///
    /// # Errors
    /// What the session says, or another rank.
    pub fn update(&mut self, step: u64, rate: f64) -> Result<f64, Error> {
        let mut rates: Values<f32> = self.optimizer.rates(step, rate);
        let factor = self.scale.map_or(1.0, |scale| scale.factor);
        rates.insert(LOSS_SCALE.to_owned(), Array::scalar(factor));
        let rates = rates.iter().map(|(name, value)| Ok((name.clone(), self.upload(name, value)?)));
        let rates: BTreeMap<String, DeviceTensor> = rates.collect::<Result<_, Error>>()?;
        let mut io = Io::from(&rates);
        io.donated = self.trained.iter_mut().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let outputs = self.session.run(self.update, io)?;
        let norm = outputs.array("grad_norm")?;
        let norm = norm.wide().first().copied().unwrap_or(f64::NAN);
        if let Some(scale) = &mut self.scale {
            scale.update(norm.is_finite());
        }
        Ok(norm)
    }

    /// This rank's shard of what a run goes on from: A, B or a moment.
    fn shard(&self, name: &str) -> Result<Vec<u8>, Error> {
        let tensor = &self.trained[name];
        let mut bytes = vec![0; tensor.buffer.bytes()];
        let done = self.session.device().download(&tensor.buffer, &mut bytes);
        done.map_err(|source| Error::Device { input: name.to_owned(), source })?;
        Ok(bytes)
    }

    /// Everything that a run goes on from, A, B and the moments, whole. Every rank calls this.
    ///
    /// # Errors
    /// If a device cannot copy them, and what another rank says.
    pub fn state(&self) -> Result<Values<f32>, Error> {
        let mut state = Values::new();
        for (name, _) in self.layout.trained() {
            let [first, second] = train::moments(&name);
            for kept in [&name, &first, &second] {
                state.insert(kept.clone(), self.whole(&name, kept)?);
            }
        }
        Ok(state)
    }

    /// A trained parameter, or one of its moments, from everyone's shards.
    fn whole(&self, name: &str, kept: &str) -> Result<Array<f32>, Error> {
        let (part, shards) = self.layout.part(name).expect("what is trained is a parameter");
        let Placed { shared, .. } = self.layout.placed(name).expect("as well");
        let own = self.shard(kept)?;
        let mut all = vec![0; own.len() * self.place.world.world()];
        let gather = Collective::all_gather(Element::U8, own.len());
        self.place.world.run(&gather, own[..].into(), (&mut all[..]).into())?;
        let element = part.dtype.bytes();
        let part_of = |sharing: usize| {
            let shards_of = self.place.lanes_of(sharing).map(|rank| &all[rank * own.len()..][..own.len()]);
            shards.whole(&shards_of.collect::<Vec<_>>(), element)
        };
        let parts: Vec<Vec<u8>> = (0..self.place.at.sharing).map(part_of).collect();
        let parts = if shared.cut == Cut::Whole { &parts[..1] } else { &parts[..] };
        Ok(Array::from_memory(part.dtype, &shared.whole, &shared.together(parts, element)))
    }

    /// Where everything lies.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Bytes of the frozen weights that this rank holds.
    pub fn weight_bytes(&self) -> usize {
        self.weights.bytes()
    }

    /// All ranks.
    pub fn world(&self) -> &Arc<dyn Comm> {
        &self.place.world
    }

    /// What the loss is multiplied by, if the model computes in f16.
    pub fn loss_scale(&self) -> Option<LossScale> {
        self.scale
    }

    /// What the session has done so far.
    pub fn counters(&self) -> &Counters {
        self.session.counters()
    }
}

impl Place {
    fn new(world: Arc<dyn Comm>, mesh: &Mesh) -> Result<Self, Error> {
        if let Some(axis) = mesh.axes().find(|axis| ![FSDP, TP].contains(axis)) {
            return Err(Error::Axis { found: axis.to_owned() });
        }
        let along = |axis: &str| {
            let group = mesh.group(world.rank(), axis).unwrap_or_default();
            group.iter().position(|rank| *rank == world.rank()).unwrap_or(0)
        };
        let at = Coordinates { shard: along(FSDP), part: along(TP), sharing: mesh.size(TP).unwrap_or(1) };
        Ok(Self { mesh: mesh.clone(), at, world })
    }

    /// The ranks that know what is logged: one for each lane of micro-batches.
    fn lanes(&self) -> impl Iterator<Item = usize> {
        self.lanes_of(0)
    }

    /// The ranks, by their shards, that have one part of each layer.
    fn lanes_of(&self, part: usize) -> impl Iterator<Item = usize> {
        let first = self.mesh.group(0, TP).map_or(0, |group| group[part]);
        self.mesh.group(first, FSDP).unwrap_or_else(|| vec![first]).into_iter()
    }
}

/// Whether a model drops anything.
fn drops(spec: &Spec) -> bool {
    spec.dropout && spec.adapter.as_ref().is_some_and(|adapter| adapter.dropout > 0.0)
}

impl Programs {
    /// What a program of the piece reads that is there before.
    fn given<'b>(
        &'b self,
        io: &mut Io<'b>,
        own: &'b [(&'static str, DeviceTensor)],
        weights: &'b Tensors,
        whole: &'b BTreeMap<String, DeviceTensor>,
        tables: &'b BTreeMap<String, DeviceTensor>,
    ) {
        io.inputs.extend(own.iter().map(|(name, tensor)| (*name, tensor)));
        io.inputs.extend(tables.iter().map(|(name, tensor)| (name.as_str(), tensor)));
        io.inputs.extend(whole.iter().map(|(name, tensor)| (name.as_str(), tensor)));
        for name in &self.inputs {
            let tensor = weights.get(&self.piece.own_name(name));
            io.inputs.extend(tensor.map(|tensor| (name.as_str(), tensor)));
        }
    }
}

/// Loads each graph once.
struct Loader<'s, 'a> {
    session: &'s mut Session<'a>,
    loaded: Vec<(Graph, Program)>,
}

impl Loader<'_, '_> {
    fn load(&mut self, graph: &Graph) -> Result<Program, Error> {
        if let Some((_, program)) = self.loaded.iter().find(|(other, _)| other == graph) {
            return Ok(*program);
        }
        let program = self.session.load(graph)?;
        self.loaded.push((graph.clone(), program));
        Ok(program)
    }

    fn piece(&mut self, graphs: PieceGraphs, layout: &Layout) -> Result<Programs, Error> {
        let PieceGraphs { piece, gather, forward, backward } = graphs;
        let both = || forward.iter().chain(&backward).flat_map(Graph::inputs);
        let gathered = gather.as_ref().map_or_else(Vec::new, |graph| {
            let outputs = graph.outputs().iter();
            outputs.map(|(name, id)| (name.clone(), graph.ty(*id).clone())).collect()
        });
        let is_gathered = |name: &str| gathered.iter().any(|(other, _)| other == name);
        let is_part = |name: &str| layout.part(&piece.own_name(name)).is_some() && !is_gathered(name);
        let mut inputs: Vec<String> =
            both().map(|(name, _)| name.to_owned()).filter(|name| is_part(name)).collect();
        inputs.dedup();
        let has_stream_grad = backward.as_ref().is_some_and(|graph| graph.find_output(STREAM_GRAD).is_some());
        let sums = backward.iter().flat_map(|graph| graph.outputs());
        let grads = sums.map(|(name, _)| name.clone()).filter(|name| name.starts_with("grad.")).collect();
        let mut load = |graph: Option<Graph>| graph.map(|graph| self.load(&graph)).transpose();
        let program = load(gather)?;
        Ok(Programs {
            piece,
            gather: program.map(|program| Gather { program, parts: gathered }),
            forward: load(forward)?,
            backward: load(backward)?,
            inputs,
            grads,
            has_stream_grad,
        })
    }
}

/// The shape that holds some micro-batches, the same on every rank.
fn common_shape<'b>(batches: impl Iterator<Item = &'b Microbatch>) -> [usize; 2] {
    batches.fold([0, 0], |[rows, tokens], batch| [rows.max(batch.shape[0]), tokens.max(batch.shape[1])])
}

/// The sizes of a type without symbols.
fn numbers(ty: &Type) -> Vec<usize> {
    ty.shape.iter().filter_map(Dim::as_fixed).map(|size| size as usize).collect()
}
