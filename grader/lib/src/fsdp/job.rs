//! Something to train on several ranks: threads of this process, each with a device of its own.

use std::sync::Arc;
use std::time::Duration;

use challenges::fsdp::{Error, Fsdp, Pipeline, Rank, Room, Sharding, Store, Team, Traffic};
use challenges::graph;
use challenges::train::{Machine, Microbatch};
use kernels::callee::Callee;
use kernels::comm::Comm;
use kernels::{Cpu, threads};
use reference::fsdp::{Parameter, Placement};
use reference::graph::interpret::Values;
use reference::graph::ranks::Mesh;
use reference::llama::Spec;
use reference::loss::IGNORED;

use super::checkpoint::{OnDisk, write};
use super::wire::{Bytes, Counted, Counters};
use crate::compare::describe;
use crate::graph::model::{Model, Sizes};
use crate::random::Random;

/// Longer than a busy machine keeps a rank waiting; an item's own limit is shorter.
const LIMIT: Duration = Duration::from_mins(10);

/// Batches that take turns: a run in which nothing can be learned would hide what is wrong with a gradient.
const BATCHES: usize = 2;

/// What is trained, and on what: the micro-batches of each step.
pub(super) struct Job {
    files: OnDisk,
    pub spec: Spec,
    start: Values<f32>,
    rate: f64,
    pub steps: Vec<Vec<Microbatch>>,
}

/// How ranks work together.
#[derive(Clone, Copy)]
pub(super) struct How<'a> {
    pub attempt: &'a dyn Fsdp,
    pub dequantizer: &'a dyn Callee,
    pub pipeline: Option<&'a Pipeline<'a>>,
    pub sharding: Sharding,
    pub room: Room,
}

impl<'a> How<'a> {
    /// Ranks that compile each program once for all of them.
    pub fn team(self, world: Arc<dyn Comm>, mesh: &'a Mesh, store: &Store) -> Team<'a> {
        let Self { pipeline, sharding, room, .. } = self;
        Team { world, mesh, pipeline, room, sharding, loss: None, store: store.clone() }
    }
}

/// A rank's run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trained {
    /// The loss of each step.
    pub losses: Vec<f64>,
    /// The norm of its gradient.
    pub norms: Vec<f64>,
    /// The adapter and its moments, whole.
    pub state: Values<f32>,
    /// Bytes of frozen weights on this rank's device.
    pub weight_bytes: usize,
    /// Where each of them lies.
    pub frozen: Vec<(Parameter, Placement)>,
    /// What it put on the wire in its steps.
    pub wire: Bytes,
    /// What it says that it moved.
    pub traffic: Traffic,
    /// Compiled programs after the first step, and after the last.
    pub compilations: [usize; 2],
    /// Runs of them.
    pub runs: usize,
}

impl Job {
    /// A drawn model, and so many steps of so many micro-batches of this shape.
    pub fn drawn(
        sizes: Sizes,
        seed: u64,
        rate: f64,
        [steps, micro_batches]: [usize; 2],
        shape: [usize; 2],
    ) -> Result<Self, String> {
        let model = Model::drawn(sizes, seed)?;
        let files = write(&model)?;
        let spec = Spec { adapter: model.spec.adapter.clone(), ..files.llama.spec() };
        let mut random = Random::named(seed, "micro-batches");
        let mut batch = || drawn(shape, sizes.vocab, &mut random);
        let batches: Vec<Vec<Microbatch>> =
            (0..BATCHES).map(|_| (0..micro_batches).map(|_| batch()).collect()).collect();
        let steps = batches.iter().cycle().take(steps).cloned().collect();
        Ok(Self { files, spec, start: model.adapter(), rate, steps })
    }

    /// A rank's part of it.
    pub fn rank<'a>(&self, team: Team<'a>, device: &'a Cpu, how: How<'a>) -> Result<Rank<'a>, Error> {
        let on = Machine { passes: &graph::Solution, device, dequantizer: how.dequantizer };
        Rank::new(on, team, how.attempt, &self.files.llama, self.spec.clone(), &Model::recipe(), &self.start)
    }

    /// One step; `number` counts from 1. Its loss, and the norm of its gradient.
    pub fn step(&self, rank: &mut Rank<'_>, number: usize) -> Result<[f64; 2], Error> {
        let batches = &self.steps[(number - 1) % self.steps.len()];
        let counts = |batch: &Microbatch| batch.labels.iter().filter(|label| **label != IGNORED).count();
        let items: usize = batches.iter().map(counts).sum();
        let keyed: Vec<(Microbatch, [i32; 2])> =
            (0..).zip(batches).map(|(key, batch)| (batch.clone(), [number as i32, key])).collect();
        let logged = rank.accumulate(&keyed, items as u64)?;
        let norm = rank.update(number as u64, self.rate)?;
        Ok([logged.iter().map(|batch| batch.loss).sum(), norm])
    }

    fn train_on(&self, team: Team<'_>, how: How<'_>, steps: usize) -> Result<Trained, Error> {
        let device = Cpu::with_threads(1);
        let counters = Arc::<Counters>::default();
        let team = Team { world: Counted::around(Arc::clone(&team.world), &counters), ..team };
        let mut rank = self.rank(team, &device, how)?;
        let (mut losses, mut norms, mut compilations) = (Vec::new(), Vec::new(), [0; 2]);
        for number in 1..=steps {
            let [loss, norm] = self.step(&mut rank, number)?;
            losses.push(loss);
            norms.push(norm);
            compilations[usize::from(number > 1)] = rank.counters().compilations;
        }
        Ok(Trained {
            losses,
            norms,
            wire: counters.bytes(), // before the whole state is put together
            state: rank.state()?,
            weight_bytes: rank.weight_bytes(),
            frozen: frozen(&rank),
            traffic: rank.traffic(),
            compilations,
            runs: rank.counters().runs,
        })
    }

    /// Trains for some steps on a mesh: every rank's run.
    pub fn train(&self, axes: &[(&str, usize)], how: How<'_>, steps: usize) -> Result<Vec<Trained>, String> {
        let mesh = Mesh::new(axes.iter().copied()).map_err(describe)?;
        let store = Store::default();
        on_ranks(mesh.ranks(), |world| {
            self.train_on(how.team(world, &mesh, &store), how, steps).map_err(describe)
        })
    }
}

/// Where the frozen weights of a rank lie.
fn frozen(rank: &Rank<'_>) -> Vec<(Parameter, Placement)> {
    let frozen = rank.layout().parameters().iter().filter(|placed| !placed.is_trained);
    frozen.map(|placed| (placed.parameter.clone(), placed.placement.clone())).collect()
}

/// What every rank makes of some work; the first reason if one cannot.
pub(super) fn on_ranks<T: Send>(
    ranks: usize,
    work: impl Fn(Arc<dyn Comm>) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    let outcomes = threads::launch(ranks, LIMIT, |comm| work(comm));
    outcomes
        .into_iter()
        .map(|outcome| outcome.map_err(describe)?)
        .collect::<Result<_, String>>()
        .map_err(hole)
}

/// How the reason begins where a rank reached a hole.
pub(super) const HOLE: &str = "not written yet: ";

/// A rank that reached a hole, in the words of one process that does.
fn hole(message: String) -> String {
    match message.split_once("not yet implemented") {
        Some((_, hole)) => format!("{HOLE}{}", hole.trim_start_matches(": ")),
        None => message,
    }
}

/// A micro-batch with a label that is ignored in the middle of each row.
fn drawn(shape: [usize; 2], vocab: usize, random: &mut Random) -> Microbatch {
    let [rows, length] = shape;
    let ids: Vec<i32> = (0..rows * length).map(|_| random.below(vocab) as i32).collect();
    let mut labels = ids.clone();
    for row in labels.chunks_mut(length) {
        row[0] = IGNORED;
        row[length / 2] = IGNORED;
    }
    Microbatch {
        shape,
        ids,
        labels,
        targets: Vec::new(),
        positions: (0..rows).flat_map(|_| 0..length as i32).collect(),
        documents: vec![1; rows * length],
        images: None,
    }
}
