//! A step of an objective: its micro-batches one after the other.
//!
//! Of GRPO a step has whole groups, whose completions are cut into micro-batches wherever those end: what a completion
//! is worth is known before.
//!
//! ```text
//! A = (r - mean r) / (deviation r + 1e-4)      over the group, or with scale_rewards = "batch" the deviation of the step
//! ```
//!
//! Source: `GRPOTrainer` of the library TRL 1.16; Shao et al., "`DeepSeekMath`" (2024), section 4.1.2.

use challenges::train::{Engine, Scored};
use serde_json::{Map, Value as Json};

use super::super::config::{Config, RewardScale};
use super::super::dataset::Dataset;
use super::super::peers::Peers;
use super::given::{OfStep, Ready, Slots, prepare};
use super::metrics;
use super::{Goal, Grpo, Metrics, Part};
use crate::output::Failure;

/// The result of a step before its update.
pub struct Step {
    /// The loss.
    pub loss: f64,
    /// The tokens that were read.
    pub tokens: usize,
    /// The metrics that are logged with the loss.
    pub metrics: Map<String, Json>,
}

/// The losses and metrics of the micro-batches of a step, as far as this rank has computed them.
#[derive(Default)]
struct Exchanged(Vec<Option<(f64, Metrics)>>);

impl Exchanged {
    /// Adds a group of micro-batches; each loss is multiplied by `share`.
    fn add(
        &mut self,
        goal: &Goal,
        step: &OfStep,
        parts: &[Part<'_>],
        ready: &[Option<Ready>],
        scored: &[Option<Scored>],
        share: f64,
    ) {
        let all = parts.iter().zip(ready).zip(scored).map(|((part, ready), scored)| {
            let (ready, scored) = (ready.as_ref()?, scored.as_ref()?);
            let slots = Slots { shape: ready.batch.shape, count: step.slots };
            let measured = metrics::of(goal, part, &slots, &scored.rows, &ready.given, &ready.reference);
            Some((scored.loss * share, measured))
        });
        self.0.extend(all);
    }

    /// Everyone's losses and metrics, in the order of the micro-batches.
    fn exchange(self, peers: &Peers) -> Result<(Vec<f64>, Vec<Metrics>), Failure> {
        let line = |own: &Option<(f64, Metrics)>| {
            let of =
                |(loss, metrics): &(f64, Metrics)| format!("{:016x} {}", loss.to_bits(), metrics.bits_text());
            own.as_ref().map(of).unwrap_or_default()
        };
        let text: Vec<String> = self.0.iter().map(line).collect();
        let texts = peers.exchange(&text.join("\n"))?;
        let read = |line: &str| {
            let (loss, metrics) = line.split_once(' ')?;
            let loss = u64::from_str_radix(loss, 16).ok().map(f64::from_bits)?;
            Some((loss, Metrics::from_bits_text(metrics)?))
        };
        let of_rank = |text: &String| text.split('\n').map(read).collect::<Vec<_>>();
        let ranks: Vec<Vec<_>> = texts.iter().map(of_rank).collect();
        let first = |number: usize| ranks.iter().find_map(|rank| rank.get(number).cloned().flatten());
        let all = (0..self.0.len()).map(|number| first(number).ok_or(number));
        let all: Vec<(f64, Metrics)> = all
            .collect::<Result<_, usize>>()
            .map_err(|number| Failure::Fault(format!("no rank has computed micro-batch {number}")))?;
        Ok(all.into_iter().unzip())
    }
}

impl Goal {
    /// Adds the gradients of a step's examples, by micro-batches.
    pub fn step(
        &self,
        config: &Config,
        engine: &mut Engine<'_>,
        peers: &Peers,
        data: &Dataset,
        examples: &[Vec<usize>],
    ) -> Result<Step, Failure> {
        let size = config.per_device_train_batch_size as usize;
        let (parts, mut metrics) = self.parts(size, data, examples);
        let step = self.of_step(config, engine, &parts);
        let share = self.share(&step);
        let mut logged = Exchanged::default();
        for group in parts.chunks(engine.lanes()) {
            let (batches, ready) = prepare(group, self, engine, &vec![step; group.len()])?;
            let given = ready.iter().map(|ready| ready.as_ref().map(|ready| ready.given.clone())).collect();
            let scored = engine.learn(&batches, given, share)?;
            logged.add(self, &step, group, &ready, &scored, share);
        }
        let (losses, measured) = logged.exchange(peers)?;
        metrics.extend(Metrics::mean(&measured));
        let tokens = parts.iter().map(Part::tokens).sum();
        Ok(Step { loss: losses.iter().sum(), tokens, metrics })
    }

    /// The loss of examples that are only read, in the mean over their rows, and what is logged beside, in the mean
    /// over batches.
    pub fn evaluation(
        &self,
        config: &Config,
        engine: &mut Engine<'_>,
        peers: &Peers,
        data: &Dataset,
    ) -> Result<(f64, Map<String, Json>), Failure> {
        let all: Vec<usize> = (0..data.examples()).collect();
        let size = config.per_device_eval_batch_size as usize;
        let batches: Vec<Vec<usize>> = all.chunks(size).map(<[usize]>::to_vec).collect();
        let (parts, mut metrics) = self.parts(size, data, &batches);
        let mut logged = Exchanged::default();
        for group in parts.chunks(engine.lanes()) {
            let steps: Vec<OfStep> =
                group.iter().map(|part| self.of_step(config, engine, std::slice::from_ref(part))).collect();
            let (batches, ready) = prepare(group, self, engine, &steps)?;
            let given = ready.iter().map(|ready| ready.as_ref().map(|ready| ready.given.clone())).collect();
            let scored = engine.judge(&batches, given)?;
            logged.add(self, &steps[0], group, &ready, &scored, 1.0);
        }
        let (losses, measured) = logged.exchange(peers)?;
        let rows = |part: &Part<'_>| part.rows.len();
        let sum: f64 = losses.iter().zip(&parts).map(|(loss, part)| loss * rows(part) as f64).sum();
        metrics.extend(Metrics::mean(&measured));
        Ok((sum / parts.iter().map(rows).sum::<usize>() as f64, metrics))
    }

    fn of_step(&self, config: &Config, engine: &Engine<'_>, parts: &[Part<'_>]) -> OfStep {
        let counted = |part: &Part<'_>| match self {
            Self::Grpo(grpo) => part.counted_by(grpo),
            _ => part.counted(),
        };
        OfStep {
            parts: parts.len(),
            tokens: parts.iter().map(counted).sum(),
            slots: self.slots(config),
            most: config.max_length.0.map_or(usize::MAX, |most| most as usize).min(engine.context()),
        }
    }

    /// The micro-batches of a step, of groups with so many rows each, and what is known of it before they are read.
    fn parts<'d>(
        &self,
        size: usize,
        data: &'d Dataset,
        examples: &[Vec<usize>],
    ) -> (Vec<Part<'d>>, Map<String, Json>) {
        let Self::Grpo(grpo) = self else {
            return (examples.iter().map(|rows| Part::of(self, data, rows)).collect(), Map::new());
        };
        let groups: Vec<Vec<usize>> =
            examples.concat().iter().map(|group| data.rows_of(*group).collect()).collect();
        let rewards = |group: &Vec<usize>| group.iter().map(|row| data.judged[*row].reward).collect();
        let rewards: Vec<Vec<f64>> = groups.iter().map(rewards).collect();
        let advantages = grpo.advantages(&rewards).concat();
        let rows = groups.concat();
        let parts = rows.chunks(size).zip(advantages.chunks(size));
        let parts = parts.map(|(rows, advantages)| {
            let advantages = advantages.to_vec();
            Part { advantages, ..Part::of(self, data, rows) }
        });
        let parts: Vec<Part<'d>> = parts.collect();
        let metrics = of_groups(&parts, &rewards, grpo);
        (parts, metrics)
    }
}

impl Grpo {
    /// The advantage of each completion of each group.
    pub fn advantages(&self, rewards: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let of_batch = deviation(&rewards.concat());
        let of_group = |group: &Vec<f64>| {
            let mean = mean(group);
            let scale = match self.scale {
                RewardScale::Group => deviation(group) + 1e-4,
                RewardScale::Batch => of_batch + 1e-4,
                RewardScale::None => 1.0,
            };
            group.iter().map(|reward| (reward - mean) / scale).collect()
        };
        rewards.iter().map(of_group).collect()
    }
}

/// The metrics of a step's groups.
fn of_groups(parts: &[Part<'_>], rewards: &[Vec<f64>], grpo: &Grpo) -> Map<String, Json> {
    let of_row = |part: &Part<'_>| {
        let rows = part.rows.iter().zip(&part.judged);
        rows.map(|(row, own)| (row.counted() as f64, own.is_truncated)).collect::<Vec<_>>()
    };
    let rows: Vec<(f64, bool)> = parts.iter().flat_map(of_row).collect();
    let lengths: Vec<f64> = rows.iter().map(|(length, _)| *length).collect();
    let ended: Vec<f64> = rows.iter().filter(|(_, is_cut)| !is_cut).map(|(length, _)| *length).collect();
    let all = rewards.concat();
    let is_flat = |group: &Vec<f64>| match grpo.scale {
        RewardScale::Batch => deviation(&all) <= 1e-8,
        RewardScale::Group | RewardScale::None => deviation(group) <= 1e-8,
    };
    let flat = rewards.iter().filter(|group| is_flat(group)).count() as f64 / rewards.len() as f64;
    let numbers = [
        ("completions/mean_length", mean(&lengths)),
        ("completions/min_length", least(&lengths)),
        ("completions/max_length", most(&lengths)),
        ("completions/clipped_ratio", 1.0 - ended.len() as f64 / lengths.len() as f64),
        ("completions/mean_terminated_length", if ended.is_empty() { 0.0 } else { mean(&ended) }),
        ("completions/min_terminated_length", if ended.is_empty() { 0.0 } else { least(&ended) }),
        ("completions/max_terminated_length", if ended.is_empty() { 0.0 } else { most(&ended) }),
        ("reward", mean(&all)),
        ("reward_std", deviation(&all)),
        ("frac_reward_zero_std", flat),
    ];
    numbers.into_iter().map(|(name, number)| (name.to_owned(), number.into())).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The deviation of a sample, as of one more number than there are degrees of freedom; 0 of one number.
fn deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}
