//! A drawn model as a checkpoint in a folder that goes with it: ranks read the pages of a file that are theirs.
//!
//! A safetensors file is a length, a JSON object that says where each tensor lies, and the tensors (the format's
//! documentation, "Format").

use std::fs;

use reference::graph::Dtype;
use reference::llama::{Config, Llama, Storage};
use reference::nf4::Part;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::compare::describe;
use crate::graph::model::Model;

/// A model in files.
pub(super) struct OnDisk {
    pub llama: Llama,
    _folder: TempDir,
}

/// Writes a drawn model and opens it.
pub(super) fn write(model: &Model) -> Result<OnDisk, String> {
    let folder = tempfile::tempdir().map_err(describe)?;
    let path = folder.path();
    fs::write(path.join("config.json"), config(&model.spec.config).to_string()).map_err(describe)?;
    fs::write(path.join("model.safetensors"), file(&tensors(model)?)).map_err(describe)?;
    let name = path.to_str().ok_or("the temporary folder has a name of no letters")?;
    Ok(OnDisk { llama: Llama::open(name).map_err(describe)?, _folder: folder })
}

fn config(config: &Config) -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": config.hidden,
        "intermediate_size": config.intermediate,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.key_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab,
        "max_position_embeddings": config.positions,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope.theta,
        "rope_scaling": null,
        "tie_word_embeddings": config.tied,
    })
}

/// What projections are decoded to, as in published checkpoints.
const DECODED: &str = "bfloat16";

/// A tensor in a file.
struct Stored {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// Every tensor of a model, as bitsandbytes names and stores them: the offset of nested scales lies in a JSON object.
fn tensors(model: &Model) -> Result<Vec<Stored>, String> {
    let offset = |name: &str| model.weight(&Part::NestedOffset.of(name)).map(|value| value.wide()[0]);
    let mut all = Vec::new();
    for (name, value) in model.weights() {
        if name.ends_with(&Part::NestedOffset.of("")) {
            continue;
        }
        let dtype = match value.dtype {
            Dtype::U8 => "U8",
            Dtype::F32 => "F32",
            other => return Err(format!("`{name}` is {other:?}, which no drawn model has")),
        };
        all.push(Stored { name: name.clone(), dtype, shape: value.shape.clone(), bytes: value.to_memory() });
    }
    for (name, storage) in &model.spec.storages {
        let Storage::Nf4 { block_size, nested: Some(nested), .. } = storage else { continue };
        let shape = model.spec.config.tensor_specs().into_iter().find(|spec| spec.name == *name);
        let state = json!({
            "quant_type": "nf4",
            "blocksize": block_size,
            "dtype": DECODED,
            "shape": shape.map(|spec| spec.shape),
            "nested_blocksize": nested,
            "nested_dtype": "float32",
            "nested_offset": offset(name),
        });
        let bytes = state.to_string().into_bytes();
        let name = format!("{name}.quant_state.bitsandbytes__nf4");
        all.push(Stored { name, dtype: "U8", shape: vec![bytes.len()], bytes });
    }
    Ok(all)
}

fn file(tensors: &[Stored]) -> Vec<u8> {
    let (mut header, mut at) = (Map::new(), 0);
    for Stored { name, dtype, shape, bytes } in tensors {
        let end = at + bytes.len();
        header.insert(name.clone(), json!({ "dtype": dtype, "shape": shape, "data_offsets": [at, end] }));
        at = end;
    }
    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.into_bytes());
    for tensor in tensors {
        file.extend(&tensor.bytes);
    }
    file
}
