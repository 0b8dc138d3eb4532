//! The file of a language model.

use super::{Part, Piece, file_type};
use crate::checkpoint::gguf::{Array, TensorType, Value};
use crate::llama::{Config, Scaling};
use crate::oracles::GGUF;

// ANCHOR: gguf-text-model
/// What a language model is called in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// `llama`: rotated pairs are neighbours.
    Llama,
    /// `qwen2vl`: three positions a token, and biases beside queries, keys and values.
    Qwen2Vl {
        /// How many of a head's frequencies belong to time, height and width.
        sections: [usize; 3],
    },
}

impl Architecture {
    /// Its name in a file.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Llama => "llama",
            Architecture::Qwen2Vl { .. } => "qwen2vl",
        }
    }
}

/// A language model that is written.
#[derive(Clone, Debug, PartialEq)]
pub struct TextModel {
    /// What people call it.
    pub name: String,
    /// What computes it.
    pub architecture: Architecture,
    /// Its sizes and settings.
    pub config: Config,
    /// What its weights are stored in.
    pub stored: TensorType,
}
// ANCHOR_END: gguf-text-model

/// Names in a checkpoint, without what stands before and after, and in a file.
const OUTER: [(&str, &str); 3] =
    [("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")];

/// Those of a layer.
const LAYER: [(&str, &str); 9] = [
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// What a tensor of a language model becomes; nothing if it is none.
///
/// Models that see images have the same names behind `language_model.`, `model.language_model.` (then without a
/// `model.` of their own), or nothing.
pub fn text_tensor(model: &TextModel, name: &str) -> Option<Piece> {
    GGUF.count();
    let name = match name.strip_prefix("model.language_model.") {
        Some(inner) => &format!("model.{inner}"),
        None => name.strip_prefix("language_model.").unwrap_or(name),
    };
    let (module, end) = name.rsplit_once('.').filter(|(_, end)| ["weight", "bias"].contains(end))?;
    if let Some((_, to)) = OUTER.iter().find(|(from, _)| *from == module) {
        return Some(Piece { name: format!("{to}.{end}"), part: Part::Whole });
    }
    let (layer, module) = module.strip_prefix("model.layers.")?.split_once('.')?;
    let layer: usize = layer.parse().ok().filter(|number| *number < model.config.layers)?;
    let (from, to) = LAYER.iter().find(|(from, _)| *from == module)?;
    let heads = match *from {
        "self_attn.q_proj" => Some(model.config.heads),
        "self_attn.k_proj" => Some(model.config.key_heads),
        _ => None,
    };
    let part = match (model.architecture, heads) {
        (Architecture::Llama, Some(heads)) => Part::Rotary { heads },
        _ => Part::Whole,
    };
    Some(Piece { name: format!("blk.{layer}.{to}.{end}"), part })
}

/// The keys of its file that describe the model; those of its tokenizer are others.
///
/// # Panics
/// If its weights are stored in a type that is not written.
pub fn text_keys(model: &TextModel) -> Vec<(String, Value)> {
    GGUF.count();
    let (config, name) = (&model.config, model.architecture.name());
    let of_model = |key: &str| format!("{name}.{key}");
    let size = |key: &str, size: usize| (of_model(key), Value::U32(size as u32));
    let float = |key: &str, number: f64| (of_model(key), Value::F32(number as f32));
    let text = |key: &str, text: &str| (key.to_owned(), Value::String(text.to_owned()));
    let mut keys = vec![
        text("general.architecture", name),
        text("general.type", "model"),
        text("general.name", &model.name),
        ("general.file_type".into(), Value::U32(file_type(model.stored).expect("a type that is written"))),
        ("general.quantization_version".into(), Value::U32(2)),
        size("vocab_size", config.vocab),
        size("context_length", config.positions),
        size("embedding_length", config.hidden),
        size("feed_forward_length", config.intermediate),
        size("block_count", config.layers),
        size("attention.head_count", config.heads),
        size("attention.head_count_kv", config.key_heads),
        size("attention.key_length", config.head_dim),
        size("attention.value_length", config.head_dim),
        float("attention.layer_norm_rms_epsilon", config.norm_eps),
        size("rope.dimension_count", config.head_dim),
        float("rope.freq_base", config.rope.theta),
    ];
    if let Scaling::Linear { factor } = config.rope.scaling {
        keys.push((of_model("rope.scaling.type"), Value::String("linear".into())));
        keys.push(float("rope.scaling.factor", factor));
    }
    if let Architecture::Qwen2Vl { sections: [time, height, width] } = model.architecture {
        let sections = [time, height, width, 0].map(|section| section as i32);
        keys.push((of_model("rope.dimension_sections"), Value::Array(Array::I32(sections.to_vec()))));
    }
    keys
}
