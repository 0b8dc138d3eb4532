//! The timed cases on a card: baseline, attempt and a device copy, side by side.
//!
//! A sample is a graph of at least 20 calls between one pair of events, each call on a matrix of its own, and
//! all of them together more than three times the L2 cache: what a call reads, no cache holds. Before each
//! sample every code and scale code is replaced on the card, every output is poisoned, and a scratch buffer is
//! read until nothing dirty is left in the L2. After it, windows of every output are compared with the oracle.
//! So each timed call computes something that was not there before, and is checked. Event time is compared
//! with the host's clock: work that goes on behind the second event shows there.

use challenges::nf4::Bench;
use challenges::nf4::cuda::{Baseline, Build, Kernel};
use kernels::cpu::Tick;
use kernels::cuda::condition::Condition;
use kernels::cuda::{Allocation, Event, Graph};
use reference::nf4::OutputDtype;

use super::content::{Content, GRAIN};
use super::output::Output;
use super::session::{Session, Via};
use super::trouble::{Tried, Trouble};
use crate::gather::{Child, Effort};
use crate::nf4::bench::{
    BUDGET, PAST_THE_BOUND, PATIENCE, Samples, TIMED_CALLS, past_the_bound, report as report_samples, since,
    total_bytes,
};
use crate::nf4::bench_name;
use crate::random::{self, Random};
use crate::scorecard::Measurement;
use crate::timing::{Bounded, Plan, Rounds, order};

/// Calls of a sample, at least.
const CALLS: usize = 20;

/// How many times the L2 cache a rotation covers, at least.
const ROTATION: usize = 3;

/// Elements of a window that is compared, and windows of each output a sample.
const WINDOW: usize = 512;
const WINDOWS: usize = 2;

/// Bytes of the device copy that the bound is measured with, and copies between one pair of events.
const COPY_BYTES: usize = 1 << 30;
const COPIES: usize = 2;

/// The guard on work behind the second event.
pub(super) const BEHIND_THE_CLOCK: &str = "work behind the second event";

/// The guards that look on while a case is timed.
pub(super) const GUARDS: [&str; 3] = [TIMED_CALLS, BEHIND_THE_CLOCK, PAST_THE_BOUND];

/// The card's condition after the last timed case.
pub(super) const CONDITION: [&str; 5] =
    ["nf4.sm_clock", "nf4.memory_clock", "nf4.temperature", "nf4.power", "nf4.throttle_reasons"];

/// How much longer than the events the host's clock may run, more than it does for the baseline: 25 %, and what it
/// takes to queue and wait.
const HOST_SLACK: f64 = 0.25;
const HOST_SLACK_US: f64 = 400.0;

/// Times one case and reports its numbers.
pub(super) fn run(child: &mut Child, session: &Session, bench: &Bench) {
    let name = &bench_name(bench);
    let unmeasured = format!("nf4.speedup.{name}");
    let effort = child.request.effort.clone();
    let begin = condition(session);
    match timed(session, bench, &effort) {
        Ok(timed) => {
            let end = condition(session);
            // A wrong answer is wrong on a GPU that others use, too; only times need a free one.
            child.guard(TIMED_CALLS, || Ok(timed.wrong.clone()));
            if let Some(reason) = begin.iter().chain(&end).find_map(Condition::refusal) {
                return child.unmeasured(&unmeasured, &reason);
            }
            child.guard(BEHIND_THE_CLOCK, || Ok(timed.behind.clone()));
            if let Some(wrong) = timed.wrong.as_ref().or(timed.behind.as_ref()) {
                return child.unmeasured(&unmeasured, wrong);
            }
            child.guard(PAST_THE_BOUND, || Ok(past_the_bound(name, &timed.samples, timed.credit)));
            report_samples(child, bench, &timed.samples);
            report_copy(child, bench, &timed);
            tell(child, end.as_ref());
        }
        Err(trouble) => {
            child.ends_if(trouble.is_broken());
            child.unmeasured(&unmeasured, &trouble.reason());
        }
    }
}

/// The card's own rate, that of the fastest copy that was seen, and what the L2 may save of the bound.
fn report_copy(child: &mut Child, bench: &Bench, timed: &Timed) {
    let copy = timed.samples.bound.iter().copied().fold(f64::INFINITY, f64::min);
    let rate = total_bytes(bench.rows * bench.columns) / copy / 1e3;
    for (name, value, unit) in [("copy_rate", rate, "GB/s"), ("bound_credit", timed.credit, "share")] {
        let number = Measurement { value, unit: unit.into(), interval: None, samples: vec![] };
        child.measured(&format!("nf4.{name}.{}", bench_name(bench)), number);
    }
}

/// What NVML says of the card; nothing where there is no NVML, which `doctor` tells.
fn condition(session: &Session) -> Option<Condition> {
    Condition::of(&session.gpu.card().pci_bus).ok()
}

/// Records the card's condition after the last timed case.
fn tell(child: &mut Child, condition: Option<&Condition>) {
    let Some(condition) = condition else { return };
    let numbers = [
        ("nf4.sm_clock", condition.sm_clock_mhz.map(f64::from), "MHz"),
        ("nf4.memory_clock", condition.memory_clock_mhz.map(f64::from), "MHz"),
        ("nf4.temperature", condition.temperature_c.map(f64::from), "C"),
        ("nf4.power", condition.power_w, "W"),
        ("nf4.throttle_reasons", Some(condition.throttle.len() as f64), "count"),
    ];
    for (name, value, unit) in numbers {
        if let Some(value) = value {
            child.measured(name, Measurement { value, unit: unit.into(), interval: None, samples: vec![] });
        }
    }
}

/// Calls of a sample on a card with an L2 of so many bytes.
fn calls(bench: &Bench, l2_bytes: usize) -> usize {
    let set_bytes = total_bytes(bench.rows * bench.columns) as usize;
    CALLS.max((ROTATION * l2_bytes).div_ceil(set_bytes) + 1)
}

/// The share of a call's bytes that need not have left the L2 when the second event is recorded: it may still hold
/// its own size of what a sample's calls wrote.
pub fn credit(bench: &Bench, l2_bytes: usize) -> f64 {
    (l2_bytes as f64 / calls(bench, l2_bytes) as f64 / total_bytes(bench.rows * bench.columns)).min(1.0)
}

/// What a case's samples are, and what the calls left behind.
struct Timed {
    samples: Samples,
    credit: f64, // share of the bound, see `credit`
    wrong: Option<String>,
    behind: Option<String>,
}

fn timed(session: &Session, bench: &Bench, effort: &Effort) -> Tried<Timed> {
    let name = session.answer()?;
    let kernel = session.kernel(Build::of(bench.dtype), Via::Machine, name)?;
    let mut rotation = Rotation::new(session, bench, effort.seed)?;
    let attempt = rotation.attempt_graph(&kernel)?;
    let baseline = rotation.baseline_graph()?;
    rotation.sample(&attempt)?; // once unmeasured: clocks, instruction caches
    rotation.sample(&baseline)?;
    let plan = Plan::new(effort.quick, effort.samples, BUDGET);
    let begin = Tick::now();
    let credit = credit(bench, session.gpu.card().l2_bytes);
    let mut timed = Timed { samples: Samples::default(), credit, wrong: None, behind: None };
    let mut behind = Behind::default();
    loop {
        let mut attempts = 0;
        let mut round = Behind::default();
        for is_attempt in order(&mut rotation.random) {
            if !is_attempt {
                timed.samples.bound.push(rotation.copy_us(total_bytes(rotation.len))?);
                continue;
            }
            if attempts == 0 {
                timed
                    .samples
                    .baseline
                    .push(round.of_baseline(&rotation.sample(&baseline)?, rotation.calls()));
            }
            let sample = rotation.sample(&attempt)?;
            timed.samples.attempt.push(round.of_attempt(&sample, rotation.calls()));
            timed.wrong = timed.wrong.or(rotation.wrong()?);
            if attempts == 1 {
                timed
                    .samples
                    .baseline
                    .push(round.of_baseline(&rotation.sample(&baseline)?, rotation.calls()));
            }
            attempts += 1;
        }
        behind.add(&round);
        let (spent, rounds) = (since(begin), timed.samples.rounds(credit));
        let open = [rounds, behind.rounds].map(|rounds| rounds.verdict()).contains(&Bounded::Open);
        let enough = plan.is_over(rounds.count, spent) && !(open && spent < plan.budget + PATIENCE);
        if timed.wrong.is_some() || enough {
            break;
        }
    }
    timed.behind = behind.describe();
    Ok(timed)
}

/// How long the card is busy behind the second event: the host's time for a sample less that between the events. A
/// busy host makes it longer for baseline and attempt alike, so a round is as good as another's: it speaks against the
/// attempt where both of its samples are further behind than both of the baseline's, by more than the slack.
struct Behind {
    attempt: f64,  // the least of a round, less the slack, us
    baseline: f64, // the most of a round, us
    least: f64,    // of all attempts, us
    rounds: Rounds,
}

impl Default for Behind {
    fn default() -> Self {
        let rounds = Rounds { count: 0, against: 0 };
        Self { attempt: f64::INFINITY, baseline: 0.0, least: f64::INFINITY, rounds }
    }
}

impl Behind {
    /// Takes a sample of the attempt down, and hands on its time between the events.
    fn of_attempt(&mut self, sample: &Sample, calls: usize) -> f64 {
        let slack = HOST_SLACK_US + sample.event_us * calls as f64 * HOST_SLACK;
        self.attempt = self.attempt.min(sample.host_us - sample.event_us * calls as f64 - slack);
        sample.event_us
    }

    /// The same of the baseline.
    fn of_baseline(&mut self, sample: &Sample, calls: usize) -> f64 {
        self.baseline = self.baseline.max(sample.host_us - sample.event_us * calls as f64);
        sample.event_us
    }

    /// Counts a round.
    fn add(&mut self, round: &Self) {
        self.rounds.count += 1;
        self.rounds.against += usize::from(round.attempt > round.baseline);
        self.least = self.least.min(round.attempt);
    }

    fn describe(&self) -> Option<String> {
        let Rounds { count, against } = self.rounds;
        (self.rounds.verdict() == Bounded::Past).then(|| {
            let least = self.least;
            format!("the card was busy for {least:.0} us more than its events tell, in {against} of {count} rounds")
        })
    }
}

/// The matrices that calls rotate over, with what a sample needs.
pub(super) struct Rotation<'a> {
    session: &'a Session,
    sets: Vec<Set>,
    scratch: Allocation,
    copies: (Allocation, Allocation),
    events: (Event, Event),
    random: Random,
    dtype: OutputDtype,
    pub len: usize,
}

/// One matrix with its output, and the buffer between the baseline's launches.
struct Set {
    content: Content,
    output: Output,
    absmax: Allocation,
}

/// What one sample took.
pub(super) struct Sample {
    /// A call's share of the time between the events.
    pub event_us: f64,
    /// The host's clock over the whole sample.
    pub host_us: f64,
}

impl<'a> Rotation<'a> {
    pub fn new(session: &'a Session, bench: &Bench, seed: u64) -> Tried<Self> {
        let gpu = &session.gpu;
        let len = bench.rows * bench.columns;
        let count = calls(bench, gpu.card().l2_bytes);
        let set = |i: usize| {
            let content = Content::new(session, len, seed ^ bench.seed ^ (i as u64) << 32)?;
            let output = Output::new(gpu, bench.dtype, len, seed ^ i as u64, 0)?;
            let absmax = gpu.reserve("baseline's scales", Baseline::buffer_bytes(&content.weight))?;
            Ok(Set { content, output, absmax })
        };
        let scratch = 2 * gpu.card().l2_bytes.max(1 << 20);
        Ok(Self {
            session,
            sets: (0..count).map(set).collect::<Tried<_>>()?,
            scratch: gpu.zeroed("flush", scratch)?,
            copies: (gpu.zeroed("copy", COPY_BYTES)?, gpu.zeroed("copy", COPY_BYTES)?),
            events: (gpu.event()?, gpu.event()?),
            random: random::unforeseen().map_err(Trouble::Unmeasured)?,
            dtype: bench.dtype,
            len,
        })
    }

    /// Calls of a sample.
    pub fn calls(&self) -> usize {
        self.sets.len()
    }

    /// One call of a kernel on each matrix.
    pub fn attempt_graph(&self, kernel: &Kernel) -> Tried<Graph> {
        let gpu = &self.session.gpu;
        Ok(gpu.capture(gpu.stream(), |_| {
            self.sets.iter().try_for_each(|set| kernel.run(gpu, &set.content.weight, set.output.address()))
        })?)
    }

    /// The three launches on each matrix.
    pub fn baseline_graph(&self) -> Tried<Graph> {
        let gpu = &self.session.gpu;
        let baseline = Baseline::build(gpu, self.dtype)?;
        Ok(gpu.capture(gpu.stream(), |_| {
            let call = |set: &Set| baseline.run(gpu, &set.content.weight, &set.absmax, set.output.address());
            self.sets.iter().try_for_each(call)
        })?)
    }

    /// Fresh content, poison, a clean cache; then the graph between two events.
    pub fn sample(&mut self, graph: &Graph) -> Tried<Sample> {
        let (session, gpu) = (self.session, &self.session.gpu);
        for set in &mut self.sets {
            set.content.renew(session, self.random.next_u64())?;
            set.output.poison(gpu)?;
        }
        session.flush(&self.scratch)?;
        gpu.stream().sync()?;
        let begin = Tick::now();
        self.events.0.record(gpu.stream())?;
        graph.launch(gpu.stream())?;
        self.events.1.record(gpu.stream())?;
        gpu.stream().sync()?;
        let host_us = begin.micros();
        let event_us = self.events.1.micros_since(&self.events.0)? / self.calls() as f64;
        Ok(Sample { event_us, host_us })
    }

    /// Microseconds that a device copy needs to read and write so many bytes.
    pub fn copy_us(&mut self, bytes: f64) -> Tried<f64> {
        let gpu = &self.session.gpu;
        self.session.flush(&self.scratch)?;
        self.events.0.record(gpu.stream())?;
        for _ in 0..COPIES {
            self.copies.1.copy(gpu.stream(), 0, &self.copies.0, 0, COPY_BYTES)?;
        }
        self.events.1.record(gpu.stream())?;
        gpu.stream().sync()?;
        let us = self.events.1.micros_since(&self.events.0)?;
        Ok(us * bytes / (2.0 * (COPIES * COPY_BYTES) as f64))
    }

    /// What is wrong with the outputs, by windows of each.
    pub fn wrong(&mut self) -> Tried<Option<String>> {
        for (call, set) in self.sets.iter().enumerate() {
            let last = self.len / GRAIN;
            for window in 0..WINDOWS {
                let grain = if window == 0 { last - 1 } else { self.random.below(last) };
                let first = grain * GRAIN;
                let want = set.content.want(self.dtype, first, GRAIN);
                let shift = self.random.below(GRAIN - WINDOW);
                let got = set.output.window(first + shift, WINDOW)?;
                if let Some(i) = (0..WINDOW).find(|i| got[*i] != want[shift + i]) {
                    let element = first + shift + i;
                    return Ok(Some(format!(
                        "timed call {} left a wrong answer at element {element}",
                        call + 1
                    )));
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use challenges::nf4::cuda::BENCHES;

    use super::*;

    #[test]
    fn work_behind_the_second_event_shows_against_the_baselines() {
        let sample = |host_us| Sample { event_us: 10.0, host_us };
        let after = |attempt, baseline| {
            let mut behind = Behind::default();
            for _ in 0..8 {
                // as many as --quick takes: the fewest that can refuse
                let mut round = Behind::default();
                for _ in 0..2 {
                    round.of_baseline(&sample(baseline), 20);
                    round.of_attempt(&sample(attempt), 20);
                }
                behind.add(&round);
            }
            behind.describe()
        };
        assert_eq!(after(260.0, 260.0), None);
        assert_eq!(after(9000.0, 9000.0), None, "a busy host holds up both");
        assert!(after(9000.0, 260.0).expect("seen").contains("8350 us more"));
    }

    #[test]
    fn the_l2_is_credited_to_the_bound() {
        let bench =
            BENCHES.iter().find(|bench| bench_name(bench) == "4096x14336.bf16").expect("a timed case");
        let samples = |attempt: f64| Samples {
            attempt: vec![attempt; 18],
            bound: vec![50.0; 18],
            ..Samples::default()
        };
        assert_eq!(past_the_bound("case", &samples(49.0), 0.0), None);
        assert!(past_the_bound("case", &samples(45.0), 0.0).expect("refused").contains("45.0 us a call"));
        let two_percent = credit(bench, 60_000_000);
        assert!((two_percent - 0.0203).abs() < 1e-4, "3 MB of 148 a call may stay in the cache");
        assert_eq!(past_the_bound("case", &samples(45.0), two_percent), None);
    }
}
