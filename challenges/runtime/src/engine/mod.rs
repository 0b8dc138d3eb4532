//! The training engine: a rank of a mesh of 1 to N ranks.
//!
//! An [`Engine`] adds micro-batches to a step and ends it by an update; the trainer runs it, and the grader measures
//! its parts. A step is made of one graph, of a graph that is cut at the head, or of pieces:
//!
//! ```text
//! Whole      a micro-batch is a graph, with all of its logits
//! Chunked    a micro-batch is a graph up to the hidden states, and back; its loss is computed a chunk at a time
//! Pieces     the embedding, each layer and the head are separate graphs, which ranks share as their mesh says
//! ```
//!
//! Weights, adapter and the optimiser's state are uploaded once and stay on the device; what a step updates, it updates
//! in place. All ranks of an engine are asked for the same, in the same order and with the same micro-batches, and have
//! the same answers, unless a method says otherwise.
//!
//! | module | holds |
//! |---|---|
//! | `replica` | the first two kinds of a step, on one rank |
//! | [`shard`](crate::shard) | the third |
//! | `forecast` | the bytes that one rank will take |
//! | `tower` | the tower of images |
//! | `one_graph` | a step with its update as one graph, for a reader's own compiler |

mod forecast;
mod one_graph;
pub mod replica;
mod tower;

use std::fmt;
use std::time::Duration;

use reference::graph::interpret::Values;

use crate::shard::{self, Rank, Slice};
pub use crate::step::{
    Activations, Error as StepError, Evaluated, ImageRows, LEAST, Logged, LossScale, Machine, Microbatch,
    Rows, Scored, Whose, chunks,
};
pub use forecast::{Forecast, Forecaster};
pub use one_graph::Trainer;
pub use replica::{NotFinite, Replica};
pub use tower::Tower;

/// A model that is trained, or a rank's part of one.
pub struct Engine<'a> {
    plan: StepPlan<'a>,
}

/// The graphs that a step is made of.
enum StepPlan<'a> {
    /// One graph, or a graph that is cut at the head.
    Replica(Box<Replica<'a>>),
    /// Pieces, on the rank of this number.
    Pieces(Box<Rank<'a>>, usize),
}

/// Why an engine has failed.
#[derive(Debug)]
pub enum Error {
    /// On one rank.
    Step(StepError),
    /// On one of several, by its number.
    Rank(usize, Box<shard::Error>),
}

/// A micro-batch, and the seed of the masks of its dropout.
pub type Keyed = (Microbatch, [i32; 2]);

/// The optimiser's moments that a rank holds.
pub enum Moments {
    /// All of them.
    Whole(Values<f32>),
    /// Rectangles of them.
    Slices(Vec<Slice>),
}

impl<'a> Engine<'a> {
    /// The engine of a mesh of one rank.
    pub fn alone(replica: Replica<'a>) -> Self {
        Self { plan: StepPlan::Replica(Box::new(replica)) }
    }

    /// The engine of one of several ranks.
    pub fn on_ranks(rank: Rank<'a>) -> Self {
        let number = rank.world().rank();
        Self { plan: StepPlan::Pieces(Box::new(rank), number) }
    }

    /// Resumes with a factor of the loss that was saved; a model that does not compute in f16 has none.
    pub fn resume_scale(&mut self, scale: LossScale) {
        match &mut self.plan {
            StepPlan::Replica(replica) => replica.resume_scale(scale),
            StepPlan::Pieces(rank, _) => rank.resume_scale(scale),
        }
    }

    /// The factor of the loss, if the model computes in f16.
    pub fn loss_scale(&self) -> Option<LossScale> {
        match &self.plan {
            StepPlan::Replica(replica) => replica.loss_scale(),
            StepPlan::Pieces(rank, _) => rank.loss_scale(),
        }
    }

    /// The time that compilations and that runs took so far, on this rank.
    pub fn spent(&mut self) -> [Duration; 2] {
        match &mut self.plan {
            StepPlan::Replica(replica) => replica.spent(),
            StepPlan::Pieces(rank, _) => rank.spent(),
        }
    }

    /// The number of tokens that a row may have.
    pub fn context(&self) -> usize {
        match &self.plan {
            StepPlan::Replica(replica) => replica.context(),
            StepPlan::Pieces(rank, _) => rank.context(),
        }
    }

    /// The number of micro-batches that are computed at the same time, each by other ranks.
    pub fn lanes(&self) -> usize {
        match &self.plan {
            StepPlan::Replica(_) => 1,
            StepPlan::Pieces(rank, _) => rank.layout().ranks(),
        }
    }

    /// Returns which of some micro-batches this rank computes.
    ///
    /// # Errors
    /// If a micro-batch is larger than the model allows.
    pub fn own_batches(&mut self, batches: &[&Microbatch]) -> Result<Vec<bool>, Error> {
        match &mut self.plan {
            StepPlan::Replica(_) => Ok(vec![true; batches.len()]),
            StepPlan::Pieces(rank, number) => rank.own_batches(batches).map_err(of(*number)),
        }
    }

    /// Adds the micro-batches of a step, in which `items` tokens count; what is logged of each.
    ///
    /// # Errors
    /// What the device says, or another rank.
    pub fn accumulate(&mut self, parts: &[Keyed], items: u64) -> Result<Vec<Logged>, Error> {
        match &mut self.plan {
            StepPlan::Replica(replica) => {
                let logged = parts.iter().map(|(part, key)| replica.microbatch(part, items, *key));
                Ok(logged.collect::<Result<_, _>>()?)
            }
            StepPlan::Pieces(rank, number) => rank.accumulate(parts, items).map_err(of(*number)),
        }
    }

    /// Ends a step; `step` counts the updates that were made, this one among them. The norm of its gradient before the
    /// bound: where it is not finite, A, B and the moments are what they were, and the update is not to be counted.
    ///
    /// # Errors
    /// What the device says, or another rank.
    pub fn update(&mut self, step: u64, rate: f64) -> Result<f64, Error> {
        match &mut self.plan {
            StepPlan::Replica(replica) => Ok(replica.update(step, rate)?),
            StepPlan::Pieces(rank, number) => rank.update(step, rate).map_err(of(*number)),
        }
    }

    /// The results of micro-batches that are only read, each with its tokens that count.
    ///
    /// # Errors
    /// What the device says, or another rank.
    pub fn evaluate(&mut self, batches: &[(Microbatch, u64)]) -> Result<Vec<Evaluated>, Error> {
        match &mut self.plan {
            StepPlan::Replica(replica) => {
                let results = batches.iter().map(|(batch, items)| replica.evaluate(batch, *items));
                Ok(results.collect::<Result<_, _>>()?)
            }
            StepPlan::Pieces(rank, number) => rank.evaluate(batches).map_err(of(*number)),
        }
    }

    /// A and B, whole.
    ///
    /// # Errors
    /// What the device says, or another rank.
    pub fn adapter(&self) -> Result<Values<f32>, Error> {
        match &self.plan {
            StepPlan::Replica(replica) => Ok(replica.adapter()?),
            StepPlan::Pieces(rank, number) => rank.adapter().map_err(of(*number)),
        }
    }

    /// The moments that this rank holds.
    ///
    /// # Errors
    /// What the device says.
    pub fn moments(&self) -> Result<Moments, Error> {
        match &self.plan {
            StepPlan::Replica(replica) => Ok(Moments::Whole(replica.moments()?)),
            StepPlan::Pieces(rank, number) => rank.own_moments().map(Moments::Slices).map_err(of(*number)),
        }
    }

    /// Where the first number that is not finite comes from, in words: in one of the micro-batches of a step.
    pub fn not_finite(&mut self, parts: &[Keyed], items: u64) -> String {
        let StepPlan::Replica(replica) = &mut self.plan else {
            return "a run with ranks = 1 says where it comes from".into();
        };
        for (micro_batch, (part, key)) in (1..).zip(parts) {
            match replica.first_not_finite(part, items, *key) {
                Ok(None) => {}
                Ok(Some(found)) => {
                    return format!(
                        "the first number that is not finite comes, in micro-batch {micro_batch}, {found}"
                    );
                }
                Err(error) => return format!("where it comes from could not be found: {error}"),
            }
        }
        "each micro-batch is finite, but their sum is not".into()
    }
}

/// Objectives, whose loss needs more than labels. Their micro-batches are [padded](Self::padded) first, and come in
/// groups of at most [`Self::lanes`]; an answer is `None` where another rank computes the micro-batch.
impl Engine<'_> {
    /// Keeps what is trained as it is in `start`, for the reference model.
    ///
    /// # Errors
    /// If the device lacks the memory.
    pub fn keep_reference(&mut self, start: &Values<f32>) -> Result<(), Error> {
        match &mut self.plan {
            StepPlan::Replica(replica) => Ok(replica.keep_reference(start)?),
            StepPlan::Pieces(rank, number) => rank.keep_reference(start).map_err(of(*number)),
        }
    }

    /// The micro-batch with the padding that its rows are computed in.
    ///
    /// # Errors
    /// If it is larger than the model allows.
    pub fn padded(&mut self, batch: &Microbatch) -> Result<Microbatch, Error> {
        match &mut self.plan {
            StepPlan::Replica(replica) => Ok(replica.padded(batch)?),
            StepPlan::Pieces(rank, number) => rank.padded(batch).map_err(of(*number)),
        }
    }

    /// Returns which micro-batches of a group of `count` this rank computes.
    pub fn own_of_group(&self, count: usize) -> Vec<bool> {
        match &self.plan {
            StepPlan::Replica(_) => vec![true; count],
            StepPlan::Pieces(rank, _) => {
                let own = rank.own_of_group(count);
                (0..count).map(|number| own == Some(number)).collect()
            }
        }
    }

    /// The values of each row.
    ///
    /// # Errors
    /// What the device says, or another rank.
    pub fn score(&mut self, batches: &[Microbatch], whose: Whose) -> Result<Vec<Option<Rows>>, Error> {
        match &mut self.plan {
            StepPlan::Replica(replica) => {
                let rows = batches.iter().map(|batch| replica.score(batch, whose).map(Some));
                Ok(rows.collect::<Result<_, _>>()?)
            }
            StepPlan::Pieces(rank, number) => rank.score(batches, whose).map_err(of(*number)),
        }
    }

    /// Adds `share` of the loss of each micro-batch to the step; `given` are the inputs of the losses that this rank
    /// computes.
    ///
    /// # Errors
    /// What the device says, or another rank.
    pub fn learn(
        &mut self,
        batches: &[Microbatch],
        given: Vec<Option<Values<f32>>>,
        share: f64,
    ) -> Result<Vec<Option<Scored>>, Error> {
        match &mut self.plan {
            StepPlan::Replica(replica) => {
                each(batches, &given, |batch, given| replica.learn(batch, given, share))
            }
            StepPlan::Pieces(rank, number) => rank.learn(batches, given, share).map_err(of(*number)),
        }
    }

    /// The losses of micro-batches that are only read.
    ///
    /// # Errors
    /// What the device says, or another rank.
    pub fn judge(
        &mut self,
        batches: &[Microbatch],
        given: Vec<Option<Values<f32>>>,
    ) -> Result<Vec<Option<Scored>>, Error> {
        match &mut self.plan {
            StepPlan::Replica(replica) => each(batches, &given, |batch, given| replica.judge(batch, given)),
            StepPlan::Pieces(rank, number) => rank.judge(batches, given).map_err(of(*number)),
        }
    }
}

/// The result of each micro-batch whose inputs are given.
fn each(
    batches: &[Microbatch],
    given: &[Option<Values<f32>>],
    mut result: impl FnMut(&Microbatch, &Values<f32>) -> Result<Scored, StepError>,
) -> Result<Vec<Option<Scored>>, Error> {
    let all = batches.iter().zip(given);
    let all = all.map(|(batch, given)| given.as_ref().map(|given| result(batch, given)).transpose());
    Ok(all.collect::<Result<_, _>>()?)
}

impl Error {
    /// An error of a rank by its number.
    pub fn of_rank(number: usize, error: shard::Error) -> Self {
        Self::Rank(number, Box::new(error))
    }
}

/// Names the rank of an error.
fn of(number: usize) -> impl Fn(shard::Error) -> Error {
    move |error| Error::of_rank(number, error)
}

/// Whether an error may be of one rank alone, and does not name it.
fn is_own(error: &shard::Error) -> bool {
    matches!(error, shard::Error::Device { .. } | shard::Error::Train(_) | shard::Error::Model(_))
}

impl From<StepError> for Error {
    fn from(error: StepError) -> Self {
        Self::Step(error)
    }
}

impl fmt::Display for Error {
    /// An error that every rank finds names none, and one that ends the communication of all names its rank already.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(error) => error.fmt(f),
            Self::Rank(number, error) if is_own(error) => write!(f, "rank {number}: {error}"),
            Self::Rank(_, error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Step(error) => Some(error),
            Self::Rank(_, error) => Some(&**error),
        }
    }
}
