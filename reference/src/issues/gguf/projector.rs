//! The file of what sees images: the tower, and the projector into the language model's width.

use super::{Part, Piece, file_type};
use crate::checkpoint::gguf::{Array, TensorType, Value};
use crate::oracles::GGUF;

// ANCHOR: gguf-projector
/// Which model sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tower {
    /// CLIP's tower and two linear layers.
    Llava {
        /// Which hidden state the projector reads: so many blocks have seen it.
        feature_layer: usize,
    },
    /// Qwen2-VL's tower and merger.
    Qwen2Vl {
        /// Patches a side that become one token.
        merge: usize,
    },
}

/// The activation inside the tower's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// x sigmoid(1.702 x).
    QuickGelu,
    /// x Phi(x).
    Gelu,
    /// x sigmoid(x).
    Silu,
}

/// A tower with its projector that is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Projector {
    /// What people call the model.
    pub name: String,
    /// Which model sees.
    pub tower: Tower,
    /// Pixels a side of an image; of towers that take any size, of a typical one.
    pub image_size: usize,
    /// Pixels a side of a patch.
    pub patch_size: usize,
    /// Width of the tower.
    pub hidden: usize,
    /// Width inside its blocks' MLPs.
    pub intermediate: usize,
    /// Blocks.
    pub layers: usize,
    /// Heads of each.
    pub heads: usize,
    /// What a norm adds to the variance.
    pub norm_eps: f64,
    /// Width of what comes out: that of the language model.
    pub output: usize,
    /// The activation inside its blocks.
    pub activation: Activation,
    /// What is subtracted from red, green and blue in 0..1.
    pub mean: [f32; 3],
    /// What they are divided by then.
    pub std: [f32; 3],
    /// What its weights are stored in.
    pub stored: TensorType,
}
// ANCHOR_END: gguf-projector

/// The names of CLIP in a checkpoint and in a file: those of a block.
const CLIP_BLOCK: [(&str, &str); 8] = [
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.out_proj", "attn_out"),
    ("layer_norm1", "ln1"),
    ("layer_norm2", "ln2"),
    ("mlp.fc1", "ffn_up"),
    ("mlp.fc2", "ffn_down"),
];

/// Those of CLIP beside its blocks.
const CLIP: [(&str, &str); 3] = [
    ("embeddings.patch_embedding", "v.patch_embd"),
    ("embeddings.position_embedding", "v.position_embd"),
    ("pre_layrnorm", "v.pre_ln"),
];

/// Those of Qwen2-VL's blocks.
const QWEN_BLOCK: [(&str, &str); 5] = [
    ("norm1", "ln1"),
    ("norm2", "ln2"),
    ("attn.proj", "attn_out"),
    ("mlp.fc1", "ffn_up"),
    ("mlp.fc2", "ffn_down"),
];

/// What a tensor of a model becomes in the projector's file: nothing, if it belongs to the language model or is never
/// read; one tensor; or several.
///
/// Names are those of checkpoints of all versions: with and without `model.` at the front, and `vision_model.` behind
/// `vision_tower.`. The final norm of CLIP's tower is in no file: the hidden state that the projector reads has not
/// passed it, and readers apply one that they find.
pub fn projector_tensors(projector: &Projector, name: &str, shape: &[usize]) -> Vec<Piece> {
    GGUF.count();
    let name = name.strip_prefix("model.").unwrap_or(name);
    match projector.tower {
        Tower::Llava { .. } => llava(projector, name).map(whole).into_iter().collect(),
        Tower::Qwen2Vl { .. } => qwen(projector, name, shape).unwrap_or_default(),
    }
}

fn whole(name: String) -> Piece {
    Piece { name, part: Part::Whole }
}

fn llava(projector: &Projector, name: &str) -> Option<String> {
    if let Some(name) = name.strip_prefix("multi_modal_projector.linear_") {
        let (number, end) = name.split_once('.').filter(|(_, end)| is_end(end))?;
        let place = ["1", "2"].iter().position(|known| *known == number)?;
        return Some(format!("mm.{}.{end}", 2 * place)); // the activation between them has the number 1
    }
    let name = name.strip_prefix("vision_tower.")?;
    let name = name.strip_prefix("vision_model.").unwrap_or(name);
    if name == "embeddings.class_embedding" {
        return Some("v.class_embd".to_owned());
    }
    if let Some(name) = name.strip_prefix("encoder.layers.") {
        return of_block(projector, name, &CLIP_BLOCK);
    }
    let (module, end) = name.rsplit_once('.').filter(|(_, end)| is_end(end))?;
    let (_, to) = CLIP.iter().find(|(from, _)| *from == module)?;
    Some(format!("{to}.{end}"))
}

fn qwen(projector: &Projector, name: &str, shape: &[usize]) -> Option<Vec<Piece>> {
    let name = name.strip_prefix("visual.")?;
    if name == "patch_embed.proj.weight" {
        let times = shape.get(2).copied().unwrap_or(0);
        let of_time = |time: usize| {
            let end = if time == 0 { String::new() } else { format!(".{time}") };
            Piece { name: format!("v.patch_embd.weight{end}"), part: Part::Time(time) }
        };
        return Some((0..times).map(of_time).collect());
    }
    if let Some(name) = name.strip_prefix("merger.") {
        let (module, end) = name.rsplit_once('.').filter(|(_, end)| is_end(end))?;
        let to = match module {
            "ln_q" => "v.post_ln",
            "mlp.0" => "mm.0",
            "mlp.2" => "mm.2",
            _ => return None,
        };
        return Some(vec![whole(format!("{to}.{end}"))]);
    }
    let name = name.strip_prefix("blocks.")?;
    let (block, module) = block_of(projector, name)?;
    if let Some(end) = module.strip_prefix("attn.qkv.").filter(|end| is_end(end)) {
        let count = shape.first()? / 3;
        let third = |(place, letter): (usize, char)| Piece {
            name: format!("v.blk.{block}.attn_{letter}.{end}"),
            part: Part::Rows { begin: place * count, count },
        };
        return Some("qkv".chars().enumerate().map(third).collect());
    }
    of_block(projector, name, &QWEN_BLOCK).map(|name| vec![whole(name)])
}

/// The number of a block, and what stands behind it.
fn block_of<'a>(projector: &Projector, name: &'a str) -> Option<(usize, &'a str)> {
    let (block, module) = name.split_once('.')?;
    Some((block.parse().ok().filter(|number| *number < projector.layers)?, module))
}

fn of_block(projector: &Projector, name: &str, names: &[(&str, &str)]) -> Option<String> {
    let (block, name) = block_of(projector, name)?;
    let (module, end) = name.rsplit_once('.').filter(|(_, end)| is_end(end))?;
    let (_, to) = names.iter().find(|(from, _)| *from == module)?;
    Some(format!("v.blk.{block}.{to}.{end}"))
}

fn is_end(end: &str) -> bool {
    ["weight", "bias"].contains(&end)
}

/// The keys of its file.
///
/// # Panics
/// If its weights are stored in a type that is not written.
pub fn projector_keys(projector: &Projector) -> Vec<(String, Value)> {
    GGUF.count();
    let text = |key: &str, text: &str| (key.to_owned(), Value::String(text.to_owned()));
    let size = |key: &str, size: usize| (format!("clip.vision.{key}"), Value::U32(size as u32));
    let three =
        |key: &str, three: [f32; 3]| (format!("clip.vision.{key}"), Value::Array(Array::F32(three.to_vec())));
    let mut keys = vec![
        text("general.architecture", "clip"),
        text("general.type", "mmproj"),
        text("general.name", &projector.name),
        (
            "general.file_type".into(),
            Value::U32(file_type(projector.stored).expect("a type that is written")),
        ),
        ("general.quantization_version".into(), Value::U32(2)),
        ("clip.has_vision_encoder".into(), Value::Bool(true)),
        text(
            "clip.projector_type",
            match projector.tower {
                Tower::Llava { .. } => "mlp",
                Tower::Qwen2Vl { .. } => "qwen2vl_merger",
            },
        ),
        size("image_size", projector.image_size),
        size("patch_size", projector.patch_size),
        size("embedding_length", projector.hidden),
        size("feed_forward_length", projector.intermediate),
        size("projection_dim", projector.output),
        size("block_count", projector.layers),
        size("attention.head_count", projector.heads),
        ("clip.vision.attention.layer_norm_epsilon".into(), Value::F32(projector.norm_eps as f32)),
        three("image_mean", projector.mean),
        three("image_std", projector.std),
    ];
    match projector.activation {
        Activation::QuickGelu => {} // what is computed if nothing is said
        Activation::Gelu => keys.push(("clip.use_gelu".into(), Value::Bool(true))),
        Activation::Silu => keys.push(("clip.use_silu".into(), Value::Bool(true))),
    }
    match projector.tower {
        Tower::Qwen2Vl { merge } => keys.push(size("spatial_merge_size", merge)),
        // readers take the state before the last block if nothing is said
        Tower::Llava { feature_layer } if feature_layer + 1 == projector.layers => {}
        Tower::Llava { feature_layer } => {
            let layer = Value::Array(Array::I32(vec![feature_layer as i32]));
            keys.push(("clip.vision.feature_layer".into(), layer));
        }
    }
    keys
}
