//! What is written before anything is trained: a model, rows, a config.

use std::path::Path;

use reference::lora::Targets;
use serde_json::Value as Json;

use super::draw::Draw;
use super::pretraining;
use super::requests::Request;
use crate::byte_model::{ByteModel, Weights, write};
use crate::output::Failure;
use crate::train::Config;
use crate::train::config::{Length, Scheduler};

/// What every row and every request is drawn from.
const SEED: u32 = 42;

/// Rows of the example's training: as many as its steps read.
const ROWS: u32 = 3200;

/// Rows that the base was trained on.
const PRETRAINING_ROWS: u32 = 40_000;

/// The base that the example's training begins with: the drawn weights after the run of [`write_pretraining`],
/// exported in bfloat16.
const BASE: ByteModel = ByteModel { weights: Weights::Kept(include_bytes!("base.safetensors")), ..DRAWN };

/// The model before it has learnt anything.
const DRAWN: ByteModel = ByteModel {
    hidden: 128,
    intermediate: 256,
    layers: 4,
    heads: 4,
    positions: 256,
    markers: &[
        "<|begin|>",
        "<|end|>",
        "<|system|>",
        "<|user|>",
        "<|assistant|>",
        "<|tool|>",
        "<tool_call>",
        "</tool_call>",
    ],
    template: include_str!("template.jinja"),
    weights: Weights::Drawn { embedding: 0.1 },
};

/// Requests whose arguments are in no row of training.
pub fn held_out(count: u32) -> Vec<Request> {
    (0..count).map(|number| Request::draw(&mut Draw::new(SEED, number, true))).collect()
}

/// Writes the example: the kept base, rows of calls, a config.
pub fn write_example(folder: &Path, steps: u32) -> Result<(), Failure> {
    let row = |number| Request::draw(&mut Draw::new(SEED, number, false)).row();
    let config = Config {
        load_in_4bit: true,
        lora_r: 32,
        lora_alpha: 64.0,
        max_steps: steps.into(),
        per_device_train_batch_size: 16,
        learning_rate: 5e-3,
        warmup_steps: 10,
        logging_steps: 40,
        save_steps: 40,
        ..common()
    };
    BASE.write(&folder.join("model"))?;
    write(folder, "data.jsonl", lines((0..ROWS).map(row)).as_bytes())?;
    write(folder, "config.toml", config.to_toml().as_bytes())
}

/// Writes what the base was made from: drawn weights, rows without calls, a config whose adapter has full rank.
pub fn write_pretraining(folder: &Path) -> Result<(), Failure> {
    let row = |number| pretraining::row(&mut Draw::new(SEED, number, false));
    let config = Config {
        lora_r: 128,
        lora_alpha: 256.0,
        max_steps: 1600,
        per_device_train_batch_size: 12,
        learning_rate: 1e-3,
        lr_scheduler_type: Scheduler::Cosine,
        warmup_steps: 100,
        packing: true,
        logging_steps: 50,
        ..common()
    };
    DRAWN.write(&folder.join("model"))?;
    write(folder, "data.jsonl", lines((0..PRETRAINING_ROWS).map(row)).as_bytes())?;
    write(folder, "config.toml", config.to_toml().as_bytes())
}

/// What both configs say.
fn common() -> Config {
    Config {
        model_name_or_path: "model".to_owned(),
        dataset_name: "data.jsonl".to_owned(),
        output_dir: "out".to_owned(),
        lora_dropout: Some(0.0),
        lora_target_modules: Targets::AllLinear,
        assistant_only_loss: true,
        adam_beta2: 0.95,
        max_length: Length(Some(256)),
        ..Config::default()
    }
}

fn lines(rows: impl Iterator<Item = Json>) -> String {
    rows.flat_map(|row| [row.to_string(), "\n".to_owned()]).collect()
}
