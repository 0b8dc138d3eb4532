//! Policy gradients against a group of answers: GRPO and its relatives.
//!
//! ```text
//! ratio_t = e^(x_t - o_t)                                             of each token, or
//! ratio   = e^(sum m_t (x_t - o_t) / sum m_t)                         of the sequence (GSPO)
//! l_t     = -min(min(ratio_t, delta) A, clamp(ratio_t, 1 - low, 1 + high) A) + beta (e^d_t - d_t - 1)
//! dl_t/dx = -A ratio_t where that is the min and not held, else 0     - beta (e^d_t - 1)
//! ```
//!
//! x is the log-probability of a sampled token, o the same when it was sampled (x itself as a constant, if not given),
//! d = ref - x (no such term without a reference), A the advantage of the sequence, m its mask. Over the tokens of a
//! sequence:
//!
//! ```text
//! Average::Sequences   v = sum m_t l_t / sum m_t,   w = 1             mean: GRPO, GSPO
//! Average::Tokens      v = sum m_t l_t,             w = sum m_t       mean: BNPO
//! Average::Items(n)    v = sum m_t l_t,             w = n / R         mean: DAPO
//! Average::Length(n)   v = sum m_t l_t,             w = n             mean: Dr. GRPO
//! ```
//!
//! R are the sequences at hand. Batches that share an update add up to one large batch if each divides by what all of
//! them have: with `Average::Items` by all their tokens, or with [`Reduction::Items`](super::Reduction::Items) by the
//! sum of all their weights. Means of `Average::Tokens` do not, where batches have unequally many tokens.
//!
//! The term with beta is the estimator k3 of the distance KL(policy || reference): its mean over tokens that the policy
//! samples is that distance, and no token's is below 0.
//!
//! A temperature belongs to the logits ([`super::Head::temperature`]).
//!
//! Source: Shao et al., "`DeepSeekMath`" (2024), equations 3 and 4; Yu et al., "DAPO" (2025), equations 8 and 12; Liu
//! et al., "Understanding R1-Zero-Like Training" (2025), for Dr. GRPO; Zheng et al., "Group Sequence Policy
//! Optimization" (2025), equations 5 and 7; Prime Intellect, "INTELLECT-2" (2025), for delta; Schulman, "Approximating
//! KL Divergence" (2020), for k3; the `GRPOTrainer` of the library TRL 1.16, whose `bnpo` divides by the tokens of the
//! batch at hand and whose `dapo` divides by those of all batches that share an update.

use super::functions::each_row;
use super::reduction::inverse;
use super::{Error, Exact, Rows, check};
use crate::graph::{Dim, Tensor};
use crate::oracles::POLICIES;

/// The settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// How dear it is to leave the reference model.
    pub beta: f64,
    /// How far a ratio may go.
    pub clip: Clip,
    /// What a ratio is of.
    pub level: Level,
    /// How tokens make a loss.
    pub average: Average,
}

/// Where a ratio is held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clip {
    /// Below 1 by this: 0 to 1.
    pub low: f64,
    /// Above 1 by this, from 0 on.
    pub high: f64,
    /// The most that the ratio which is not clipped may be. Above 1 + `high` it matters only where the advantage is
    /// negative: there nothing else holds a large ratio. Below that it holds the ratio on both sides.
    pub delta: Option<f64>,
}

/// What a ratio is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Each token has its own.
    Token,
    /// A sequence has one.
    Sequence,
}

/// How tokens make a loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Average {
    /// The mean over the sequences of each one's mean.
    Sequences,
    /// The mean over all tokens at hand.
    Tokens,
    /// The sum over all tokens, over a given number: the tokens of all batches that share an update.
    Items(f64),
    /// The sum over all tokens, over R times this length: over as many tokens as there could be.
    Length(f64),
}

/// What is given of each token: all (R, T), but for the advantages, (R).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tokens<T> {
    /// x: their log-probabilities.
    pub log_p: T,
    /// o: the same when they were sampled.
    pub old: Option<T>,
    /// The same of the reference model.
    pub reference: Option<T>,
    /// A, of each sequence.
    pub advantages: T,
    /// m: 0 of a token that does not count, and may be anything.
    pub mask: T,
}

impl Clip {
    /// The same on both sides, and no delta.
    pub fn both(epsilon: f64) -> Self {
        Self { low: epsilon, high: epsilon, delta: None }
    }

    /// max(1 - low, min(1 + high, ratio))
    fn clamp(&self, ratio: f64) -> f64 {
        let [low, high] = [1.0 - self.low, 1.0 + self.high];
        if ratio < low {
            low
        } else if high < ratio {
            high
        } else {
            ratio
        }
    }

    /// -min(..) of a ratio, and its derivative.
    fn surrogate(&self, ratio: f64, advantage: f64) -> (f64, f64) {
        let held = self.delta.is_some_and(|delta| delta < ratio);
        let free = if held { self.delta.unwrap_or(ratio) } else { ratio };
        let clamped = self.clamp(ratio);
        if clamped * advantage < free * advantage {
            let slope = if clamped.to_bits() == ratio.to_bits() { -advantage } else { 0.0 };
            return (-clamped * advantage, slope);
        }
        (-free * advantage, if held { 0.0 } else { -advantage })
    }

    /// The same of tensors.
    fn surrogate_of(&self, ratio: &Tensor, advantage: &Tensor) -> Tensor {
        let free = self.delta.map_or(ratio.clone(), |delta| ratio.min(&ratio.like(delta)));
        let clamped = ratio.max(&ratio.like(1.0 - self.low)).min(&ratio.like(1.0 + self.high));
        -&(&free * advantage).min(&(&clamped * advantage))
    }
}

impl Policy {
    /// Group relative policy optimisation.
    pub fn grpo(beta: f64, clip: Clip) -> Self {
        Self { beta, clip, level: Level::Token, average: Average::Sequences }
    }

    /// The same over all tokens of the batch at hand.
    pub fn bnpo(beta: f64, clip: Clip) -> Self {
        Self { average: Average::Tokens, ..Self::grpo(beta, clip) }
    }

    /// The same over the `tokens` of all batches that share an update. DAPO's clip has two sides.
    pub fn dapo(beta: f64, clip: Clip, tokens: f64) -> Self {
        Self { average: Average::Items(tokens), ..Self::grpo(beta, clip) }
    }

    /// The same over the largest length of a completion.
    pub fn dr_grpo(beta: f64, clip: Clip, max_completion_length: f64) -> Self {
        Self { average: Average::Length(max_completion_length), ..Self::grpo(beta, clip) }
    }

    /// Group sequence policy optimisation.
    pub fn gspo(beta: f64, clip: Clip) -> Self {
        Self { level: Level::Sequence, ..Self::grpo(beta, clip) }
    }

    /// Whether the settings make sense.
    pub fn check(&self) -> Result<(), Error> {
        check::not_negative("beta", self.beta)?;
        check::share("clip low", self.clip.low)?;
        check::not_negative("clip high", self.clip.high)?;
        check::positive("clip delta", self.clip.delta.unwrap_or(1.0))?;
        match self.average {
            Average::Sequences | Average::Tokens => Ok(()),
            Average::Items(items) => check::positive("items", items),
            Average::Length(length) => check::positive("max_completion_length", length),
        }
    }

    /// v of each sequence; gradient (R, T).
    ///
    /// Fails where a setting makes no sense, a shape is another, or a mask or an advantage is not finite.
    pub fn exact(&self, given: &Tokens<&[f64]>, length: usize) -> Result<Exact, Error> {
        POLICIES.count();
        self.check()?;
        let rows = check::rows("log_p", given.log_p, length)?;
        let tokens = given.log_p.len();
        check::length("old", given.old.unwrap_or(given.log_p), tokens)?;
        check::length("reference", given.reference.unwrap_or(given.log_p), tokens)?;
        check::finite("advantages", given.advantages, rows)?;
        check::finite("mask", given.mask, tokens)?;
        let mut all = each_row(rows, |i| self.row(&given.row(i, length), given.advantages[i]));
        if let Average::Items(items) = self.average {
            all.weights.fill(items / rows as f64);
        }
        Ok(all)
    }

    /// One sequence.
    fn row(&self, given: &Tokens<&[f64]>, advantage: f64) -> (f64, f64, Vec<f64>) {
        let (shares, weight) = self.average.shares(given.mask);
        let (gain, of_gain) = self.gain(given, advantage, &shares);
        let (distance, of_distance) = self.distance(given, &shares);
        let gradient = of_gain.iter().zip(of_distance).map(|(gain, distance)| gain + distance);
        (gain + distance, weight, gradient.collect())
    }

    /// What the advantage adds to a sequence, and its gradient.
    fn gain(&self, given: &Tokens<&[f64]>, advantage: f64, shares: &[f64]) -> (f64, Vec<f64>) {
        let logs = given.logs(given.old.unwrap_or(given.log_p));
        let of = |log: f64| {
            let (l, slope) = self.clip.surrogate(log.exp(), advantage);
            (l, slope * log.exp())
        };
        match self.level {
            Level::Token => {
                let each = || logs.iter().zip(shares).map(|(log, share)| (of(*log), share));
                let value = each().map(|((l, _), share)| share * l).sum();
                (value, each().map(|((_, slope), share)| share * slope).collect())
            }
            Level::Sequence => {
                let (parts, _) = Average::Sequences.shares(given.mask);
                let all = shares.iter().sum::<f64>();
                let (l, slope) = of(logs.iter().zip(&parts).map(|(log, part)| log * part).sum());
                (all * l, parts.iter().map(|part| all * slope * part).collect())
            }
        }
    }

    /// What the distance from the reference adds to a sequence, and its gradient.
    fn distance(&self, given: &Tokens<&[f64]>, shares: &[f64]) -> (f64, Vec<f64>) {
        let none = vec![0.0; shares.len()];
        let logs = given.reference.map_or(none, |reference| given.logs(reference)); // -d
        let each = || logs.iter().zip(shares).map(|(log, share)| (-log, share * self.beta));
        let value = each().map(|(d, share)| share * (d.exp_m1() - d)).sum();
        (value, each().map(|(d, share)| -share * d.exp_m1()).collect())
    }

    /// v of each sequence as a graph, all f32.
    pub fn rows(&self, given: &Tokens<Tensor>) -> Rows {
        POLICIES.count();
        let mask = given.mask.detach();
        let rows = || [given.log_p.dim(0)];
        let sum = (&self.tokens(given) * &mask).sum(1); // (R, 1)
        let count = mask.sum(1);
        let (value, weight) = match self.average {
            Average::Sequences => (&sum * &inverse(&count), count.like(1.0)),
            Average::Tokens => (sum, count),
            Average::Items(items) => (sum, &count.like(items) / &count.like(1.0).total()),
            Average::Length(length) => (sum, count.like(length)),
        };
        Rows { values: value.reshape(rows()), weights: weight.reshape(rows()) }
    }

    /// l of each token as a graph, (R, T), all f32. With a ratio of each token, they may be of any shape, such as a
    /// chunk (N); advantages may be of each sequence or of each token.
    pub fn tokens(&self, given: &Tokens<Tensor>) -> Tensor {
        POLICIES.count();
        let x = &given.log_p;
        let logs = given.logs_of(given.old.as_ref().unwrap_or(x));
        let logs = if self.level == Level::Token { logs } else { given.mean_of(&logs) };
        let advantages = given.advantages.detach();
        let of_rows = advantages.ty().rank() < x.ty().rank();
        let column = advantages.shape().iter().cloned().chain([Dim::fixed(1)]).collect::<Vec<_>>();
        let advantages = if of_rows { advantages.reshape(column) } else { advantages };
        let l = self.clip.surrogate_of(&logs.exp().spread(x.shape()), &advantages.spread(x.shape()));
        given.reference.as_ref().map_or(l.clone(), |reference| {
            let d = -&given.logs_of(reference);
            &l + &(&(&(&d.exp() - &d) - 1.0) * self.beta)
        })
    }
}

impl<'a> Tokens<&'a [f64]> {
    /// One sequence.
    fn row(&self, i: usize, length: usize) -> Self {
        let cut = |all: &'a [f64]| &all[i * length..][..length];
        let [old, reference] = [self.old, self.reference].map(|all| all.map(cut));
        Self { log_p: cut(self.log_p), old, reference, advantages: self.advantages, mask: cut(self.mask) }
    }

    /// x - other; 0 where the mask is 0.
    fn logs(&self, other: &[f64]) -> Vec<f64> {
        let pairs = self.log_p.iter().zip(other).zip(self.mask);
        pairs.map(|((x, other), m)| if *m == 0.0 { 0.0 } else { x - other }).collect()
    }
}

impl Tokens<Tensor> {
    /// x - other, which is a constant; 0 where the mask is 0.
    fn logs_of(&self, other: &Tensor) -> Tensor {
        let apart = &self.log_p - &other.detach();
        let mask = self.mask.detach();
        mask.equal(&mask.like(0.0)).select(&apart.like(0.0), &apart)
    }

    /// The mean of each sequence under the mask: (R, T) to (R, 1).
    fn mean_of(&self, x: &Tensor) -> Tensor {
        let mask = self.mask.detach();
        &(x * &mask).sum(1) * &inverse(&mask.sum(1))
    }
}

impl Average {
    /// What each token counts in its sequence's value, and the sequence's weight; with `Items` that of all sequences.
    fn shares(self, mask: &[f64]) -> (Vec<f64>, f64) {
        let all = mask.iter().sum::<f64>();
        let times = |factor: f64| mask.iter().map(|m| m * factor).collect();
        match self {
            Average::Sequences if all == 0.0 => (times(0.0), 1.0),
            Average::Sequences => (times(1.0 / all), 1.0),
            Average::Tokens => (mask.to_vec(), all),
            Average::Items(total) | Average::Length(total) => (mask.to_vec(), total),
        }
    }
}
