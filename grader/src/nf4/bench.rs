//! The timed cases: baseline, attempt and the machine's own bound, side by side.
//!
//! Three matrices (up, gate, down) or more of them, until inputs and outputs together exceed the last-level
//! cache or 256 MiB, whichever is smaller; the calls rotate over them, so that no cache holds what is asked
//! for. Before each timed call, bytes inside randomly chosen windows of the weight are replaced and the same
//! windows of the output are poisoned; right after the clock stops the windows are compared with the oracle.
//! So every timed call computes something that was not there before, and is checked.

use std::hint::black_box;
use std::time::{Duration, Instant};

use challenges::nf4::baseline::Baseline;
use challenges::nf4::{BENCHES, Bench, Nf4, Output};
use half::slice::HalfFloatSliceExt;
use kernels::{Cpu, cpu};
use reference::nf4::{Dtype, Quantized, dequantize_bits_range};

use super::inputs::{Buffer, Scale, weight};
use super::{Subject, bench_name};
use crate::gather::{Child, Unwound};
use crate::random::Random;
use crate::scorecard::Measurement;
use crate::timing::{Pairs, at_least, median, speedup};

/// Inputs and outputs that a rotation covers at least, unless the last-level cache is smaller.
const ROTATION_BYTES: u64 = 256 << 20;

/// Windows that are renewed and checked around each timed call, and their length in elements.
const WINDOWS: usize = 24;
const WINDOW: usize = 512;

/// The guard that compares each timed call's windows.
pub(super) const TIMED_CALLS: &str = "wrong answers in timed calls";

/// The guard on speed itself, and how much faster than its measured bound a result may be.
pub(super) const PAST_THE_BOUND: &str = "past the physical bound";
const REFUSED: f64 = 1.1;

/// The thresholds that a case is sampled for until its interval is clear of them.
const THRESHOLDS: [f64; 4] = [1.00, 1.05, 1.10, 1.15];

/// Times one case and reports its numbers.
pub(super) fn run(child: &mut Child, attempt: &dyn Nf4, name: &str) {
    let Some(bench) = BENCHES.iter().find(|bench| bench_name(bench) == name) else {
        return child.unmeasured(&format!("nf4.speedup.{name}"), "no timed case has this name");
    };
    let effort = child.request.effort.clone();
    let subject = Subject::of(attempt);
    let unmeasured = format!("nf4.speedup.{name}");
    match crate::gather::caught(|| Timed::new(bench, subject, effort.seed).sample(&effort)) {
        Ok(Ok(samples)) => {
            child.guard(TIMED_CALLS, || Ok(None));
            child.guard(PAST_THE_BOUND, || Ok(past_the_bound(name, &samples)));
            report(child, bench, &samples);
        }
        Ok(Err(wrong)) => {
            child.guard(TIMED_CALLS, || Ok(Some(wrong.clone())));
            child.unmeasured(&unmeasured, &wrong);
        }
        Err(Unwound::Hole(_)) => child.unmeasured(&unmeasured, "the step is not written yet"),
        Err(Unwound::Panic(message)) => child.unmeasured(&unmeasured, &message),
    }
}

/// A result that no memory system could give is refused, never clamped. The bound is the fastest of its
/// samples, so that a neighbour's noise in it condemns nobody; the attempt is judged by its lower quartile, so
/// that noise in most of its samples does not hide that it skips work.
pub(super) fn past_the_bound(case: &str, samples: &Samples) -> Option<String> {
    let bound = samples.bound.iter().copied().fold(f64::INFINITY, f64::min);
    let attempt = lower_quartile(&samples.attempt);
    (attempt * REFUSED < bound)
        .then(|| format!("{case}: {attempt:.0} us, where this machine needs {bound:.0} us to move the bytes"))
}

/// The sample that a quarter of them lie below; infinity for none.
pub(super) fn lower_quartile(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 4).copied().unwrap_or(f64::INFINITY)
}

/// Times in microseconds.
#[derive(Default)]
pub(super) struct Samples {
    pub baseline: Vec<f64>,
    pub attempt: Vec<f64>,
    pub bound: Vec<f64>,
}

/// One matrix with its output.
struct Set {
    weight: Quantized,
    out: Buffer,
}

struct Timed<'a> {
    sets: Vec<Set>,
    next: usize,
    subject: Subject<'a>,
    baseline: Baseline,
    cpu: Cpu,
    random: Random,
    dtype: Dtype,
    len: usize,
}

impl<'a> Timed<'a> {
    fn new(bench: &Bench, subject: Subject<'a>, seed: u64) -> Self {
        let len = bench.rows * bench.columns;
        let set_bytes = total_bytes(len) as u64;
        let cache = match cpu::host().cache_bytes {
            0 => ROTATION_BYTES,
            bytes => bytes.min(ROTATION_BYTES),
        };
        let count = cache.div_ceil(set_bytes).max(3);
        let set = |i: u64| Set {
            weight: weight(len, 64, true, Scale::Plain, seed ^ bench.seed ^ i << 32),
            out: Buffer::new(bench.dtype, len, seed ^ i),
        };
        Self {
            sets: (0..count).map(set).collect(),
            next: 0,
            subject,
            baseline: Baseline::default(),
            cpu: Cpu::new(),
            random: Random::named(seed, "timed windows"),
            dtype: bench.dtype,
            len,
        }
    }

    /// Rounds of bound, A B B A, until the interval is clear of every threshold or the budget is spent.
    fn sample(mut self, effort: &crate::gather::Effort) -> Result<Samples, String> {
        let (fewest, budget) =
            if effort.quick { (5, Duration::from_millis(1200)) } else { (12, Duration::from_secs(8)) };
        let (fewest, budget) = match effort.samples {
            Some(pairs) => (pairs.div_ceil(2).max(1), Duration::ZERO),
            None => (fewest, budget),
        };
        self.time_baseline(); // once unmeasured: the baseline's buffer, the machine's clock
        self.time_attempt()?;
        let begin = Instant::now();
        let mut samples = Samples::default();
        loop {
            samples.bound.push(self.time_bound());
            samples.baseline.push(self.time_baseline());
            samples.attempt.push(self.time_attempt()?);
            samples.bound.push(self.time_bound());
            samples.attempt.push(self.time_attempt()?);
            samples.baseline.push(self.time_baseline());
            let enough = samples.baseline.len() >= 2 * fewest;
            if enough && (begin.elapsed() >= budget || clear(&samples)) {
                return Ok(samples);
            }
        }
    }

    fn turn(&mut self) -> usize {
        self.next = (self.next + 1) % self.sets.len();
        self.next
    }

    fn time_baseline(&mut self) -> f64 {
        let set = self.turn();
        let Set { weight, out } = &mut self.sets[set];
        let begin = Instant::now();
        self.baseline.dequantize(&self.cpu, &weight.view(), out.output());
        micros(begin)
    }

    /// One call of the attempt on renewed content, checked.
    fn time_attempt(&mut self) -> Result<f64, String> {
        let set = self.turn();
        let windows = self.renew(set);
        let Set { weight, out } = &mut self.sets[set];
        let view = weight.view();
        // Before the attempt can change what it is asked about.
        let want = |first: &usize| dequantize_bits_range(&view, self.dtype, *first..first + WINDOW);
        let wants: Vec<Vec<u32>> = windows.iter().map(want).collect();
        let begin = Instant::now();
        self.subject.run(&self.cpu, &view, out.output());
        let time = micros(begin);
        for (first, want) in windows.into_iter().zip(wants) {
            if let Some(i) = (0..WINDOW).find(|i| out.bits(first + i) != want[*i]) {
                return Err(format!("a timed call left a wrong answer at element {}", first + i));
            }
        }
        Ok(time)
    }

    /// The machine's own time for the same bytes in and out, by streaming.
    fn time_bound(&mut self) -> f64 {
        let set = self.turn();
        let Set { weight, out } = &mut self.sets[set];
        let words = match out.output() {
            Output::F16(out) => out.reinterpret_cast_mut(),
            Output::Bf16(out) => out.reinterpret_cast_mut(),
            Output::F32(_) => unreachable!("timed cases have 16-bit outputs"),
        };
        let begin = Instant::now();
        cpu::stream(&self.cpu, black_box(&weight.packed), words);
        // The stream reads the packed codes; the case also reads the scales, 3 % more input.
        micros(begin) * total_bytes(self.len) / streamed_bytes(self.len)
    }

    /// Replaces the bytes of random windows and poisons their outputs.
    fn renew(&mut self, set: usize) -> Vec<usize> {
        let Set { weight, out } = &mut self.sets[set];
        let mut windows: Vec<usize> =
            (0..WINDOWS).map(|_| self.random.below((self.len - WINDOW) / 2) * 2).collect();
        windows.push(self.len - WINDOW);
        for first in &windows {
            self.random.fill(&mut weight.packed[first / 2..(first + WINDOW) / 2]);
            out.poison_range(*first, WINDOW);
        }
        windows
    }
}

fn micros(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e6
}

/// Bytes that one pass must move: codes, 8-bit scales, second-level scales, 16-bit outputs.
pub(crate) fn total_bytes(len: usize) -> f64 {
    len as f64 * (0.5 + 1.0 / 64.0 + 4.0 / (64.0 * 256.0) + 2.0)
}

fn streamed_bytes(len: usize) -> f64 {
    len as f64 * 2.5
}

/// Whether the interval leaves no threshold open.
pub(super) fn clear(samples: &Samples) -> bool {
    let (_, interval) = speedup(Pairs { baseline: &samples.baseline, attempt: &samples.attempt });
    THRESHOLDS.iter().all(|threshold| at_least(interval, *threshold) != crate::timing::Verdict::Inconclusive)
}

/// The numbers of one case.
pub(super) fn report(child: &mut Child, bench: &Bench, samples: &Samples) {
    let name = bench_name(bench);
    let pairs = Pairs { baseline: &samples.baseline, attempt: &samples.attempt };
    let (value, interval) = speedup(pairs);
    let ratio = Measurement { value, unit: "x".into(), interval: Some(interval), samples: pairs.ratios() };
    child.measured(&format!("nf4.speedup.{name}"), ratio);
    let times = [("baseline", &samples.baseline), ("attempt", &samples.attempt), ("bound", &samples.bound)];
    for (kind, times) in times {
        let value = median(times);
        let time = Measurement { value, unit: "us".into(), interval: None, samples: times.clone() };
        child.measured(&format!("nf4.{kind}.{name}"), time);
    }
    let (bound, attempt) = (median(&samples.bound), median(&samples.attempt));
    let plain = |value, unit: &str| Measurement { value, unit: unit.into(), interval: None, samples: vec![] };
    child.measured(&format!("nf4.share_of_bound.{name}"), plain(bound / attempt, "share"));
    let rate = total_bytes(bench.rows * bench.columns) / attempt / 1e3;
    child.measured(&format!("nf4.rate.{name}"), plain(rate, "GB/s"));
}
