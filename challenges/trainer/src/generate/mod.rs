//! `generate`: what a model goes on with.
//!
//! ```text
//! text, messages or ids -> tokens -> Decoder -> the largest logit -> token -> Decoder -> ..
//! ```
//!
//! Greedy: each token is the one with the largest logit, the first of equals. With `--constrained` it is the largest of
//! those that keep a call valid: see [`calls`].

pub mod calls;
mod prompt;
mod vocabulary;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use challenges::decode::Decoder;
use clap::Args;
use kernels::Which;
use reference::llama::hub;
use reference::lora::Adapter;
use serde_json::json;

use crate::four_bits;
use crate::gguf_tokenizer;
use crate::model_files;
use crate::output::{Failure, Options, opened, print_foreign};
use calls::Calls;
use prompt::Prompt;

pub use crate::decoder::{Weights, decoder};
pub use vocabulary::vocabulary;

/// The flags of `generate`.
#[derive(Debug, Args)]
pub(crate) struct Generate {
    /// A checkpoint's folder, or the name of a repository in the local cache
    model: String,
    /// The folder of an adapter beside it
    #[arg(long, value_name = "DIR")]
    adapter: Option<PathBuf>,
    /// The folder of the tokenizer, if it is not the model's
    #[arg(long, value_name = "DIR")]
    tokenizer: Option<PathBuf>,
    #[command(flatten)]
    prompt: prompt::Flags,
    /// The most tokens that are made [default: 64, or as many as the context has room for]
    #[arg(long, value_name = "N")]
    max_new_tokens: Option<usize>,
    /// Goes on after the end of the sequence
    #[arg(long)]
    ignore_eos: bool,
    /// Holds calls to the grammar of the tools
    #[arg(long, requires = "tools")]
    constrained: bool,
    #[command(flatten)]
    quantize: Quantize,
    /// auto (the first card, if one answers), cpu, cuda or cuda:1
    #[arg(long, default_value = "auto", value_name = "NAME")]
    device: Which,
}

/// The flags that quantise a model, with the names of the keys of `train`.
#[derive(Debug, Args)]
struct Quantize {
    /// Quantises the layers' dense projections to 4 bits while the model is loaded
    #[arg(long)]
    load_in_4bit: bool,
    /// Quantises the scales, too
    #[arg(long, requires = "load_in_4bit")]
    use_bnb_nested_quant: bool,
}

impl Quantize {
    fn weights(&self) -> Weights {
        if self.load_in_4bit { Weights::Nf4 { nested: self.use_bnb_nested_quant } } else { Weights::AsStored }
    }
}

/// What ends a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// The most tokens.
    pub tokens: usize,
    /// Tokens that end it; one that does is part of it.
    pub stops: Vec<i32>,
}

/// A token that was made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Made {
    /// The token.
    pub id: i32,
    /// How much larger its logit is than the next one's of those that were allowed; infinity if there is no other.
    pub gap: f32,
}

/// Tokens that are made if nobody says how many.
const NEW_TOKENS: usize = 64;

/// Caches have a multiple of so many slots, where the model's context allows.
const SLOTS: usize = 64;

/// Runs `generate`.
pub(crate) fn run(options: &Options, generate: &Generate) -> Result<u8, Failure> {
    generated(options, generate).map_err(|failure| gguf_tokenizer::name_file(&generate.model, failure))
}

fn generated(options: &Options, generate: &Generate) -> Result<u8, Failure> {
    options.writes_elsewhere(&generate.prompt.files())?;
    let model = model_files::open(&generate.model)?;
    if model.config.classifier.is_some() {
        let name = &generate.model;
        return Err(Failure::Usage(format!(
            "{name}: expected a model that predicts the next token, found a classifier"
        )));
    }
    let model_folder = match &generate.prompt {
        prompt if prompt.is_ids() => gguf_tokenizer::folder_for_ids,
        _ => gguf_tokenizer::folder,
    };
    let own = || model_folder(&generate.model);
    let (folder, tokenizer) = match (&generate.tokenizer, hub::gguf(&generate.model)) {
        (Some(given), Some(_)) => (given.clone(), given.clone()),
        (Some(given), None) => (own()?, given.clone()),
        (None, _) => own().map(|folder| (folder.clone(), folder))?,
    };
    let prompt = Prompt::read(&generate.prompt, &tokenizer, model.config.vocab)?;
    let adapter = generate.adapter.as_ref().map(|folder| Adapter::open(folder, &model.config));
    let adapter = adapter.transpose().map_err(Failure::usage)?;
    let is_as_stored = matches!(generate.quantize.weights(), Weights::AsStored);
    if let Some((folder, adapter)) = generate.adapter.as_ref().zip(adapter.as_ref()).filter(|_| is_as_stored)
    {
        four_bits::warn_of_run(folder, adapter, &model);
    }
    let tokens = room(prompt.ids.len(), generate.max_new_tokens, model.config.positions)?;
    let stops = if generate.ignore_eos { Vec::new() } else { prompt.stops(&folder)? };
    let mut calls = if generate.constrained { Some(prompt.calls()?) } else { None };
    let slots = (prompt.ids.len() + tokens).next_multiple_of(SLOTS).min(model.config.positions);
    let device = opened(generate.device)?;
    let mut decoder = decoder(&*device, &model, generate.quantize.weights(), adapter.as_ref(), slots)?;
    let mut text = Text::begin(&mut decoder, &prompt.ids)?;
    let (begin, compiling) = (Instant::now(), text.compiling());
    let made = text.all(&Limit { tokens, stops: stops.clone() }, calls.as_mut())?;
    let seconds = begin.elapsed().saturating_sub(text.compiling().saturating_sub(compiling)).as_secs_f64();
    let per_second = (made.len() > 1).then(|| (made.len() - 1) as f64 / seconds);
    report(options, &prompt, &made, &stops, per_second)?;
    Ok(0)
}

/// Writes the text, or its tokens where there is no tokenizer, or all that is known of it as JSON.
fn report(
    options: &Options,
    prompt: &Prompt,
    made: &[Made],
    stops: &[i32],
    per_second: Option<f64>,
) -> Result<(), Failure> {
    let ids: Vec<i32> = made.iter().map(|made| made.id).collect();
    let is_ended = ids.last().is_some_and(|last| stops.contains(last));
    let text = prompt.decode(&ids[..ids.len() - usize::from(is_ended)])?;
    if options.json {
        let line = json!({
            "prompt_ids": prompt.ids,
            "new_ids": ids,
            "gaps": made.iter().map(|made| made.gap).collect::<Vec<_>>(),
            "text": text,
            "finish_reason": if is_ended { "stop" } else { "length" },
            "decode_tokens_per_second": per_second,
        });
        return options.give(&format!("{line}\n"));
    }
    let text = text.unwrap_or_else(|| listed(&ids));
    if options.output.is_some() {
        return options.give(&text);
    }
    print_foreign(&format!("{text}\n"));
    Ok(())
}

fn listed(ids: &[i32]) -> String {
    ids.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}

/// How many tokens are made.
///
/// Fails where the prompt or so many tokens do not fit the context.
fn room(prompt: usize, asked: Option<usize>, context: usize) -> Result<usize, Failure> {
    if prompt >= context {
        return Err(Failure::Usage(format!(
            "the prompt has {prompt} tokens, the model's context {context}; expected room for a token more"
        )));
    }
    let room = context - prompt;
    match asked {
        Some(asked) if asked > room => Err(Failure::Usage(format!(
            "--max-new-tokens {asked}: a prompt of {prompt} tokens leaves room for {room} in the model's context of \
             {context}"
        ))),
        asked => Ok(asked.unwrap_or(NEW_TOKENS.min(room))),
    }
}

/// A text that a model is making.
pub struct Text<'d, 'a> {
    decoder: &'d mut Decoder<'a>,
    logits: Vec<f32>,
}

impl<'d, 'a> Text<'d, 'a> {
    /// One that begins with a prompt; the model reads it, and nothing that it read before counts.
    ///
    /// # Errors
    /// If the prompt is empty or longer than the decoder's context, and what the session says.
    pub fn begin(decoder: &'d mut Decoder<'a>, prompt: &[i32]) -> Result<Self, Failure> {
        decoder.truncate(0);
        let logits = decoder.read(prompt).map_err(Failure::usage)?;
        Ok(Self { decoder, logits })
    }

    /// The tokens that follow, up to a limit.
    ///
    /// # Errors
    /// If a logit is not a number, if no token keeps a call valid, and what the session says.
    pub fn all(&mut self, limit: &Limit, mut calls: Option<&mut Calls>) -> Result<Vec<Made>, Failure> {
        let mut all = Vec::new();
        while all.len() < limit.tokens {
            let made = self.choose(calls.as_deref_mut())?;
            all.push(made);
            if limit.stops.contains(&made.id) || all.len() == limit.tokens {
                break; // the last one is not read: nothing is asked of what follows it
            }
            self.logits = self.decoder.read(&[made.id]).map_err(Failure::usage)?;
        }
        Ok(all)
    }

    /// What compilations took so far: the first token after a prompt compiles a program.
    fn compiling(&self) -> Duration {
        self.decoder.counters().compiling
    }

    /// The next token.
    fn choose(&self, calls: Option<&mut Calls>) -> Result<Made, Failure> {
        if let Some(token) = self.logits.iter().position(|logit| logit.is_nan()) {
            let read = self.decoder.filled();
            return Err(Failure::Usage(format!("after {read} tokens the logit of token {token} is NaN")));
        }
        let Some(calls) = calls else {
            return largest(&self.logits, |_| true).ok_or_else(|| Failure::bug("the model has no tokens"));
        };
        let mask = calls.mask().map_err(Failure::usage)?;
        let allowed = |token: usize| mask.get(token).copied().unwrap_or(false);
        let made = largest(&self.logits, allowed).ok_or_else(|| {
            Failure::Usage("--constrained: no token of the vocabulary keeps the call valid".into())
        })?;
        calls.take(made.id as u32).map_err(Failure::usage)?;
        Ok(made)
    }
}

/// The first of the largest logits that are allowed.
fn largest(logits: &[f32], allowed: impl Fn(usize) -> bool) -> Option<Made> {
    let mut best: Option<Made> = None;
    let mut second = f32::NEG_INFINITY;
    let mut top = f32::NEG_INFINITY;
    for (token, logit) in logits.iter().enumerate().filter(|(token, _)| allowed(*token)) {
        if best.is_none() || *logit > top {
            second = top;
            top = *logit;
            best = Some(Made { id: token as i32, gap: 0.0 });
        } else {
            second = second.max(*logit);
        }
    }
    best.map(|best| Made { gap: top - second, ..best })
}
