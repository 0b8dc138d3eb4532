//! The metrics of a micro-batch, under TRL's names.
//!
//! Means of tokens are over those that have a loss; of a step they are the means over its micro-batches that have the
//! number: one without a good answer has no `rewards/chosen`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use challenges::loss::sequences::{CORRECT, ENTROPY, LOG_P, LOGITS};
use reference::graph::Array;
use reference::graph::interpret::Values;
use reference::loss::{Clip, Level};
use serde_json::{Map, Value as Json};

use super::super::row::Row;
use super::given::{Part, Slots};
use super::{Goal, Grpo};

/// Names and numbers, in the order in which they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(Vec<(Cow<'static, str>, f64)>);

impl Metrics {
    fn put(&mut self, name: &'static str, value: f64) {
        self.0.push((name.into(), value));
    }

    /// A text that has every bit: a name and its number after the other.
    pub fn bits_text(&self) -> String {
        let number = |(name, value): &(Cow<'static, str>, f64)| format!("{name} {:016x}", value.to_bits());
        self.0.iter().map(number).collect::<Vec<_>>().join(" ")
    }

    /// Reads such a text; `None` if it is not one.
    pub fn from_bits_text(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
        let number = |pair: &[&str]| {
            let [name, bits] = pair else { return None };
            let bits = u64::from_str_radix(bits, 16).ok()?;
            Some((Cow::Owned((*name).to_owned()), f64::from_bits(bits)))
        };
        words.chunks(2).map(number).collect::<Option<_>>().map(Self)
    }

    /// The means of micro-batches, each over those that have the number.
    pub fn mean(parts: &[Self]) -> Map<String, Json> {
        let mut all: Vec<(&str, Vec<f64>)> = Vec::new();
        for (name, value) in parts.iter().flat_map(|part| &part.0) {
            match all.iter_mut().find(|(known, _)| known == name) {
                Some((_, values)) => values.push(*value),
                None => all.push((name, vec![*value])),
            }
        }
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
        all.into_iter().map(|(name, values)| (name.to_owned(), mean(values).into())).collect()
    }
}

/// The values of each row of the logits.
pub(super) type Rows = BTreeMap<String, Vec<f32>>;

/// A micro-batch that was scored.
struct Seen<'s> {
    part: &'s Part<'s>,
    slots: &'s Slots,
    rows: &'s Rows,
}

impl Seen<'_> {
    /// The sum over a row's tokens.
    fn sum(&self, b: usize, of: &str) -> f64 {
        self.slots.sum(b, self.part.rows[b], &self.rows[of])
    }

    /// The mean over the tokens of some rows; 0 of none.
    fn mean(&self, rows: &[usize], of: &str) -> f64 {
        let tokens: usize = rows.iter().map(|b| self.row(*b).counted()).sum();
        let all: f64 = rows.iter().map(|b| self.sum(*b, of)).sum();
        if tokens == 0 { 0.0 } else { all / tokens as f64 }
    }

    /// The share of right tokens of some rows; NaN if a logit was not a number, as the largest of them is none then.
    fn accuracy(&self, rows: &[usize]) -> f64 {
        if self.mean(rows, ENTROPY).is_finite() { self.mean(rows, CORRECT) } else { f64::NAN }
    }

    fn row(&self, b: usize) -> &Row {
        self.part.rows[b]
    }
}

/// The metrics of a micro-batch.
pub(super) fn of(
    goal: &Goal,
    part: &Part<'_>,
    slots: &Slots,
    rows: &Rows,
    given: &Values<f32>,
    reference: &[f32],
) -> Metrics {
    let seen = Seen { part, slots, rows };
    let mut metrics = Metrics::default();
    let counts = |b: &usize| if let Goal::Grpo(grpo) = goal { part.counts(grpo, *b) } else { true };
    let all: Vec<usize> = (0..part.rows.len()).filter(counts).collect();
    let log_p = |b: usize| seen.sum(b, LOG_P);
    let moved = |b: usize| log_p(b) - slots.sum(b, part.rows[b], reference);
    let mean_of = |b: usize| log_p(b) / seen.row(b).counted().max(1) as f64;
    metrics.put("entropy", seen.mean(&all, ENTROPY));
    match goal {
        Goal::Dpo(pair) => {
            pairs(&mut metrics, &seen, &|b| pair.beta * moved(b), &log_p);
        }
        Goal::Orpo(orpo) => {
            pairs(&mut metrics, &seen, &|b| orpo.beta * mean_of(b), &mean_of);
            let odds = |b: usize| mean_of(b) - (-mean_of(b).exp_m1()).ln();
            let pairs = part.rows.len() / 2;
            let apart: Vec<f64> = (0..pairs).map(|i| odds(i) - odds(pairs + i)).collect();
            metrics.put("nll_loss", likelihood(rows, given));
            metrics.put("log_odds_ratio", mean(apart.iter().map(|x| -(-x).exp().ln_1p())));
            metrics.put("log_odds_chosen", mean(apart.iter().copied()));
        }
        Goal::Simpo(simpo, alpha) => {
            pairs(&mut metrics, &seen, &|b| simpo.beta * mean_of(b), &mean_of);
            if *alpha > 0.0 {
                metrics.put("nll_loss", likelihood(rows, given) / alpha);
            }
        }
        Goal::Kto(kto) => judged(&mut metrics, &seen, &|b| kto.beta * moved(b), &log_p, given),
        Goal::Grpo(grpo) => sampled(&mut metrics, &seen, grpo, &all, (reference, given)),
    }
    metrics
}

/// 1 for true and 0 for false, or NaN where the number that it was decided by is NaN.
fn known(number: f64, is_true: bool) -> f64 {
    if number.is_nan() { f64::NAN } else { f64::from(u8::from(is_true)) }
}

/// Rewards, log-probabilities and logits of chosen and rejected answers.
fn pairs(
    metrics: &mut Metrics,
    seen: &Seen<'_>,
    reward: &dyn Fn(usize) -> f64,
    log_p: &dyn Fn(usize) -> f64,
) {
    let pairs = seen.part.rows.len() / 2;
    let [chosen, rejected] = [0..pairs, pairs..2 * pairs].map(Vec::from_iter);
    let both = || (0..pairs).map(|i| (reward(i), reward(pairs + i)));
    metrics.put("mean_token_accuracy", seen.accuracy(&chosen));
    metrics.put("logits/chosen", seen.mean(&chosen, LOGITS));
    metrics.put("logits/rejected", seen.mean(&rejected, LOGITS));
    metrics.put("rewards/chosen", mean(both().map(|(chosen, _)| chosen)));
    metrics.put("rewards/rejected", mean(both().map(|(_, rejected)| rejected)));
    let is_larger = |(chosen, rejected): (f64, f64)| known(chosen - rejected, chosen > rejected);
    metrics.put("rewards/accuracies", mean(both().map(is_larger)));
    metrics.put("rewards/margins", mean(both().map(|(chosen, rejected)| chosen - rejected)));
    metrics.put("logps/chosen", mean(chosen.iter().map(|b| log_p(*b))));
    metrics.put("logps/rejected", mean(rejected.iter().map(|b| log_p(*b))));
}

/// The metrics of good and bad answers, as far as there are any.
fn judged(
    metrics: &mut Metrics,
    seen: &Seen<'_>,
    reward: &dyn Fn(usize) -> f64,
    log_p: &dyn Fn(usize) -> f64,
    given: &Values<f32>,
) {
    let side = |good: bool| {
        let rows = seen.part.judged.iter().enumerate().filter(move |(_, own)| own.desirable == good);
        rows.map(|(b, _)| b).collect::<Vec<usize>>()
    };
    let names = [
        ["logits/chosen", "rewards/chosen", "logps/chosen"],
        ["logits/rejected", "rewards/rejected", "logps/rejected"],
    ];
    metrics.put("kl", given["z"].wide()[0]);
    let mut rewards = Vec::new();
    for ([logits, reward_name, log_p_name], rows) in names.into_iter().zip([side(true), side(false)]) {
        if rows.is_empty() {
            continue;
        }
        rewards.push(mean(rows.iter().map(|b| reward(*b))));
        metrics.put(logits, seen.mean(&rows, LOGITS));
        metrics.put(reward_name, rewards[rewards.len() - 1]);
        metrics.put(log_p_name, mean(rows.iter().map(|b| log_p(*b))));
    }
    if let [chosen, rejected] = rewards[..] {
        metrics.put("rewards/margins", chosen - rejected);
    }
}

/// The share of clipped ratios of some rows, and the distance from the reference.
fn sampled(
    metrics: &mut Metrics,
    seen: &Seen<'_>,
    grpo: &Grpo,
    rows: &[usize],
    (reference, given): (&[f32], &Values<f32>),
) {
    let old = given.get("old").map(Array::wide);
    let tokens: Vec<Vec<Token>> =
        rows.iter().map(|b| seen.tokens(*b, reference, old.as_deref(), grpo.policy.level)).collect();
    if grpo.policy.beta != 0.0 {
        let distance = |token: &Token| {
            let weight = if grpo.is_distance_corrected { token.ratio } else { 1.0 };
            (token.apart.exp_m1() - token.apart) * weight
        };
        metrics.put("kl", mean(tokens.iter().flatten().map(distance)));
    }
    let Clip { low, high, delta } = grpo.policy.clip;
    let held = |ratio: f64| delta.map_or(ratio, |delta| ratio.min(delta));
    let share = |is_held: &dyn Fn(f64, f64) -> bool| -> Vec<Vec<f64>> {
        let of_row = |(b, tokens): (&usize, &Vec<Token>)| {
            let advantage = seen.part.advantages[*b];
            let is_held = |token: &Token| known(token.ratio, is_held(held(token.ratio), advantage));
            let each = tokens.iter().map(is_held);
            if grpo.policy.level == Level::Sequence { each.take(1).collect() } else { each.collect() }
        };
        rows.iter().zip(&tokens).map(of_row).collect()
    };
    let lows = share(&|ratio, advantage| ratio < 1.0 - low && advantage < 0.0);
    let highs = share(&|ratio, advantage| ratio > 1.0 + high && advantage > 0.0);
    let of_all = |shares: &[Vec<f64>]| mean(shares.iter().flatten().copied());
    metrics.put("clip_ratio/low_mean", of_all(&lows));
    metrics.put("clip_ratio/high_mean", of_all(&highs));
    metrics.put("clip_ratio/region_mean", of_all(&lows) + of_all(&highs));
    let of_rows =
        |shares: &[Vec<f64>]| shares.iter().map(|row| mean(row.iter().copied())).collect::<Vec<f64>>();
    if !rows.is_empty() {
        metrics.put("clip_ratio/low_min", of_rows(&lows).into_iter().fold(1.0, f64::min));
        metrics.put("clip_ratio/high_max", of_rows(&highs).into_iter().fold(0.0, f64::max));
    }
}

/// A sampled token.
struct Token {
    ratio: f64,
    apart: f64, // the reference's log-probability less the policy's
}

impl Seen<'_> {
    /// The tokens of a row.
    fn tokens(&self, b: usize, reference: &[f32], old: Option<&[f64]>, level: Level) -> Vec<Token> {
        let places: Vec<usize> = self.slots.places(b, self.row(b)).collect();
        let log_p = |n: usize| f64::from(self.rows[LOG_P][n]);
        let logs = places.iter().map(|n| old.map_or(0.0, |old| log_p(*n) - old[*n]));
        let logs: Vec<f64> = match level {
            Level::Token => logs.collect(),
            Level::Sequence => vec![mean(logs); places.len()],
        };
        let token =
            |(n, log): (&usize, f64)| Token { ratio: log.exp(), apart: f64::from(reference[*n]) - log_p(*n) };
        places.iter().zip(logs).map(token).collect()
    }
}

/// The loss of the chosen texts.
fn likelihood(rows: &Rows, given: &Values<f32>) -> f64 {
    let weights = given["likelihood"].wide();
    rows[LOG_P].iter().zip(weights).map(|(log_p, weight)| -f64::from(*log_p) * weight).sum()
}

/// 0 of none.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_usize), |(sum, count), value| (sum + value, count + 1));
    sum / count.max(1) as f64
}
