//! The published size: planned for all its tokens, and run. A CPU runs some of them, in f32. A card runs all of them,
//! in bf16, in chunks and with all logits at once.

use std::collections::BTreeMap;

use challenges::graph;
use challenges::loss::run::{Hidden, Job, Results, Runner, Size, bucket};
use challenges::loss::{Chunked, Problem, Solution, Trains};
use compiler::session::DeviceTensor;
use half::bf16;
use kernels::Device;
use kernels::cpu::Tick;
use reference::graph::Dtype;
use reference::loss::Reduction;

use super::bytes::{Meter, Taken, highest};
use super::case::Trial;
use super::checks::plain;
use crate::compare::describe;
use crate::device::Processor;
use crate::gather::{Child, Unwound, caught};
use crate::random::Random;
use crate::scorecard::Measurement;

/// Batch 4 of 4096 tokens, hidden 4096, and the vocabulary of Llama 3, which the statement rounds to 128K.
const TOKENS: usize = 4 * 4096;
const WIDTH: usize = 4096;
const VOCAB: usize = 128_256;
/// Tokens that a CPU runs.
const SOME: usize = 1024;
/// What chunks may take.
const BUDGET: usize = 256 << 20;

/// A number of its own, with its unit.
type Number = (&'static str, f64, &'static str);

/// Plans and runs it, and reports the numbers.
pub(super) fn run(child: &mut Child, processor: Processor, attempt: &dyn Chunked) {
    let seed = child.request.effort.seed;
    let device = processor.timed();
    let on = Trial { attempt, device: &*device };
    if !processor.is_card() {
        return report(child, "planned", || on_a_cpu(on, seed));
    }
    let drawn = caught(|| Drawn::on_a_card(&*device, seed));
    let drawn = match drawn {
        Ok(Ok(drawn)) => drawn,
        Ok(Err(reason)) | Err(Unwound::Hole(reason) | Unwound::Panic(reason)) => {
            return child.unmeasured("loss.published.planned", &reason);
        }
    };
    report(child, "planned", || drawn.in_chunks(on));
    report(child, "whole", || drawn.whole(Trial { attempt: &Solution, ..on }));
}

/// Reports numbers; or why there are none, under the name of one of them.
fn report(child: &mut Child, name: &str, measure: impl FnOnce() -> Result<Vec<Number>, String>) {
    let missing = format!("loss.published.{name}");
    match caught(measure) {
        Ok(Ok(numbers)) => {
            for (name, value, unit) in numbers {
                let measurement = Measurement { value, unit: unit.into(), interval: None, samples: vec![] };
                child.measured(&format!("loss.published.{name}"), measurement);
            }
        }
        Ok(Err(reason)) | Err(Unwound::Panic(reason)) => child.unmeasured(&missing, &reason),
        Err(Unwound::Hole(hole)) => child.unmeasured(&missing, &format!("not written yet: {hole}")),
    }
}

/// The problem with numbers for so many of its tokens.
struct Drawn {
    problem: Problem,
    hidden: DeviceTensor,
    given: BTreeMap<String, DeviceTensor>,
    counts: Vec<bool>,
}

impl Drawn {
    fn new(device: &dyn Device, seed: u64, dtype: Dtype, tokens: usize) -> Result<Self, String> {
        let problem = Problem {
            loss: plain(VOCAB, Reduction::Mean)?,
            width: WIDTH,
            vocab: VOCAB,
            dtype,
            accumulate_dtype: Dtype::F32,
            bias: false,
            trains: Trains { hidden: true, weight: false, bias: false },
        };
        let random = &mut Random::named(seed, "published");
        let hidden = drawn(device, random, dtype, [tokens, WIDTH], 1.0)?;
        let weight = drawn(device, random, dtype, [VOCAB, WIDTH], 0.02)?;
        let labels: Vec<u8> = (0..tokens).flat_map(|_| (random.below(VOCAB) as i32).to_ne_bytes()).collect();
        let labels = DeviceTensor::new(device, &[tokens], &labels).map_err(describe)?;
        let given = BTreeMap::from([("weight".to_owned(), weight), ("labels".to_owned(), labels)]);
        Ok(Self { problem, hidden, given, counts: vec![true; tokens] })
    }

    fn on_a_card(device: &dyn Device, seed: u64) -> Result<Self, String> {
        Self::new(device, seed, Dtype::Bf16, TOKENS)
    }

    fn job(&self, size: Size) -> Job<'_> {
        Job {
            hidden: Hidden::Borrowed(&self.hidden.buffer),
            given: &self.given,
            counts: &self.counts,
            upstream: None,
            size,
            so_far: BTreeMap::new(),
        }
    }

    /// One run, counted and timed.
    fn run(&self, device: &dyn Device, runner: &mut Runner<'_>, size: Size) -> Result<Run, String> {
        let job = self.job(size);
        let meter = Meter::begin(device)?;
        let start = Tick::now();
        let results = runner.run(job).map_err(describe)?;
        device.sync().map_err(describe)?;
        let seconds = start.micros() / 1e6;
        Ok(Run { taken: meter.taken(results.gradient_bytes())?, seconds, loss: loss(&results) })
    }

    /// The same, counted first and timed afterwards, when all is compiled and nothing counts.
    fn run_twice(&self, device: &dyn Device, runner: &mut Runner<'_>, size: Size) -> Result<Run, String> {
        let counted = self.run(device, runner, size)?;
        runner.run(self.job(size)).map_err(describe)?;
        device.sync().map_err(describe)?;
        let start = Tick::now();
        runner.run(self.job(size)).map_err(describe)?;
        device.sync().map_err(describe)?;
        Ok(Run { seconds: start.micros() / 1e6, ..counted })
    }

    /// All tokens in chunks.
    fn in_chunks(&self, Trial { attempt, device }: Trial<'_>) -> Result<Vec<Number>, String> {
        let mut runner = Runner::new(device, &graph::Solution, attempt, &self.problem);
        let (mut numbers, rows) = planned(&mut runner, self.problem.dtype)?;
        let Run { taken, seconds, loss } = self.run_twice(device, &mut runner, Size::Rows(rows))?;
        numbers.extend([
            ("chunked", taken.peak as f64, "B"),
            ("seconds", seconds, "s"),
            ("loss", loss, "nats"),
        ]);
        numbers.extend(taken.driver.map(|bytes| ("driver.chunked", bytes as f64, "B")));
        Ok(numbers)
    }

    /// All tokens at once.
    fn whole(&self, Trial { attempt, device }: Trial<'_>) -> Result<Vec<Number>, String> {
        let mut runner = Runner::new(device, &graph::Solution, attempt, &self.problem);
        let all = Size::Rows(TOKENS);
        runner.costs(all, TOKENS).map_err(describe)?; // compiles
        let Run { taken, seconds, loss } = self.run_twice(device, &mut runner, all)?;
        let mut numbers = vec![
            ("whole", taken.peak as f64, "B"),
            ("whole.seconds", seconds, "s"),
            ("whole.loss", loss, "nats"),
        ];
        numbers.extend(taken.driver.map(|bytes| ("driver.whole", bytes as f64, "B")));
        Ok(numbers)
    }
}

/// What a run took, and its loss.
struct Run {
    taken: Taken,
    seconds: f64,
    loss: f64,
}

fn loss(results: &Results) -> f64 {
    f64::from(results.loss.first().copied().unwrap_or(f32::NAN))
}

/// What is planned for all tokens: its numbers, and the rows of a chunk.
fn planned(runner: &mut Runner<'_>, dtype: Dtype) -> Result<(Vec<Number>, usize), String> {
    let budget = Size::Bytes(BUDGET);
    let rows = runner.size(budget, TOKENS).map_err(describe)?;
    let costs = runner.costs(budget, TOKENS).map_err(describe)?;
    let numbers = vec![
        ("logits", (TOKENS * VOCAB * dtype.bytes()) as f64, "B"),
        ("planned", highest(&costs, bucket(rows)) as f64, "B"),
        ("rows", rows as f64, "count"),
    ];
    Ok((numbers, rows))
}

/// Planned for all tokens, and some of them run.
fn on_a_cpu(Trial { attempt, device }: Trial<'_>, seed: u64) -> Result<Vec<Number>, String> {
    let some = Drawn::new(device, seed, Dtype::F32, SOME)?;
    let mut runner = Runner::new(device, &graph::Solution, attempt, &some.problem);
    let size = runner.size(Size::Bytes(BUDGET), SOME).map_err(describe)?;
    let (mut numbers, _) = planned(&mut runner, some.problem.dtype)?;
    let Run { taken, seconds, loss } = some.run(device, &mut runner, Size::Rows(size))?;
    numbers.extend([("counted", taken.peak as f64, "B"), ("seconds", seconds, "s"), ("loss", loss, "nats")]);
    Ok(numbers)
}

/// Bytes that are drawn at a time.
const PIECE: usize = 1 << 20;

/// Numbers around 0 in a device's memory.
fn drawn(
    device: &dyn Device,
    random: &mut Random,
    dtype: Dtype,
    shape: [usize; 2],
    spread: f32,
) -> Result<DeviceTensor, String> {
    let bytes = shape[0] * shape[1] * dtype.bytes();
    let mut buffer = device.alloc("drawn", bytes).map_err(describe)?;
    for first in (0..bytes).step_by(PIECE) {
        let mut piece = Vec::with_capacity(PIECE);
        while piece.len() < PIECE.min(bytes - first) {
            let bits = random.next_u64();
            for bits in [bits as u32, (bits >> 32) as u32] {
                let number = spread * (bits as f32 / u32::MAX as f32 * 2.0 - 1.0);
                match dtype {
                    Dtype::Bf16 => piece.extend(bf16::from_f32(number).to_ne_bytes()),
                    _ => piece.extend(number.to_ne_bytes()),
                }
            }
        }
        device.upload_at(&mut buffer, first, &piece).map_err(describe)?;
    }
    Ok(DeviceTensor { shape: shape.to_vec(), buffer })
}
