//! Numbers as blocks: of each type that is written the rule for one block.
//!
//! ```text
//! Q8_0         d = max |x| / 127               q = x / d to the nearest, halves away from 0
//! Q4_0, Q5_0   d = (the x of max |x|) / -8, -16   q = floor(x / d + 8.5), + 16.5
//! Q4_1, Q5_1   m = min x, d = (max x - m) / 15, 31   q = floor((x - m) / d + 0.5)
//! ```
//!
//! d and m are computed in f32 and stored as f16, but numbers are divided by d as it was before. Division is by the
//! inverse, 1 / d in f32; in `Q4_0` and `Q5_0` the product and the sum are rounded once. The largest number comes out
//! as -8 d: the scale has the sign that this takes, since there is a code for -8 and none for 8.
//!
//! Source: `quants.py` of the public package gguf 0.19, which is held to `ggml-quants.c` bit for bit.

use half::{bf16, f16};

use super::super::Error;
use super::{Problem, TensorType};
use crate::oracles::BLOCKS;

/// The blocks of some numbers, in their order, as a little endian file has them.
///
/// Fails for types that are not written, and where the numbers are not whole blocks.
pub fn quantize(ty: TensorType, numbers: &[f32]) -> Result<Vec<u8>, Error> {
    BLOCKS.count();
    let of_block = block_of(ty).ok_or(Problem::NotWritten { ty })?;
    let [elements, bytes] = ty.block();
    if !numbers.len().is_multiple_of(elements) {
        return Err(Problem::Blocks { ty, row: numbers.len() }.into());
    }
    let mut all = Vec::with_capacity(numbers.len() / elements * bytes);
    numbers.chunks_exact(elements).for_each(|block| of_block(block, &mut all));
    Ok(all)
}

/// Writes a block.
type OfBlock = fn(&[f32], &mut Vec<u8>);

fn block_of(ty: TensorType) -> Option<OfBlock> {
    Some(match ty {
        TensorType::F32 => |block, to| to.extend(block[0].to_le_bytes()),
        TensorType::F16 => |block, to| to.extend(f16::from_f32(block[0]).to_le_bytes()),
        TensorType::Bf16 => |block, to| to.extend(bf16::from_f32(block[0]).to_le_bytes()),
        TensorType::Q8_0 => q8_0,
        TensorType::Q4_0 => |block, to| from_largest(block, 8, to),
        TensorType::Q5_0 => |block, to| from_largest(block, 16, to),
        TensorType::Q4_1 => |block, to| from_least(block, 15, to),
        TensorType::Q5_1 => |block, to| from_least(block, 31, to),
        _ => return None,
    })
}

fn q8_0(block: &[f32], to: &mut Vec<u8>) {
    let d = block.iter().fold(0.0_f32, |most, x| most.max(x.abs())) / 127.0;
    let inverse = inverse(d);
    push(d, to);
    to.extend(block.iter().map(|x| ((x * inverse).round() as i8).cast_unsigned()));
}

/// `half` is what the largest number comes out as, with a minus.
fn from_largest(block: &[f32], half: u8, to: &mut Vec<u8>) {
    let largest = block.iter().fold(0.0_f32, |largest, x| if x.abs() > largest.abs() { *x } else { largest });
    let d = largest / -f32::from(half);
    let (inverse, middle) = (f64::from(inverse(d)), f64::from(half) + 0.5);
    let code = |x: &f32| ((f64::from(*x) * inverse + middle) as f32 as u8).min(2 * half - 1); // rounded once
    push(d, to);
    codes(&block.iter().map(code).collect::<Vec<u8>>(), half == 16, to);
}

/// `steps` lie between the least and the most.
fn from_least(block: &[f32], steps: u8, to: &mut Vec<u8>) {
    let least = block.iter().copied().fold(f32::INFINITY, f32::min);
    let most = block.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let d = (most - least) / f32::from(steps);
    let inverse = inverse(d);
    let code = |x: &f32| (((x - least) * inverse + 0.5) as u8).min(steps);
    push(d, to);
    push(least, to);
    codes(&block.iter().map(code).collect::<Vec<u8>>(), steps == 31, to);
}

/// Halves of bytes: the first half of the block in the low ones, the second in the high ones. Fifth bits before them.
fn codes(codes: &[u8], has_fifth: bool, to: &mut Vec<u8>) {
    if has_fifth {
        let fifth = codes.iter().enumerate().fold(0_u32, |all, (i, code)| all | u32::from(code >> 4) << i);
        to.extend(fifth.to_le_bytes());
    }
    let (low, high) = codes.split_at(codes.len() / 2);
    to.extend(low.iter().zip(high).map(|(low, high)| low & 15 | high << 4));
}

fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { d.recip() }
}

fn push(number: f32, to: &mut Vec<u8>) {
    to.extend(f16::from_f32(number).to_le_bytes());
}
