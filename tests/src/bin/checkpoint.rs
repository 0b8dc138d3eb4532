//! Writes a checkpoint of drawn weights in the layout of a real one, with data and a config to train it.
//!
//!     checkpoint FOLDER 1b|8b16|tiny [SEED]
//!     cargo trainer train FOLDER/train.toml --set device=cuda
//!
//! The folder then has a [model](tests::drawn_llama); a tokenizer whose tokens are the numbers of its vocabulary;
//! `data.jsonl` and `eval.jsonl`, rows of exactly as many tokens as `max_length`; and `train.toml`, the settings of
//! `tests/peers/trainer_card.py`. Low numbers are drawn more often than high ones, as words of a language are, so that
//! a run has something to learn.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use tests::drawn_llama::{Draw, Failure, SHAPES, Shape};

/// Rows of the data and of evaluations: 32 steps and two batches of four.
const ROWS: usize = 128;
const EVALUATED: usize = 8;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("checkpoint: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    let (folder, name, seed) = match arguments {
        [folder, name] => (folder, name, "0"),
        [folder, name, seed] => (folder, name, seed.as_str()),
        _ => return Err("expected FOLDER 1b|8b16|tiny [SEED]".into()),
    };
    let shape = Shape::find(name).ok_or_else(|| {
        let names = SHAPES.map(|shape| shape.name).join(", ");
        format!("expected one of {names}, found {name:?}")
    })?;
    let seed: u64 = seed.parse().map_err(|_| format!("expected a number as seed, found {seed:?}"))?;
    write(Path::new(folder), &shape, seed).map_err(|error| format!("{folder}: {error}").into())
}

fn write(folder: &Path, shape: &Shape, seed: u64) -> Result<(), Failure> {
    fs::create_dir_all(folder)?;
    if fs::read_dir(folder)?.next().is_some() {
        return Err("expected a new or an empty folder".into());
    }
    shape.write(folder, seed)?;
    write_tokenizer(folder, shape)?;
    let tokens = Draw { seed: !seed }; // of another stream than the weights
    fs::write(folder.join("data.jsonl"), rows(shape, tokens, 0..ROWS))?;
    fs::write(folder.join("eval.jsonl"), rows(shape, tokens, ROWS..ROWS + EVALUATED))?;
    fs::write(folder.join("train.toml"), config(shape))?;
    Ok(())
}

/// A tokenizer of numbers: each is the token that it names.
fn write_tokenizer(folder: &Path, shape: &Shape) -> Result<(), Failure> {
    let vocab: Map<String, Value> = (0..shape.vocab).map(|id| (id.to_string(), id.into())).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "0"},
    });
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string())?;
    let class = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": shape.tokens,
        "eos_token": (shape.vocab - 1).to_string(),
    });
    fs::write(folder.join("tokenizer_config.json"), class.to_string())?;
    Ok(())
}

/// Rows of tokens, log-uniform: token k is drawn about 1 / k as often as the first (Zipf's law). The trainer appends the
/// end of the sequence, so a row has one token less here.
fn rows(shape: &Shape, draw: Draw, numbers: std::ops::Range<usize>) -> String {
    let mut text = String::new();
    for row in numbers {
        let token = |at: usize| (shape.vocab as f64).powf(draw.share(row * shape.tokens + at)) as usize - 1;
        let tokens: Vec<String> = (1..shape.tokens).map(|at| token(at).to_string()).collect();
        let _ = writeln!(text, "{}", json!({"text": tokens.join(" ")}));
    }
    text
}

fn config(shape: &Shape) -> String {
    let Shape { name, tokens, .. } = shape;
    format!(
        "# A QLoRA run on drawn weights, shaped as {name}.\n\
         model_name_or_path = \".\"\n\
         dataset_name = \"data.jsonl\"\n\
         eval_dataset_name = \"eval.jsonl\"\n\
         eval_strategy = \"steps\"\n\
         eval_steps = 1000                       # that is at the end\n\
         per_device_eval_batch_size = 4\n\
         output_dir = \"out\"\n\
         lora_r = 16\n\
         lora_alpha = 16\n\
         lora_dropout = 0.0\n\
         lora_target_modules = \"all-linear\"\n\
         max_steps = 25\n\
         per_device_train_batch_size = 4\n\
         learning_rate = 1e-4\n\
         lr_scheduler_type = \"constant\"\n\
         weight_decay = 0.01                     # torch's AdamW\n\
         max_grad_norm = 0.0\n\
         max_length = {tokens}\n\
         train_sampling_strategy = \"sequential\"\n\
         dtype = \"bfloat16\"\n\
         logging_steps = 1\n"
    )
}
