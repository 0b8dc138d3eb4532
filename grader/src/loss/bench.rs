//! Time against bytes over chunk sizes: hidden 512, vocabulary 32,000, 2,048 tokens, everything trained.

use challenges::graph;
use challenges::loss::run::{Hidden, Runner, Size};
use challenges::loss::{Chunked, Solution};
use kernels::bytes::Peak;
use kernels::cpu::Tick;
use kernels::{Buffer, Cpu};
use reference::loss::Reduction;

use super::case::{Case, Sizes};
use super::checks::plain;
use crate::gather::{Child, Effort, Unwound, caught};
use crate::graph::describe;
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

impl Bench<'_> {
    fn run(&mut self) -> Result<Timed, String> {
        let peak = Peak::begin().ok_or(super::bytes::NO_PEAK)?;
        let start = Tick::now();
        let job = self.case.job(Hidden::Borrowed(self.hidden), self.given, Size::Rows(self.size));
        let results = self.runner.run(job).map_err(describe)?;
        let milliseconds = start.micros() / 1e3;
        let returned: usize = results.gradients.values().map(Buffer::bytes).sum();
        Ok(Timed { milliseconds, bytes: peak.bytes().saturating_sub(returned) })
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
    let first = bench(sizes.rows).run()?;
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
    let bytes = [bench(rows).run()?.bytes, first.bytes];
    let (mut own, mut all) = (bench(rows), bench(sizes.rows));
    own.run()?;
    all.run()?;
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
    let mut others = Vec::new();
    let mut size = sizes.rows;
    while size >= 16 && !effort.quick {
        let mut bench = bench(size);
        let bytes = bench.run()?.bytes;
        others.push((size, Timed { bytes, ..bench.run()? }));
        size /= 2;
    }
    Ok(Seen { whole, chunked, rows, sizes: others })
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
        let bytes = all.first().map_or(0, |one| one.bytes);
        child.measured(&format!("loss.timed.{name}.bytes"), number(bytes as f64, "B", vec![]));
    }
    child.measured("loss.timed.rows", number(seen.rows as f64, "count", vec![]));
    for (size, one) in &seen.sizes {
        child.measured(&format!("loss.sizes.{size}.time"), number(one.milliseconds, "ms", vec![]));
        child.measured(&format!("loss.sizes.{size}.bytes"), number(one.bytes as f64, "B", vec![]));
    }
}
