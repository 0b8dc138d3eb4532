//! The objectives of a run that are more than the likelihood of its rows.
//!
//! ```text
//! dpo, orpo, simpo    examples of two rows: the chosen answer, the rejected one
//! kto                 examples of a row that is good or bad
//! grpo                examples of a group of completions with rewards
//! ```
//!
//! A [`Goal`] is an objective with its settings, as `settings` reads them. It makes the loss of challenge E
//! ([`challenges::loss::sequences`]); `given` lays a micro-batch out for it and says what it asks for beside labels;
//! `metrics` says what is logged, under the names that TRL logs it.
//!
//! Source of names, defaults and of what a step divides by: `DPOTrainer`, `KTOTrainer` and `GRPOTrainer` of the library
//! TRL 1.16, and its experimental `ORPOTrainer` and `CPOTrainer`, which divide a step's loss by its micro-batches.

mod examples;
mod generate;
mod given;
mod metrics;
mod reward;
mod settings;
mod step;

use challenges::loss::Loss;
use challenges::loss::sequences::{Sampling, Sequences};
use reference::graph;
use reference::loss::{Kto, Orpo, PairLoss, Policy, SimPo};

use super::config::{Config, RewardScale};
use super::dataset::Dataset;

pub use generate::{Generator, from_text, to_text};
pub use given::Part;
pub use metrics::Metrics;
pub use step::Step;

/// An objective with its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// Pairs held against the reference model.
    Dpo(PairLoss),
    /// Pairs by their odds.
    Orpo(Orpo),
    /// Pairs by their means, and what the likelihood of the chosen answers counts.
    Simpo(SimPo, f64),
    /// Good and bad answers.
    Kto(Kto),
    /// Groups with rewards.
    Grpo(Grpo),
}

/// The settings of GRPO.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grpo {
    /// The loss of a token.
    pub policy: Policy,
    /// How tokens are averaged.
    pub kind: GrpoKind,
    /// The divisor of rewards.
    pub scale: RewardScale,
    /// The divisor of logits.
    pub temperature: f64,
    /// Whether the distance is weighed by the ratio.
    pub is_distance_corrected: bool,
    /// Completions of a prompt.
    pub generations: usize,
    /// Tokens of a completion.
    pub most: usize,
    /// Whether completions that were cut have no loss.
    pub masks_truncated: bool,
    /// Whether the data have the log-probabilities that tokens were sampled with.
    pub old: bool,
}

/// How tokens are averaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpoKind {
    /// Over all tokens of the step.
    Dapo,
    /// Over the tokens of each completion, then over completions.
    Grpo,
    /// Over all tokens of the micro-batch.
    Bnpo,
    /// Over as many tokens as there could be.
    DrGrpo,
}

impl Goal {
    /// The loss of the objective, for a model with a vocabulary of this size.
    pub fn loss(&self, config: &Config, vocab: usize) -> Result<Loss, graph::Error> {
        let sequences = Sequences { slots: self.slots(config), vocab, temperature: self.temperature() };
        match *self {
            Self::Dpo(pair) => sequences.pairs(pair),
            Self::Orpo(orpo) => sequences.odds(orpo),
            Self::Simpo(simpo, _) => sequences.simpo(simpo),
            Self::Kto(kto) => sequences.kto(kto),
            Self::Grpo(Grpo { policy, is_distance_corrected, old, .. }) => {
                sequences.sampled(Sampling { policy, old, is_distance_corrected })
            }
        }
    }

    /// Adapts the objective to its data.
    #[must_use]
    pub fn over(self, data: &Dataset) -> Self {
        match self {
            Self::Grpo(grpo) => {
                let generations = if data.group > 1 { data.group } else { grpo.generations };
                Self::Grpo(Grpo { old: data.judged.iter().any(|own| own.old.is_some()), generations, ..grpo })
            }
            other => other,
        }
    }

    /// Rows of an example, where they are as many for each.
    pub fn rows(&self) -> usize {
        match self {
            Self::Dpo(_) | Self::Orpo(_) | Self::Simpo(..) => 2,
            Self::Kto(_) | Self::Grpo(_) => 1,
        }
    }

    /// Sequences that a batch may have.
    fn slots(&self, config: &Config) -> usize {
        let batch = config.per_device_train_batch_size.max(config.per_device_eval_batch_size);
        self.rows() * batch as usize
    }

    fn temperature(&self) -> f64 {
        if let Self::Grpo(grpo) = self { grpo.temperature } else { 1.0 }
    }

    /// Whether the loss compares with the reference model.
    pub fn has_reference(&self) -> bool {
        match self {
            Self::Dpo(_) | Self::Kto(_) => true,
            Self::Orpo(_) | Self::Simpo(..) => false,
            Self::Grpo(grpo) => grpo.policy.beta != 0.0,
        }
    }
}
