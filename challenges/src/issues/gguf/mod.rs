//! (D) `gguf`: a trained model as the file that runs everywhere else.
//!
//! A GGUF file is keys and tensors, one after the other, and a reader that finds both where it expects them computes.
//! Whether it computes the model is another matter. A weight whose rows stand in another order has the same shape; a
//! key that says 10,000 where 500,000 was meant is a number like the other; of three weights in one tensor any third
//! looks like a weight. Such a file opens, and the text that comes out is fluent nonsense, or nearly right, which is
//! worse.
//!
//! ```text
//! checkpoint --names, parts--> numbers --rows of heads rearranged--> --blocks of 32--> tensors \
//! config.json ----------------------------------------------------------------------> keys     -> file
//! ```
//!
//! **What is given.** A checkpoint's tensors as numbers, its settings, the keys of its tokenizer, and what writes the
//! bytes ([`write()`]). **What comes out.** Of each tensor its name in the file, which of its elements go there and in
//! which order; blocks of numbers, to the bit those of the format's own package; and the keys that describe a model.
//!
//! Sources: `quants.py`, `constants.py` and `tensor_mapping.py` of the public package gguf 0.19; `conversion/` and
//! `tools/mtmd/clip.cpp` of llama.cpp, as of its Python binding 0.3.36.

use reference::llama::Rope;

use linked::{Linked, counted, linked};

pub use runtime::gguf::{
    Activation, Architecture, Array, Error, Gguf, Model, Part, Piece, Projector, Source, TensorType,
    TextModel, Tower, Value, Written, write,
};

linked!(warpbook_gguf -> Linked<dyn Gguf>);

counted! {
    Gguf, warpbook_gguf;

    fn sizes(&self, shape: &[usize]) -> Vec<usize>;
    fn rotary_rows(&self, rows: usize, heads: usize) -> Vec<usize>;
    fn rope_factors(&self, rope: &Rope, head_dim: usize) -> Option<Vec<f32>>;
    fn quantize(&self, ty: TensorType, numbers: &[f32]) -> Vec<u8>;
    fn text_tensor(&self, model: &TextModel, name: &str) -> Option<Piece>;
    fn text_keys(&self, model: &TextModel) -> Vec<(String, Value)>;
    fn projector_tensors(&self, projector: &Projector, name: &str, shape: &[usize]) -> Vec<Piece>;
    fn projector_keys(&self, projector: &Projector) -> Vec<(String, Value)>;
}

// ANCHOR: gguf-text-names
/// What tensors of a Llama are called, in a checkpoint and in a file.
pub const TEXT: [(&str, &str); 3] =
    [("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")];

/// The same of layer N, behind `model.layers.N.` and `blk.N.`.
pub const LAYER: [(&str, &str); 9] = [
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
// ANCHOR_END: gguf-text-names

// ANCHOR: gguf-clip-names
/// What the two layers behind CLIP's tower are called, behind `multi_modal_projector.`: the activation between them has
/// the number 1.
pub const PROJECTOR: [(&str, &str); 2] = [("linear_1", "mm.0"), ("linear_2", "mm.2")];

/// What tensors of CLIP's tower are called, behind `vision_tower.`; `embeddings.class_embedding` is a parameter of its
/// own, `v.class_embd`, with nothing behind it.
pub const CLIP: [(&str, &str); 3] = [
    ("embeddings.patch_embedding", "v.patch_embd"),
    ("embeddings.position_embedding", "v.position_embd"),
    ("pre_layrnorm", "v.pre_ln"),
];

/// The same of block N, behind `encoder.layers.N.` and `v.blk.N.`.
pub const CLIP_BLOCK: [(&str, &str); 8] = [
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.out_proj", "attn_out"),
    ("layer_norm1", "ln1"),
    ("layer_norm2", "ln2"),
    ("mlp.fc1", "ffn_up"),
    ("mlp.fc2", "ffn_down"),
];
// ANCHOR_END: gguf-clip-names

// ANCHOR: gguf-qwen-names
/// What tensors of Qwen2-VL's merger are called, behind `visual.merger.`.
pub const MERGER: [(&str, &str); 3] = [("ln_q", "v.post_ln"), ("mlp.0", "mm.0"), ("mlp.2", "mm.2")];

/// What those of block N of its tower are called, behind `visual.blocks.N.` and `v.blk.N.`, but for `attn.qkv`.
pub const QWEN_BLOCK: [(&str, &str); 5] = [
    ("norm1", "ln1"),
    ("norm2", "ln2"),
    ("attn.proj", "attn_out"),
    ("mlp.fc1", "ffn_up"),
    ("mlp.fc2", "ffn_down"),
];
// ANCHOR_END: gguf-qwen-names

// ANCHOR: gguf-file-types
/// What `general.file_type` says of a file whose weights are stored in a type: `llama_ftype` of llama.cpp.
pub const FILE_TYPES: [(TensorType, u32); 8] = [
    (TensorType::F32, 0),
    (TensorType::F16, 1),
    (TensorType::Q4_0, 2),
    (TensorType::Q4_1, 3),
    (TensorType::Q8_0, 7),
    (TensorType::Q5_0, 8),
    (TensorType::Q5_1, 9),
    (TensorType::Bf16, 32),
];
// ANCHOR_END: gguf-file-types

/// The solution's text: what an exercise is derived from, and the last page of the lesson.
pub fn solution_text() -> &'static str {
    warpbook_gguf().text
}

/// Hints from small to large, chosen by the step that failed.
pub const HINTS: &str = include_str!("hints.toml");
