//! The correctness checks: every step against the oracle, bit for bit.

use challenges::nf4::{Absmax, CASES, Case, Nf4};
use kernels::{Cpu, Vector};
use reference::nf4::{Dtype, NF4, Weight, dequantize_bits};

use super::diagnose::{self, Found};
use super::inputs::{Buffer, ManyScales, SCALES, Scale, weight, weight_with_own_tables};
use super::{DTYPES, dtype_name};
use crate::random::Random;

/// Lengths that the small steps are tried at.
pub(super) const LENGTHS: [(&str, usize); 7] = [
    ("one-element", 1),
    ("one-byte", 2),
    ("odd-length", 63),
    ("one-block", 64),
    ("ragged-tail", 65),
    ("every-byte", 512),
    ("prime", 8191),
];

const BLOCKS: [(&str, usize, f32); 8] = [
    ("plain", 64, 0.021),
    ("one-element", 1, 0.5),
    ("odd-length", 63, 1.25),
    ("block-32", 32, 3.0e-3),
    ("block-4096", 4096, 7.0),
    ("zero-scale", 64, 0.0),
    ("subnormal-scale", 64, 1.0e-40),
    ("huge-scale", 64, 3.0e38),
];

/// Every check's name, in the order of the steps.
pub(super) fn names() -> Vec<String> {
    let mut names = Vec::new();
    names.extend(LENGTHS.map(|(case, _)| format!("A.1/{case}")));
    names.extend(["every-code", "own-table", "long"].map(|case| format!("A.2/{case}")));
    names.extend(BLOCKS.map(|(case, ..)| format!("A.3/{case}")));
    names.extend(SCALES.map(|case| format!("A.4/{case}")));
    for step in ["A.5", "A.6"] {
        for dtype in DTYPES.map(dtype_name) {
            names.extend(CASES.iter().map(|case| format!("{step}/{}-{dtype}", case.name)));
            names.push(format!("{step}/unaligned-view-{dtype}"));
            names.push(format!("{step}/own-table-{dtype}"));
            names.push(format!("{step}/extreme-scales-{dtype}"));
        }
    }
    for vector in [Vector::Portable, Vector::Neon, Vector::Avx2, Vector::Avx512] {
        if Vector::available().contains(&vector) {
            names.push(format!("A.6/every-path-{}", vector.to_string().to_lowercase()));
        }
    }
    names
}

/// Runs one check by its name.
pub(super) fn run(name: &str, attempt: &dyn Nf4, seed: u64) -> Result<(), String> {
    let (step, case) = name.split_once('/').ok_or_else(|| format!("no check is called {name}"))?;
    let mut random = Random::named(seed, name);
    match step {
        "A.1" => unpack(attempt, length_of(case)?, &mut random),
        "A.2" => look_up(attempt, case, &mut random),
        "A.3" => block(attempt, case, &mut random),
        "A.4" => absmax(attempt, case, &mut random),
        _ => whole(attempt, step, case, random.next_u64()),
    }
}

pub(super) fn length_of(case: &str) -> Result<usize, String> {
    let found = LENGTHS.iter().find(|(name, _)| *name == case);
    found.map(|(_, length)| *length).ok_or_else(|| format!("no length is called {case}"))
}

/// Packed bytes of a length, every byte there is for 512, and the codes in them.
pub(super) fn codes_of(len: usize, random: &mut Random) -> (Vec<u8>, Vec<u8>) {
    let packed: Vec<u8> = if len == 512 { (0..=255).collect() } else { random.bytes(len.div_ceil(2)) };
    let code = |e: usize| if e % 2 == 0 { packed[e / 2] / 16 } else { packed[e / 2] % 16 };
    let codes = (0..len).map(code).collect();
    (packed, codes)
}

/// A.1: every byte's halves, in order.
fn unpack(attempt: &dyn Nf4, len: usize, random: &mut Random) -> Result<(), String> {
    let (packed, want) = codes_of(len, random);
    let mut codes = vec![0xee; len];
    attempt.unpack(&packed, &mut codes);
    diagnose::codes(&packed, &codes, &want)
}

/// A.2: table values by code.
fn look_up(attempt: &dyn Nf4, case: &str, random: &mut Random) -> Result<(), String> {
    let table = if case == "own-table" { std::array::from_fn(|_| random.unit() as f32 - 0.5) } else { NF4 };
    let codes: Vec<u8> = match case {
        "every-code" => (0..16).collect(),
        _ => random.bytes(1021).iter().map(|byte| byte & 15).collect(),
    };
    let mut values = vec![f32::NAN; codes.len()];
    attempt.look_up(&codes, &table, &mut values);
    let want: Vec<f32> = codes.iter().map(|code| table[*code as usize]).collect();
    diagnose::values("table[code]", &values, &want)
}

/// A.3: one block.
fn block(attempt: &dyn Nf4, case: &str, random: &mut Random) -> Result<(), String> {
    let (_, len, scale) = BLOCKS
        .into_iter()
        .find(|(name, ..)| *name == case)
        .ok_or_else(|| format!("A.3 has no check called {case}"))?;
    let packed = random.bytes(len.div_ceil(2));
    let mut values = vec![f32::NAN; len];
    attempt.block(&packed, &NF4, scale, &mut values);
    let scales = [scale];
    // One block of the next power of two that holds it: only the first `len` values are looked at.
    let weight = Weight {
        len,
        block_size: len.next_power_of_two().max(32),
        packed: &packed,
        table: &NF4,
        absmax: Absmax::Single(&scales),
    };
    let got: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
    let want = dequantize_bits(&weight, Dtype::F32);
    let found = Found { got: &got, want: &want, poison: f32::NAN.to_bits(), touched: None };
    diagnose::weight(&weight, Dtype::F32, &found)
}

/// A.4: the scale of a block.
fn absmax(attempt: &dyn Nf4, case: &str, random: &mut Random) -> Result<(), String> {
    let scales = ManyScales::of(case, random);
    let absmax = scales.absmax();
    let got: Vec<f32> = (0..scales.blocks()).map(|b| attempt.absmax(&absmax, b)).collect();
    diagnose::scales(&absmax, &got)
}

/// A.5 and A.6: whole weights.
fn whole(attempt: &dyn Nf4, step: &str, case: &str, seed: u64) -> Result<(), String> {
    if let Some(path) = case.strip_prefix("every-path-") {
        return every_path(attempt, path, seed);
    }
    let (name, dtype) = case.rsplit_once('-').ok_or_else(|| format!("{step} has no check called {case}"))?;
    let dtype = DTYPES
        .into_iter()
        .find(|known| dtype_name(*known) == dtype)
        .ok_or_else(|| format!("{step} has no check of the type {dtype}"))?;
    let cpu = Cpu::new();
    match name {
        "unaligned-view" => {
            let case = Case { name: "", len: 64 * 65 + 9, block_size: 64, nested: true };
            [1, 3, 8, 31]
                .into_iter()
                .try_for_each(|shift| one(attempt, step, &cpu, &case, dtype, seed, shift))
        }
        "own-table" => own_table(attempt, step, &cpu, dtype, seed),
        "extreme-scales" => {
            let weight = weight(64 * 90 + 21, 64, false, Scale::Extreme, seed);
            judge(attempt, step, &cpu, &weight.view(), dtype, seed, 0)
        }
        _ => {
            let case = CASES.iter().find(|known| known.name == name);
            let case = case.ok_or_else(|| format!("{step} has no check called {case:?} ({name})"))?;
            one(attempt, step, &cpu, case, dtype, seed, 0)
        }
    }
}

/// One weight with plain scales, one whose f16 are subnormal, one where they overflow.
fn one(
    attempt: &dyn Nf4,
    step: &str,
    cpu: &Cpu,
    case: &Case,
    dtype: Dtype,
    seed: u64,
    shift: usize,
) -> Result<(), String> {
    [Scale::Plain, Scale::Small, Scale::Large].into_iter().try_for_each(|scale| {
        let weight = weight(case.len, case.block_size, case.nested, scale, seed);
        judge(attempt, step, cpu, &weight.view(), dtype, seed, shift)
    })
}

/// A checkpoint's own two tables.
fn own_table(attempt: &dyn Nf4, step: &str, cpu: &Cpu, dtype: Dtype, seed: u64) -> Result<(), String> {
    judge(attempt, step, cpu, &weight_with_own_tables(seed).view(), dtype, seed, 0)
}

/// A.6 held to one vector unit, on one thread and on all.
fn every_path(attempt: &dyn Nf4, path: &str, seed: u64) -> Result<(), String> {
    let vector = Vector::available().into_iter().find(|unit| unit.to_string().to_lowercase() == path);
    let vector = vector.ok_or_else(|| format!("this machine has no vector unit called {path}"))?;
    for cpu in [Cpu::with_threads(1), Cpu::new()] {
        let cpu = cpu.limited_to(vector).ok_or("the vector unit went away")?;
        for dtype in DTYPES {
            for (len, block_size, scale) in [
                (64 * 130 + 33, 64, Scale::Large),
                (32 * 65 + 1, 32, Scale::Small),
                (256 * 40, 256, Scale::Wide),
            ] {
                let weight = weight(len, block_size, true, scale, seed);
                judge(attempt, "A.6", &cpu, &weight.view(), dtype, seed, 0)?;
            }
            let weight = weight(64 * 65 + 40, 64, false, Scale::Extreme, seed);
            judge(attempt, "A.6", &cpu, &weight.view(), dtype, seed, 0)?;
        }
    }
    Ok(())
}

/// Runs a step on a weight and compares everything that it could have got wrong.
fn judge(
    attempt: &dyn Nf4,
    step: &str,
    cpu: &Cpu,
    weight: &Weight<'_>,
    dtype: Dtype,
    seed: u64,
    shift: usize,
) -> Result<(), String> {
    let mut buffer = Buffer::shifted(dtype, weight.len, seed, shift);
    let want = dequantize_bits(weight, dtype); // before the attempt can change what it is asked about
    match step {
        "A.5" => attempt.dequantize(cpu, weight, buffer.output()),
        _ => attempt.dequantize_fast(cpu, weight, buffer.output()),
    }
    let got = buffer.all_bits();
    let found = Found { got: &got, want: &want, poison: buffer.poison(), touched: buffer.touched_canary() };
    diagnose::weight(weight, dtype, &found)
}
