//! A Llama of a few numbers, written as a checkpoint to be spoilt part by part.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use reference::llama::Llama;
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A stored tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// The type of its elements.
    pub dtype: Dtype,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Little endian.
    pub bytes: Vec<u8>,
}

/// A checkpoint in memory.
#[derive(Clone)]
pub struct SmallLlama {
    /// `config.json`
    pub config: Value,
    /// By name.
    pub tensors: BTreeMap<String, Stored>,
}

impl SmallLlama {
    /// Two layers of width 12, six heads of 4 over two key heads, f32, with an output layer of its own.
    pub fn sound() -> Self {
        let config = json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
            "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 6,
            "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 17, "max_position_embeddings": 32,
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": null, "tie_word_embeddings": false,
        });
        let mut tensors = BTreeMap::new();
        let mut add = |name: &str, shape: &[usize]| {
            let value = Stored::floats(shape, tensors.len());
            tensors.insert(name.to_owned(), value);
        };
        add("model.embed_tokens.weight", &[17, 12]);
        add("model.norm.weight", &[12]);
        add("lm_head.weight", &[17, 12]);
        for layer in 0..2 {
            let mut of_layer = |name: &str, shape: &[usize]| {
                add(&format!("model.layers.{layer}.{name}.weight"), shape);
            };
            of_layer("input_layernorm", &[12]);
            of_layer("post_attention_layernorm", &[12]);
            of_layer("self_attn.q_proj", &[24, 12]);
            of_layer("self_attn.k_proj", &[8, 12]);
            of_layer("self_attn.v_proj", &[8, 12]);
            of_layer("self_attn.o_proj", &[12, 24]);
            of_layer("mlp.gate_proj", &[20, 12]);
            of_layer("mlp.up_proj", &[20, 12]);
            of_layer("mlp.down_proj", &[12, 20]);
        }
        Self { config, tensors }
    }

    /// The same with another field of its configuration.
    #[must_use]
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.config[field] = value;
        self
    }

    /// Writes it as one file.
    pub fn save(&self, folder: &Path) {
        fs::write(folder.join("config.json"), self.config.to_string()).expect("a file can be written");
        fs::write(folder.join("model.safetensors"), file(&self.tensors)).expect("a file can be written");
    }

    /// Writes it as two shards and an index.
    pub fn save_sharded(&self, folder: &Path) {
        fs::write(folder.join("config.json"), self.config.to_string()).expect("a file can be written");
        let (mut first, mut map) = (self.tensors.clone(), serde_json::Map::new());
        let second = first.split_off("model.layers.1");
        for (shard, tensors) in [("model-1.safetensors", &first), ("model-2.safetensors", &second)] {
            fs::write(folder.join(shard), file(tensors)).expect("a file can be written");
            map.extend(tensors.keys().map(|name| (name.clone(), json!(shard))));
        }
        let index = json!({ "weight_map": map }).to_string();
        fs::write(folder.join("model.safetensors.index.json"), index).expect("a file can be written");
    }

    /// It, written and opened again.
    pub fn open(&self) -> Result<Llama, reference::llama::Error> {
        let folder = TempDir::new().expect("a temporary folder can be made");
        self.save(folder.path());
        open(folder.path())
    }

    /// What opening it answers.
    pub fn error(&self) -> String {
        self.open().expect_err("it is not sound").to_string()
    }
}

/// Opens a folder.
pub fn open(folder: &Path) -> Result<Llama, reference::llama::Error> {
    Llama::open(folder.to_str().expect("a path of plain letters"))
}

/// A safetensors file of these tensors.
pub fn file(tensors: &BTreeMap<String, Stored>) -> Vec<u8> {
    let views: Vec<_> = tensors.iter().map(|(name, stored)| (name, stored.view())).collect();
    serialize(views.iter().map(|(name, view)| (name, view)), None).expect("tensors can be written")
}

impl Stored {
    fn view(&self) -> TensorView<'_> {
        TensorView::new(self.dtype, self.shape.clone(), &self.bytes).expect("bytes for every element")
    }

    /// Some f32 between -0.5 and 0.5, others for every seed.
    pub fn floats(shape: &[usize], seed: usize) -> Self {
        let value = |i: usize| ((i * 7919 + seed * 104729 + 13) % 1009) as f32 / 1009.0 - 0.5;
        let bytes = (0..shape.iter().product()).flat_map(|i| value(i).to_le_bytes()).collect();
        Self { dtype: Dtype::F32, shape: shape.to_vec(), bytes }
    }

    /// The same, rounded to bf16.
    #[must_use]
    pub fn to_bf16(&self) -> Self {
        let floats = self.bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four));
        let bytes = floats.flat_map(|x| half::bf16::from_f32(x).to_le_bytes()).collect();
        Self { dtype: Dtype::BF16, shape: self.shape.clone(), bytes }
    }
}
