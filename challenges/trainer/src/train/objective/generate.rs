//! Completions that are drawn while a policy is trained, and what a program says that they are worth.
//!
//! ```text
//! prompt -> logits / temperature -> softmax -> a token, until one ends the sequence or there are enough
//! ```
//!
//! A prompt is read once for all of its completions. A token is the first whose probability, added to those before it,
//! exceeds a number that is drawn for the seed, the step, the completion and the token alone, so a run that goes on
//! draws what it would have drawn. The decoder has weights of its own, as many bytes again, and computes in float32.

use std::time::Duration;

use challenges::decode::Decoder;
use kernels::Device;
use reference::graph::interpret::Values;
use reference::llama::Llama;
use reference::lora::Adapter;
use reference::philox::philox4x32_10;
use serde_json::{Value as Json, json};

use super::super::columns::given;
use super::super::config::Config;
use super::super::data::Encoder;
use super::super::dataset::{Dataset, Judgement};
use super::super::row::Row;
use super::Grpo;
use super::reward::RewardProgram;
use crate::decoder::{Weights, decoder};
use crate::output::Failure;

/// Draws completions from the policy.
pub struct Generator<'a> {
    decoder: Decoder<'a>,
    encoder: Encoder<'static>,
    program: RewardProgram,
    stops: Vec<i32>,
    grpo: Grpo,
    seed: u64,
}

/// Tells draws of completions from other draws of the same seed.
const COMPLETION: u32 = 2;

impl<'a> Generator<'a> {
    /// One for the prompts of a run; `None` if its completions are logged.
    ///
    /// Fails where a prompt leaves no room for a completion, and as [`decoder`] does.
    pub fn new(
        config: &Config,
        device: &'a dyn Device,
        model: &Llama,
        adapter: &Adapter,
        prompts: &Dataset,
        grpo: &Grpo,
    ) -> Result<Option<Self>, Failure> {
        let Some(program) = config.reward_program().map_err(Failure::Usage)? else { return Ok(None) };
        let (longest, context) = (prompts.longest(), model.config.positions);
        if longest + grpo.most > context {
            return Err(Failure::Usage(format!(
                "max_completion_length: expected at most {}, which the longest prompt of {longest} tokens leaves of the \
                 model's context of {context}, found {}",
                context.saturating_sub(longest),
                grpo.most
            )));
        }
        let encoder = Encoder::open(&config.tokenizer_folder()?, model.config.vocab, false)?;
        let weights = if config.load_in_4bit {
            Weights::Nf4 { nested: config.use_bnb_nested_quant }
        } else {
            Weights::AsStored
        };
        let stops = encoder.needed_stops(config)?;
        let decoder = decoder(device, model, weights, Some(adapter), longest + grpo.most)?;
        Ok(Some(Self { decoder, encoder, program, stops, grpo: *grpo, seed: config.seed }))
    }

    /// Completions of prompts by a policy with these A and B, with their rewards: a group a prompt.
    pub fn groups(
        &mut self,
        policy: &Values<f32>,
        prompts: &Dataset,
        chosen: &[usize],
        step: u64,
    ) -> Result<Dataset, Failure> {
        self.decoder.adapt(policy).map_err(Failure::bug)?;
        let mut drawn = Dataset { group: self.grpo.generations, ..Dataset::default() };
        let mut lines = Vec::new();
        for prompt in chosen {
            let (row, own) = (&prompts.rows[*prompt], &prompts.judged[*prompt]);
            self.decoder.truncate(0);
            let logits = self.decoder.read(&row.ids).map_err(Failure::bug)?;
            for _ in 0..self.grpo.generations {
                self.decoder.truncate(row.ids.len());
                let number = drawn.rows.len() as u64;
                let (ids, is_truncated) = self.complete(logits.clone(), step, number)?;
                let mut line = own.line.clone();
                line.insert("completion".to_owned(), self.shown(&ids, given(&own.line, "prompt"))?);
                lines.push(Json::Object(line));
                drawn.rows.push(completed(row, &ids));
                drawn.judged.push(Judgement { is_truncated, ..Judgement::default() });
            }
        }
        let rewards = self.program.rewards(&lines);
        let rewards = rewards.map_err(|error| Failure::Usage(format!("reward_program: {error}")))?;
        drawn.judged.iter_mut().zip(rewards).for_each(|(own, reward)| own.reward = reward);
        Ok(drawn)
    }

    /// A completion, and whether it has no end.
    fn complete(
        &mut self,
        mut logits: Vec<f32>,
        step: u64,
        number: u64,
    ) -> Result<(Vec<i32>, bool), Failure> {
        let mut ids = Vec::new();
        loop {
            let drawn = self.drawn(step, number, ids.len() as u32);
            let token = chosen(&logits, self.grpo.temperature, drawn).ok_or_else(|| {
                Failure::Usage(format!("step {}: a logit of a completion is not a number", step + 1))
            })?;
            ids.push(token);
            if self.stops.contains(&token) {
                return Ok((ids, false));
            }
            if ids.len() == self.grpo.most {
                return Ok((ids, true));
            }
            logits = self.decoder.read(&[token]).map_err(Failure::bug)?;
        }
    }

    /// A number from 0 on and below 1.
    fn drawn(&self, step: u64, number: u64, token: u32) -> f64 {
        let key = [self.seed as u32, (self.seed >> 32) as u32];
        let [low, high, ..] = philox4x32_10([token, number as u32, step as u32, COMPLETION], key);
        let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
        bits as f64 / (1_u64 << 53) as f64
    }

    /// A completion as the program reads it: a text, or a message where the prompt is messages.
    fn shown(&self, ids: &[i32], prompt: Option<&Json>) -> Result<Json, Failure> {
        let end = ids.last().filter(|last| self.stops.contains(last));
        let text = self.encoder.decode(&ids[..ids.len() - usize::from(end.is_some())]);
        let text = text.map_err(Failure::Usage)?;
        Ok(match prompt {
            Some(Json::Array(_)) => json!([{"role": "assistant", "content": text}]),
            _ => text.into(),
        })
    }
}

/// Completions as a text for other ranks: of each its reward, whether it was cut, and its tokens.
pub fn to_text(drawn: &Dataset) -> String {
    let line = |(row, own): (&Row, &Judgement)| {
        let prompt = row.trained.iter().take_while(|trained| !**trained).count();
        json!([own.reward.to_bits(), own.is_truncated, row.ids[prompt..]]).to_string()
    };
    let lines = drawn.rows.iter().zip(&drawn.judged).map(line);
    std::iter::once(drawn.group.to_string()).chain(lines).collect::<Vec<_>>().join("\n")
}

/// Reads such a text, of the completions of some prompts; `None` if it is not one.
pub fn from_text(text: &str, prompts: &Dataset, chosen: &[usize]) -> Option<Dataset> {
    let mut lines = text.lines();
    let group: usize = lines.next()?.parse().ok()?;
    let mut drawn = Dataset { group, ..Dataset::default() };
    for prompt in chosen.iter().flat_map(|prompt| std::iter::repeat_n(&prompts.rows[*prompt], group)) {
        let (reward, is_truncated, ids): (u64, bool, Vec<i32>) = serde_json::from_str(lines.next()?).ok()?;
        drawn.rows.push(completed(prompt, &ids));
        let reward = f64::from_bits(reward);
        drawn.judged.push(Judgement { reward, is_truncated, ..Judgement::default() });
    }
    Some(drawn)
}

/// A prompt with its completion.
fn completed(prompt: &Row, completion: &[i32]) -> Row {
    let ids = [&prompt.ids, completion].concat();
    let trained = (0..ids.len()).map(|token| token >= prompt.ids.len()).collect();
    Row { documents: vec![ids.len()], ids, trained, ..Row::default() }
}

/// The first token up to which the probabilities exceed a number; `None` if a logit is not a number.
fn chosen(logits: &[f32], temperature: f64, drawn: f64) -> Option<i32> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if logits.iter().any(|logit| logit.is_nan()) || !largest.is_finite() {
        return None;
    }
    let weight = |logit: &f32| (f64::from(logit - largest) / temperature).exp();
    let all: f64 = logits.iter().map(weight).sum();
    let mut sum = 0.0;
    let is_beyond = |logit: &f32| {
        sum += weight(logit);
        sum > drawn * all
    };
    let last = || logits.iter().rposition(|logit| weight(logit) > 0.0); // what rounding leaves
    logits.iter().position(is_beyond).or_else(last).map(|token| token as i32)
}

impl Config {
    /// Whether completions are drawn while the policy is trained.
    pub(in crate::train) fn draws_completions(&self) -> bool {
        self.reward_program.is_some()
    }

    /// The program that judges completions; `None` if they are logged.
    pub(in crate::train) fn reward_program(&self) -> Result<Option<RewardProgram>, String> {
        let limit = self.reward_timeout.unwrap_or(60.0);
        let limit = Duration::try_from_secs_f64(limit).map_err(|error| format!("reward_timeout: {error}"))?;
        let program = self.reward_program.as_ref().map(|command| RewardProgram::new(command, limit));
        program.transpose().map_err(|error| format!("reward_program: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_drawn_as_often_as_they_are_likely() {
        let logits = [0.0, f32::NEG_INFINITY, 2.0_f32.ln(), f32::NEG_INFINITY];
        let share = |token: i32, temperature: f64| {
            let all = (0..3000).map(|i| chosen(&logits, temperature, f64::from(i) / 3000.0));
            all.filter(|drawn| *drawn == Some(token)).count()
        };
        assert_eq!([0, 1, 2, 3].map(|token| share(token, 1.0)), [1000, 0, 2000, 0]);
        assert_eq!([0, 2].map(|token| share(token, 0.5)), [600, 2400]);
        assert_eq!(chosen(&logits, 1.0, 1.0 - f64::EPSILON / 2.0), Some(2));
        assert_eq!(chosen(&[0.0, f32::NAN], 1.0, 0.5), None);
    }
}
