//! A Llama of a few numbers, written as a checkpoint to be spoilt part by part.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use half::{bf16, f16};
use reference::llama::Llama;
use reference::nf4::{self, Part, PartValues, Quantized, Scales};
use safetensors::tensor::{Dtype, SafeTensorError, TensorView, serialize};
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

    /// The same with more layers, each with numbers of its own.
    #[must_use]
    pub fn deep(mut self, layers: usize) -> Self {
        let first = |name: &&String| name.starts_with("model.layers.0.");
        let names: Vec<String> = self.tensors.keys().filter(first).cloned().collect();
        for (number, name) in (2..layers).flat_map(|layer| names.iter().map(move |name| (layer, name))) {
            let shape = self.tensors[name].shape.clone();
            let own = name.replace("layers.0", &format!("layers.{number}"));
            let seed = self.tensors.len();
            self.tensors.insert(own, Stored::floats(&shape, seed));
        }
        self.with("num_hidden_layers", layers.into())
    }

    /// The same with its projections and its output layer in NF4, those of odd layers from f16 and the others from
    /// bf16, and with scales that are quantised or not.
    ///
    /// # Panics
    /// If the block size is none that the format allows.
    #[must_use]
    pub fn quantized(mut self, block_size: usize, nested: bool) -> Self {
        let is_projection = |name: &&String| name.contains("_proj.") || name.starts_with("lm_head");
        let names: Vec<String> = self.tensors.keys().filter(is_projection).cloned().collect();
        for name in names {
            let stored = self.tensors.remove(&name).expect("a tensor");
            let dtype =
                if name.contains("layers.1") { nf4::OutputDtype::F16 } else { nf4::OutputDtype::Bf16 };
            self.tensors.extend(stored.quantized(&name, dtype, block_size, nested));
        }
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
    let views: Vec<_> = tensors
        .iter()
        .map(|(name, stored)| (name, stored.view().expect("bytes for every element")))
        .collect();
    serialize(views.iter().map(|(name, view)| (name, view)), None).expect("tensors can be written")
}

impl Stored {
    /// The same, borrowed.
    ///
    /// # Errors
    /// If its bytes are not as many as its elements take.
    pub fn view(&self) -> Result<TensorView<'_>, SafeTensorError> {
        TensorView::new(self.dtype, self.shape.clone(), &self.bytes)
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
        self.narrowed(Dtype::BF16)
    }

    /// The same, rounded to a type of floats.
    ///
    /// # Panics
    /// If it is none of f32, f16 and bf16.
    #[must_use]
    pub fn narrowed(&self, dtype: Dtype) -> Self {
        let bytes: fn(f32) -> Vec<u8> = match dtype {
            Dtype::F32 => |x| x.to_le_bytes().to_vec(),
            Dtype::F16 => |x| f16::from_f32(x).to_le_bytes().to_vec(),
            Dtype::BF16 => |x| bf16::from_f32(x).to_le_bytes().to_vec(),
            other => panic!("{other} is no type of weights"),
        };
        Self { dtype, shape: self.shape.clone(), bytes: self.numbers().flat_map(bytes).collect() }
    }

    /// Its elements, which are f32.
    fn numbers(&self) -> impl Iterator<Item = f32> {
        self.bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four))
    }

    /// Its parts in NF4, as bitsandbytes names and stores them.
    fn quantized(
        &self,
        name: &str,
        dtype: nf4::OutputDtype,
        block_size: usize,
        nested: bool,
    ) -> BTreeMap<String, Self> {
        let numbers: Vec<f32> = self.numbers().collect();
        let of = if nested { Quantized::double } else { Quantized::single };
        let weight = of(&numbers, &self.shape, dtype, block_size).expect("finite numbers");
        let view = weight.view();
        let parts = view.parts().filter(|(part, _)| part.part != Part::NestedOffset);
        let mut parts: BTreeMap<_, _> =
            parts.map(|(part, values)| (part.part.of(name), Self::part(values))).collect();
        let mut state = json!({
            "quant_type": "nf4", "blocksize": block_size, "shape": self.shape,
            "dtype": if dtype == nf4::OutputDtype::F16 { "float16" } else { "bfloat16" },
        });
        if let Scales::Double { block_size, offset, .. } = &weight.absmax {
            state["nested_blocksize"] = json!(block_size);
            state["nested_dtype"] = json!("float32");
            state["nested_offset"] = json!(f64::from(*offset));
        }
        parts.insert(
            format!("{name}.quant_state.bitsandbytes__nf4"),
            Self::of_bytes(state.to_string().as_bytes()),
        );
        parts
    }

    fn part(values: PartValues<'_>) -> Self {
        match values {
            PartValues::Bytes(bytes) => Self::of_bytes(bytes),
            PartValues::Floats(floats) => {
                let bytes = floats.iter().flat_map(|x| x.to_le_bytes()).collect();
                Self { dtype: Dtype::F32, shape: vec![floats.len()], bytes }
            }
        }
    }

    fn of_bytes(bytes: &[u8]) -> Self {
        Self { dtype: Dtype::U8, shape: vec![bytes.len(), 1], bytes: bytes.to_vec() }
    }
}
