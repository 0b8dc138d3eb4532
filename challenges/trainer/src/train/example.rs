//! `train --example DIR`: a small model, data and a config with every key, ready to be trained.
//!
//! ```text
//! DIR/config.toml      every key with its value here and what it means
//! DIR/data.jsonl       sums, as conversations
//! DIR/model/           a Llama of random weights, a tokenizer of bytes, a chat template with generation marks
//! ```
//!
//! The same files each time. What such a model learns is the form of an answer, in a few seconds; the point is to see
//! everything work before a larger model is put in its place.

use std::path::Path;

use reference::lora::Targets;
use serde_json::json;

use super::Config;
use super::config::Length;
use crate::byte_model::{ByteModel, Weights, write as write_file};
use crate::output::{Failure, print};

const TEMPLATE: &str = "{{ bos_token }}{% for message in messages %}<|role|>{{ message.role }}\n\
    {% if message.role == 'assistant' %}{% generation %}{{ message.content }}<|end|>{% endgeneration %}\
    {% else %}{{ message.content }}<|end|>{% endif %}{% endfor %}\
    {% if add_generation_prompt %}<|role|>assistant\n{% endif %}";

const MODEL: ByteModel = ByteModel {
    hidden: 64,
    intermediate: 192,
    layers: 2,
    heads: 4,
    positions: 256,
    markers: &["<|begin|>", "<|end|>", "<|role|>"],
    template: TEMPLATE,
    weights: Weights::Drawn { embedding: 0.05 },
};

/// Writes the example into a folder that is not there yet.
pub fn write(folder: &Path) -> Result<u8, Failure> {
    if folder.exists() {
        return Err(Failure::Usage(format!("{}: expected no such folder, found one", folder.display())));
    }
    MODEL.write(&folder.join("model"))?;
    write_file(folder, "data.jsonl", data().as_bytes())?;
    write_file(folder, "config.toml", config().to_toml().as_bytes())?;
    let path = folder.join("config.toml");
    print(&format!("cargo trainer train {} trains the example\n", path.display()));
    Ok(0)
}

/// The config, with every key.
fn config() -> Config {
    Config {
        model_name_or_path: "model".to_owned(),
        dataset_name: "data.jsonl".to_owned(),
        output_dir: "out".to_owned(),
        lora_target_modules: Targets::AllLinear,
        assistant_only_loss: true,
        max_steps: 60,
        learning_rate: 1e-2,
        warmup_steps: 5,
        max_length: Length(Some(128)),
        ..Config::default()
    }
}

/// Every sum of two digits.
fn data() -> String {
    let pairs = (0..100).map(|number| (number / 10, number % 10));
    let line = |(a, b): (u32, u32)| {
        let messages = json!([
            {"role": "user", "content": format!("How much is {a} and {b}?")},
            {"role": "assistant", "content": format!("{a} and {b} make {}.", a + b)},
        ]);
        format!("{}\n", json!({ "messages": messages }))
    };
    pairs.map(line).collect()
}
