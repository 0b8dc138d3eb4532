//! D.20: numbers as blocks, to the bit.

use challenges::issues::gguf::Gguf;
use half::f16;
use reference::checkpoint::gguf::{TensorType, quantize};

use super::drawn::{STORED, number, one_of};
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
    let mut blocks = blocks(random);
    for ty in types {
        blocks.extend((0..60).map(|_| at_edges(*ty, random)));
    }
    types.iter().try_for_each(|ty| blocks.iter().try_for_each(|block| one(steps, *ty, block)))
}

/// Numbers within two neighbours of where one code ends and the next begins, so that no rounding can be left out, added
/// or moved unseen.
fn at_edges(ty: TensorType, random: &mut Random) -> [f32; 32] {
    let (steps, codes, offset) = match ty {
        TensorType::Q4_0 => (-8.0, 16, 8.5),
        TensorType::Q5_0 => (-16.0, 32, 16.5),
        TensorType::Q4_1 => (15.0, 16, 0.5),
        TensorType::Q5_1 => (31.0, 32, 0.5),
        _ => (127.0, 127, 0.5),
    };
    let largest = 0.5 + random.unit() as f32;
    let inverse = 1.0 / (largest / steps);
    let mut block = [0.0; 32]; // the first is the largest, and where numbers count from the least that is 0
    block[0] = largest;
    for x in &mut block[2..] {
        let code = (1 + random.below(codes - 1)) as f32;
        let below = f64::midpoint(f64::from(code), f64::from(code.next_down())); // what is nearer to the code becomes it
        let edge = one_of(&[f64::from(code), below], random);
        *x = ((edge - offset) / f64::from(inverse)) as f32;
        for _ in 0..random.below(3) {
            *x = if random.below(2) == 0 { x.next_up() } else { x.next_down() };
        }
    }
    block
}

/// Equal numbers, numbers of one sign, the largest at either end and twice with both signs, halves of a step, far
/// apart, tiny, zeros, and many drawn ones.
fn blocks(random: &mut Random) -> Vec<[f32; 32]> {
    let from = |f: &dyn Fn(usize) -> f32| std::array::from_fn(f);
    let mut all = vec![
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
        from(&|_| 0.0),
        from(&|_| -0.0),
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
    let differ = differ(ty, within, &got[block * bytes..][..bytes], &want[block * bytes..][..bytes]);
    Err(format!("{ty}, block {block} of {of_block:?}: {differ}"))
}

/// What a byte in which two blocks differ belongs to, and what both have there.
fn differ(ty: TensorType, at: usize, got: &[u8], want: &[u8]) -> String {
    let half = |block: &[u8], at: usize| f16::from_le_bytes([block[at], block[at + 1]]);
    let hex = |bytes: &[u8]| {
        let whole = bytes.iter().rev().fold(0_u32, |whole, byte| whole << 8 | u32::from(*byte));
        format!("{whole:#0width$x}", width = 2 + 2 * bytes.len())
    };
    let has_least = matches!(ty, TensorType::Q4_1 | TensorType::Q5_1);
    let fifths = if has_least { 4..8 } else { 2..6 };
    let codes = ty.block()[1] - 16; // of the types with two codes in a byte
    match ty {
        TensorType::F32 | TensorType::F16 | TensorType::Bf16 => {
            format!("got {}, want {}", hex(got), hex(want))
        }
        _ if at < 2 => format!("d: got {}, want {}", half(got, 0), half(want, 0)),
        _ if has_least && at < 4 => format!("m: got {}, want {}", half(got, 2), half(want, 2)),
        TensorType::Q8_0 => {
            format!("code {}: got {}, want {}", at - 2, got[at].cast_signed(), want[at].cast_signed())
        }
        TensorType::Q5_0 | TensorType::Q5_1 if fifths.contains(&at) => {
            format!("fifth bits: got {}, want {}", hex(&got[fifths.clone()]), hex(&want[fifths]))
        }
        _ => format!(
            "codes {} and {}, low and high half of a byte: got {:#04x}, want {:#04x}",
            at - codes,
            at - codes + 16,
            got[at],
            want[at]
        ),
    }
}
