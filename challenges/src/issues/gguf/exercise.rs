//! (D) `issues`, part `gguf`: a trained model as the file that runs everywhere else.

use std::f64::consts::TAU;

use challenges::issues::gguf::{
    Activation, Architecture, Array, CLIP, CLIP_BLOCK, FILE_TYPES, Gguf, LAYER, MERGER, PROJECTOR, Part,
    Piece, Projector, QWEN_BLOCK, TEXT, TensorType, TextModel, Tower, Value,
};
use half::{bf16, f16};
use reference::llama::{Rope, Scaling};

/// The attempt.
pub struct Exercise;

impl Gguf for Exercise {
    // ANCHOR: gguf-step-19
    // step D.19: turn the dimensions round
    fn sizes(&self, shape: &[usize]) -> Vec<usize> {
        todo!("D.19: turn the dimensions round")
    }

    // step D.19: find the checkpoint's row of each row
    fn rotary_rows(&self, rows: usize, heads: usize) -> Vec<usize> {
        todo!("D.19: find the checkpoint's row of each row")
    }

    // step D.19: compute what divides each frequency
    fn rope_factors(&self, rope: &Rope, head_dim: usize) -> Option<Vec<f32>> {
        todo!("D.19: compute what divides each frequency")
    }
    // ANCHOR_END: gguf-step-19

    // ANCHOR: gguf-step-20
    // step D.20: write numbers one by one or block by block
    fn quantize(&self, ty: TensorType, numbers: &[f32]) -> Vec<u8> {
        todo!("D.20: write numbers one by one or block by block")
    }
    // ANCHOR_END: gguf-step-20

    // ANCHOR: gguf-step-21
    // step D.21: name a tensor of the language model
    fn text_tensor(&self, model: &TextModel, name: &str) -> Option<Piece> {
        todo!("D.21: name a tensor of the language model")
    }

    // step D.21: list the keys of the language model
    fn text_keys(&self, model: &TextModel) -> Vec<(String, Value)> {
        todo!("D.21: list the keys of the language model")
    }
    // ANCHOR_END: gguf-step-21

    // ANCHOR: gguf-step-22
    // step D.22: tell the two towers apart
    fn projector_tensors(&self, projector: &Projector, name: &str, shape: &[usize]) -> Vec<Piece> {
        todo!("D.22: tell the two towers apart")
    }

    // step D.22: list the keys of the projector
    fn projector_keys(&self, projector: &Projector) -> Vec<(String, Value)> {
        todo!("D.22: list the keys of the projector")
    }
    // ANCHOR_END: gguf-step-22
}

/// A block of 32 numbers, of a type that has such.
// step D.20: make a block of 32 numbers
fn of_block(ty: TensorType, block: &[f32]) -> Vec<u8> {
    todo!("D.20: make a block of 32 numbers")
}

/// A tensor of CLIP's tower, or of the two layers behind it.
// step D.22: name a tensor of CLIP's tower
fn clip_tensor(name: &str, layers: usize) -> Option<String> {
    todo!("D.22: name a tensor of CLIP's tower")
}

/// A tensor of Qwen2-VL's tower or merger.
// step D.22: name the pieces of a tensor of Qwen2-VL's tower
fn qwen_tensors(name: &str, layers: usize, shape: &[usize]) -> Option<Vec<Piece>> {
    todo!("D.22: name the pieces of a tensor of Qwen2-VL's tower")
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
