//! Which numbers a type holds.
//!
//! ```text
//! f16, bf16      every number, rounded, is finite
//! q8_0 .. q5_1   the scale of every block of 32 numbers, and its smallest number where that is stored, is finite in f16
//!
//! scale          q8_0 most / 127   q4_0 most / 8   q5_0 most / 16     q4_1 (max - min) / 15     q5_1 (max - min) / 31
//! ```
//!
//! with `most` the largest absolute value. A number beyond would be written as infinity, and a block with an infinite
//! scale as numbers of which none is the weight's.
//!
//! Source: `quantize_row_q8_0_ref` and the others in `ggml-quants.c` of ggml.

use half::{bf16, f16};
use reference::checkpoint::gguf::TensorType;

/// That all are numbers.
///
/// Fails with a sentence that shows the first that is none.
pub(super) fn check_finite(numbers: &[f32]) -> Result<(), String> {
    match numbers.iter().find(|x| !x.is_finite()) {
        None => Ok(()),
        Some(x) => Err(format!("expected finite numbers, found {x}")),
    }
}

/// That a type holds all of these finite numbers, row after row.
///
/// Fails with a sentence that shows the one that it does not, and names a type that does.
pub(super) fn check(numbers: &[f32], ty: TensorType) -> Result<(), String> {
    let block = numbers.chunks(ty.block()[0]).find(|block| !holds(ty, block));
    let Some(most) = block.and_then(|block| block.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())))
    else {
        return Ok(());
    };
    let wide = if bf16::from_f32(most).is_finite() { "bfloat16 or float32" } else { "float32" };
    Err(format!("expected numbers that {ty} holds, found {most}: --dtype {wide} holds it"))
}

/// Whether one block of numbers, or one number, is finite as it is written.
fn holds(ty: TensorType, block: &[f32]) -> bool {
    let least = block.iter().copied().fold(f32::INFINITY, f32::min);
    let largest = block.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let most = largest.max(-least);
    let in_half = |x: f32| f16::from_f32(x).is_finite();
    match ty {
        TensorType::F16 => in_half(most),
        TensorType::Bf16 => bf16::from_f32(most).is_finite(),
        TensorType::Q8_0 => in_half(most / 127.0),
        TensorType::Q4_0 => in_half(most / 8.0),
        TensorType::Q5_0 => in_half(most / 16.0),
        TensorType::Q4_1 => in_half((largest - least) / 15.0) && in_half(least),
        TensorType::Q5_1 => in_half((largest - least) / 31.0) && in_half(least),
        _ => true,
    }
}
