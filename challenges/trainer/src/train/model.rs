//! What a run trains: a model on one rank, or a rank's part of one.
//!
//! Every rank of a run asks for the same in the same order, with the same micro-batches; the answers are the same on
//! all
//! of them. What only one rank can fail in names it.

use std::collections::BTreeMap;
use std::time::Duration;

use challenges::fsdp::{self, Rank, Team};
use challenges::train::chunked::InChunks;
use challenges::train::{Engine, Evaluated, LossScale, Machine, Microbatch, Scored, Whose};
use challenges::weights;
use reference::graph::interpret::Values;
use reference::llama::{Llama, Spec};

use super::Config;
use super::moments::Moments;
use crate::output::Failure;

pub use challenges::train::Logged;

/// A micro-batch, and what the masks of its dropout are drawn from.
pub type Keyed = (Microbatch, [i32; 2]);

/// The values of each row of a micro-batch, by name.
pub type Rows = BTreeMap<String, Vec<f32>>;

/// A model that is trained, or a rank's part of it.
pub enum Model<'a> {
    /// The model.
    Whole(Box<Engine<'a>>),
    /// A part, and the number of its rank.
    Part(Box<Rank<'a>>, usize),
}

/// What a checkpoint holds of a model on a rank.
pub struct Trained {
    /// A and B, whole.
    pub adapter: Values<f32>,
    /// The moments that the rank writes.
    pub moments: Moments,
}

impl<'a> Model<'a> {
    /// The model on one rank; weights are quantised by so many threads of the host.
    pub fn whole(
        on: Machine<'a>,
        threads: usize,
        config: &Config,
        model: &Llama,
        spec: Spec,
        state: &Values<f32>,
        loss: Option<&InChunks<'a>>,
    ) -> Result<Self, Failure> {
        let (storages, weights) = if config.load_in_4bit {
            weights::load_quantized(on.device, model, config.use_bnb_nested_quant, threads)
                .map_err(Failure::usage)?
        } else {
            (model.storages().clone(), weights::load(on.device, model).map_err(Failure::usage)?)
        };
        let spec = Spec { storages, ..spec };
        let engine = Engine::new(on, weights, spec, &config.recipe(), state, loss, config.activations());
        Ok(Self::Whole(Box::new(engine.map_err(Failure::usage)?)))
    }

    /// The part of one of several ranks.
    pub fn part(
        on: Machine<'a>,
        team: Team<'a>,
        config: &Config,
        model: &Llama,
        spec: Spec,
        state: &Values<f32>,
    ) -> Result<Self, Failure> {
        let number = team.world.rank();
        let storages = if config.load_in_4bit {
            weights::storages(model, config.use_bnb_nested_quant)
        } else {
            model.storages().clone()
        };
        let spec = Spec { storages, ..spec };
        let rank = Rank::new(on, team, &fsdp::Solution, model, spec, &config.recipe(), state);
        let rank = rank.map_err(|error| Failure::Usage(of_rank(number, &error)))?;
        Ok(Self::Part(Box::new(rank), number))
    }

    /// Goes on with a factor of the loss.
    pub fn go_on_with(&mut self, scale: LossScale) {
        match self {
            Self::Whole(engine) => engine.go_on_with(scale),
            Self::Part(rank, _) => rank.go_on_with(scale),
        }
    }

    /// What the loss is multiplied by, if the model computes in f16.
    pub fn loss_scale(&self) -> Option<LossScale> {
        match self {
            Self::Whole(engine) => engine.loss_scale(),
            Self::Part(rank, _) => rank.loss_scale(),
        }
    }

    /// What compilations and what runs took so far.
    pub fn spent(&mut self) -> [Duration; 2] {
        match self {
            Self::Whole(engine) => engine.spent(),
            Self::Part(rank, _) => rank.spent(),
        }
    }

    /// Adds the micro-batches of a step; what is logged of each.
    pub fn accumulate(&mut self, parts: &[Keyed], items: u64) -> Result<Vec<Logged>, Failure> {
        match self {
            Self::Whole(engine) => {
                let logged = parts.iter().map(|(part, key)| engine.microbatch(part, items, *key));
                logged.collect::<Result<_, _>>().map_err(Failure::bug)
            }
            Self::Part(rank, number) => rank.accumulate(parts, items).map_err(fault(*number)),
        }
    }

    /// Keeps what is trained as it is in `start`, for the reference model of an objective.
    pub fn keep_reference(&mut self, start: &Values<f32>) -> Result<(), Failure> {
        match self {
            Self::Whole(engine) => engine.keep_reference(start).map_err(Failure::usage),
            Self::Part(rank, number) => rank.keep_reference(start).map_err(fault(*number)),
        }
    }

    /// The number of tokens that a row may have.
    pub fn context(&self) -> usize {
        match self {
            Self::Whole(engine) => engine.context(),
            Self::Part(rank, _) => rank.context(),
        }
    }

    /// A micro-batch of an objective with the padding that its rows are computed in.
    pub fn padded(&mut self, batch: &Microbatch) -> Result<Microbatch, Failure> {
        match self {
            Self::Whole(engine) => engine.padded(batch).map_err(Failure::bug),
            Self::Part(rank, number) => rank.padded(batch).map_err(fault(*number)),
        }
    }

    /// The values of each row of at most [`Self::lanes`] [padded](Self::padded) micro-batches; `None` of those that
    /// other ranks compute.
    pub fn score(&mut self, batches: &[Microbatch], whose: Whose) -> Result<Vec<Option<Rows>>, Failure> {
        match self {
            Self::Whole(engine) => {
                let rows = batches.iter().map(|batch| engine.score(batch, whose).map(Some));
                rows.collect::<Result<_, _>>().map_err(Failure::bug)
            }
            Self::Part(rank, number) => rank.score(batches, whose).map_err(fault(*number)),
        }
    }

    /// Adds `share` of the loss of each of at most [`Self::lanes`] [padded](Self::padded) micro-batches to the step;
    /// `given` are the inputs of the loss of those that this rank computes.
    pub fn learn(
        &mut self,
        batches: &[Microbatch],
        given: Vec<Option<Values<f32>>>,
        share: f64,
    ) -> Result<Vec<Option<Scored>>, Failure> {
        match self {
            Self::Whole(engine) => {
                let all = batches.iter().zip(&given).map(|(batch, given)| {
                    given.as_ref().map(|given| engine.learn(batch, given, share)).transpose()
                });
                all.collect::<Result<_, _>>().map_err(Failure::bug)
            }
            Self::Part(rank, number) => rank.learn(batches, given, share).map_err(fault(*number)),
        }
    }

    /// The losses of [padded](Self::padded) micro-batches that are only read.
    pub fn judge(
        &mut self,
        batches: &[Microbatch],
        given: Vec<Option<Values<f32>>>,
    ) -> Result<Vec<Option<Scored>>, Failure> {
        match self {
            Self::Whole(engine) => {
                let all = batches
                    .iter()
                    .zip(&given)
                    .map(|(batch, given)| given.as_ref().map(|given| engine.judge(batch, given)).transpose());
                all.collect::<Result<_, _>>().map_err(Failure::bug)
            }
            Self::Part(rank, number) => rank.judge(batches, given).map_err(fault(*number)),
        }
    }

    /// Ends a step; its norm.
    pub fn update(&mut self, step: u64, rate: f64) -> Result<f64, Failure> {
        match self {
            Self::Whole(engine) => engine.update(step, rate).map_err(Failure::bug),
            Self::Part(rank, number) => rank.update(step, rate).map_err(fault(*number)),
        }
    }

    /// How many micro-batches are computed at the same time, each by other ranks.
    pub fn lanes(&self) -> usize {
        match self {
            Self::Whole(_) => 1,
            Self::Part(rank, _) => rank.layout().ranks(),
        }
    }

    /// Which of some micro-batches this rank computes.
    pub fn own_batches(&mut self, batches: &[&Microbatch]) -> Result<Vec<bool>, Failure> {
        match self {
            Self::Whole(_) => Ok(vec![true; batches.len()]),
            Self::Part(rank, number) => rank.own_batches(batches).map_err(fault(*number)),
        }
    }

    /// The results of micro-batches that are only read, each with its tokens that count.
    pub fn evaluate(&mut self, batches: &[(Microbatch, u64)]) -> Result<Vec<Evaluated>, Failure> {
        match self {
            Self::Whole(engine) => {
                let results = batches.iter().map(|(batch, items)| engine.evaluate(batch, *items));
                results.collect::<Result<_, _>>().map_err(Failure::bug)
            }
            Self::Part(rank, number) => rank.evaluate(batches).map_err(fault(*number)),
        }
    }

    /// What a checkpoint holds of it.
    pub fn trained(&self) -> Result<Trained, Failure> {
        match self {
            Self::Whole(engine) => {
                let state = engine.state().map_err(Failure::bug)?.into_iter();
                let (moments, adapter) = state.partition(|(name, _)| name.starts_with("optim."));
                Ok(Trained { adapter, moments: Moments::Whole(moments) })
            }
            Self::Part(rank, number) => {
                let adapter = rank.adapter().map_err(fault(*number))?;
                let moments = rank.own_moments().map_err(fault(*number))?;
                Ok(Trained { adapter, moments: Moments::Slices(moments) })
            }
        }
    }

    /// A and B, whole.
    pub fn adapter(&self) -> Result<Values<f32>, Failure> {
        match self {
            Self::Whole(engine) => engine.state().map_err(Failure::bug),
            Self::Part(rank, number) => rank.adapter().map_err(fault(*number)),
        }
    }

    /// Where the first number of a step's micro-batches that is not finite comes from, in words.
    pub fn not_finite(&mut self, parts: &[Keyed], items: u64) -> String {
        let Self::Whole(engine) = self else {
            return "a run with ranks = 1 says where it comes from".into();
        };
        for (micro_batch, (part, key)) in (1..).zip(parts) {
            match engine.first_not_finite(part, items, *key) {
                Ok(None) => {}
                Ok(Some(found)) => {
                    return format!(
                        "the first number that is not finite comes, in micro-batch {micro_batch}, {found}"
                    );
                }
                Err(error) => return format!("where it comes from could not be found: {error}"),
            }
        }
        "each micro-batch by itself is finite: their sum is not".into()
    }
}

/// An error of a rank's run.
fn fault(rank: usize) -> impl Fn(fsdp::Error) -> Failure {
    move |error| Failure::Fault(of_rank(rank, &error))
}

/// An error with the rank that has it. What every rank finds alike names none, and what ends their communication has
/// the name of another.
fn of_rank(rank: usize, error: &fsdp::Error) -> String {
    match error {
        fsdp::Error::Device { .. } | fsdp::Error::Train(_) | fsdp::Error::Model(_) => {
            format!("rank {rank}: {error}")
        }
        error => error.to_string(),
    }
}
