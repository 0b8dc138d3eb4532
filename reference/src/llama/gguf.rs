//! A Llama in a GGUF file: its sizes and settings from keys, its weights by other names and in other rows.
//!
//! ```text
//! blk.0.attn_q.weight [in, out]  ->  model.layers.0.self_attn.q_proj.weight (out, in)
//! row 2p + s of a head           ->  row p + s D / 2
//! rope_freqs.weight              ->  what divides each frequency
//! ```
//!
//! Numbers stay in `F32`, `F16` or `BF16`; blocks are decoded to f32 when somebody asks for a weight.
//!
//! Sources: `constants.py` and `tensor_mapping.py` of the public package gguf 0.19; `src/llama-model.cpp` of llama.cpp.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;

use super::gguf_keys::{FACTORS, Keys};
use super::storage::{Storage, Storages, StoredInput, TensorSpec, array};
use super::{Config, Error};
use crate::checkpoint::gguf::{Endian, Gguf, GgufTensor, TensorType, dequantize};
use crate::graph::{Array, Dtype, Real};

/// Names of tensors, in a model and in a file.
const OUTER: [(&str, &str); 3] = [
    ("model.embed_tokens.weight", "token_embd.weight"),
    ("model.norm.weight", "output_norm.weight"),
    ("lm_head.weight", "output.weight"),
];

/// Those of a layer.
const LAYER: [(&str, &str); 9] = [
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// The weights of a Llama in a file.
#[derive(Debug)]
pub(super) struct GgufWeights {
    file: Gguf,
    heads: [usize; 2], // of queries, and of keys
}

impl GgufWeights {
    /// Opens a file: its sizes and settings, how its weights are stored, and they themselves.
    ///
    /// Fails where the file cannot be read, is of another architecture, has a key that makes no sense or asks for what
    /// is not computed here, lacks a weight, or has one that the model has not.
    pub fn open(path: &Path) -> Result<(Config, Storages, Self), Error> {
        let file = Gguf::open(path)?;
        Self::of(file).map_err(|fault| fault.at(path))
    }

    fn of(file: Gguf) -> Result<(Config, Storages, Self), Error> {
        let config = Keys(&file).config()?;
        let weights = Self { heads: [config.heads, config.key_heads], file };
        let mut storages = Storages::new();
        let specs = config.tensor_specs();
        for spec in &specs {
            storages.insert(spec.name.clone(), weights.storage(spec)?);
        }
        let places: HashSet<String> = specs.iter().map(|spec| stored_name(&spec.name)).collect();
        let has_place = |name: &String| name == FACTORS || places.contains(name);
        match weights.file.tensors().iter().find(|info| !has_place(&info.name)) {
            Some(info) => Err(Error::Unexpected.of(&info.name)),
            None => Ok((config, storages, weights)),
        }
    }

    /// How a weight is stored, if it is as the model needs it.
    fn storage(&self, spec: &TensorSpec) -> Result<Storage, Error> {
        let name = stored_name(&spec.name);
        let tensor = self.file.tensor(&name)?;
        let got: Vec<usize> = tensor.sizes.iter().copied().rev().collect();
        if got != spec.shape {
            return Err(Error::Shape { got, need: spec.shape.clone() }.of(&name));
        }
        Ok(Storage::Dense(plain(&tensor).unwrap_or(Dtype::F32)))
    }

    /// A weight as numbers.
    pub fn dense<R: Real>(&self, spec: &TensorSpec) -> Result<Array<R>, Error> {
        let StoredInput { dtype, shape, bytes, .. } = self.stored(spec)?;
        Ok(array(dtype, &shape, &bytes))
    }

    /// A weight as the model has it: borrowed, if it is stored so.
    pub fn stored(&self, spec: &TensorSpec) -> Result<StoredInput<'_>, Error> {
        let name = stored_name(&spec.name);
        let tensor = self.file.tensor(&name)?;
        let (dtype, bytes) = if let Some(dtype) = plain(&tensor) {
            (dtype, Cow::Borrowed(tensor.bytes))
        } else {
            let numbers = dequantize(&tensor).map_err(|fault| Error::from(fault).of(&name))?;
            (Dtype::F32, numbers.into_iter().flat_map(f32::to_le_bytes).collect())
        };
        let bytes = match self.heads_of(&spec.name) {
            Some(heads) => apart(&bytes, spec.shape[0], heads).into(),
            None => bytes,
        };
        Ok(StoredInput { name: spec.name.clone(), dtype, shape: spec.shape.clone(), bytes })
    }

    /// The heads that a weight's rows belong to and are turned in.
    fn heads_of(&self, name: &str) -> Option<usize> {
        let place = ["self_attn.q_proj.weight", "self_attn.k_proj.weight"].iter();
        place.zip(self.heads).find(|(end, _)| name.ends_with(**end)).map(|(_, heads)| heads)
    }
}

/// What a weight is called in the file.
fn stored_name(name: &str) -> String {
    if let Some((_, outer)) = OUTER.iter().find(|(own, _)| *own == name) {
        return (*outer).to_owned();
    }
    let of_layer = |name: &str| {
        let (layer, module) = name.strip_prefix("model.layers.")?.strip_suffix(".weight")?.split_once('.')?;
        let (_, stored) = LAYER.iter().find(|(own, _)| *own == module)?;
        Some(format!("blk.{layer}.{stored}.weight"))
    };
    of_layer(name).unwrap_or_else(|| name.to_owned())
}

/// The type of numbers that are stored as they are.
fn plain(tensor: &GgufTensor<'_>) -> Option<Dtype> {
    match (tensor.ty, tensor.endian) {
        (TensorType::F32, Endian::Little) => Some(Dtype::F32),
        (TensorType::F16, Endian::Little) => Some(Dtype::F16),
        (TensorType::Bf16, Endian::Little) => Some(Dtype::Bf16),
        _ => None,
    }
}

/// Rows of neighbours as rows of halves: row p + s D / 2 of a head is row 2p + s of the file's.
fn apart(bytes: &[u8], rows: usize, heads: usize) -> Vec<u8> {
    let (width, head_dim) = (bytes.len() / rows, rows / heads);
    let from = |row: usize| {
        let (head, half, pair) = (row / head_dim, row % head_dim / (head_dim / 2), row % (head_dim / 2));
        head * head_dim + 2 * pair + half
    };
    (0..rows).flat_map(|row| &bytes[from(row) * width..][..width]).copied().collect()
}
