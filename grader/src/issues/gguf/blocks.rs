//! D.20: numbers as blocks, to the bit.

use challenges::issues::gguf::Gguf;
use reference::checkpoint::gguf::{TensorType, quantize};

use super::drawn::{STORED, number};
use super::{Check, Rows};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("numbers", |steps, random| each(steps, &[TensorType::F32, TensorType::F16, TensorType::Bf16], random)),
    ("q8_0", |steps, random| each(steps, &[TensorType::Q8_0], random)),
    ("q4_0", |steps, random| each(steps, &[TensorType::Q4_0], random)),
    ("q4_1", |steps, random| each(steps, &[TensorType::Q4_1], random)),
    ("q5_0", |steps, random| each(steps, &[TensorType::Q5_0], random)),
    ("q5_1", |steps, random| each(steps, &[TensorType::Q5_1], random)),
    ("several-blocks", |steps, random| {
        let numbers: Vec<f32> = (0..32 * 5).map(|_| number(random)).collect();
        STORED.iter().try_for_each(|ty| one(steps, *ty, &numbers))
    }),
    ("no-blocks", |steps, _| STORED.iter().try_for_each(|ty| one(steps, *ty, &[]))),
];

/// Blocks of every kind, of each type.
fn each(steps: &dyn Gguf, types: &[TensorType], random: &mut Random) -> Result<(), String> {
    let blocks = blocks(random);
    types.iter().try_for_each(|ty| blocks.iter().try_for_each(|block| one(steps, *ty, block)))
}

/// Zeros, equal numbers, numbers of one sign, the largest at either end and twice with both signs, halves of a step,
/// far apart, tiny, and many drawn ones.
fn blocks(random: &mut Random) -> Vec<[f32; 32]> {
    let from = |f: &dyn Fn(usize) -> f32| std::array::from_fn(f);
    let mut all = vec![
        from(&|_| 0.0),
        from(&|_| -0.0),
        from(&|_| 1.5),
        from(&|_| -2.25),
        from(&|i| i as f32),
        from(&|i| -(i as f32)),
        from(&|i| i as f32 + 100.0),
        from(&|i| if i % 2 == 0 { 8.0 } else { -8.0 }),
        from(&|i| if i % 2 == 0 { -3.0 } else { 3.0 }),
        from(&|i| i as f32 - 15.5),
        from(&|i| (i as f32 - 16.0) / 2.0),
        from(&|i| if i == 31 { 127.0 } else { i as f32 + 0.5 }),
        from(&|i| if i == 0 { 1000.0 } else { 1e-3 * i as f32 }),
        from(&|i| 1e-7 * (i as f32 - 9.0)),
        from(&|i| 1e-30 * (i as f32 - 9.0)),
        from(&|i| 60_000.0 * ((i % 5) as f32 - 2.0) / 2.0),
    ];
    for round in 0..200 {
        let scale = [1e-4, 0.02, 1.0, 300.0][round % 4];
        all.push(std::array::from_fn(|_| scale * number(random)));
    }
    all
}

pub(super) fn one(steps: &dyn Gguf, ty: TensorType, numbers: &[f32]) -> Result<(), String> {
    let got = steps.quantize(ty, numbers);
    let want = quantize(ty, numbers).map_err(|error| error.to_string())?;
    if got == want {
        return Ok(());
    }
    if got.len() != want.len() {
        let what = format!("{ty} of {} numbers", numbers.len());
        return Err(format!("{what}: got {} bytes, want {}", got.len(), want.len()));
    }
    let at = got.iter().zip(&want).position(|(got, want)| got != want).unwrap_or(0);
    let [elements, bytes] = ty.block();
    let (block, within) = (at / bytes, at % bytes);
    let of_block = &numbers[block * elements..][..elements];
    Err(format!(
        "{ty}, block {block} of {of_block:?}: byte {within} of {bytes}: got {:#04x}, want {:#04x}",
        got[at], want[at]
    ))
}
