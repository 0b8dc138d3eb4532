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

use std::fs;
use std::path::Path;

use reference::atomic_write;
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype};
use reference::llama;
use reference::lora::{Targets, serialize};
use reference::philox::philox4x32_10;
use serde_json::{Map, Value as Json, json};

use super::Config;
use super::config::Length;
use crate::output::{Failure, print};

/// What a text ends and begins with in the example.
const MARKERS: [&str; 3] = ["<|begin|>", "<|end|>", "<|role|>"];

const TEMPLATE: &str = "{{ bos_token }}{% for message in messages %}<|role|>{{ message.role }}\n\
    {% if message.role == 'assistant' %}{% generation %}{{ message.content }}<|end|>{% endgeneration %}\
    {% else %}{{ message.content }}<|end|>{% endif %}{% endfor %}\
    {% if add_generation_prompt %}<|role|>assistant\n{% endif %}";

/// Writes the example into a folder that is not there yet.
pub fn write(folder: &Path) -> Result<u8, Failure> {
    if folder.exists() {
        return Err(Failure::Usage(format!("{}: expected no such folder, found one", folder.display())));
    }
    let model = folder.join("model");
    fs::create_dir_all(&model).map_err(|error| Failure::fault(&model, error))?;
    let json = |value: &Json| format!("{value:#}\n").into_bytes();
    let tokenizer_config = json!({"bos_token": MARKERS[0], "eos_token": MARKERS[1], "tokenizer_class": "PreTrainedTokenizerFast"});
    let files = [
        (model.join("config.json"), json(&sizes())),
        (model.join("tokenizer.json"), json(&tokenizer())),
        (model.join("tokenizer_config.json"), json(&tokenizer_config)),
        (model.join("chat_template.jinja"), TEMPLATE.into()),
        (folder.join("data.jsonl"), data().into_bytes()),
        (folder.join("config.toml"), config().to_toml().into_bytes()),
    ];
    for (path, bytes) in files {
        atomic_write::write(&path, &bytes).map_err(|error| Failure::fault(&path, error))?;
    }
    let read = llama::Config::read(&model.join("config.json")).map_err(Failure::bug)?;
    let weights = model.join("model.safetensors");
    atomic_write::write(&weights, &serialize(&random(&read)))
        .map_err(|error| Failure::fault(&weights, error))?;
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

/// The model's `config.json`.
fn sizes() -> Json {
    json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 256 + MARKERS.len(),
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": true,
    })
}

/// Weights of a deviation of 0.05, and norms of 1.
fn random(config: &llama::Config) -> Values<f32> {
    let drawn = |tensor: usize, element: usize| {
        let words = philox4x32_10([element as u32, tensor as u32, 0, 0], [0, 0]);
        let sum: f64 = words.iter().map(|word| f64::from(*word) / f64::from(u32::MAX) - 0.5).sum();
        0.05 * sum * 3.0_f64.sqrt() // four uniform numbers have a deviation of 1 / sqrt 3
    };
    let specs = config.tensor_specs().into_iter().enumerate();
    let array = |(number, spec): (usize, llama::TensorSpec)| {
        let len = spec.shape.iter().product::<usize>();
        let value = |element: usize| if spec.shape.len() == 1 { 1.0 } else { drawn(number, element) };
        (spec.name, Array::floats(Dtype::F32, &spec.shape, (0..len).map(value)))
    };
    specs.map(array).collect()
}

/// A `tokenizer.json` whose tokens are bytes, and the markers. Bytes have the names that GPT-2's byte-level tokenizer
/// gave them: their own character where it can be seen, else one from U+0100 on.
fn tokenizer() -> Json {
    let is_seen = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut hidden = 0x100..;
    let name = |byte: u8| if is_seen(&byte) { u32::from(byte) } else { hidden.next().unwrap_or_default() };
    let names = (0..=u8::MAX).map(name).filter_map(char::from_u32);
    let vocab: Map<String, Json> =
        names.enumerate().map(|(id, name)| (name.to_string(), json!(id))).collect();
    let added = |(number, content): (usize, &&str)| {
        json!({
            "id": 256 + number, "content": content, "special": true, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false,
        })
    };
    let bytes =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": MARKERS.iter().enumerate().map(added).collect::<Vec<_>>(),
        "normalizer": null,
        "pre_tokenizer": bytes,
        "post_processor": null,
        "decoder": bytes,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "vocab": vocab, "merges": []},
    })
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
