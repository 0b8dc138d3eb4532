//! What an attempt does, watched from outside: the bytes it takes and the instructions it runs.

use challenges::nf4::{BENCHES, Dequantizer, Nf4, Output};
use kernels::Cpu;
use reference::nf4::{OutputDtype, Quantized};

use super::footprint::{Footprint, use_small_pages};
use super::inputs::{Buffer, Scale, weight};
use super::{Subject, in_a_graph};
use crate::gather::{Child, Source};
use crate::random;
use crate::scorecard::Measurement;
use crate::step::{self, AsTimed, Followed, Seen};

/// Elements of the weight whose bytes are counted: large enough that a buffer for its scales shows.
const BYTES_LEN: usize = 4096 * 4096;

/// Elements of the weight that is single-stepped: 256 blocks.
pub(super) const STEPPED_LEN: usize = 64 * 256;

/// The number that tells of calls as they are timed, and elements that it takes at least to judge by.
pub(super) const AS_TIMED_NUMBER: &str = "nf4.timed_elements";
const FEWEST_ELEMENTS: u64 = 256;

/// Counts the memory and the launches of the first call of this process.
pub(super) fn bytes(child: &mut Child, attempt: &dyn Nf4) {
    use_small_pages(); // before a thread starts
    let cpu = Cpu::new();
    let weight = weight(BYTES_LEN, 64, true, Scale::Plain, child.request.effort.seed);
    let mut buffer = Buffer::new(OutputDtype::Bf16, BYTES_LEN, 1);
    let mut smallest = Smallest::new();
    buffer.flip(&cpu, 1); // the thread pool starts its threads at its first use
    let Some(footprint) = Footprint::begin(&cpu) else {
        return child.unmeasured("nf4.working_bytes", "too many peaks are counted already");
    };
    let subject = Subject { attempt, fast: !smallest.reaches_hole(attempt) };
    let before = (cpu.launches(), kernels::cpu::launches());
    let ran = crate::gather::caught(|| subject.run(&cpu, &weight.view(), buffer.output()));
    let peak = footprint.bytes();
    let launches = launched(cpu.launches() - before.0, kernels::cpu::launches() - before.1);
    if ran.is_err() {
        return child.unmeasured("nf4.working_bytes", "the step does not run to its end");
    }
    let count =
        |value: f64, unit: &str| Measurement { value, unit: unit.into(), interval: None, samples: vec![] };
    child.measured("nf4.working_bytes", count(peak as f64 / cpu.threads() as f64, "B/thread"));
    child.measured("nf4.peak_bytes", count(peak as f64, "B"));
    child.measured("nf4.launches", count(launches as f64, "count"));
}

/// The launches of the whole process, or 0 if none of them went through the step's device.
fn launched(through_device: u64, in_all: u64) -> u64 {
    if through_device == 0 { 0 } else { in_all }
}

/// A weight too small to need a buffer, made before anything is counted.
struct Smallest {
    cpu: Cpu,
    weight: Quantized,
    out: Buffer,
}

impl Smallest {
    fn new() -> Self {
        let weight = weight(1, 64, true, Scale::Plain, 1);
        Self { cpu: Cpu::with_threads(1), weight, out: Buffer::new(OutputDtype::Bf16, 1, 1) }
    }

    /// Returns true if A.6 is a hole.
    fn reaches_hole(&mut self, attempt: &dyn Nf4) -> bool {
        let Self { cpu, weight, out } = self;
        let run = || attempt.dequantize_fast(cpu, &weight.view(), out.output());
        matches!(crate::gather::caught(run), Err(crate::gather::Unwound::Hole(_)))
    }
}

/// The instructions of one call on one thread.
pub(super) fn instructions(child: &mut Child) {
    let source = match child.request.source {
        Source::Own => "own",
        Source::Solution => "solution",
    };
    match step::watch("nf4", source) {
        Ok(Followed { seen, to_the_end }) if to_the_end || is_plainly_scalar(&seen) => {
            let count = |value: u64| Measurement {
                value: value as f64,
                unit: "count".into(),
                interval: None,
                samples: vec![],
            };
            child.measured("nf4.instructions", count(seen.instructions));
            child.measured("nf4.vector_instructions", count(seen.vector));
            child.measured("nf4.streaming_stores", count(seen.streaming));
            child.measured("nf4.unfenced_stores", count(seen.unfenced));
            let bytes = Measurement { unit: "B".into(), ..count(seen.streamed_bytes) };
            child.measured("nf4.streamed_bytes", bytes);
        }
        Ok(Followed { seen, .. }) => {
            let far = format!(
                "the watched call did not come to its end in time: {} instructions were stepped through, {} of them \
                 vector instructions",
                seen.instructions, seen.vector
            );
            child.unmeasured("nf4.vector_instructions", &far);
        }
        Err(reason) => child.unmeasured("nf4.vector_instructions", &reason),
    }
    as_timed(child, source);
}

/// Whether a part of a call says enough: two instructions an element, no streaming store among them, and too few vector
/// instructions for the blocks.
fn is_plainly_scalar(seen: &Seen) -> bool {
    let elements = STEPPED_LEN as u64;
    seen.instructions >= 2 * elements && seen.streaming == 0 && seen.vector < elements / 64
}

/// The instructions of calls as they are timed, in samples.
fn as_timed(child: &mut Child, source: &str) {
    match step::watch_as_timed("nf4", source) {
        Ok(AsTimed { seen, elements }) if elements >= FEWEST_ELEMENTS => {
            let numbers = [
                ("instructions", seen.instructions, "count"),
                ("vector_instructions", seen.vector, "count"),
                ("streamed_bytes", seen.streamed_bytes, "B"),
                ("elements", elements, "count"),
            ];
            for (name, value, unit) in numbers {
                let (value, unit) = (value as f64, unit.into());
                let number = Measurement { value, unit, interval: None, samples: vec![] };
                child.measured(&format!("nf4.timed_{name}"), number);
            }
        }
        Ok(AsTimed { seen, elements }) => {
            let few = format!(
                "{} instructions of calls as they are timed were stepped through, and {elements} elements written \
                 meanwhile: too few to judge by",
                seen.instructions
            );
            child.unmeasured(AS_TIMED_NUMBER, &few);
        }
        Err(reason) => child.unmeasured(AS_TIMED_NUMBER, &reason),
    }
}

/// The dequantiser as an operation of a compiled graph.
pub(super) fn in_a_graph(child: &mut Child, attempt: &dyn Nf4) {
    let seed = child.request.effort.seed;
    let (device, subject) = (Cpu::with_threads(2), Subject::of(attempt));
    let looked = crate::gather::caught(|| in_a_graph::look(&device, &Dequantizer(&subject), seed));
    let seen = match looked {
        Ok(Ok(seen)) => seen,
        Ok(Err(reason)) | Err(crate::gather::Unwound::Panic(reason)) => {
            return child.unmeasured("nf4.graph_weights", &reason);
        }
        Err(crate::gather::Unwound::Hole(_)) => {
            return child.unmeasured("nf4.graph_weights", "A.5 is not written yet");
        }
    };
    for (name, value) in seen.numbers() {
        let (value, unit) = (value as f64, "count".into());
        child.measured(name, Measurement { value, unit, interval: None, samples: vec![] });
    }
}

/// The watched process's side.
pub(crate) fn step_through(attempt: &dyn Nf4, as_timed: bool) -> Result<(), String> {
    if as_timed { step_as_timed(attempt) } else { step_small(attempt) }
}

/// One call unwatched, then one between two stops.
fn step_small(attempt: &dyn Nf4) -> Result<(), String> {
    let cpu = Cpu::with_threads(1);
    let weight = weight(STEPPED_LEN, 64, true, Scale::Plain, 7);
    let mut buffer = Buffer::new(OutputDtype::Bf16, STEPPED_LEN, 1);
    let subject = Subject::of(attempt);
    subject.run(&cpu, &weight.view(), buffer.output());
    step::between_stops(|| subject.run(&cpu, &weight.view(), buffer.output()))
}

/// Call after call as they are timed: all threads, the smallest timed case in bf16, all results wrong before each call.
/// In bf16, because a library's conversion to f16 is one vector instruction an element by itself.
fn step_as_timed(attempt: &dyn Nf4) -> Result<(), String> {
    let bf16 = BENCHES.iter().filter(|bench| bench.dtype == OutputDtype::Bf16);
    let Some(bench) = bf16.min_by_key(|bench| bench.rows * bench.columns) else {
        return Err("there is no timed case in bf16".into());
    };
    let (cpu, len) = (Cpu::new(), bench.rows * bench.columns);
    let weight = weight(len, 64, true, Scale::Plain, bench.seed);
    let mut buffer = Buffer::new(bench.dtype, len, 1);
    let subject = Subject::of(attempt);
    subject.run(&cpu, &weight.view(), buffer.output());
    let address = match buffer.output() {
        Output::F16(out) => out.as_ptr().addr(),
        Output::Bf16(out) => out.as_ptr().addr(),
        Output::F32(_) => return Err("timed cases have 16-bit outputs".into()),
    };
    let mut random = random::unforeseen()?;
    step::announce((address, len))?;
    loop {
        buffer.flip(&cpu, random.next_u64());
        step::mark()?;
        subject.run(&cpu, &weight.view(), buffer.output());
        step::mark()?;
    }
}
