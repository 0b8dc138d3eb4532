//! The bytes alive over one run of a small problem: operation by operation, compiled, and in chunks.
//!
//! All three run the graph of a chunk that the attempt wrote, the first two with all rows in one chunk. Bytes are what
//! the compiler forecasts for each part at the chunk's size, times are measured. It is for the picture: nothing rests
//! on it.

use std::collections::BTreeMap;

use challenges::graph;
use challenges::loss::problem::ROWS;
use challenges::loss::run::{Runner, Size, options};
use challenges::loss::{
    Chunked, Solution,
    plan::{ChunkPlan, Graphs},
};
use compiler::compile::{Compiled, Level, Options, compile};
use compiler::session::{NoDequantizer, Session, Settings};
use kernels::Device;
use reference::graph::Graph;
use reference::loss::Reduction;

use super::case::{Case, Sizes, Trial};
use super::checks::plain;
use crate::compare::{describe, upload};
use crate::device::Processor;
use crate::gather::{Child, Unwound, caught};
use crate::random::Random;
use crate::scorecard::Measurement;

/// The drawn problem: logits of 16 MiB.
const SIZES: Sizes = Sizes { rows: 512, width: 64, vocab: 8192 };

/// The part of the whole run's bytes that chunks may take.
const PART: usize = 8;

/// Bytes and milliseconds of each part.
type Stairs = Vec<[f64; 2]>;

/// Runs it and reports the numbers.
pub(super) fn run(child: &mut Child, processor: Processor, attempt: &dyn Chunked) {
    let device = processor.timed();
    let on = Trial { attempt, device: &*device };
    let seed = child.request.effort.seed;
    let seen = match caught(|| Seen::of(on, seed)) {
        Ok(Ok(seen)) => seen,
        Ok(Err(reason)) | Err(Unwound::Panic(reason)) => {
            return child.unmeasured("loss.stairs.rows", &reason);
        }
        Err(Unwound::Hole(hole)) => {
            return child.unmeasured("loss.stairs.rows", &format!("not written yet: {hole}"));
        }
    };
    let number = |value: f64, unit: &str, samples: Vec<f64>| {
        let unit = unit.into();
        Measurement { value, unit, interval: None, samples }
    };
    for (name, stairs) in
        [("op_by_op", &seen.plain), ("whole", &seen.whole), ("chunked", &seen.chunks.concat())]
    {
        let [alive, ms] = [0, 1].map(|i| stairs.iter().map(|stair| stair[i]).collect::<Vec<f64>>());
        let (peak, total) = (alive.iter().copied().fold(0.0, f64::max), ms.iter().sum());
        child.measured(&format!("loss.stairs.{name}"), number(peak, "B", alive));
        child.measured(&format!("loss.stairs.{name}_ms"), number(total, "ms", ms));
    }
    let parts: Vec<f64> = seen.chunks.iter().map(|chunk| chunk.len() as f64).collect();
    child.measured("loss.stairs.parts", number(seen.chunks.len() as f64, "count", parts));
    child.measured("loss.stairs.rows", number(seen.rows as f64, "count", vec![]));
}

struct Seen {
    plain: Stairs,
    whole: Stairs,
    chunks: Vec<Stairs>,
    rows: usize,
}

impl Seen {
    fn of(Trial { attempt, device }: Trial<'_>, seed: u64) -> Result<Self, String> {
        let case =
            Case::drawn(plain(SIZES.vocab, Reduction::Mean)?, SIZES, &mut Random::named(seed, "stairs"));
        let case = Case { counts: vec![true; SIZES.rows], ..case }.labelled();
        let case = case.seeded(vec![1.0 / SIZES.rows as f64; SIZES.rows]);
        let all = Graphs::new(attempt, &case.problem).map_err(describe)?.each;
        let by_op = Options { flex: false, donate: true, ..Level::O1.options() };
        let plain = stairs(device, &all, &case, by_op)?;
        let whole = stairs(device, &all, &case, options())?;
        let rows = chosen(device, attempt, &case, &whole)?;
        let plan = ChunkPlan::new(attempt, &case.problem, &case.counts, rows).map_err(describe)?;
        let chunk =
            |rows: &Vec<usize>| stairs(device, &plan.graphs.each, &case.part(0..rows.len()), options());
        let chunks: Result<Vec<Stairs>, String> = plan.chunks.iter().map(chunk).collect();
        Ok(Self { plain, whole, chunks: chunks?, rows: plan.largest() })
    }
}

/// The rows of a chunk that the attempt, or else the solution, chooses for a part of the whole run's bytes.
fn chosen(
    device: &dyn Device,
    attempt: &dyn Chunked,
    case: &Case,
    whole: &[[f64; 2]],
) -> Result<usize, String> {
    let budget = Size::Bytes(whole.iter().map(|stair| stair[0]).fold(0.0, f64::max) as usize / PART);
    let size =
        |attempt| Runner::new(device, &graph::Solution, attempt, &case.problem).size(budget, SIZES.rows);
    match caught(|| size(attempt)) {
        Err(Unwound::Hole(_)) => size(&Solution).map_err(describe),
        Err(Unwound::Panic(message)) => Err(message),
        Ok(rows) => rows.map_err(describe),
    }
}

/// A chunk's graph, compiled and run for all rows of a case.
fn stairs(device: &dyn Device, graph: &Graph, case: &Case, options: Options) -> Result<Stairs, String> {
    let sizes = BTreeMap::from([(ROWS.into(), case.counts.len() as i64)]);
    let compiled = compile(&graph::Solution, graph, &sizes, options).map_err(describe)?;
    let alive = compiled.memory_profile().steps;
    let alive = alive.iter().map(|stair| stair.alive.value(&sizes).map_or(0.0, |bytes| bytes as f64));
    Ok(alive.zip(times(device, graph, case, compiled)?).map(|(alive, ms)| [alive, ms]).collect())
}

/// Runs it twice, and tells what each part of the second run took, in ms.
fn times(device: &dyn Device, graph: &Graph, case: &Case, compiled: Compiled) -> Result<Vec<f64>, String> {
    let mut given = upload(device, &case.narrow()).map_err(describe)?;
    given.retain(|name, _| graph.find_input(name).is_some());
    let mut session = Session::new(&graph::Solution, device, &NoDequantizer, Settings::default());
    for name in compiled.donated() {
        if let Some(sum) = given.remove(name) {
            session.keep(name, sum);
        }
    }
    let program = session.load_compiled(compiled).map_err(describe)?;
    session.run(program, &given).map_err(describe)?;
    let times = session.profile(program, &given).map_err(describe)?;
    Ok(times.iter().map(|time| (time.as_secs_f64() * 1e7).round() / 1e4).collect())
}
