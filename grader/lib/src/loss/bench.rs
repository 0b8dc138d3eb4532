//! Time against bytes over chunk sizes, everything trained. On a CPU: hidden 512, vocabulary 32,000, 2,048 tokens. On a
//! card: hidden 1,024, vocabulary 64,000, 8,192 tokens, logits of 2 GiB, so that the work of a chunk and not its launch
//! is what takes time.
//!
//! Two runs are timed in pairs: all tokens in one chunk by the solution, and what the attempt chooses for a tenth of its
//! bytes. The other sizes are run whole once each, for the picture. A run has ended when the device has.

use challenges::graph;
use challenges::loss::run::{Hidden, Job, Results, Runner, Size};
use challenges::loss::{Chunked, Solution};
use kernels::cpu::Tick;
use kernels::{Buffer, Device};
use reference::loss::Reduction;

use super::bytes::Meter;
use super::case::{Case, Sizes, Trial};
use super::checks::plain;
use crate::beside::{self, Beside};
use crate::compare::describe;
use crate::device::Processor;
use crate::gather::{Child, Effort, Unwound, caught};
use crate::random::Random;
use crate::scorecard::Measurement;
use crate::timing::{FEWEST_ROUNDS, Pairs, median, speedup};

/// What is timed.
struct Timing {
    sizes: Sizes,
    /// Pairs of runs: two are a round.
    pairs: usize,
    /// Whether each size runs once more before: a card captures what it runs the second time.
    warms: bool,
}

impl Timing {
    /// On a CPU a pair takes seconds: too few rounds for an interval.
    const CPU: Self = Self { sizes: Sizes { rows: 2048, width: 512, vocab: 32_000 }, pairs: 4, warms: false };

    const CARD: Self = Self {
        sizes: Sizes { rows: 8192, width: 1024, vocab: 64_000 },
        pairs: 2 * FEWEST_ROUNDS,
        warms: true,
    };

    fn of(processor: Processor, effort: &Effort) -> Self {
        let Self { sizes, pairs, warms } = if processor.is_card() { Self::CARD } else { Self::CPU };
        let (sizes, pairs) =
            if effort.quick { (Sizes { rows: sizes.rows / 8, ..sizes }, 2) } else { (sizes, pairs) };
        Self { sizes, pairs: effort.samples.unwrap_or(pairs), warms }
    }
}

/// The part of the whole run's bytes that chunks may take.
const PART: usize = 10;

/// Times it and reports the numbers.
pub(super) fn run(child: &mut Child, processor: Processor, attempt: &dyn Chunked) {
    let effort = child.request.effort.clone();
    let timing = Timing::of(processor, &effort);
    let device = processor.timed();
    let beside = device.cpu().map(Beside::new);
    match caught(|| measure(Trial { attempt, device: &*device }, &timing, &effort, beside)) {
        Ok(Ok(seen)) => report(child, &seen),
        Ok(Err(reason)) | Err(Unwound::Panic(reason)) => child.unmeasured("loss.over_whole", &reason),
        Err(Unwound::Hole(hole)) => child.unmeasured("loss.over_whole", &format!("not written yet: {hole}")),
    }
}

/// One run.
#[derive(Clone, Copy)]
struct Timed {
    milliseconds: f64,
    bytes: usize,
}

struct Seen {
    whole: Vec<Timed>,
    chunked: Vec<Timed>,
    rows: usize,
    sizes: Vec<(usize, Timed)>,
}

/// The problem on a device, with what is compiled for one size of chunk.
struct Bench<'a> {
    case: &'a Case,
    device: &'a dyn Device,
    runner: Runner<'a>,
    hidden: &'a Buffer,
    given: &'a std::collections::BTreeMap<String, compiler::session::DeviceTensor>,
    size: usize,
}

impl<'a> Bench<'a> {
    /// One run, with its bytes.
    fn counted(&mut self) -> Result<Timed, String> {
        self.counted_by(&Meter::begin(self.device)?)
    }

    /// The first whole run of a size. Two chunks of it run before: they compile, allocate and touch what every further
    /// chunk uses, so that the one whole run gives the time, and both together the bytes.
    fn first_run(&mut self) -> Result<Timed, String> {
        let two: Vec<bool> = (0..self.case.counts.len()).map(|row| row < 2 * self.size).collect();
        let meter = Meter::begin(self.device)?;
        let job = Job { counts: &two, ..self.job() };
        self.runner.run(job).map_err(describe)?;
        self.counted_by(&meter)
    }

    /// One run, with the bytes since a meter began.
    fn counted_by(&mut self, meter: &Meter<'_>) -> Result<Timed, String> {
        let (milliseconds, results) = self.run()?;
        Ok(Timed { milliseconds, bytes: meter.taken(results.gradient_bytes())?.peak })
    }

    /// One run, in milliseconds.
    fn run(&mut self) -> Result<(f64, Results), String> {
        let job = self.job();
        self.device.sync().map_err(describe)?;
        let start = Tick::now();
        let results = self.runner.run(job).map_err(describe)?;
        self.device.sync().map_err(describe)?;
        Ok((start.micros() / 1e3, results))
    }

    /// One run of which the bytes are known.
    fn timed(&mut self, bytes: usize) -> Result<Timed, String> {
        self.run().map(|(milliseconds, _)| Timed { milliseconds, bytes })
    }

    fn job(&self) -> Job<'a> {
        self.case.job(Hidden::Borrowed(self.hidden), self.given, Size::Rows(self.size))
    }
}

fn measure(
    on: Trial<'_>,
    timing: &Timing,
    effort: &Effort,
    mut beside: Option<Beside>,
) -> Result<Seen, String> {
    let Trial { attempt, device } = on;
    let Timing { sizes, pairs, warms } = *timing;
    let case =
        Case::drawn(plain(sizes.vocab, Reduction::Mean)?, sizes, &mut Random::named(effort.seed, "timed"));
    let case = Case { counts: vec![true; sizes.rows], ..case }.labelled();
    let (hidden, given) = case.given(device)?;
    let bench_of = |steps, size| Bench {
        case: &case,
        device,
        runner: Runner::new(device, &graph::Solution, steps, &case.problem),
        hidden: &hidden,
        given: &given,
        size,
    };
    let bench = |size| bench_of(attempt, size);
    let mut all = bench_of(&Solution, sizes.rows);
    let first = all.counted()?;
    let budget = Size::Bytes(first.bytes / PART);
    let rows = match caught(|| bench(1).runner.size(budget, sizes.rows)) {
        Err(Unwound::Hole(_)) => {
            Runner::new(device, &graph::Solution, &Solution, &case.problem).size(budget, sizes.rows)
        }
        Err(Unwound::Panic(message)) => return Err(message),
        Ok(rows) => rows,
    };
    let rows = rows.map_err(describe)?;
    bench(rows).run()?; // what products keep for good is there from here on
    let mut own = bench(rows);
    let bytes = [own.counted()?.bytes, first.bytes];
    if warms {
        all.run()?;
        own.run()?;
    }
    let (mut chunked, mut whole) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        let one_first = pair % 2 == 0;
        if one_first {
            chunked.push(own.timed(bytes[0])?);
        }
        let run = || all.timed(bytes[1]);
        whole.push(beside::watch(beside.as_mut(), run, |timed| timed.milliseconds * 1e3)?);
        if !one_first {
            chunked.push(own.timed(bytes[0])?);
        }
    }
    if let Some(reason) = beside.and_then(|beside| beside.fault("the run with all logits was timed")) {
        return Err(reason);
    }
    drop((own, all));
    let known = [(rows, typical(&chunked)), (sizes.rows, typical(&whole))];
    let mut others = Vec::new();
    let mut size = sizes.rows;
    while size >= 16 && !effort.quick {
        let timed = known.iter().find(|(rows, _)| *rows == size).map(|(_, timed)| Ok(*timed));
        others.push((size, timed.unwrap_or_else(|| bench(size).first_run())?));
        size /= 2;
    }
    Ok(Seen { whole, chunked, rows, sizes: others })
}

/// What several runs of one size took: the median, and their bytes.
fn typical(runs: &[Timed]) -> Timed {
    let times: Vec<f64> = runs.iter().map(|run| run.milliseconds).collect();
    Timed { milliseconds: median(&times), bytes: runs.first().map_or(0, |run| run.bytes) }
}

fn report(child: &mut Child, seen: &Seen) {
    let times = |all: &[Timed]| all.iter().map(|one| one.milliseconds).collect::<Vec<f64>>();
    let number = |value: f64, unit: &str, samples: Vec<f64>| Measurement {
        value,
        unit: unit.into(),
        interval: None,
        samples,
    };
    let (whole, chunked) = (times(&seen.whole), times(&seen.chunked));
    let (value, interval) = speedup(Pairs { baseline: &whole, attempt: &chunked });
    child.measured("loss.over_whole", Measurement { interval, ..number(value, "x", vec![]) });
    for (name, times, all) in [("whole", whole, &seen.whole), ("chunked", chunked, &seen.chunked)] {
        child.measured(&format!("loss.timed.{name}"), number(median(&times), "ms", times));
        child.measured(&format!("loss.timed.{name}.bytes"), number(typical(all).bytes as f64, "B", vec![]));
    }
    child.measured("loss.timed.rows", number(seen.rows as f64, "count", vec![]));
    for (size, one) in &seen.sizes {
        child.measured(&format!("loss.sizes.{size}.time"), number(one.milliseconds, "ms", vec![]));
        child.measured(&format!("loss.sizes.{size}.bytes"), number(one.bytes as f64, "B", vec![]));
    }
}
