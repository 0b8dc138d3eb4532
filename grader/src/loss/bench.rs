//! Time against bytes over chunk sizes: hidden 512, vocabulary 32,000, 2,048 tokens, everything trained.
//!
//! Two sizes are timed in pairs: all tokens in one chunk, and what the attempt chooses for a tenth of its bytes. The
//! others are run whole once each, for the picture.

use challenges::graph;
use challenges::loss::run::{Hidden, Job, Runner, Size};
use challenges::loss::{Chunked, Solution};
use kernels::bytes::Peak;
use kernels::cpu::Tick;
use kernels::{Buffer, Cpu};
use reference::loss::Reduction;

use super::case::{Case, Sizes};
use super::checks::plain;
use crate::compare::describe;
use crate::gather::{Child, Effort, Unwound, caught};
use crate::random::Random;
use crate::scorecard::Measurement;
use crate::timing::{Pairs, median, speedup};

/// The timed problem.
const SIZES: Sizes = Sizes { rows: 2048, width: 512, vocab: 32_000 };

/// The part of the whole run's bytes that chunks may take.
const PART: usize = 10;

/// Times it and reports the numbers.
pub(super) fn run(child: &mut Child, attempt: &dyn Chunked) {
    let effort = child.request.effort.clone();
    match caught(|| measure(attempt, &effort)) {
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
    runner: Runner<'a>,
    hidden: &'a Buffer,
    given: &'a std::collections::BTreeMap<String, compiler::session::DeviceTensor>,
    size: usize,
}

impl<'a> Bench<'a> {
    fn run(&mut self) -> Result<Timed, String> {
        self.counted(&Peak::begin().ok_or(super::bytes::NO_PEAK)?)
    }

    /// The first whole run of a size. Two chunks of it run before: they compile, allocate and touch what every further
    /// chunk uses, so that the one whole run gives the time, and both together the bytes.
    fn first_run(&mut self) -> Result<Timed, String> {
        let two: Vec<bool> = (0..self.case.counts.len()).map(|row| row < 2 * self.size).collect();
        let peak = Peak::begin().ok_or(super::bytes::NO_PEAK)?;
        let job = Job { counts: &two, ..self.job() };
        self.runner.run(job).map_err(describe)?;
        self.counted(&peak)
    }

    /// One run, with the bytes since `peak` began.
    fn counted(&mut self, peak: &Peak) -> Result<Timed, String> {
        let start = Tick::now();
        let job = self.job();
        let results = self.runner.run(job).map_err(describe)?;
        let milliseconds = start.micros() / 1e3;
        let returned: usize = results.gradients.values().map(Buffer::bytes).sum();
        Ok(Timed { milliseconds, bytes: peak.bytes().saturating_sub(returned) })
    }

    fn job(&self) -> Job<'a> {
        self.case.job(Hidden::Borrowed(self.hidden), self.given, Size::Rows(self.size))
    }
}

fn measure(attempt: &dyn Chunked, effort: &Effort) -> Result<Seen, String> {
    let sizes = if effort.quick { Sizes { rows: 256, ..SIZES } } else { SIZES };
    let case =
        Case::drawn(plain(sizes.vocab, Reduction::Mean)?, sizes, &mut Random::named(effort.seed, "timed"));
    let case = Case { counts: vec![true; sizes.rows], ..case }.labelled();
    let device = Cpu::new();
    let (hidden, given) = case.given(&device)?;
    let bench = |size| Bench {
        case: &case,
        runner: Runner::new(&device, &graph::Solution, attempt, &case.problem),
        hidden: &hidden,
        given: &given,
        size,
    };
    let mut all = bench(sizes.rows);
    let first = all.run()?;
    let budget = Size::Bytes(first.bytes / PART);
    let rows = match caught(|| bench(1).runner.size(budget, sizes.rows)) {
        Err(Unwound::Hole(_)) => {
            Runner::new(&device, &graph::Solution, &Solution, &case.problem).size(budget, sizes.rows)
        }
        Err(Unwound::Panic(message)) => return Err(message),
        Ok(rows) => rows,
    };
    let rows = rows.map_err(describe)?;
    bench(rows).run()?; // what products keep for good is there from here on
    let mut own = bench(rows);
    let bytes = [own.run()?.bytes, first.bytes];
    let (mut chunked, mut whole) = (Vec::new(), Vec::new());
    for pair in 0..effort.samples.unwrap_or(if effort.quick { 2 } else { 4 }) {
        let one_first = pair % 2 == 0; // two pairs are a round, too few of them for an interval
        if one_first {
            chunked.push(Timed { bytes: bytes[0], ..own.run()? });
        }
        whole.push(Timed { bytes: bytes[1], ..all.run()? });
        if !one_first {
            chunked.push(Timed { bytes: bytes[0], ..own.run()? });
        }
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
