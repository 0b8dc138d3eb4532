//! The correctness checks: every step against the oracle, bit for bit.

use challenges::nf4::{Absmax, CASES, Case, Nf4, Output};
use kernels::{Cpu, Vector};
use reference::nf4::{NF4, OutputDtype, Weight, dequantize_bits};

use super::diagnose::{self, Found};
use super::inputs::{Buffer, Levels, ManyScales, SCALES, Scale, weight, weight_with_own_tables};
use super::{DTYPES, dtype_name};
use crate::random::Random;
use crate::table;

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

/// What a check does with an attempt.
type Check = Box<dyn Fn(&dyn Nf4, &mut Random) -> Result<(), String>>;

/// Every check with its name, in the order of the steps.
fn table() -> Vec<(String, Check)> {
    let mut table: Vec<(String, Check)> = Vec::new();
    let mut add = |name: String, check: Check| table.push((name, check));
    for (case, len) in LENGTHS {
        add(format!("A.1/{case}"), Box::new(move |attempt, random| unpack(attempt, len, random)));
    }
    add(
        "A.2/every-code".into(),
        Box::new(|attempt, _| look_up(attempt, &(0..16).collect::<Vec<u8>>(), &NF4)),
    );
    add("A.2/own-table".into(), Box::new(own_values));
    add("A.2/long".into(), Box::new(|attempt, random| look_up(attempt, &many_codes(random), &NF4)));
    for (case, len, scale) in BLOCKS {
        add(format!("A.3/{case}"), Box::new(move |attempt, random| block(attempt, len, scale, random)));
    }
    for (case, levels) in SCALES {
        add(format!("A.4/{case}"), Box::new(move |attempt, random| absmax(attempt, levels, random)));
    }
    for step in [Whole::Plain, Whole::Fast] {
        for dtype in DTYPES {
            let named = |case: &str| format!("{}/{case}-{}", step.name(), dtype_name(dtype));
            for case in &CASES {
                add(named(case.name), tried(step, dtype, |trial| trial.every_scale(case, 0)));
            }
            add(named("unaligned-view"), tried(step, dtype, views));
            add(named("own-table"), tried(step, dtype, own_table));
            add(named("extreme-scales"), tried(step, dtype, extreme_scales));
        }
    }
    let has = |vector: &Vector| Vector::available().contains(vector);
    for vector in [Vector::Portable, Vector::Neon, Vector::Avx2, Vector::Avx512].into_iter().filter(has) {
        let run =
            move |attempt: &dyn Nf4, random: &mut Random| every_path(attempt, vector, random.next_u64());
        add(format!("A.6/every-path-{}", vector.to_string().to_lowercase()), Box::new(run));
    }
    table
}

/// A check of a step that dequantises into a type.
fn tried(step: Whole, dtype: OutputDtype, run: impl Fn(&Trial<'_>) -> Result<(), String> + 'static) -> Check {
    Box::new(move |attempt, random| {
        run(&Trial { attempt, step, cpu: &Cpu::new(), dtype, seed: random.next_u64() })
    })
}

/// Every check's name, in the order of the steps.
pub(super) fn names() -> Vec<String> {
    table().into_iter().map(|(name, _)| name).collect()
}

/// Runs one check by its name.
pub(super) fn run(name: &str, attempt: &dyn Nf4, seed: u64) -> Result<(), String> {
    let table = table();
    table::find(&table, name)?(attempt, &mut Random::named(seed, name))
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
fn look_up(attempt: &dyn Nf4, codes: &[u8], table: &[f32; 16]) -> Result<(), String> {
    let mut values = vec![f32::NAN; codes.len()];
    attempt.look_up(codes, table, &mut values);
    let want: Vec<f32> = codes.iter().map(|code| table[*code as usize]).collect();
    diagnose::values("table[code]", &values, &want)
}

/// A.2: in a table that is not the published one.
fn own_values(attempt: &dyn Nf4, random: &mut Random) -> Result<(), String> {
    let table = std::array::from_fn(|_| random.unit() as f32 - 0.5);
    look_up(attempt, &many_codes(random), &table)
}

fn many_codes(random: &mut Random) -> Vec<u8> {
    random.bytes(1021).iter().map(|byte| byte & 15).collect()
}

/// A.3: one block.
fn block(attempt: &dyn Nf4, len: usize, scale: f32, random: &mut Random) -> Result<(), String> {
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
    let want = dequantize_bits(&weight, OutputDtype::F32);
    let found = Found { got: &got, want: &want, poison: f32::NAN.to_bits(), touched: None };
    diagnose::weight(&weight, OutputDtype::F32, &found)
}

/// A.4: the scale of a block.
fn absmax(attempt: &dyn Nf4, levels: Levels, random: &mut Random) -> Result<(), String> {
    let scales = ManyScales::of(levels, random);
    let absmax = scales.absmax();
    let got: Vec<f32> = (0..scales.blocks()).map(|b| attempt.absmax(&absmax, b)).collect();
    diagnose::scales(&absmax, &got)
}

/// The steps that dequantise whole weights.
#[derive(Clone, Copy)]
enum Whole {
    /// A.5.
    Plain,
    /// A.6.
    Fast,
}

impl Whole {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "A.5",
            Self::Fast => "A.6",
        }
    }

    fn run(self, attempt: &dyn Nf4, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        match self {
            Self::Plain => attempt.dequantize(cpu, weight, out),
            Self::Fast => attempt.dequantize_fast(cpu, weight, out),
        }
    }
}

/// A.5 or A.6 into a type, tried on weights that follow from a seed.
struct Trial<'a> {
    attempt: &'a dyn Nf4,
    step: Whole,
    cpu: &'a Cpu,
    dtype: OutputDtype,
    seed: u64,
}

impl Trial<'_> {
    /// One weight with plain scales, one whose f16 are subnormal, one where they overflow.
    fn every_scale(&self, case: &Case, shift: usize) -> Result<(), String> {
        [Scale::Plain, Scale::Small, Scale::Large].into_iter().try_for_each(|scale| {
            let weight = weight(case.len, case.block_size, case.nested, scale, self.seed);
            self.judge(&weight.view(), shift)
        })
    }

    /// Runs the step on a weight and compares everything that it could have got wrong.
    fn judge(&self, weight: &Weight<'_>, shift: usize) -> Result<(), String> {
        let mut buffer = Buffer::shifted(self.dtype, weight.len, self.seed, shift);
        let want = dequantize_bits(weight, self.dtype); // before the attempt can change what it is asked about
        self.step.run(self.attempt, self.cpu, weight, buffer.output());
        let got = buffer.all_bits();
        let (poison, touched) = (buffer.poison(), buffer.touched_canary());
        diagnose::weight(weight, self.dtype, &Found { got: &got, want: &want, poison, touched })
    }
}

/// Outputs that begin off an aligned address.
fn views(trial: &Trial<'_>) -> Result<(), String> {
    let case = Case { name: "", len: 64 * 65 + 9, block_size: 64, nested: true };
    [1, 3, 8, 31].into_iter().try_for_each(|shift| trial.every_scale(&case, shift))
}

/// A checkpoint's own two tables.
fn own_table(trial: &Trial<'_>) -> Result<(), String> {
    trial.judge(&weight_with_own_tables(trial.seed).view(), 0)
}

/// Scales at the ends of f32.
fn extreme_scales(trial: &Trial<'_>) -> Result<(), String> {
    trial.judge(&weight(64 * 90 + 21, 64, false, Scale::Extreme, trial.seed).view(), 0)
}

/// A.6 held to one vector unit, on one thread and on all.
fn every_path(attempt: &dyn Nf4, vector: Vector, seed: u64) -> Result<(), String> {
    for cpu in [Cpu::with_threads(1), Cpu::new()] {
        let cpu = cpu.limited_to(vector).ok_or("the vector unit went away")?;
        for dtype in DTYPES {
            let trial = Trial { attempt, step: Whole::Fast, cpu: &cpu, dtype, seed };
            for (len, block_size, scale) in [
                (64 * 130 + 33, 64, Scale::Large),
                (32 * 65 + 1, 32, Scale::Small),
                (256 * 40, 256, Scale::Wide),
            ] {
                trial.judge(&weight(len, block_size, true, scale, seed).view(), 0)?;
            }
            trial.judge(&weight(64 * 65 + 40, 64, false, Scale::Extreme, seed).view(), 0)?;
        }
    }
    Ok(())
}
