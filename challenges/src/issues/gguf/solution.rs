//! (D) `issues`, part `gguf`: a trained model as the file that runs everywhere else.

use std::f64::consts::TAU;

use challenges::issues::gguf::{
    Activation, Architecture, Array, CLIP, CLIP_BLOCK, FILE_TYPES, Gguf, LAYER, MERGER, PROJECTOR, Part,
    Piece, Projector, QWEN_BLOCK, TEXT, TensorType, TextModel, Tower, Value,
};
use half::{bf16, f16};
use reference::llama::{Rope, Scaling};

/// The attempt.
pub struct Solution;

impl Gguf for Solution {
    // ANCHOR: gguf-step-19
    // why: the file's reader turns neighbours, the checkpoint's turns halves of a head. Both dot products of queries
    // and keys are sums over the same products, so rows may stand as the reader wants them, if those of both weights
    // stand alike. A row of the file is named by head, pair and which of the two: the quotients of its number.
    // step D.19: turn the dimensions round
    fn sizes(&self, shape: &[usize]) -> Vec<usize> {
        shape.iter().rev().copied().collect()
    }

    // step D.19: find the checkpoint's row of each row
    fn rotary_rows(&self, rows: usize, heads: usize) -> Vec<usize> {
        let head_dim = rows / heads;
        let from = |row: usize| {
            let (head, within) = (row / head_dim, row % head_dim);
            head * head_dim + within / 2 + within % 2 * (head_dim / 2)
        };
        (0..rows).map(from).collect()
    }

    // step D.19: compute what divides each frequency
    fn rope_factors(&self, rope: &Rope, head_dim: usize) -> Option<Vec<f32>> {
        let Scaling::Llama3 { factor, low, high, original } = rope.scaling else { return None };
        let divisor = |i: usize| {
            let frequency = rope.theta.powf(-((2 * i) as f64) / head_dim as f64);
            let turns = original as f64 * frequency / TAU;
            let smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0); // 0 of long waves, 1 of short ones
            (1.0 / ((1.0 - smooth) / factor + smooth)) as f32
        };
        Some((0..head_dim / 2).map(divisor).collect())
    }
    // ANCHOR_END: gguf-step-19

    // ANCHOR: gguf-step-20
    // why: codes are whole steps of d from where the block begins: 0, the least number, or the largest with a minus.
    // d is used as it was computed and stored as f16, so a reader's step is a little off: that is the format. Whoever
    // divides by the stored one, or rounds a product twice, has other bits.
    // step D.20: write numbers one by one or block by block
    fn quantize(&self, ty: TensorType, numbers: &[f32]) -> Vec<u8> {
        let of_numbers: fn(&f32) -> Vec<u8> = match ty {
            TensorType::F32 => |x| x.to_le_bytes().to_vec(),
            TensorType::F16 => |x| f16::from_f32(*x).to_le_bytes().to_vec(),
            TensorType::Bf16 => |x| bf16::from_f32(*x).to_le_bytes().to_vec(),
            _ => return numbers.chunks_exact(32).flat_map(|block| of_block(ty, block)).collect(),
        };
        numbers.iter().flat_map(of_numbers).collect()
    }
    // ANCHOR_END: gguf-step-20

    // ANCHOR: gguf-step-21
    // why: names are looked up from the outside in: the front that tells models apart, the layer, the module, and what
    // of it. Queries and keys of a `llama` have their rows rearranged, biases too; nothing else has.
    // step D.21: name a tensor of the language model
    fn text_tensor(&self, model: &TextModel, name: &str) -> Option<Piece> {
        let inner = name.strip_prefix("model.language_model.").map(|inner| format!("model.{inner}"));
        let name = inner.as_deref().or_else(|| name.strip_prefix("language_model.")).unwrap_or(name);
        let (module, what) = module_of(name)?;
        if let Some(to) = renamed(&TEXT, module) {
            return Some(whole(format!("{to}.{what}")));
        }
        let (layer, module) = numbered(module.strip_prefix("model.layers.")?, model.config.layers)?;
        let to = renamed(&LAYER, module)?;
        let heads = match to {
            "attn_q" => model.config.heads,
            "attn_k" => model.config.key_heads,
            _ => 0,
        };
        let is_rotary = heads > 0 && model.architecture == Architecture::Llama;
        let part = if is_rotary { Part::Rotary { heads } } else { Part::Whole };
        Some(Piece { name: format!("blk.{layer}.{to}.{what}"), part })
    }

    // step D.21: list the keys of the language model
    fn text_keys(&self, model: &TextModel) -> Vec<(String, Value)> {
        let config = &model.config;
        let name = model.architecture.name();
        let mut keys = general(name, "model", &model.name, model.stored);
        let mut of_model = |key: &str, value: Value| keys.push((format!("{name}.{key}"), value));
        let sizes = [
            ("vocab_size", config.vocab),
            ("context_length", config.positions),
            ("embedding_length", config.hidden),
            ("feed_forward_length", config.intermediate),
            ("block_count", config.layers),
            ("attention.head_count", config.heads),
            ("attention.head_count_kv", config.key_heads),
            ("attention.key_length", config.head_dim),
            ("attention.value_length", config.head_dim),
            ("rope.dimension_count", config.head_dim),
        ];
        for (key, size) in sizes {
            of_model(key, Value::U32(size as u32));
        }
        of_model("attention.layer_norm_rms_epsilon", Value::F32(config.norm_eps as f32));
        of_model("rope.freq_base", Value::F32(config.rope.theta as f32));
        if let Scaling::Linear { factor } = config.rope.scaling {
            of_model("rope.scaling.type", Value::String("linear".into()));
            of_model("rope.scaling.factor", Value::F32(factor as f32));
        }
        if let Architecture::Qwen2Vl { sections } = model.architecture {
            let four = sections.iter().map(|section| *section as i32).chain([0]).collect();
            of_model("rope.dimension_sections", Value::Array(Array::I32(four)));
        }
        keys
    }
    // ANCHOR_END: gguf-step-21

    // ANCHOR: gguf-step-22
    // why: a reader has a weight for queries, one for keys and one for values, and adds two images' patches, so what
    // the checkpoint has in one tensor is cut: rows in three, and a convolution over two times into its times.
    // step D.22: tell the two towers apart
    fn projector_tensors(&self, projector: &Projector, name: &str, shape: &[usize]) -> Vec<Piece> {
        let name = name.strip_prefix("model.").unwrap_or(name);
        match projector.tower {
            Tower::Llava { .. } => clip_tensor(name, projector.layers).map(whole).into_iter().collect(),
            Tower::Qwen2Vl { .. } => qwen_tensors(name, projector.layers, shape).unwrap_or_default(),
        }
    }

    // step D.22: list the keys of the projector
    fn projector_keys(&self, projector: &Projector) -> Vec<(String, Value)> {
        let mut keys = general("clip", "mmproj", &projector.name, projector.stored);
        let mut key = |key: &str, value: Value| keys.push((format!("clip.{key}"), value));
        key("has_vision_encoder", Value::Bool(true));
        let sizes = [
            ("image_size", projector.image_size),
            ("patch_size", projector.patch_size),
            ("embedding_length", projector.hidden),
            ("feed_forward_length", projector.intermediate),
            ("projection_dim", projector.output),
            ("block_count", projector.layers),
            ("attention.head_count", projector.heads),
        ];
        for (name, size) in sizes {
            key(&format!("vision.{name}"), Value::U32(size as u32));
        }
        key("vision.attention.layer_norm_epsilon", Value::F32(projector.norm_eps as f32));
        key("vision.image_mean", Value::Array(Array::F32(projector.mean.to_vec())));
        key("vision.image_std", Value::Array(Array::F32(projector.std.to_vec())));
        match projector.activation {
            Activation::QuickGelu => {} // what a reader takes if there is no key
            Activation::Gelu => key("use_gelu", Value::Bool(true)),
            Activation::Silu => key("use_silu", Value::Bool(true)),
        }
        match projector.tower {
            Tower::Qwen2Vl { merge } => {
                key("projector_type", Value::String("qwen2vl_merger".into()));
                key("vision.spatial_merge_size", Value::U32(merge as u32));
            }
            Tower::Llava { feature_layer } => {
                key("projector_type", Value::String("mlp".into()));
                if feature_layer + 1 != projector.layers {
                    let layer = Array::I32(vec![feature_layer as i32]);
                    key("vision.feature_layer", Value::Array(layer));
                }
            }
        }
        keys
    }
    // ANCHOR_END: gguf-step-22
}

/// A block of 32 numbers, of a type that has such.
// step D.20: make a block of 32 numbers
fn of_block(ty: TensorType, block: &[f32]) -> Vec<u8> {
    let (least, most) =
        block.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), x| (low.min(*x), high.max(*x)));
    let largest = block.iter().fold(0.0_f32, |largest, x| if x.abs() > largest.abs() { *x } else { largest });
    let bits = if matches!(ty, TensorType::Q5_0 | TensorType::Q5_1) { 5 } else { 4 };
    let codes = 1_u8 << bits;
    match ty {
        TensorType::Q8_0 => {
            let d = largest.abs() / 127.0;
            let code = |x: &f32| ((x * over(d)).round() as i8).to_le_bytes()[0];
            [halves(&[d]), block.iter().map(code).collect()].concat()
        }
        TensorType::Q4_0 | TensorType::Q5_0 => {
            let middle = f32::from(codes / 2);
            let d = largest / -middle;
            let (over, half) = (f64::from(over(d)), f64::from(middle) + 0.5);
            let at = |x: &f32| (f64::from(*x) * over + half) as f32; // rounded to f32 once, at the end
            [halves(&[d]), packed(block.iter().map(|x| (at(x) as u8).min(codes - 1)), bits)].concat()
        }
        _ => {
            let d = (most - least) / f32::from(codes - 1);
            let at = |x: &f32| (x - least) * over(d) + 0.5;
            [halves(&[d, least]), packed(block.iter().map(|x| (at(x) as u8).min(codes - 1)), bits)].concat()
        }
    }
}

/// A tensor of CLIP's tower, or of the two layers behind it.
// step D.22: name a tensor of CLIP's tower
fn clip_tensor(name: &str, layers: usize) -> Option<String> {
    if let Some(name) = name.strip_prefix("multi_modal_projector.") {
        let (module, what) = module_of(name)?;
        return Some(format!("{}.{what}", renamed(&PROJECTOR, module)?));
    }
    let name = name.strip_prefix("vision_tower.")?;
    let name = name.strip_prefix("vision_model.").unwrap_or(name);
    if name == "embeddings.class_embedding" {
        return Some("v.class_embd".into()); // a parameter of its own: no `.weight`
    }
    let (module, what) = module_of(name)?;
    if let Some(module) = module.strip_prefix("encoder.layers.") {
        let (layer, module) = numbered(module, layers)?;
        return Some(format!("v.blk.{layer}.{}.{what}", renamed(&CLIP_BLOCK, module)?));
    }
    Some(format!("{}.{what}", renamed(&CLIP, module)?))
}

/// A tensor of Qwen2-VL's tower or merger.
// step D.22: name the pieces of a tensor of Qwen2-VL's tower
fn qwen_tensors(name: &str, layers: usize, shape: &[usize]) -> Option<Vec<Piece>> {
    let (module, what) = module_of(name.strip_prefix("visual.")?)?;
    if (module, what) == ("patch_embed.proj", "weight") {
        let name = |time: usize| match time {
            0 => "v.patch_embd.weight".to_owned(),
            _ => format!("v.patch_embd.weight.{time}"),
        };
        let times = 0..*shape.get(2)?;
        return Some(times.map(|time| Piece { name: name(time), part: Part::Time(time) }).collect());
    }
    if let Some(module) = module.strip_prefix("merger.") {
        return Some(vec![whole(format!("{}.{what}", renamed(&MERGER, module)?))]);
    }
    let (block, module) = numbered(module.strip_prefix("blocks.")?, layers)?;
    if module == "attn.qkv" {
        let count = shape.first()? / 3;
        let third = |(i, letter): (usize, &str)| Piece {
            name: format!("v.blk.{block}.attn_{letter}.{what}"),
            part: Part::Rows { begin: i * count, count },
        };
        return Some(["q", "k", "v"].into_iter().enumerate().map(third).collect());
    }
    Some(vec![whole(format!("v.blk.{block}.{}.{what}", renamed(&QWEN_BLOCK, module)?))])
}

/// 1 / d, or 0 of a block of zeros.
fn over(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// Numbers as f16.
fn halves(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect()
}

/// 32 codes: the fifth bits of all, if they have some, then bytes of two, the first 16 codes in their low halves.
fn packed(codes: impl Iterator<Item = u8>, bits: u32) -> Vec<u8> {
    let codes: Vec<u8> = codes.collect();
    let fifths: u32 = codes.iter().enumerate().map(|(i, code)| u32::from(code >> 4) << i).sum();
    let fifths = fifths.to_le_bytes();
    let pairs = (0..16).map(|i| codes[i] & 15 | codes[i + 16] << 4);
    fifths.into_iter().take(if bits == 5 { 4 } else { 0 }).chain(pairs).collect()
}

/// A tensor's module, and `weight` or `bias`.
fn module_of(name: &str) -> Option<(&str, &str)> {
    name.rsplit_once('.').filter(|(_, what)| matches!(*what, "weight" | "bias"))
}

/// What a module is called in a file.
fn renamed(names: &[(&str, &'static str)], module: &str) -> Option<&'static str> {
    names.iter().find(|(from, _)| *from == module).map(|(_, to)| *to)
}

/// A number below `count`, and what stands behind its dot.
fn numbered(name: &str, count: usize) -> Option<(usize, &str)> {
    let (number, rest) = name.split_once('.')?;
    Some((number.parse().ok().filter(|number| *number < count)?, rest))
}

fn whole(name: String) -> Piece {
    Piece { name, part: Part::Whole }
}

/// The keys that every file has.
fn general(architecture: &str, kind: &str, name: &str, stored: TensorType) -> Vec<(String, Value)> {
    let file_type = FILE_TYPES.iter().find(|(ty, _)| *ty == stored).map_or(0, |(_, number)| *number);
    let keys = [
        ("architecture", Value::String(architecture.into())),
        ("type", Value::String(kind.into())),
        ("name", Value::String(name.into())),
        ("file_type", Value::U32(file_type)),
        ("quantization_version", Value::U32(2)),
    ];
    keys.map(|(key, value)| (format!("general.{key}"), value)).into()
}
