//! A small Llama that reads bytes: what the examples train.
//!
//! ```text
//! config.json              sizes
//! tokenizer.json           256 tokens that are bytes, then the markers
//! tokenizer_config.json    which markers begin and end a text
//! chat_template.jinja      conversations as text, with generation marks
//! model.safetensors        weights: drawn by a fixed key, or kept ones
//! ```

use std::fs;
use std::path::Path;

use reference::atomic_write;
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype};
use reference::llama;
use reference::lora::serialize;
use reference::philox::philox4x32_10;
use serde_json::{Map, Value as Json, json};

use crate::output::Failure;

/// A model to be written.
pub struct ByteModel {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width inside the MLP.
    pub intermediate: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of query heads; there are half as many of keys and values.
    pub heads: usize,
    /// The longest sequence, in tokens.
    pub positions: usize,
    /// Tokens after the 256 bytes: the first begins a text, the second ends a turn.
    pub markers: &'static [&'static str],
    /// The chat template.
    pub template: &'static str,
    /// The weights.
    pub weights: Weights,
}

/// Where weights come from.
#[derive(Clone, Copy)]
pub enum Weights {
    /// Projections of a deviation of 0.05 and norms of 1, drawn; and an embedding of this deviation.
    Drawn {
        /// That of the embedding.
        embedding: f64,
    },
    /// The bytes of a `model.safetensors`.
    Kept(&'static [u8]),
}

impl ByteModel {
    /// Writes its five files into a folder, which is made.
    pub fn write(&self, folder: &Path) -> Result<(), Failure> {
        fs::create_dir_all(folder).map_err(|error| Failure::fault(folder, error))?;
        let json = |value: &Json| format!("{value:#}\n").into_bytes();
        let names = json!({
            "bos_token": self.markers[0],
            "eos_token": self.markers[1],
            "tokenizer_class": "PreTrainedTokenizerFast",
        });
        write(folder, "config.json", &json(&self.config()))?;
        write(folder, "tokenizer.json", &json(&tokenizer(self.markers)))?;
        write(folder, "tokenizer_config.json", &json(&names))?;
        write(folder, "chat_template.jinja", self.template.as_bytes())?;
        match self.weights {
            Weights::Kept(bytes) => write(folder, "model.safetensors", bytes),
            Weights::Drawn { embedding } => {
                let config = llama::Config::read(&folder.join("config.json")).map_err(Failure::bug)?;
                write(folder, "model.safetensors", &serialize(&drawn(&config, embedding)))
            }
        }
    }

    /// Its `config.json`.
    fn config(&self) -> Json {
        json!({
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": 256 + self.markers.len(),
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads / 2,
            "max_position_embeddings": self.positions,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": true,
        })
    }
}

/// Writes a file of a folder as a whole.
pub fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), Failure> {
    let path = folder.join(name);
    atomic_write::write(&path, bytes).map_err(|error| Failure::fault(&path, error))
}

/// The same weights each time.
fn drawn(config: &llama::Config, embedding: f64) -> Values<f32> {
    let normal = |tensor: usize, element: usize| {
        let words = philox4x32_10([element as u32, tensor as u32, 0, 0], [0, 0]);
        let sum: f64 = words.iter().map(|word| f64::from(*word) / f64::from(u32::MAX) - 0.5).sum();
        sum * 3.0_f64.sqrt() // four uniform numbers have a deviation of 1 / sqrt 3
    };
    let specs = config.tensor_specs().into_iter().enumerate();
    let array = |(number, spec): (usize, llama::TensorSpec)| {
        let len = spec.shape.iter().product::<usize>();
        let deviation = if number == 0 { embedding } else { 0.05 };
        let value =
            |element: usize| if spec.shape.len() == 1 { 1.0 } else { deviation * normal(number, element) };
        (spec.name, Array::floats(Dtype::F32, &spec.shape, (0..len).map(value)))
    };
    specs.map(array).collect()
}

/// The names that GPT-2's byte-level tokenizer gave to bytes: their own character where it can be seen, else one from
/// U+0100 on.
pub(crate) fn byte_names() -> impl Iterator<Item = char> {
    let is_seen = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut hidden = 0x100..;
    let name =
        move |byte: u8| if is_seen(&byte) { u32::from(byte) } else { hidden.next().unwrap_or_default() };
    (0..=u8::MAX).map(name).filter_map(char::from_u32)
}

/// A `tokenizer.json` whose tokens are bytes, and the markers.
fn tokenizer(markers: &[&str]) -> Json {
    let vocab: Map<String, Json> =
        byte_names().enumerate().map(|(id, name)| (name.to_string(), json!(id))).collect();
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
        "added_tokens": markers.iter().enumerate().map(added).collect::<Vec<_>>(),
        "normalizer": null,
        "pre_tokenizer": bytes,
        "post_processor": null,
        "decoder": bytes,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "vocab": vocab, "merges": []},
    })
}
