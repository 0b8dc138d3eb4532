//! The staircase: the same weight by every version there is, from three passes to the fastest.
//!
//! The attempt's own steps stand on it as they are: A.5, and A.6 held to each vector unit of the machine. The
//! tile program is the device's interpretation of the pass as data, and the last step is what the machine
//! needs to stream the codes in and the outputs out. Times are of the largest timed case in bf16; they carry
//! no points.

use challenges::nf4::baseline::Baseline;
use challenges::nf4::{Nf4, Output, tile};
use half::slice::HalfFloatSliceExt;
use kernels::cpu::Tick;
use kernels::{Cpu, Device, Vector};
use reference::nf4::{OutputDtype, Quantized};

use super::inputs::{Buffer, Scale, weight};
use crate::gather::{Child, Unwound, caught};
use crate::scorecard::Measurement;
use crate::timing::median;

const LEN: usize = 4096 * 14336;

/// Rounds over all versions, after one that is not counted.
const ROUNDS: usize = 5;

/// One way of doing it.
struct Version<'a> {
    name: String,
    run: Run<'a>,
}

type Run<'a> = Box<dyn FnMut(&Quantized, Output<'_>) + 'a>;

/// Times every version, round by round, and reports the medians.
pub(super) fn run(child: &mut Child, attempt: &dyn Nf4) {
    if is_hole(attempt) {
        return child.unmeasured("nf4.version", "A.5 is not written yet");
    }
    let weight = weight(LEN, 64, true, Scale::Plain, child.request.effort.seed);
    let mut out = Buffer::new(OutputDtype::Bf16, LEN, 1);
    let mut versions = versions(attempt);
    let mut samples = vec![Vec::new(); versions.len()];
    for round in 0..=ROUNDS {
        for (version, samples) in versions.iter_mut().zip(&mut samples) {
            let begin = Tick::now();
            let ran = caught(|| (version.run)(&weight, out.output())).is_ok();
            if ran && round > 0 {
                samples.push(begin.micros());
            }
        }
    }
    if let Some(samples) = tile_program(&weight) {
        report(child, "6-tile-program", samples);
    }
    for (version, samples) in versions.iter().zip(samples) {
        if samples.len() == ROUNDS {
            report(child, &version.name, samples);
        }
    }
}

/// Whether A.5 is still a hole, found out on one block.
fn is_hole(attempt: &dyn Nf4) -> bool {
    let small = weight(64, 64, true, Scale::Plain, 1);
    let mut out = Buffer::new(OutputDtype::Bf16, 64, 1);
    let ran = caught(|| attempt.dequantize(&Cpu::with_threads(1), &small.view(), out.output()));
    matches!(ran, Err(Unwound::Hole(_)))
}

fn report(child: &mut Child, name: &str, samples: Vec<f64>) {
    let value = median(&samples);
    child.measured(
        &format!("nf4.version.{name}"),
        Measurement { value, unit: "us".into(), interval: None, samples },
    );
}

fn versions(attempt: &dyn Nf4) -> Vec<Version<'_>> {
    let (cpu, mut baseline) = (Cpu::new(), Baseline::default());
    let three = Version {
        name: "1-three-passes".into(),
        run: Box::new(move |weight, out| baseline.dequantize(&cpu, &weight.view(), out)),
    };
    let cpu = Cpu::new();
    let one = Version {
        name: "2-A.5-one-pass".into(),
        run: Box::new(move |weight, out| attempt.dequantize(&cpu, &weight.view(), out)),
    };
    let fast = Vector::available().into_iter().filter_map(|unit| {
        let (cpu, step) = (Cpu::new().limited_to(unit)?, if unit == Vector::Avx512 { 5 } else { 4 });
        let step = if unit == Vector::Portable { 3 } else { step };
        Some(Version {
            name: format!("{step}-A.6-{}", unit.to_string().to_lowercase()),
            run: Box::new(move |weight, out| attempt.dequantize_fast(&cpu, &weight.view(), out)),
        })
    });
    let cpu = Cpu::new();
    let bound = Version {
        name: "7-the-machine's-bound".into(),
        run: Box::new(move |weight, out| {
            if let Output::Bf16(out) = out {
                kernels::cpu::stream(&cpu, &weight.packed, out.reinterpret_cast_mut());
            }
        }),
    };
    [three, one].into_iter().chain(fast).chain([bound]).collect()
}

/// The interpreted program, from the device's own buffers.
fn tile_program(weight: &Quantized) -> Option<Vec<f64>> {
    let cpu = Cpu::new();
    let uploaded = tile::upload(&cpu, &weight.view()).ok()?;
    let mut out = cpu.alloc("out", LEN * 2).ok()?;
    let mut samples = Vec::new();
    for round in 0..=ROUNDS {
        let begin = cpu.clock();
        tile::run(&cpu, &uploaded, OutputDtype::Bf16, LEN, &mut out).ok()?;
        if round > 0 {
            samples.push(cpu.clock().saturating_sub(begin).as_secs_f64() * 1e6);
        }
    }
    Some(samples)
}
