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

use super::config::LARGEST;
use super::weights::{Storage, Storages, StoredInput, TensorSpec, array};
use super::{Config, Error, Rope, Scaling};
use crate::checkpoint::gguf::{Endian, Gguf, GgufTensor, TensorType, Value, dequantize};
use crate::graph::{Array, Dtype, Real};

/// The one architecture that is read.
const ARCHITECTURE: &str = "llama";

/// What divides each frequency.
const FACTORS: &str = "rope_freqs.weight";

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
    /// Fails where the file cannot be read, is of another architecture, has a key that makes no sense, lacks a weight,
    /// or has one that the model has not.
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

/// The keys of a file.
struct Keys<'f>(&'f Gguf);

impl Keys<'_> {
    fn config(&self) -> Result<Config, Error> {
        match self.0.value("general.architecture") {
            Some(Value::String(name)) if name == ARCHITECTURE => {}
            got => return Err(wrong("general.architecture", got, &format!("{ARCHITECTURE:?}"))),
        }
        let (hidden, heads) = (self.size("embedding_length")?, self.size("attention.head_count")?);
        let key_heads = self.size_or("attention.head_count_kv", heads)?;
        if heads % key_heads != 0 {
            let key = of_model("attention.head_count_kv");
            return Err(wrong(&key, self.0.value(&key), &format!("a divisor of {heads} heads")));
        }
        let head_dim = self.head_dim(hidden, heads)?;
        let embedding = self.0.tensor("token_embd.weight")?;
        Ok(Config {
            vocab: embedding.sizes.get(1).copied().unwrap_or(1),
            intermediate: self.size("feed_forward_length")?,
            layers: self.layers()?,
            positions: self.size("context_length")?,
            norm_eps: self.positive("attention.layer_norm_rms_epsilon")?.unwrap_or(1e-6),
            rope: self.rope(head_dim)?,
            tied: self.0.tensor("output.weight").is_err(),
            quantized: false,
            classifier: None,
            images: None,
            hidden,
            heads,
            key_heads,
            head_dim,
        })
    }

    /// As many layers as the file could have tensors of: what lists them believes this number.
    fn layers(&self) -> Result<usize, Error> {
        let (layers, most) = (self.size("block_count")?, self.0.tensors().len());
        let key = of_model("block_count");
        let need = format!("at most the {most} tensors of the file");
        if layers <= most { Ok(layers) } else { Err(wrong(&key, self.0.value(&key), &need)) }
    }

    /// The width of a head, of keys and of values alike, all of it turned.
    fn head_dim(&self, hidden: usize, heads: usize) -> Result<usize, Error> {
        let head_dim = self.size_or("attention.key_length", hidden / heads)?;
        for key in ["attention.value_length", "rope.dimension_count"] {
            if self.size_or(key, head_dim)? != head_dim {
                let key = of_model(key);
                return Err(wrong(&key, self.0.value(&key), &format!("{head_dim}, the width of a key")));
            }
        }
        let is_sound = head_dim > 0 && head_dim % 2 == 0 && heads.saturating_mul(head_dim) <= LARGEST;
        let key = of_model("attention.key_length");
        let need = format!("an even width of a head, at most {LARGEST} over {heads} heads");
        if is_sound { Ok(head_dim) } else { Err(wrong(&key, self.0.value(&key), &need)) }
    }

    fn rope(&self, head_dim: usize) -> Result<Rope, Error> {
        let theta = self.positive("rope.freq_base")?.unwrap_or(10_000.0);
        let key = of_model("rope.scaling.type");
        let scaling = match self.0.value(&key).map(|value| (value, value.text())) {
            None | Some((_, Some("none"))) => self.factors(head_dim)?.map_or(Scaling::None, Scaling::Factors),
            Some((_, Some("linear"))) => {
                let key = of_model("rope.scaling.factor");
                let need = || wrong(&key, self.0.value(&key), "a number above 0");
                Scaling::Linear { factor: self.positive("rope.scaling.factor")?.ok_or_else(need)? }
            }
            Some((got, _)) => return Err(wrong(&key, Some(got), "\"none\" or \"linear\"")),
        };
        Ok(Rope { theta, scaling })
    }

    /// What divides each frequency, if the file says so.
    fn factors(&self, head_dim: usize) -> Result<Option<Vec<f32>>, Error> {
        let Ok(tensor) = self.0.tensor(FACTORS) else { return Ok(None) };
        let need = vec![head_dim / 2];
        if tensor.sizes != need {
            return Err(Error::Shape { got: tensor.sizes.to_vec(), need }.of(FACTORS));
        }
        let factors = dequantize(&tensor).map_err(|fault| Error::from(fault).of(FACTORS))?;
        match factors.iter().find(|factor| !(factor.is_finite() && **factor > 0.0)) {
            None => Ok(Some(factors)),
            Some(factor) => Err(Error::Field {
                field: FACTORS.into(),
                got: factor.to_string(),
                need: "numbers above 0".into(),
            }),
        }
    }

    fn size(&self, key: &str) -> Result<usize, Error> {
        let (key, need) = (of_model(key), format!("an integer from 1 to {LARGEST}"));
        let value = self.0.value(&key);
        let size = value.and_then(Value::whole).filter(|size| (1..=LARGEST as u64).contains(size));
        size.map(|size| size as usize).ok_or_else(|| wrong(&key, value, &need))
    }

    fn size_or(&self, key: &str, usual: usize) -> Result<usize, Error> {
        if self.0.value(&of_model(key)).is_some() { self.size(key) } else { Ok(usual) }
    }

    fn positive(&self, key: &str) -> Result<Option<f64>, Error> {
        let key = of_model(key);
        let Some(value) = self.0.value(&key) else { return Ok(None) };
        let sound = value.float().filter(|number| number.is_finite() && *number > 0.0);
        sound.map(Some).ok_or_else(|| wrong(&key, Some(value), "a number above 0"))
    }
}

fn of_model(key: &str) -> String {
    format!("{ARCHITECTURE}.{key}")
}

fn wrong(key: &str, got: Option<&Value>, need: &str) -> Error {
    let (field, need) = (key.to_owned(), need.to_owned());
    match got {
        None => Error::MissingField { field, need },
        Some(got) => Error::Field { field, got: got.to_string(), need },
    }
}
