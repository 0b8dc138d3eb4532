//! A Llama of drawn weights at the size of a real one, in the layout of a checkpoint that bitsandbytes has quantised.
//!
//! ```text
//! config.json                        with its quantization_config
//! model-00001-of-00002.safetensors   projections in NF4 with quantised scales, everything else in bf16
//! model.safetensors.index.json
//! ```
//!
//! A number is drawn by its place in its tensor, so the same seed gives the same bytes on any number of threads. A
//! weight is never there as a whole but in the form in which it is stored.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use half::bf16;
use reference::llama::{Config, TensorSpec};
use reference::nf4::{CODE2, Layout, NESTED_BLOCK, NF4, Part, double_quantize, quantize};
use safetensors::tensor::{Dtype, serialize_to_file};
use serde_json::{Value, json};

use crate::small_llama::Stored;

/// What went wrong, in words.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The sizes in which two Llamas differ, and how their checkpoint is cut.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// As the command line calls it.
    pub name: &'static str,
    /// Rows of the embedding.
    pub vocab: usize,
    hidden: usize,
    intermediate: usize,
    layers: usize,
    heads: usize,
    key_heads: usize,
    head_dim: usize,
    positions: usize,
    rope_factor: f64,
    original_positions: usize, // of the first training
    is_tied: bool,
    shard_bytes: usize, // at most, of files with more than one tensor
    /// Tokens of a row of data.
    pub tokens: usize,
}

/// Llama-3.2-1B; Llama-3.1-8B without its upper half; and one that a processor trains in a second.
pub const SHAPES: [Shape; 3] = [
    Shape {
        name: "1b",
        vocab: 128_256,
        hidden: 2048,
        intermediate: 8192,
        layers: 16,
        heads: 32,
        key_heads: 8,
        head_dim: 64,
        positions: 131_072,
        rope_factor: 32.0,
        original_positions: 8192,
        is_tied: true,
        shard_bytes: 600 << 20,
        tokens: 2048,
    },
    Shape {
        name: "8b16",
        vocab: 128_256,
        hidden: 4096,
        intermediate: 14_336,
        layers: 16,
        heads: 32,
        key_heads: 8,
        head_dim: 128,
        positions: 131_072,
        rope_factor: 8.0,
        original_positions: 8192,
        is_tied: false,
        shard_bytes: 2 << 30,
        tokens: 2048,
    },
    Shape {
        name: "tiny",
        vocab: 512,
        hidden: 128,
        intermediate: 384, // whole blocks: bitsandbytes on a processor takes no others
        layers: 4,
        heads: 4,
        key_heads: 2,
        head_dim: 32,
        positions: 256,
        rope_factor: 8.0,
        original_positions: 64,
        is_tied: true,
        shard_bytes: 200 << 10,
        tokens: 64,
    },
];

/// Elements that share a scale.
const BLOCK: usize = 64;

/// The standard deviation of weights, which is `initializer_range` of such models.
const DEVIATION: f32 = 0.02;

/// Elements that are drawn at a time: whole blocks, and whole bytes of codes.
const PIECE: usize = 1 << 20;

impl Shape {
    /// The one of a name.
    pub fn find(name: &str) -> Option<Self> {
        SHAPES.into_iter().find(|shape| shape.name == name)
    }

    /// Its `config.json`: the fields of `LlamaConfig` and `BitsAndBytesConfig` of `transformers`.
    pub fn config(&self) -> Value {
        json!({
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": false,
            "attention_dropout": 0.0,
            "bos_token_id": null,
            "eos_token_id": null,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "initializer_range": 0.02,
            "intermediate_size": self.intermediate,
            "max_position_embeddings": self.positions,
            "mlp_bias": false,
            "model_type": "llama",
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.key_heads,
            "pretraining_tp": 1,
            "quantization_config": {
                "_load_in_4bit": true,
                "_load_in_8bit": false,
                "bnb_4bit_compute_dtype": "bfloat16",
                "bnb_4bit_quant_storage": "uint8",
                "bnb_4bit_quant_type": "nf4",
                "bnb_4bit_use_double_quant": true,
                "llm_int8_enable_fp32_cpu_offload": false,
                "llm_int8_has_fp16_weight": false,
                "llm_int8_skip_modules": null,
                "llm_int8_threshold": 6.0,
                "load_in_4bit": true,
                "load_in_8bit": false,
                "quant_method": "bitsandbytes",
            },
            "rms_norm_eps": 1e-5,
            "rope_scaling": {
                "factor": self.rope_factor,
                "high_freq_factor": 4.0,
                "low_freq_factor": 1.0,
                "original_max_position_embeddings": self.original_positions,
                "rope_type": "llama3",
            },
            "rope_theta": 500_000.0,
            "tie_word_embeddings": self.is_tied,
            "torch_dtype": "bfloat16",
            "use_cache": true,
            "vocab_size": self.vocab,
        })
    }

    /// Writes the model into a folder.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, folder: &Path, seed: u64) -> Result<(), Failure> {
        let config = folder.join("config.json");
        fs::write(&config, format!("{:#}\n", self.config()))?;
        let specs: Vec<(u64, TensorSpec)> = (0..).zip(Config::read(&config)?.tensor_specs()).collect();
        let shards = self.shards(&specs);
        let (mut files, mut bytes) = (BTreeMap::new(), 0);
        for (number, shard) in (1..).zip(&shards) {
            let file = format!("model-{number:05}-of-{:05}.safetensors", shards.len());
            let mut tensors = Vec::new();
            for (stream, spec) in *shard {
                tensors.extend(drawn(spec, Draw { seed: mixed(seed, *stream) })?);
            }
            bytes += tensors.iter().map(|(_, stored)| stored.bytes.len()).sum::<usize>();
            files.extend(tensors.iter().map(|(name, _)| (name.clone(), file.clone())));
            let views = tensors.iter().map(|(name, stored)| Ok((name, stored.view()?)));
            let views = views.collect::<Result<Vec<_>, Failure>>()?;
            let of_torch = [("format".to_owned(), "pt".to_owned())].into(); // without it transformers refuses a file
            serialize_to_file(views, Some(of_torch), &folder.join(file))?;
        }
        let index = json!({"metadata": {"total_size": bytes}, "weight_map": files});
        fs::write(folder.join("model.safetensors.index.json"), format!("{index:#}\n"))?;
        Ok(())
    }

    /// The weights of each file, in their order.
    fn shards<'a>(&self, specs: &'a [(u64, TensorSpec)]) -> Vec<&'a [(u64, TensorSpec)]> {
        let (mut shards, mut first, mut bytes) = (Vec::new(), 0, 0);
        for (at, (_, spec)) in specs.iter().enumerate() {
            let own = stored_bytes(spec);
            if at > first && bytes + own > self.shard_bytes {
                shards.push(&specs[first..at]);
                (first, bytes) = (at, 0);
            }
            bytes += own;
        }
        shards.push(&specs[first..]);
        shards
    }
}

/// Whether bitsandbytes quantises a weight: by default all linear layers but the output layer.
fn is_quantized(spec: &TensorSpec) -> bool {
    spec.quantizable && spec.name.ends_with("_proj.weight")
}

fn layout(spec: &TensorSpec) -> Layout {
    Layout { len: spec.shape.iter().product(), block_size: BLOCK, nested: Some(NESTED_BLOCK) }
}

/// Bytes that a weight takes in its file, but for its state.
fn stored_bytes(spec: &TensorSpec) -> usize {
    let layout = layout(spec);
    if is_quantized(spec) { layout.parts().map(|part| part.bytes()).sum() } else { 2 * layout.len }
}

/// A weight as its file has it: one tensor, or the parts of one in NF4.
fn drawn(spec: &TensorSpec, draw: Draw) -> Result<Vec<(String, Stored)>, Failure> {
    let len = layout(spec).len;
    if is_quantized(spec) {
        return quantized(spec, len, draw);
    }
    let is_norm = spec.shape.len() == 1;
    let number = |at: usize| if is_norm { bf16::ONE } else { draw.weight(at) };
    let bytes = |range: Range<usize>| range.flat_map(|at| number(at).to_le_bytes()).collect::<Vec<u8>>();
    let stored = Stored { dtype: Dtype::BF16, shape: spec.shape.clone(), bytes: pieces(len, bytes).concat() };
    Ok(vec![(spec.name.clone(), stored)])
}

/// The parts of a weight in NF4, by the names and in the shapes that bitsandbytes gives them.
fn quantized(spec: &TensorSpec, len: usize, draw: Draw) -> Result<Vec<(String, Stored)>, Failure> {
    let codes = |range: Range<usize>| {
        let weights: Vec<f32> = range.map(|at| draw.weight(at).to_f32()).collect();
        quantize(&weights, BLOCK)
    };
    let (mut packed, mut absmax) = (Vec::with_capacity(len.div_ceil(2)), Vec::new());
    for piece in pieces(len, codes) {
        let (codes, scales) = piece?;
        packed.extend(codes);
        absmax.extend(scales);
    }
    let (scale_codes, scales, offset) = double_quantize(&absmax, None);
    let state = json!({
        "quant_type": "nf4", "blocksize": BLOCK, "dtype": "bfloat16", "shape": spec.shape,
        "nested_blocksize": NESTED_BLOCK, "nested_dtype": "float32", "nested_offset": f64::from(offset),
    });
    let floats = |values: &[f32]| Stored {
        dtype: Dtype::F32,
        shape: vec![values.len()],
        bytes: values.iter().flat_map(|value| value.to_le_bytes()).collect(),
    };
    let bytes = |bytes: Vec<u8>| Stored { dtype: Dtype::U8, shape: vec![bytes.len()], bytes };
    let packed = Stored { dtype: Dtype::U8, shape: vec![packed.len(), 1], bytes: packed };
    let parts = [
        (Part::Packed, packed),
        (Part::QuantMap, floats(&NF4)),
        (Part::Absmax, bytes(scale_codes)),
        (Part::NestedQuantMap, floats(&CODE2)),
        (Part::NestedAbsmax, floats(&scales)),
    ];
    let named = parts.into_iter().map(|(part, stored)| (part.of(&spec.name), stored));
    let state =
        (format!("{}.quant_state.bitsandbytes__nf4", spec.name), bytes(state.to_string().into_bytes()));
    Ok(named.chain([state]).collect())
}

/// What a function makes of each piece of `len` elements, in their order, on all cores.
fn pieces<T: Send>(len: usize, make: impl Fn(Range<usize>) -> T + Sync) -> Vec<T> {
    let count = len.div_ceil(PIECE);
    let threads = thread::available_parallelism().map_or(1, usize::from).min(count);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut made = Vec::new();
        loop {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= count {
                return made;
            }
            made.push((piece, make(piece * PIECE..len.min((piece + 1) * PIECE))));
        }
    };
    let mut all: Vec<(usize, T)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a piece is made")).collect()
    });
    all.sort_by_key(|(piece, _)| *piece);
    all.into_iter().map(|(_, made)| made).collect()
}

/// Random numbers by their place in a stream.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    /// The stream.
    pub seed: u64,
}

impl Draw {
    /// 64 bits.
    pub fn bits(self, at: usize) -> u64 {
        mixed(self.seed, at as u64)
    }

    /// Evenly from 0 to below 1.
    pub fn share(self, at: usize) -> f64 {
        (self.bits(at) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A weight in bf16, nearly normal: the sum of four even draws of 16 bits, whose variance is (2^32 - 1) / 3.
    fn weight(self, at: usize) -> bf16 {
        let bits = self.bits(at);
        let sum: i32 = [0, 16, 32, 48].map(|shift| i32::from((bits >> shift) as u16)).iter().sum();
        let centred = (sum - 2 * 0xffff) as f32;
        bf16::from_f32(centred * (DEVIATION / ROOT_OF_VARIANCE))
    }
}

/// The square root of (2^32 - 1) / 3.
const ROOT_OF_VARIANCE: f32 = 37_837.23;

/// The number at a place of a stream. Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators"
/// (2014), figure 13, with the constants of `SplitMix64`.
fn mixed(seed: u64, at: u64) -> u64 {
    let mut z = seed.wrapping_add(at.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
