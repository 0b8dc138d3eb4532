//! One rank: its shards, its micro-batches, its part of an update.
//!
//! ```text
//! kept on the device    shards of weights, A and B, moments, sums of gradients; the x of every layer
//! a micro-batch         pieces forward, the loss, pieces backward; a piece's whole parts are there while it runs
//! the end of a step     the rates -> the norm; A, B and moments change in place, the sums are 0
//!
//! place       where the rank is in the mesh, and the ranks that it does things with
//! work        the pieces on the device: their programs, and what these read and write
//! head        a loss that is computed in chunks
//! flight      micro-batches on their way, and the memory that they use again
//! pipeline    a line of a schedule, operation by operation
//! scored      micro-batches of objectives
//! shards      what of A, B and the moments is a rank's own, to be written by it
//! trace       when the rank did what in its last step
//! ```
//!
//! All ranks of a stage run the same pieces in the same order, each on its own micro-batch and at its own size; a rank
//! that has none runs one of padding.

mod choose;
mod deal;
mod flight;
mod head;
mod pipeline;
mod place;
mod scored;
mod shards;
mod state;
mod step;
mod trace;
mod work;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use compiler::compile::{Level, Options};
use compiler::groups::Groups;
use compiler::session::{Counters, DeviceTensor, Program, Session, Settings};
use compiler::store::Store;
use flight::shape;
use kernels::comm::Comm;
use pipeline::pieces_of;
use place::Place;
use reference::graph::interpret::Values;
use reference::graph::ranks::Mesh;
use reference::graph::{Array, Type};
use reference::llama::train::{self, Recipe};
use reference::llama::{Llama, Spec};
use reference::schedule::{self, Held, Placement, Schedule, Shape, Stage, Times, Workload};
use work::Work;

use super::load::{Tensors, blank, load};
use super::programs::{self, Layout, Placed};
use super::{Error, Fsdp, Host, Sharding};
use crate::step::chunks::{ChunkLoss, InChunks};
use crate::step::{LossScale, Machine, Updates};

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
    /// The work of stages, where the mesh has some; `None` for 1F1B with recomputation.
    pub pipeline: Option<&'a Pipeline<'a>>,
    /// The memory for optional tensors on each rank.
    pub room: Room,
    /// The tensors that are cut into shards.
    pub sharding: Sharding,
    /// The loss, if it is computed in chunks.
    pub loss: Option<InChunks<'a>>,
    /// The compiled programs, each compiled once for all ranks; one store for every team and set of passes.
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

/// The work of the stages of a pipeline.
pub struct Pipeline<'a> {
    /// Stages on each rank.
    pub chunks: usize,
    /// How stages lie on ranks.
    pub placement: Placement,
    /// The cost of its operations.
    pub workload: Workload,
    /// The schedule of a step, by its shape.
    pub schedule: &'a Schedules<'a>,
    /// The number of ranks that compute at a time, if there are more of them than cores and operations are timed;
    /// `None` if all do.
    pub slots: Option<&'a Semaphore>,
}

/// Schedules by their shape.
pub type Schedules<'a> = dyn Fn(Shape, &Workload) -> Result<Schedule, schedule::Error> + Sync + 'a;

/// A model on one of several ranks, with everything that its training changes.
pub struct Rank<'a> {
    place: Place,
    layout: Layout,
    work: Work<'a>,
    updates: Session<'a>, // what all ranks do at the end of a step
    update: Program,
    trained: Vec<(String, Type)>, // this rank's shards
    spec: Spec,
    changes: Updates,
    tables: Arc<BTreeMap<String, DeviceTensor>>,
    reference: BTreeMap<String, DeviceTensor>, // shards of what is trained, as it was at the start, if it is kept
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
        Team { world, mesh, pipeline, room, sharding, loss, store }: Team<'a>,
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
        for (name, _) in layout.trained() {
            let reads = |rank: &usize| {
                let own = own_pieces(stages, *rank, &spec);
                own.into_iter().flatten().any(|number| pieces[number].reads(&name))
            };
            if (0..stages.ranks()).filter(reads).count() > 1 {
                return Err(Error::TwoStages { name });
            }
        }
        let trained: Vec<(String, Type)> =
            layout.trained().into_iter().filter(|(name, _)| is_own(name)).collect();
        let update = updates.load(&programs::update(attempt, &layout, &trained, recipe, mesh)?)?;
        let mut rank = Self {
            work: Work::new(session(place.groups()?), pieces, Tensors::default()),
            updates,
            update,
            trained,
            changes: Updates::new(recipe, spec.compute),
            tables: Arc::default(),
            reference: BTreeMap::new(),
            pipeline,
            stages,
            attempt,
            room,
            layout,
            spec,
            place,
            own,
        };
        rank.work.loss = loss.map(|loss| ChunkLoss::new(device, passes, &loss, &rank.spec));
        if stages.stages() == 1 {
            rank.choose_whole_parts()?;
        }
        Ok(rank)
    }

    /// Whether a piece of this rank reads a parameter, or a part of one.
    fn is_own(&self, name: &str) -> bool {
        self.own.iter().any(|number| self.work.pieces[*number].reads(name))
    }

    /// Puts this rank's shards of a state on the device; what it has not is zeros.
    fn begin(&mut self, state: &Values<f32>) -> Result<(), Error> {
        for (name, value) in state.iter().filter(|(name, _)| name.starts_with("trainable_tokens.")) {
            let tensor = self.upload(name, value)?;
            self.work.constants.insert(name.clone(), tensor);
        }
        for (name, ty) in self.trained.clone() {
            let [first, second] = train::moments(&name);
            for kept in [name.clone(), first, second, train::gradient(&name)] {
                let tensor = self.shard_of(&name, &kept, &ty, state)?;
                self.work.trained.insert(kept, tensor);
            }
        }
        Ok(())
    }

    /// This rank's shard of a trained parameter, or of one of its moments, on the device; zeros if `state` lacks it.
    fn shard_of(
        &self,
        name: &str,
        kept: &str,
        ty: &Type,
        state: &Values<f32>,
    ) -> Result<DeviceTensor, Error> {
        let (part, shards) = self.layout.part(name).expect("what is trained is a parameter");
        let Placed { shared, .. } = self.layout.placed(name).expect("as well");
        let (element, at) = (part.dtype.bytes(), self.place.at);
        let bytes = match state.get(kept) {
            Some(value) => {
                let own = shared.part(&value.to_memory(), element, at.part);
                shards.cut(&own, element, at.shard)
            }
            None => vec![0; shards.len * element],
        };
        self.on_device("trained", kept, &shape(ty, &BTreeMap::new()), &bytes)
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

    /// Aborts the communication of all ranks on an error, so that no rank waits for this one.
    fn tell<T>(&self, done: Result<T, Error>) -> Result<T, Error> {
        done.inspect_err(|error| self.place.world.abort(&error.to_string()))
    }

    /// The lengths of rows that are compiled.
    ///
    /// # Errors
    /// If a layer cannot be loaded.
    pub fn lengths(&mut self) -> Result<Vec<usize>, Error> {
        let program = self.work.any_program(1)?;
        Ok(self.work.session.buckets(program, "T").iter().map(|length| *length as usize).collect())
    }

    /// The model that is trained.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Where everything lies.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Bytes of the frozen weights that this rank holds.
    pub fn weight_bytes(&self) -> usize {
        self.work.weights.bytes()
    }

    /// The bytes moved so far.
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

    /// The factor of the loss, if the model computes in f16.
    pub fn loss_scale(&self) -> Option<LossScale> {
        self.changes.scale
    }

    /// Goes on with a factor; a model of another type of computation has none.
    pub fn resume_scale(&mut self, scale: LossScale) {
        self.changes.resume(scale);
    }

    /// The time that compilations and that runs took so far, on this rank.
    pub fn spent(&self) -> [Duration; 2] {
        let all = [self.work.session.counters(), self.updates.counters()];
        [all.iter().map(|of| of.compiling).sum(), all.iter().map(|of| of.running).sum()]
    }

    /// The counters of the session.
    pub fn counters(&self) -> &Counters {
        self.work.session.counters()
    }
}

/// The pieces of a rank of a pipeline, chunk by chunk.
fn own_pieces(pipeline: Shape, rank: usize, spec: &Spec) -> Vec<Range<usize>> {
    let stage = |chunk: usize| pipeline.stage(rank, chunk);
    (0..pipeline.chunks())
        .map(|chunk| pieces_of(stage(chunk), pipeline.stages(), spec.config.layers))
        .collect()
}

/// Checks that the ranks can share the model.
fn check_sizes(spec: &Spec, place: &Place, stages: Shape) -> Result<(), Error> {
    let (ranks, stages, layers) = (place.at.sharing, stages.stages(), spec.config.layers);
    if ranks > 1 && spec.dropout && spec.adapter.as_ref().is_some_and(|adapter| adapter.dropout > 0.0) {
        return Err(Error::Dropout { ranks });
    }
    if layers < stages { Err(Error::Stages { layers, stages }) } else { Ok(()) }
}

/// The cost of a step where layers are computed again and adapters are trained, in units of a forward pass.
pub fn recomputed() -> Workload {
    let times = Times { forward: 1.0, backward: 1.0, weight: 0.1, recompute: 1.0, dequantize: 0.0 };
    let held = Held { forward: 1, recompute: 1, weight: 1 };
    Workload::uniform(Stage { times, held, recomputed: true, trained: true })
}
