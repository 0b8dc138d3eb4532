//! The timed cases: baseline, attempt and the machine's own bound, side by side.
//!
//! Three matrices (up, gate, down) or more of them, until inputs and outputs together exceed the last-level
//! cache or 256 MiB, whichever is smaller; the calls rotate over them, so that no cache holds what is asked
//! for. Before each timed call the codes and scales of some windows of the weight are replaced, and bits of
//! every element of the output are flipped: nothing that stands there is right, and nothing shows what will be
//! looked at. Right after the clock stops windows are drawn that nobody could foresee, and compared with the
//! oracle, those whose content is new and many whose content is old. So every timed call has to compute
//! everything, and is checked.
//!
//! A round times the bound twice, the attempt twice in an order that is drawn, and the baseline beside each
//! attempt. Every call is prepared and left alike, so that what the machine does meanwhile hits all alike. Rounds in
//! which a thread waited for a processor are counted, and more rounds make up for them.

use std::hint::black_box;
use std::time::Duration;

use challenges::nf4::baseline::Baseline;
use challenges::nf4::{Bench, Nf4, Output, solution_calls};
use half::slice::HalfFloatSliceExt;
use kernels::Cpu;
use kernels::cpu::{self, Tick};
use reference::nf4::{OutputDtype, Quantized, Scales, dequantize_bits_range};

use super::cores::one_thread_a_core;
use super::inputs::{Buffer, Scale, weight};
use super::waits::Waits;
use super::{Subject, bench_name};
use crate::beside::Beside;
use crate::gather::{Child, Source, Unwound};
use crate::random::{self, Random};
use crate::scorecard::Measurement;
use crate::timing::{Bounded, Pairs, Plan, Rounds, median, order, speedup};

/// Inputs and outputs that a rotation covers at least, unless the last-level cache is smaller.
const ROTATION_BYTES: u64 = 256 << 20;

/// Elements of a window, windows that get new content before a call, and those that are compared beside them.
const WINDOW: usize = 128;
const RENEWED: usize = 24;
const DRAWN: usize = 96;

/// The guard that compares each timed call's windows.
pub(super) const TIMED_CALLS: &str = "wrong answers in timed calls";

/// The number that counts the rounds of a case in which a thread waited for a processor.
pub(super) const DISTURBED: &str = "disturbed_rounds";

/// The guard on speed itself.
pub(crate) const PAST_THE_BOUND: &str = "past the physical bound";

/// The guard on what runs while bound and baseline are timed.
const HELD_UP: &str = "others held up while they are timed";

/// The guards that look on while a case is timed.
pub(super) const GUARDS: [&str; 3] = [TIMED_CALLS, HELD_UP, PAST_THE_BOUND];

/// How long rounds go on that speak against the attempt and could still be chance.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// How long more rounds than the fewest may take.
pub(super) const BUDGET: Duration = Duration::from_secs(8);

/// Times one case and reports its numbers.
pub(super) fn run(child: &mut Child, attempt: &dyn Nf4, bench: &'static Bench) {
    let name = &bench_name(bench);
    let (effort, source) = (child.request.effort.clone(), child.request.source);
    let subject = Subject::of(attempt);
    let unmeasured = format!("nf4.speedup.{name}");
    match crate::gather::caught(|| Timed::new(bench, subject, source, effort.seed)?.sample(&effort)) {
        Ok(Ok((samples, held_up))) => {
            child.guard(TIMED_CALLS, || Ok(None));
            child.guard(HELD_UP, || Ok(held_up.map(|message| format!("{name}: {message}"))));
            child.guard(PAST_THE_BOUND, || Ok(past_the_bound(name, &samples, 0.0)));
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

/// A result that no memory system could give is refused, never clamped. `credit` as in [`Samples::rounds`].
pub(super) fn past_the_bound(case: &str, samples: &Samples, credit: f64) -> Option<String> {
    let rounds = samples.rounds(credit);
    let (bound, attempt) = (median(&samples.bound) * (1.0 - credit), median(&samples.attempt));
    (rounds.verdict() == Bounded::Past).then(|| {
        format!(
            "{case}: {attempt:.1} us a call, where this machine needs {bound:.1} us to move the bytes; in {} of {} \
             rounds both calls took less than both bounds by a tenth",
            rounds.against, rounds.count
        )
    })
}

/// Times in microseconds, in the order in which they were taken.
#[derive(Default)]
pub(super) struct Samples {
    pub baseline: Vec<f64>,
    pub attempt: Vec<f64>,
    pub bound: Vec<f64>,
    /// Rounds in which a thread waited for a processor; `None` where the system does not report it.
    pub disturbed: Option<usize>,
}

impl Samples {
    /// What they say about the attempt and the bound, less the share of it that a cache may save.
    pub fn rounds(&self, credit: f64) -> Rounds {
        let bound: Vec<f64> = self.bound.iter().map(|time| time * (1.0 - credit)).collect();
        Rounds::of(&bound, &self.attempt)
    }
}

/// One matrix with its output.
struct Set {
    weight: Quantized,
    asked: Quantized, // the same once more, which no call gets: the oracle reads this one
    out: Buffer,
}

struct Timed<'a> {
    sets: Vec<Set>,
    next: usize,
    subject: Subject<'a>,
    source: Source,
    baseline: Baseline,
    cpu: Cpu,    // runs the attempt
    others: Cpu, // runs bound and baseline, so that tasks which the attempt left in its pool are seen
    random: Random,
    dtype: OutputDtype,
    len: usize,
}

impl<'a> Timed<'a> {
    fn new(bench: &Bench, subject: Subject<'a>, source: Source, seed: u64) -> Result<Self, String> {
        let len = bench.rows * bench.columns;
        let set_bytes = total_bytes(len) as u64;
        let cache = match cpu::host().cache_bytes {
            0 => ROTATION_BYTES,
            bytes => bytes.min(ROTATION_BYTES),
        };
        let count = cache.div_ceil(set_bytes).max(3);
        let set = |i: u64| {
            let weight = weight(len, 64, true, Scale::Plain, seed ^ bench.seed ^ i << 32);
            Set { asked: weight.clone(), weight, out: Buffer::new(bench.dtype, len, seed ^ i) }
        };
        Ok(Self {
            sets: (0..count).map(set).collect(),
            next: 0,
            subject,
            source,
            baseline: Baseline::default(),
            cpu: one_thread_a_core(),
            others: one_thread_a_core(),
            random: random::unforeseen()?,
            dtype: bench.dtype,
            len,
        })
    }

    /// The rounds that were planned; and more of them, as long as the patience lasts, while they leave open whether the
    /// attempt is faster than the bound, and for those that were disturbed. Neither looks at the baseline's times.
    ///
    /// With the samples comes what was held up while they were taken, if anything was.
    fn sample(mut self, effort: &crate::gather::Effort) -> Result<(Samples, Option<String>), String> {
        let plan = Plan::new(effort.quick, effort.samples, BUDGET);
        let mut waits = Waits::new([&self.cpu, &self.others]);
        let mut beside = Beside::new(&self.others); // before a call of the attempt
        self.time_baseline(&mut waits); // once unmeasured: the baseline's buffer, the machine's clock
        self.time_attempt(&mut waits)?;
        waits.take();
        let begin = Tick::now();
        let mut samples = Samples::default();
        let mut planned = None; // rounds, once they are all taken
        loop {
            self.round(&mut samples, &mut beside, &mut waits)?;
            let (spent, rounds) = (since(begin), samples.rounds(0.0));
            let patient = spent < plan.budget + PATIENCE;
            if !plan.is_over(rounds.count, spent) {
                continue;
            }
            let (planned, disturbed) = (*planned.get_or_insert(rounds.count), samples.disturbed.unwrap_or(0));
            let is_made_up = plan.is_made_up(planned, rounds.count, disturbed);
            if !patient || (is_made_up && rounds.verdict() != Bounded::Open) {
                return Ok((samples, beside.fault("bound and baseline were timed")));
            }
        }
    }

    /// Two bounds and two attempts in an order that is drawn; a baseline before the one attempt and after the other.
    fn round(&mut self, samples: &mut Samples, beside: &mut Beside, waits: &mut Waits) -> Result<(), String> {
        let mut attempts = 0;
        let is_time = |time: &f64| *time;
        for is_attempt in order(&mut self.random) {
            if !is_attempt {
                settle();
                samples.bound.push(beside.watch(|| self.time_bound(waits), is_time));
                continue;
            }
            if attempts == 0 {
                settle();
                samples.baseline.push(beside.watch(|| self.time_baseline(waits), is_time));
            }
            settle();
            samples.attempt.push(self.time_attempt(waits)?);
            if attempts == 1 {
                settle();
                samples.baseline.push(beside.watch(|| self.time_baseline(waits), is_time));
            }
            attempts += 1;
        }
        if let Some(waited) = waits.take() {
            samples.disturbed = Some(samples.disturbed.unwrap_or(0) + usize::from(waited));
        }
        Ok(())
    }

    fn time_baseline(&mut self, waits: &mut Waits) -> f64 {
        let (set, _) = self.prepare();
        let Set { weight, out, .. } = &mut self.sets[set];
        let time = waits.time(|| self.baseline.dequantize(&self.others, &weight.view(), out.output()));
        self.flip(set);
        time
    }

    /// One call of the attempt on renewed content, checked.
    fn time_attempt(&mut self, waits: &mut Waits) -> Result<f64, String> {
        let (set, renewed) = self.prepare();
        let Set { weight, out, .. } = &mut self.sets[set];
        let view = weight.view();
        let asked = solution_calls();
        let time = waits.time(|| self.subject.run(&self.cpu, &view, out.output()));
        self.source.own_work(solution_calls() - asked)?;
        if let Some(element) = self.wrong(set, &renewed)? {
            return Err(format!("a timed call left a wrong answer at element {element}"));
        }
        self.flip(set);
        Ok(time)
    }

    /// The machine's own time for the same bytes in and out, by streaming.
    fn time_bound(&mut self, waits: &mut Waits) -> f64 {
        let (set, _) = self.prepare();
        let Set { weight, out, .. } = &mut self.sets[set];
        let words = match out.output() {
            Output::F16(out) => out.reinterpret_cast_mut(),
            Output::Bf16(out) => out.reinterpret_cast_mut(),
            Output::F32(_) => unreachable!("timed cases have 16-bit outputs"),
        };
        let streamed = waits.time(|| cpu::stream(&self.others, black_box(&weight.packed), words));
        // The stream reads the packed codes; the case also reads the scales, 3 % more input.
        let time = streamed * total_bytes(self.len) / streamed_bytes(self.len);
        self.flip(set);
        time
    }

    /// The next matrix, with new content in some windows: which one, and where those begin.
    fn prepare(&mut self) -> (usize, Vec<usize>) {
        self.next = (self.next + 1) % self.sets.len();
        let windows: Vec<usize> = (0..RENEWED).map(|_| window(&mut self.random, self.len)).collect();
        let set = &mut self.sets[self.next];
        for first in &windows {
            let seed = self.random.next_u64();
            for weight in [&mut set.weight, &mut set.asked] {
                renew(weight, *first, &mut Random::new(seed));
            }
        }
        (self.next, windows)
    }

    /// Makes every element of an output wrong, long before the call that will write it again.
    fn flip(&mut self, set: usize) {
        let seed = self.random.next_u64();
        self.sets[set].out.flip(&self.others, seed);
    }

    /// The first wrong element that a call left in windows drawn only now, if any. What stands there is read
    /// before any of it is judged: work that goes on after the call comes too late.
    fn wrong(&self, set: usize, renewed: &[usize]) -> Result<Option<usize>, String> {
        let Set { asked, out, .. } = &self.sets[set];
        let mut random = random::unforeseen()?;
        let drawn = (0..DRAWN).map(|_| window(&mut random, self.len));
        let windows = std::iter::once(self.len - WINDOW).chain(drawn).chain(renewed.iter().copied());
        let bits = |first: usize| (first..first + WINDOW).map(|e| out.bits(e)).collect();
        let left: Vec<(usize, Vec<u32>)> = windows.map(|first| (first, bits(first))).collect();
        let wrong = |(first, left): (usize, Vec<u32>)| {
            let want = dequantize_bits_range(&asked.view(), self.dtype, first..first + WINDOW);
            Some(first + (0..WINDOW).find(|i| left[*i] != want[*i])?)
        };
        Ok(left.into_iter().find_map(wrong))
    }
}

/// Waits until the idle threads of both pools sleep. They look for more work for some 30 us after each call, which would
/// count as time that something else took while the next call is timed.
fn settle() {
    std::thread::sleep(Duration::from_millis(1));
}

/// Where a window begins: at a whole byte of codes.
fn window(random: &mut Random, len: usize) -> usize {
    random.below((len - WINDOW) / 2 + 1) * 2
}

/// New codes in a window, and new scales for its blocks.
fn renew(weight: &mut Quantized, first: usize, random: &mut Random) {
    random.fill(&mut weight.packed[first / 2..][..WINDOW / 2]);
    if let Scales::Double { codes, .. } = &mut weight.absmax {
        random.fill(&mut codes[first / weight.block_size..=(first + WINDOW - 1) / weight.block_size]);
    }
}

pub(super) fn since(begin: Tick) -> Duration {
    Duration::from_secs_f64(begin.micros() / 1e6)
}

/// Bytes that one pass must move: codes, 8-bit scales, second-level scales, 16-bit outputs.
pub fn total_bytes(len: usize) -> f64 {
    len as f64 * (0.5 + 1.0 / 64.0 + 4.0 / (64.0 * 256.0) + 2.0)
}

fn streamed_bytes(len: usize) -> f64 {
    len as f64 * 2.5
}

/// The numbers of one case.
pub(super) fn report(child: &mut Child, bench: &Bench, samples: &Samples) {
    let name = bench_name(bench);
    let pairs = Pairs { baseline: &samples.baseline, attempt: &samples.attempt };
    let (value, interval) = speedup(pairs);
    let ratio = Measurement { value, unit: "x".into(), interval, samples: pairs.ratios() };
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
    if let Some(disturbed) = samples.disturbed {
        child.measured(&format!("nf4.{DISTURBED}.{name}"), plain(disturbed as f64, "count"));
    }
    let rate = total_bytes(bench.rows * bench.columns) / attempt / 1e3;
    child.measured(&format!("nf4.rate.{name}"), plain(rate, "GB/s"));
}
