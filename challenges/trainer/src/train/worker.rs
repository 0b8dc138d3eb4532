//! What makes the steps of a run: an engine alone, or one of several ranks.
//!
//! Every rank of a run makes the same decisions in the same order, from the same config, data and checkpoint; what only
//! one of them can know - a signal, a file that could not be written - they tell each other ([`Worker::agree`]). The
//! first rank prints, logs and saves.

use std::sync::Arc;
use std::time::Duration;

use challenges::fsdp::Rank;
use challenges::train::{Engine, Logged, LossScale, Microbatch};
use kernels::comm::Comm;
use reference::graph::interpret::Values;

use crate::output::Failure;

/// What makes the steps of a run.
pub enum Worker<'a> {
    /// An engine.
    Alone(Box<Engine<'a>>),
    /// A rank.
    Rank(Box<Rank<'a>>),
}

impl Worker<'_> {
    /// Adds the micro-batches of a step; what is logged of each.
    pub fn accumulate(&mut self, all: &[(Microbatch, [i32; 2])], items: u64) -> Result<Vec<Logged>, Failure> {
        match self {
            Self::Alone(engine) => {
                let one = |(batch, key): &(Microbatch, [i32; 2])| engine.microbatch(batch, items, *key);
                all.iter().map(one).collect::<Result<_, _>>().map_err(Failure::bug)
            }
            Self::Rank(rank) => rank.accumulate(all, items).map_err(Failure::bug),
        }
    }

    /// Ends a step; the norm of its gradient.
    pub fn update(&mut self, step: u64, rate: f64) -> Result<f64, Failure> {
        match self {
            Self::Alone(engine) => engine.update(step, rate).map_err(Failure::bug),
            Self::Rank(rank) => rank.update(step, rate).map_err(Failure::bug),
        }
    }

    /// What is logged of micro-batches that are only read, each with its tokens that count.
    pub fn evaluate(&mut self, all: &[(Microbatch, u64)]) -> Result<Vec<Logged>, Failure> {
        match self {
            Self::Alone(engine) => {
                let one = |(batch, items): &(Microbatch, u64)| engine.evaluate(batch, *items);
                all.iter().map(one).collect::<Result<_, _>>().map_err(Failure::bug)
            }
            Self::Rank(rank) => rank.evaluate(all).map_err(Failure::bug),
        }
    }

    /// What of A, B and the moments this worker saves: the first one A and B, and each its part of the moments.
    pub fn state(&self) -> Result<Values<f32>, Failure> {
        let Self::Rank(rank) = self else {
            let Self::Alone(engine) = self else { return Ok(Values::new()) };
            return engine.state().map_err(Failure::bug);
        };
        let (own, ranks) = self.place();
        let names = rank.names();
        let moments: Vec<&String> = names.iter().filter(|name| name.starts_with("optim.")).collect();
        let is_own = |name: &str| match moments.iter().position(|moment| *moment == name) {
            Some(number) => number % ranks == own,
            None => own == 0,
        };
        rank.state_of(is_own).map_err(Failure::bug)
    }

    /// A and B.
    pub fn trained(&self) -> Result<Values<f32>, Failure> {
        match self {
            Self::Alone(engine) => engine.state().map_err(Failure::bug),
            Self::Rank(rank) => rank.state_of(|name| !name.starts_with("optim.")).map_err(Failure::bug),
        }
    }

    /// What the loss is multiplied by, of a run in f16.
    pub fn loss_scale(&self) -> Option<LossScale> {
        match self {
            Self::Alone(engine) => engine.loss_scale(),
            Self::Rank(rank) => rank.loss_scale(),
        }
    }

    /// Goes on with a factor.
    pub fn go_on_with(&mut self, scale: LossScale) {
        match self {
            Self::Alone(engine) => engine.go_on_with(scale),
            Self::Rank(rank) => rank.go_on_with(scale),
        }
    }

    /// What compilations and what runs took so far.
    pub fn spent(&mut self) -> [Duration; 2] {
        match self {
            Self::Alone(engine) => engine.spent(),
            Self::Rank(rank) => rank.spent(),
        }
    }

    /// Where the first number of a micro-batch that is not finite comes from, in words; `None` if all are finite.
    pub fn first_not_finite(
        &mut self,
        batch: &Microbatch,
        items: u64,
        key: [i32; 2],
    ) -> Result<Option<String>, String> {
        match self {
            Self::Alone(engine) => {
                let found = engine.first_not_finite(batch, items, key);
                found.map(|found| found.map(|found| found.to_string())).map_err(|error| error.to_string())
            }
            Self::Rank(_) => Err("it is looked for in a run with ranks = 1".to_owned()),
        }
    }

    /// This worker's number among all, and how many they are.
    pub fn place(&self) -> (usize, usize) {
        self.world().map_or((0, 1), |world| (world.rank(), world.world()))
    }

    /// All ranks; `None` if it is alone.
    pub fn world(&self) -> Option<&Arc<dyn Comm>> {
        match self {
            Self::Alone(_) => None,
            Self::Rank(rank) => Some(rank.world()),
        }
    }

    /// What every worker says, in their order.
    pub fn agree(&self, own: &str) -> Result<Vec<String>, Failure> {
        self.world().map_or(Ok(vec![own.to_owned()]), |world| world.exchange(own).map_err(Failure::bug))
    }
}
