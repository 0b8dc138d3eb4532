//! What a run is trained on. A checkpoint keeps it, so that a run that goes on is the one that began, or is refused
//! with what differs.
//!
//! ```text
//! "trained_on": {
//!     "rows":     {"count", "sha256"}     the tokens, masks and documents of every row, in their order
//!     "files":    {NAME: SHA-256}         what the rows were made from: it says why they differ
//!     "model":    SHA-256                 of heads, norms and rotary frequencies, and of each weight the name, the
//!                                         type, the shape, and 4096 bytes of its beginning, its middle and its end
//!     "reference": SHA-256                of A and B at the start, where they are the reference model
//!     "settings": {KEY: its value}        as TOML
//! }
//! ```
//!
//! Where something is, and under which name, does not count: a data set that was moved has the rows that it had. Nor
//! does a setting that the run does not use, such as `max_length` where every row is shorter. A part that a checkpoint
//! lacks, for an earlier version wrote it, is not compared.

use std::path::Path;

use reference::issues::classify::Problem;
use reference::llama::{self, Llama, rope};
use reference::lora::{self, Adapter};
use serde_json::{Map, Value as Json, json};
use sha2::{Digest, Sha256};

use super::config::{Config, ProblemType};
use super::dataset::{Dataset, Judgement};
use super::digest::{digits, of_file};
use super::images::Images;
use super::row::{Picture, Row};
use crate::output::Failure;

/// Settings that decide which rows there are; they count where the rows differ.
const OF_ROWS: [&str; 4] = ["max_length", "packing", "assistant_only_loss", "max_pixels"];

/// Settings that decide what is done with the rows.
const FIXED: [&str; 33] = [
    "objective",
    "beta",
    "loss_type",
    "label_smoothing",
    "simpo_gamma",
    "cpo_alpha",
    "desirable_weight",
    "undesirable_weight",
    "num_generations",
    "max_completion_length",
    "temperature",
    "epsilon",
    "epsilon_high",
    "delta",
    "importance_sampling_level",
    "scale_rewards",
    "use_bias_correction_kl",
    "mask_truncated_completions",
    "reward_program",
    "task_type",
    "problem_type",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "train_sampling_strategy",
    "seed",
    "lora_dropout",
    "load_in_4bit",
    "use_bnb_nested_quant",
    "weight_decay",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "max_grad_norm",
];

/// Settings that a run may change when it goes on, and says so.
const FREE: [&str; 4] = ["learning_rate", "lr_scheduler_type", "warmup_steps", "dtype"];

/// The file of the data, as an entry of `files`, and those of a tokenizer's folder.
const DATA: &str = "dataset_name";
const TOKENIZER: [&str; 3] = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"];

/// Bytes that are looked at in three places of each weight: a large model is not read twice for it.
const SAMPLE: usize = 4096;

/// What a run is trained on.
pub fn of(
    config: &Config,
    model: &Llama,
    images: Option<&Images>,
    adapter: &Adapter,
    data: &Dataset,
) -> Result<Json, Failure> {
    let mut all = json!({
        "rows": {"count": data.rows.len(), "sha256": of_rows(data)},
        "files": files(config)?,
        "model": of_model(model, images)?,
        "settings": settings(config, &adapter.config, data.problem),
    });
    if config.goal().map_err(Failure::Usage)?.is_some_and(|goal| goal.has_reference()) {
        all["reference"] = of_adapter(adapter).into();
    }
    Ok(all)
}

/// The settings, as they act: a dropout is the adapter's where the config has none, scales are quantised where weights
/// are, and the problem is that of the data.
fn settings(config: &Config, adapter: &lora::Config, problem: Option<Problem>) -> Map<String, Json> {
    let acting = Config {
        problem_type: problem.map(ProblemType),
        lora_dropout: Some(adapter.dropout),
        use_bnb_nested_quant: config.load_in_4bit && config.use_bnb_nested_quant,
        ..config.acting()
    };
    let kept = |key: &str| [&OF_ROWS[..], &FIXED, &FREE].iter().any(|keys| keys.contains(&key));
    let entries = acting.entries().into_iter().filter(|(key, _)| kept(key));
    entries.map(|(key, value)| (key.to_owned(), value.into())).collect()
}

fn files(config: &Config) -> Result<Map<String, Json>, Failure> {
    let folder = config.tokenizer_folder()?;
    let tokenizer = TOKENIZER.map(|name| (name, folder.join(name)));
    let all = tokenizer.into_iter().chain([(DATA, config.dataset_name.clone().into())]);
    all.map(|(name, path)| Ok((name.to_owned(), of_regular(&path)?.into()))).collect()
}

/// `None` if it is no regular file: a pipe is read once.
fn of_regular(path: &Path) -> Result<Option<String>, Failure> {
    let digits = path.is_file().then(|| of_file(path)).transpose();
    digits.map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}

fn of_rows(data: &Dataset) -> String {
    let mut hasher = Sha256::new();
    for Row { ids, trained, documents, targets, pictures } in &data.rows {
        hasher.update((ids.len() as u64).to_le_bytes());
        hasher.update(ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>());
        hasher.update(trained.iter().map(|trained| u8::from(*trained)).collect::<Vec<u8>>());
        hasher.update((documents.len() as u64).to_le_bytes());
        for length in documents {
            hasher.update((*length as u64).to_le_bytes());
        }
        for target in targets {
            hasher.update(format!("{target:?} "));
        }
        for Picture { tokens, grid, digest, .. } in pictures {
            hasher.update(format!("{tokens:?} {grid} "));
            hasher.update(digest);
        }
    }
    for Judgement { desirable, reward, old, is_truncated, line } in &data.judged {
        hasher.update([u8::from(*desirable), u8::from(*is_truncated)]);
        hasher.update(reward.to_le_bytes());
        hasher.update(old.iter().flatten().flat_map(|log_p| log_p.to_le_bytes()).collect::<Vec<u8>>());
        hasher.update(serde_json::to_vec(line).unwrap_or_default());
    }
    digits(hasher)
}

/// What the reference model has beside the model: A and B as they were at the start.
fn of_adapter(adapter: &Adapter) -> String {
    let mut hasher = Sha256::new();
    for (name, value) in adapter.values::<f32>() {
        hasher.update(name.as_bytes());
        hasher.update(value.to_memory());
    }
    digits(hasher)
}

fn of_model(model: &Llama, images: Option<&Images>) -> Result<String, Failure> {
    let llama::Config { heads, key_heads, head_dim, norm_eps, tied, .. } = model.config;
    let mut hasher = Sha256::new();
    hasher.update(format!("{heads} {key_heads} {head_dim} {norm_eps} {tied} "));
    for table in rope::tables(&model.config, 2) {
        hasher.update(table.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>());
    }
    let mut stored = model.stored().map_err(Failure::usage)?;
    if let Some(images) = images {
        stored.append(&mut images.model.stored().map_err(Failure::usage)?);
    }
    for input in stored {
        hasher.update(format!("{} {} {:?} ", input.name, input.dtype.name(), input.shape));
        let bytes = &input.bytes;
        let last = bytes.len().saturating_sub(SAMPLE);
        for first in [0, last / 2, last] {
            hasher.update(&bytes[first..bytes.len().min(first + SAMPLE)]);
        }
    }
    Ok(digits(hasher))
}

/// What a run that goes on should say before it does.
///
/// Fails with each thing that is another one than in the checkpoint, where that changes what is trained.
pub fn compare(there: &Json, here: &Json) -> Result<Vec<String>, String> {
    if there.pointer("/rows/sha256").is_none() {
        let note =
            "the checkpoint does not say what it was trained on, so data and settings are not compared";
        return Ok(vec![note.to_owned()]);
    }
    let mut refused: Vec<String> = others(there, here, &FIXED).map(Other::refused).collect();
    refused.extend(other_rows(there, here));
    if differs(there, here, "/model") {
        refused
            .push("model_name_or_path: expected the model beside which it was trained, found another".into());
    }
    if differs(there, here, "/reference") {
        let path = "adapter_name_or_path: expected the adapter that the run began with, which is its reference model, \
                    found another";
        refused.push(path.into());
    }
    if refused.is_empty() {
        Ok(others(there, here, &FREE).map(Other::noted).collect())
    } else {
        Err(refused.join("; "))
    }
}

/// Whether a part of both is another one.
fn differs(there: &Json, here: &Json, part: &str) -> bool {
    there.pointer(part).zip(here.pointer(part)).is_some_and(|(there, here)| there != here)
}

/// A setting with two values, as TOML.
struct Other<'a> {
    key: &'a str,
    was: &'a Json,
    is: &'a Json,
}

impl Other<'_> {
    fn refused(self) -> String {
        format!("{}: expected {}, as it was trained, found {}", self.key, shown(self.was), shown(self.is))
    }

    fn noted(self) -> String {
        format!("{} was {} and is {} from here on", self.key, shown(self.was), shown(self.is))
    }
}

fn shown(value: &Json) -> &str {
    value.as_str().unwrap_or("something else") // of a file that somebody wrote
}

fn others<'a>(there: &'a Json, here: &'a Json, keys: &'a [&str]) -> impl Iterator<Item = Other<'a>> {
    let is_other = |key: &&&str| differs(there, here, &format!("/settings/{key}"));
    let of = |key: &'a &str| Other { key, was: &there["settings"][key], is: &here["settings"][key] };
    keys.iter().filter(is_other).map(of)
}

/// Why the rows are others, as far as that is known.
fn other_rows(there: &Json, here: &Json) -> Vec<String> {
    if !differs(there, here, "/rows/sha256") {
        return Vec::new();
    }
    let mut causes: Vec<String> = others(there, here, &OF_ROWS).map(Other::refused).collect();
    let is_other = |name: &str| differs(there, here, &format!("/files/{name}"));
    let tokenizer = TOKENIZER.iter().filter(|name| is_other(name));
    causes.extend(tokenizer.map(|name| format!("tokenizer_name_or_path: its {name} is another one")));
    if causes.is_empty() || is_other(DATA) {
        let [was, is] = [there, here].map(|all| &all["rows"]["count"]);
        let data = format!("{DATA}: expected the {was} rows that it was trained on, found {is} that differ");
        causes.insert(0, data);
    }
    causes
}
