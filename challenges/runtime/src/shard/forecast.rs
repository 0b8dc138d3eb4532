//! The bytes that a run on ranks takes of each rank, before anything runs.
//!
//! A rank is made and does a step on a [device on paper](kernels::paper): what it allocates and what it sends is
//! counted as it would happen, whatever the mesh, the schedule and the steps of the attempt make of it. Weights are not
//! needed: the model's sizes are enough.
//!
//! Ranks of one stage differ by padding alone, so the first of each stage stands for all.

use std::collections::BTreeMap;

use kernels::{Callee, Device, Paper};
use reference::graph::ranks::Mesh;
use reference::llama::Spec;
use reference::llama::train::Recipe;

use super::rank::{Pipeline, Rank, Room, Team};
use super::{Error, Fsdp, PP, Sharding, Store};
use crate::loss::run;
use crate::step::chunks::InChunks;
use crate::step::{self, Machine, Microbatch};
use compiler::Compile;

/// A run on ranks that is planned.
#[derive(Clone, Copy)]
pub struct Planned<'a> {
    /// The compiler.
    pub passes: &'a dyn Compile,
    /// The dequantiser that plans call.
    pub dequantizer: &'a dyn Callee,
    /// The steps of challenge B.
    pub attempt: &'a dyn Fsdp,
    /// The model with its adapter.
    pub spec: &'a Spec,
    /// How it is trained.
    pub recipe: &'a Recipe,
    /// How ranks lie.
    pub mesh: &'a Mesh,
    /// The work of stages.
    pub pipeline: Option<&'a Pipeline<'a>>,
    /// The memory for optional tensors on each rank.
    pub room: Room,
    /// The loss, if it is computed in chunks.
    pub loss: Option<InChunks<'a>>,
    /// Threads of each rank's device.
    pub threads: usize,
    /// The compiled programs, shared by all stages and lengths.
    pub store: &'a Store,
}

/// The bytes of a rank in a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Bytes on its device when they are most, by what they are for.
    pub bytes: BTreeMap<&'static str, u64>,
    /// Bytes of the frozen weights that it holds, tables among them.
    pub weights: usize,
    /// Bytes of whole parts that it gathers, those of its own shards among them.
    pub gathered: u64,
    /// Bytes that it sends, by the axis of the mesh.
    pub sent: BTreeMap<String, u64>,
}

impl Forecast {
    /// All bytes on its device.
    pub fn total(&self) -> u64 {
        self.bytes.values().sum()
    }
}

/// The rank of a stage, on paper.
pub struct Sheet<'a> {
    rank: Rank<'a>,
    paper: &'a Paper,
    mesh: &'a Mesh,
    number: usize,
    steps: u64,
}

impl Planned<'_> {
    /// The number of stages.
    pub fn stages(&self) -> usize {
        self.mesh.size(PP).unwrap_or(1)
    }

    /// Returns the answer of `ask` about the first rank of a stage.
    ///
    /// # Errors
    /// As [`Rank::blank`], and what `ask` says.
    pub fn on_paper<T>(
        &self,
        stage: usize,
        ask: impl FnOnce(&mut Sheet<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Self { passes, dequantizer, attempt, spec, recipe, mesh, pipeline, room, loss, threads, store } =
            *self;
        let paper = Paper::new(threads);
        let number = mesh.group(0, PP).map_or(0, |stages| stages[stage]);
        let world = paper.rank(number, mesh.ranks());
        let sharding = Sharding::Parameters;
        let team = Team { world, mesh, pipeline, room, sharding, loss, store: store.clone() };
        let on = Machine { passes, device: &paper, dequantizer };
        let mut rank = Rank::blank(on, team, attempt, spec.clone(), recipe)?;
        rank.update(1, 0.0)?; // what it takes is there from the first update on, also while gradients are computed
        ask(&mut Sheet { rank, paper: &paper, mesh, number, steps: 1 })
    }
}

impl Sheet<'_> {
    /// A step of so many micro-batches of so many rows and tokens, after one like it. Lengths may grow from step to
    /// step, and have to: what is counted is the most so far.
    ///
    /// # Errors
    /// What the session says: a size beyond what the model is made for.
    pub fn step(&mut self, shape: [usize; 2], micro_batches: usize) -> Result<Forecast, Error> {
        self.run(shape, micro_batches)?; // in the first one the arena grows after other memory was taken
        let (before, gathered) = (self.paper.sent(), self.rank.traffic().gathered_bytes);
        self.run(shape, micro_batches)?;
        let mut sent = BTreeMap::new();
        for (ranks, bytes) in self.paper.sent() {
            let new = bytes - before.get(&ranks).copied().unwrap_or(0);
            *sent.entry(self.axis(&ranks)).or_default() += new;
        }
        let mut bytes = self.paper.at_peak();
        bytes.insert("scratch", self.paper.counts().scratch_bytes);
        let gathered = self.rank.traffic().gathered_bytes - gathered;
        Ok(Forecast { bytes, weights: self.rank.weight_bytes(), gathered, sent })
    }

    fn run(&mut self, shape: [usize; 2], micro_batches: usize) -> Result<(), Error> {
        let all = vec![(Microbatch::counted(shape, self.rank.spec()), [0; 2]); micro_batches];
        self.steps += 1;
        self.rank.accumulate(&all, 1)?;
        self.rank.update(self.steps, 0.0)?;
        Ok(())
    }

    /// The axis along which a group of ranks lies.
    fn axis(&self, ranks: &[usize]) -> String {
        let is_it = |axis: &&str| self.mesh.group(self.number, axis).as_deref() == Some(ranks);
        self.mesh.axes().find(is_it).unwrap_or("world").to_owned()
    }

    /// The first of growing lengths after which a step takes more than `bytes`, and the one before with its step.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn longest(
        &mut self,
        rows: usize,
        micro_batches: usize,
        bytes: u64,
    ) -> Result<Option<(usize, Forecast)>, Error> {
        let mut best = None;
        for length in self.rank.lengths()? {
            let forecast = match self.step([rows, length], micro_batches) {
                Err(error) if is_beyond_budget(&error) => break, // of a chunk of the loss
                forecast => forecast?,
            };
            if forecast.total() > bytes {
                break;
            }
            best = Some((length, forecast));
        }
        Ok(best)
    }

    /// The share of a step in which ranks of a pipeline wait, as it is simulated.
    ///
    /// # Errors
    /// As [`Rank::bubble`].
    pub fn bubble(&self, micro_batches: usize) -> Result<Option<f64>, Error> {
        self.rank.bubble(micro_batches)
    }
}

/// Whether not even one row fits into the budget of a chunk, which also holds a few numbers for every row.
fn is_beyond_budget(error: &Error) -> bool {
    let Error::Train(error) = error else { return false };
    matches!(**error, step::Error::Loss(run::Error::Budget { .. }))
}
