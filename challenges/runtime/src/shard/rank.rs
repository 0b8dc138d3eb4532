//! One rank: its shards, its micro-batches, its part of an update.
//!
//! ```text
//! kept on the device    shards of weights, A and B, moments, sums of gradients; the x of every layer
//! a micro-batch         pieces forward, the loss, pieces backward; a piece's whole parts are there while it runs
//! the end of a step     the rates -> the norm; A, B and moments change in place, the sums are 0
//!
//! place       where the rank is in the mesh, and the ranks that it does things with
//! work        the pieces on the device: their programs, and what these read and write
//! flight      micro-batches on their way, and the memory that they use again
//! pipeline    a line of a schedule, operation by operation
//! shards      what of A, B and the moments is a rank's own, to be written by it
//! trace       when the rank did what in its last step
//! ```
//!
//! All ranks of a stage run the same pieces in the same order, each on its own micro-batch and at its own size; a rank
//! that has none runs one of padding.

mod flight;
mod pipeline;
mod place;
mod shards;
mod trace;
mod work;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use compiler::compile::{Level, Options};
use compiler::groups::Groups;
use compiler::session::{Counters, DeviceTensor, Io, Program, Session, Settings};
use compiler::store::Store;
use kernels::comm::{Collective, Comm};
use kernels::tile::Element;
use reference::fsdp::Cut;
use reference::graph::interpret::Values;
use reference::graph::ranks::Mesh;
use reference::graph::{Array, Symbol, Type};
use reference::llama::train::{self, LOSS_SCALE, Recipe};
use reference::llama::{DROPOUT_KEY, Llama, Spec, rope};
use reference::optim::AdamW;
use reference::schedule::{
    self, Held, Operation, Placement, Schedule, Shape, Stage, Times, Workload, one_f_one_b,
};

use super::load::{Tensors, blank, load};
use super::programs::{self, Layout, PieceGraphs, Placed};
use super::{Error, Fsdp, Host, LayerBytes, Sharding};
use crate::engine::{Logged, LossScale, Machine, Microbatch};
use flight::{Flight, shape};
use pipeline::{Line, one_by_one, pieces_of, read_only};
use place::Place;
use work::Work;

pub use shards::Slice;
pub use trace::{Event, EventKind, Interval, Semaphore, Trace};
pub use work::Traffic;

/// The ranks that train a model together.
#[derive(Clone)]
pub struct Team<'a> {
    /// All of them.
    pub world: Arc<dyn Comm>,
    /// How they lie.
    pub mesh: &'a Mesh,
    /// What stages do, where the mesh has some; `None` for 1F1B with recomputation.
    pub pipeline: Option<&'a Pipeline<'a>>,
    /// What there is room for on each.
    pub room: Room,
    /// What is cut into shards.
    pub sharding: Sharding,
    /// What they compile, each program once for all of them. One for every team and set of passes.
    pub store: Store,
}

/// Room on a rank's device beyond what it cannot do without: its shards, a gathered piece at a time, and an arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes for whole parts that stay between forward and backward.
    pub kept_bytes: usize,
    /// Bytes for two gathered pieces, one of which is on its way.
    pub prefetch_bytes: usize,
    /// Bytes for the activations of a micro-batch, where there is no pipeline, whose schedule decides.
    pub activation_bytes: usize,
    /// Whether activations may go to the host.
    pub host: Host,
    /// Whether shards of what is frozen lie on the host, and come to the device when they are gathered.
    pub has_shards_on_host: bool,
}

/// Operations between ranks that may be in flight while a rank computes, where gathers are started early: as many as a
/// piece has parts, whatever they are.
const IN_FLIGHT: usize = 1024;

/// What the stages of a pipeline do.
pub struct Pipeline<'a> {
    /// Stages on each rank.
    pub chunks: usize,
    /// How stages lie on ranks.
    pub placement: Placement,
    /// What it costs.
    pub workload: Workload,
    /// The schedule of a step, by its shape.
    pub schedule: &'a Schedules<'a>,
    /// How many ranks compute at a time, where there are more of them than cores and operations are timed; `None` if
    /// all do.
    pub slots: Option<&'a Semaphore>,
}

/// Schedules by their shape.
pub type Schedules<'a> = dyn Fn(Shape, &Workload) -> Result<Schedule, schedule::Error> + Sync + 'a;

/// The micro-batches that ranks work on at the same time.
struct Round {
    all: Vec<usize>,    // by the number of the shard; of the last round some may be missing
    own: Option<usize>, // this rank's; else it runs one of padding
    shape: [usize; 2],  // of that
}

/// A model on one of several ranks, with everything that its training changes.
pub struct Rank<'a> {
    place: Place,
    layout: Layout,
    work: Work<'a>,
    updates: Session<'a>, // what all ranks do at the end of a step
    update: Program,
    trained: Vec<(String, Type)>, // this rank's shards
    spec: Spec,
    optimizer: AdamW,
    scale: Option<LossScale>, // of a model that computes in f16
    tables: Arc<BTreeMap<String, DeviceTensor>>,
    pipeline: Option<&'a Pipeline<'a>>,
    stages: Shape, // of whatever number of micro-batches
    attempt: &'a dyn Fsdp,
    room: Room,
    own: Vec<usize>, // the pieces of its stages
}

impl<'a> Rank<'a> {
    /// This rank's part of a model, where it was when `state` was saved: A, B and, but at the beginning, moments, all
    /// of them whole. Every rank of the world calls this.
    ///
    /// # Errors
    /// If a placement is none, what the attempt writes is not what its steps ask for, ranks cannot share the model as
    /// the mesh says, or the device lacks the memory.
    pub fn new(
        on: Machine<'a>,
        team: Team<'a>,
        attempt: &'a dyn Fsdp,
        model: &Llama,
        spec: Spec,
        recipe: &Recipe,
        state: &Values<f32>,
    ) -> Result<Self, Error> {
        let is_on_host = team.room.has_shards_on_host;
        if team.sharding == Sharding::Flat && spec.storages != *model.storages() {
            return Err(Error::Flat { found: "weights that are quantised while they are loaded" });
        }
        let mut rank = Self::without_weights(on, team, attempt, spec, recipe)?;
        let (layout, at, storages) = (&rank.layout, rank.place.at, &rank.spec.storages);
        let is_own = |name: &str| rank.is_own(name);
        rank.work.weights = load(on.device, model, storages, layout, at, is_on_host, is_own)?;
        rank.begin(state)?;
        Ok(rank)
    }

    /// This rank's part of a model of which only the sizes are known: what its weights hold is whatever the device has.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn blank(
        on: Machine<'a>,
        team: Team<'a>,
        attempt: &'a dyn Fsdp,
        spec: Spec,
        recipe: &Recipe,
    ) -> Result<Self, Error> {
        let is_on_host = team.room.has_shards_on_host;
        let mut rank = Self::without_weights(on, team, attempt, spec, recipe)?;
        rank.work.weights = blank(on.device, &rank.layout, is_on_host, |name| rank.is_own(name))?;
        rank.begin(&Values::new())?;
        Ok(rank)
    }

    fn without_weights(
        on: Machine<'a>,
        Team { world, mesh, pipeline, room, sharding, store }: Team<'a>,
        attempt: &'a dyn Fsdp,
        spec: Spec,
        recipe: &Recipe,
    ) -> Result<Self, Error> {
        let Machine { passes, device, dequantizer } = on;
        let place = Place::new(world, mesh)?;
        let (chunks, placement) = pipeline.map_or((1, Placement::Looped), |it| (it.chunks, it.placement));
        let stages = Shape::new(place.at.stages, chunks, 1, placement)?;
        check_sizes(&spec, &place, stages)?;
        if pipeline.is_some_and(|it| it.slots.is_some()) && mesh.ranks() > place.at.stages {
            return Err(Error::Slots { ranks: mesh.ranks(), stages: place.at.stages });
        }
        let layout = Layout::new(attempt, &spec, mesh, sharding)?;
        let overlapped = Options { in_flight: IN_FLIGHT, ..Level::default().options() };
        let options = (room.prefetch_bytes > 0).then_some(overlapped);
        let settings = Settings { donate: true, options, ..Settings::default() };
        let session = |groups| {
            let session = Session::new(passes, device, dequantizer, settings.clone());
            session.with_groups(groups).with_store(store.clone())
        };
        let mut updates = session(Groups::mesh(mesh, Arc::clone(&place.world)).map_err(Error::from)?);
        let pieces = programs::pieces(attempt, &layout)?;
        let own: Vec<usize> = own_pieces(stages, place.at.stage, &spec).into_iter().flatten().collect();
        let is_own = |name: &str| own.iter().any(|number| pieces[*number].reads(name));
        let trained: Vec<(String, Type)> =
            layout.trained().into_iter().filter(|(name, _)| is_own(name)).collect();
        let update = updates.load(&programs::update(attempt, &layout, &trained, recipe, mesh)?)?;
        let mut rank = Self {
            work: Work::new(session(place.groups()?), pieces, Tensors::default()),
            updates,
            update,
            trained,
            optimizer: recipe.optimizer,
            scale: train::is_scaled(spec.compute).then(LossScale::default),
            tables: Arc::default(),
            pipeline,
            stages,
            attempt,
            room,
            layout,
            spec,
            place,
            own,
        };
        if stages.stages() == 1 {
            rank.choose_whole_parts()?;
        }
        Ok(rank)
    }

    /// Whether a piece of this rank reads a parameter, or a part of one.
    fn is_own(&self, name: &str) -> bool {
        self.own.iter().any(|number| self.work.pieces[*number].reads(name))
    }

    /// B.3 and B.5: which whole parts stay, and which gathers start early.
    fn choose_whole_parts(&mut self) -> Result<(), Error> {
        let last = self.work.pieces.len() - 1;
        let bytes: Vec<usize> = self.work.pieces.iter().map(PieceGraphs::gathered_bytes).collect();
        let mut kept = self.attempt.keep(&bytes[..last], self.room.kept_bytes);
        let needed = kept.iter().zip(&bytes).filter(|(kept, _)| **kept).map(|(_, bytes)| bytes).sum();
        answers("B.3", kept.len(), last)?;
        fits("B.3", needed, self.room.kept_bytes)?;
        kept.push(false); // the head's backward follows its forward
        let order = self.work.order(&kept);
        let gathered: Vec<usize> = order.iter().map(|gather| bytes[gather.piece]).collect();
        let early = self.attempt.prefetch(&gathered, self.room.prefetch_bytes);
        answers("B.5", early.len(), gathered.len())?;
        for (number, _) in early.iter().enumerate().filter(|(_, is_early)| **is_early) {
            let before = number.checked_sub(1).map_or(usize::MAX, |before| gathered[before]);
            fits("B.5", gathered[number].saturating_add(before), self.room.prefetch_bytes)?;
        }
        self.work.follow(kept, order.into_iter().zip(early));
        Ok(())
    }

    /// B.6: what stays of each layer of the step's largest micro-batch, and where. The same on every rank, since ranks
    /// run the same programs.
    fn choose_activations(&mut self) -> Result<(), Error> {
        let tokens = |sizes: &&BTreeMap<Symbol, i64>| sizes.values().product::<i64>();
        let Some(largest) = self.work.sizes.iter().max_by_key(tokens).cloned() else { return Ok(()) };
        let layers = 1..self.work.pieces.len() - 1;
        let bytes: Vec<LayerBytes> = layers
            .clone()
            .map(|piece| self.work.activation_bytes(piece, &largest))
            .collect::<Result<_, _>>()?;
        let chosen = self.attempt.activations(&bytes, self.room.activation_bytes, self.room.host);
        answers("B.6", chosen.len(), bytes.len())?;
        let kept = chosen.iter().zip(&bytes).filter(|(own, _)| own.is_kept && !own.is_on_host);
        let needed: usize = kept.map(|(_, bytes)| bytes.x + bytes.kept).sum();
        fits("B.6", needed, self.room.activation_bytes)?;
        if let Some(layer) = chosen.iter().position(|own| own.is_on_host && self.room.host == Host::Unused) {
            let (found, expected) = ("the host".to_owned(), "the device".to_owned());
            return Err(Error::Step { step: "B.6", name: format!("layer {layer}"), found, expected });
        }
        self.work.activations = layers.zip(chosen).collect();
        Ok(())
    }

    /// Puts this rank's shards of a state on the device; what it has not is zeros.
    fn begin(&mut self, state: &Values<f32>) -> Result<(), Error> {
        for (name, value) in state.iter().filter(|(name, _)| name.starts_with("trainable_tokens.")) {
            let tensor = self.upload(name, value)?;
            self.work.constants.insert(name.clone(), tensor);
        }
        for (name, ty) in self.trained.clone() {
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
                let tensor = self.on_device("trained", &kept, &shape(&ty, &BTreeMap::new()), &bytes)?;
                self.work.trained.insert(kept, tensor);
            }
        }
        Ok(())
    }

    fn on_device(
        &self,
        tag: &'static str,
        name: &str,
        shape: &[usize],
        bytes: &[u8],
    ) -> Result<DeviceTensor, Error> {
        let made = DeviceTensor::tagged(self.work.session.device(), tag, shape, bytes);
        made.map_err(|source| Error::Device { input: name.to_owned(), source })
    }

    fn upload(&self, name: &str, value: &Array<f32>) -> Result<DeviceTensor, Error> {
        self.on_device("inputs", name, &value.shape, &value.to_memory())
    }

    /// Adds the micro-batches of a step, those of all ranks, each with what the masks of its dropout are drawn from;
    /// `items` are the tokens that count in all of them. They are dealt out, and this rank computes its own.
    /// What is logged of each, on every rank.
    ///
    /// # Errors
    /// What the session says, or another rank.
    pub fn accumulate(&mut self, all: &[(Microbatch, [i32; 2])], items: u64) -> Result<Vec<Logged>, Error> {
        let done = self.add(all, items);
        self.tell(done)
    }

    /// What went wrong here is told to the ranks that would wait.
    fn tell<T>(&self, done: Result<T, Error>) -> Result<T, Error> {
        done.inspect_err(|error| self.place.world.abort(&error.to_string()))
    }

    fn add(&mut self, all: &[(Microbatch, [i32; 2])], items: u64) -> Result<Vec<Logged>, Error> {
        let deal = self.deal(all.iter().map(|(batch, _)| batch))?;
        if self.stages.stages() == 1 && self.room.activation_bytes > 0 {
            self.choose_activations()?;
        }
        let mut flights = Vec::new();
        for round in &deal {
            let flight = match round.own {
                Some(number) => self.flight(&all[number].0, items, all[number].1)?,
                None => self.flight(&Microbatch::padding(round.shape), items, [0; 2])?,
            };
            flights.push(flight);
        }
        match self.schedule(flights.len())? {
            Some(schedule) => {
                let operations = &schedule.ranks()[self.place.at.stage];
                self.run(operations, schedule.shape(), false, &mut flights)?;
            }
            None => self.run(&one_by_one(flights.len()), self.stages, false, &mut flights)?,
        }
        self.in_turn(&flights, &deal, all.len())
    }

    /// Deals micro-batches out to the ranks along the axis of shards: those of a round are as large as each other as
    /// can be, since ranks wait for each other at every gather. Where all are equally large that is in turn.
    fn deal<'b>(&mut self, all: impl Iterator<Item = &'b Microbatch>) -> Result<Vec<Round>, Error> {
        let shapes: Vec<[usize; 2]> = all.map(|batch| batch.shape).collect();
        let sizes = shapes.iter().map(|shape| self.rounded(*shape)).collect::<Result<Vec<_>, _>>()?;
        let compiled = |number: &usize| sizes[*number].values().product::<i64>();
        let mut order: Vec<usize> = (0..shapes.len()).collect();
        order.sort_by_key(|number| std::cmp::Reverse(compiled(number)));
        self.work.sizes = sizes.iter().cloned().collect();
        self.work
            .pool
            .fit(sizes.iter().map(|sizes| ["B", "T"].map(|symbol| sizes[symbol] as usize)).collect());
        let round = |all: &[usize]| {
            let own = all.get(self.place.at.shard).copied();
            Round { all: all.to_vec(), own, shape: shapes[*all.last().expect("a chunk has one")] }
        };
        Ok(order.chunks(self.layout.ranks()).map(round).collect())
    }

    /// What is logged of micro-batches that are only read, each with the tokens that count in it; on every rank. A and
    /// B are what they are now.
    ///
    /// # Errors
    /// What the session says, or another rank.
    pub fn evaluate(&mut self, all: &[(Microbatch, u64)]) -> Result<Vec<Logged>, Error> {
        let done = self.read(all);
        self.tell(done)
    }

    fn read(&mut self, all: &[(Microbatch, u64)]) -> Result<Vec<Logged>, Error> {
        let deal = self.deal(all.iter().map(|(batch, _)| batch))?;
        let mut flights = Vec::new();
        for round in &deal {
            let flight = match round.own {
                Some(number) => self.flight(&all[number].0, all[number].1, [0; 2])?, // nothing is dropped
                None => self.flight(&Microbatch::padding(round.shape), 1, [0; 2])?,
            };
            flights.push(flight);
        }
        let (stages, count) = (self.stages, flights.len().max(1));
        let shape = Shape::new(stages.ranks(), stages.chunks(), count, stages.placement())?;
        self.run(&read_only(shape, self.place.at.stage, flights.len()), shape, true, &mut flights)?;
        self.in_turn(&flights, &deal, all.len())
    }

    /// The schedule of a step of so many micro-batches a lane, checked; `None` if there is one stage.
    fn schedule(&self, micro_batches: usize) -> Result<Option<Schedule>, Error> {
        let shape =
            Shape::new(self.stages.ranks(), self.stages.chunks(), micro_batches, self.stages.placement())?;
        if shape.stages() == 1 {
            return Ok(None);
        }
        let (schedule, workload) = match self.pipeline {
            Some(pipeline) => ((pipeline.schedule)(shape, &pipeline.workload)?, pipeline.workload.clone()),
            None => (one_f_one_b(shape, &recomputed())?, recomputed()),
        };
        if schedule.shape() != shape {
            let (found, expected) = (schedule.shape().to_string(), shape.to_string());
            return Err(Error::Pipeline { found, expected });
        }
        schedule::check(&schedule, &workload)?;
        Ok(Some(schedule))
    }

    fn run(
        &mut self,
        operations: &[Operation],
        shape: Shape,
        is_evaluation: bool,
        flights: &mut [Flight],
    ) -> Result<(), Error> {
        let (hidden, element) = (self.spec.config.hidden, self.spec.compute.bytes());
        let stream = |flight: &Flight| {
            let size = |symbol: &str| flight.compiled[symbol] as usize;
            (vec![size("B"), size("T"), hidden], element)
        };
        let line = Line {
            operations,
            shape,
            rank: self.place.at.stage,
            stages: self.place.stages.as_deref(),
            is_evaluation,
            buffered: self.pipeline.and_then(|it| it.workload.buffer).map_or(1, |buffer| buffer.chunks),
            stream: &stream,
            slots: self.pipeline.and_then(|it| it.slots),
        };
        self.work.trace = Trace::default();
        self.work.trace.operations = line.run(&mut self.work, flights)?;
        Ok(())
    }

    /// What every rank logged, in the order of the micro-batches.
    fn in_turn(&self, own: &[Flight], deal: &[Round], count: usize) -> Result<Vec<Logged>, Error> {
        let text: Vec<String> = own.iter().map(|flight| flight.logged.bits_text()).collect();
        let texts = self.place.world.exchange(&text.join("\n"))?;
        let last = self.stages.home(self.stages.stages() - 1).0;
        let of_lane = |lane: usize| {
            let rank = self.place.rank(lane, 0, last);
            texts[rank].lines().filter_map(Logged::from_bits_text).collect()
        };
        let lanes: Vec<Vec<Logged>> = (0..self.layout.ranks()).map(of_lane).collect();
        let mut all = vec![Logged::default(); count];
        for (number, round) in deal.iter().enumerate() {
            round.all.iter().zip(&lanes).for_each(|(batch, lane)| all[*batch] = lane[number]);
        }
        Ok(all)
    }

    /// A micro-batch before it is computed.
    fn flight(&mut self, batch: &Microbatch, items: u64, key: [i32; 2]) -> Result<Flight, Error> {
        let (sizes, compiled) = (sizes_of(batch.shape), self.rounded(batch.shape)?);
        let batch = batch.padded(["B", "T"].map(|symbol| compiled[symbol] as usize));
        self.fit(&batch)?;
        Ok(Flight {
            own: self.own_inputs(&batch, items, key)?,
            tables: Arc::clone(&self.tables),
            sizes,
            compiled,
            xs: BTreeMap::new(),
            gradient: None,
            kept: BTreeMap::new(),
            y_grads: BTreeMap::new(),
            on_host: BTreeMap::new(),
            logged: Logged::default(),
        })
    }

    /// The sizes that are compiled for rows and tokens.
    fn rounded(&mut self, shape: [usize; 2]) -> Result<BTreeMap<Symbol, i64>, Error> {
        let program = self.work.any_program(1)?; // a layer has both
        Ok(self.work.session.rounded(program, &sizes_of(shape))?)
    }

    /// The rotary tables of a batch.
    fn fit(&mut self, batch: &Microbatch) -> Result<(), Error> {
        let length = if self.spec.rows.positions { self.spec.config.positions } else { batch.shape[1] };
        if self.tables.values().all(|table| table.shape[0] != length) {
            let tables: Values<f32> = rope::values(&self.spec.config, length);
            let tables =
                tables.into_iter().map(|(name, table)| Ok((name.clone(), self.upload(&name, &table)?)));
            self.tables = Arc::new(tables.collect::<Result<_, Error>>()?);
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

    /// Ends a step; `step` counts the updates that were made, this one among them. The norm of its gradient before the
    /// bound, the same on every rank: where it is not finite, A, B and the moments are what they were, and the update
    /// is not to be counted.
    ///
    /// # Errors
    /// What the session says, or another rank.
    pub fn update(&mut self, step: u64, rate: f64) -> Result<f64, Error> {
        let done = self.change(step, rate);
        self.tell(done)
    }

    fn change(&mut self, step: u64, rate: f64) -> Result<f64, Error> {
        let mut rates: Values<f32> = self.optimizer.rates(step, rate);
        let factor = self.scale.map_or(1.0, |scale| scale.factor);
        rates.insert(LOSS_SCALE.to_owned(), Array::scalar(factor));
        let rates = rates.iter().map(|(name, value)| Ok((name.clone(), self.upload(name, value)?)));
        let rates: BTreeMap<String, DeviceTensor> = rates.collect::<Result<_, Error>>()?;
        let mut io = Io::from(&rates);
        io.donated = self.work.trained.iter_mut().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let begin = Instant::now();
        let outputs = self.updates.run(self.update, io)?;
        self.work.trace.record(0, EventKind::Update, begin);
        let norm = outputs.array("grad_norm")?;
        let norm = norm.wide().first().copied().unwrap_or(f64::NAN);
        if let Some(scale) = &mut self.scale {
            scale.update(norm.is_finite());
        }
        Ok(norm)
    }

    /// This rank's shard of what a run goes on from: A, B or a moment.
    fn shard(&self, name: &str, bytes: usize) -> Result<Vec<u8>, Error> {
        let Some(tensor) = self.work.trained.get(name) else { return Ok(vec![0; bytes]) }; // another stage's
        let mut bytes = vec![0; tensor.buffer.bytes()];
        let done = self.work.session.device().download(&tensor.buffer, &mut bytes);
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
        let own = self.shard(kept, shards.len * part.dtype.bytes())?;
        let mut all = vec![0; own.len() * self.place.world.world()];
        let gather = Collective::all_gather(Element::U8, own.len());
        self.place.world.run(&gather, own[..].into(), (&mut all[..]).into())?;
        let element = part.dtype.bytes();
        let stage = self.stage_of(name);
        let part_of = |part: usize| {
            let rank = |shard: usize| self.place.rank(shard, part, stage);
            let shards_of = (0..shards.ranks()).map(|shard| &all[rank(shard) * own.len()..][..own.len()]);
            shards.whole(&shards_of.collect::<Vec<_>>(), element)
        };
        let parts: Vec<Vec<u8>> = (0..self.place.at.sharing).map(part_of).collect();
        let parts = if shared.cut == Cut::Whole { &parts[..1] } else { &parts[..] };
        Ok(Array::from_memory(part.dtype, &shared.whole, &shared.together(parts, element)))
    }

    /// The rank of the pipeline that trains a parameter.
    fn stage_of(&self, name: &str) -> usize {
        let reads = |rank: &usize| {
            let own = own_pieces(self.stages, *rank, &self.spec);
            own.into_iter().flatten().any(|number| self.work.pieces[number].reads(name))
        };
        (0..self.stages.ranks()).find(reads).unwrap_or(0)
    }

    /// The share of a step of so many micro-batches a lane in which ranks of the pipeline wait, as it is simulated;
    /// `None` if there is one stage.
    ///
    /// # Errors
    /// If there is no such schedule.
    pub fn bubble(&self, micro_batches: usize) -> Result<Option<f64>, Error> {
        let Some(schedule) = self.schedule(micro_batches)? else { return Ok(None) };
        let workload = self.pipeline.map_or_else(recomputed, |it| it.workload.clone());
        Ok(Some(schedule::check(&schedule, &workload)?.simulate().bubble()))
    }

    /// The lengths of rows that are compiled.
    ///
    /// # Errors
    /// If a layer cannot be loaded.
    pub fn lengths(&mut self) -> Result<Vec<usize>, Error> {
        let program = self.work.any_program(1)?;
        Ok(self.work.session.buckets(program, "T").iter().map(|length| *length as usize).collect())
    }

    /// Where everything lies.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Bytes of the frozen weights that this rank holds.
    pub fn weight_bytes(&self) -> usize {
        self.work.weights.bytes()
    }

    /// What was moved so far.
    pub fn traffic(&self) -> Traffic {
        self.work.traffic
    }

    /// When it did what in its last step, or since it was last asked to evaluate.
    pub fn trace(&self) -> &Trace {
        &self.work.trace
    }

    /// All ranks.
    pub fn world(&self) -> &Arc<dyn Comm> {
        &self.place.world
    }

    /// What the loss is multiplied by, if the model computes in f16.
    pub fn loss_scale(&self) -> Option<LossScale> {
        self.scale
    }

    /// Goes on with a factor; a model of another type of computation has none.
    pub fn go_on_with(&mut self, scale: LossScale) {
        self.scale = self.scale.map(|_| scale);
    }

    /// What compilations and what runs took so far, on this rank.
    pub fn spent(&self) -> [Duration; 2] {
        let all = [self.work.session.counters(), self.updates.counters()];
        [all.iter().map(|of| of.compiling).sum(), all.iter().map(|of| of.running).sum()]
    }

    /// What the session has done so far.
    pub fn counters(&self) -> &Counters {
        self.work.session.counters()
    }
}

/// The sizes of rows and tokens.
fn sizes_of([rows, tokens]: [usize; 2]) -> BTreeMap<Symbol, i64> {
    BTreeMap::from([("B".into(), rows as i64), ("T".into(), tokens as i64)])
}

/// That a step answers for everything that it is asked about.
fn answers(step: &'static str, found: usize, expected: usize) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    let [found, expected] = [found, expected].map(|count| format!("{count} answers"));
    Err(Error::Step { step, name: "room".into(), found, expected })
}

/// That what a step chose fits in the room that it has.
fn fits(step: &'static str, needed: usize, room: usize) -> Result<(), Error> {
    if needed <= room {
        return Ok(());
    }
    let (found, expected) = (format!("{needed} bytes"), format!("at most {room} bytes"));
    Err(Error::Step { step, name: "room".into(), found, expected })
}

/// The pieces of a rank of a pipeline, chunk by chunk.
fn own_pieces(pipeline: Shape, rank: usize, spec: &Spec) -> Vec<Range<usize>> {
    let stage = |chunk: usize| pipeline.stage(rank, chunk);
    (0..pipeline.chunks())
        .map(|chunk| pieces_of(stage(chunk), pipeline.stages(), spec.config.layers))
        .collect()
}

/// That ranks can share a model as they are to.
fn check_sizes(spec: &Spec, place: &Place, stages: Shape) -> Result<(), Error> {
    let (ranks, stages, layers) = (place.at.sharing, stages.stages(), spec.config.layers);
    if ranks > 1 && spec.dropout && spec.adapter.as_ref().is_some_and(|adapter| adapter.dropout > 0.0) {
        return Err(Error::Dropout { ranks });
    }
    if layers < stages { Err(Error::Stages { layers, stages }) } else { Ok(()) }
}

/// What a step costs where layers are computed again and adapters are trained, in the time of a forward.
pub fn recomputed() -> Workload {
    let times = Times { forward: 1.0, backward: 1.0, weight: 0.1, recompute: 1.0, dequantize: 0.0 };
    let held = Held { forward: 1, recompute: 1, weight: 1 };
    Workload::uniform(Stage { times, held, recomputed: true, trained: true })
}
