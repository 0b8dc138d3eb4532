//! A small Llama in NF4 with an adapter, trained on one rank and on two: in shards, with shared layers, in a pipeline.

use challenges::fsdp::{FSDP, Fsdp, PP, Pipeline, Sharding, Solution, TP};
use challenges::nf4::DEQUANTIZER;
use reference::fsdp::Parameter;
use reference::llama::Storage;
use reference::schedule::{Placement, Schedule, Shape, Workload, bound, check};

use super::checks::asked;
use super::job::{How, Job, Trained};
use crate::compare::describe;
use crate::gather::{Child, Unwound, caught};
use crate::graph::model::Sizes;
use crate::scorecard::Measurement;

/// Steps, as published.
pub(super) const STEPS: usize = 60;
/// Steps of the runs that share layers or stages: what is wrong in them shows at the first.
const STEPS_IN_PARTS: usize = 12;
/// Micro-batches of a step, and the rows and tokens of each: 2 x 4 as published.
const MICRO_BATCHES: usize = 4;
const SHAPE: [usize; 2] = [2, 16];
const RATE: f64 = 1e-3;
/// Ranks.
pub(super) const RANKS: usize = 2;
const LLAMA: Sizes = Sizes { layers: 2, hidden: 128, heads: 4, vocab: 96 };

/// Two ranks in shards against one.
pub(super) fn run_in_shards(child: &mut Child, attempt: &dyn Fsdp) {
    let seed = child.request.effort.seed;
    let run = || -> Result<Shards, String> {
        let job = Job::drawn(LLAMA, seed, RATE, [STEPS, MICRO_BATCHES], SHAPE)?;
        let one = one_rank(&job)?;
        let ranks = job.train(&[(FSDP, RANKS)], how(attempt))?;
        Ok(Shards { share: share(&job), one, ranks })
    };
    let Some(seen) = told(child, "fsdp.training", run) else { return };
    report_shards(child, &seen);
}

/// A run in shards beside that of one rank.
struct Shards {
    one: Trained,
    ranks: Vec<Trained>,
    share: [usize; 2], // bytes: the most that a rank may hold, and everything
}

fn how(attempt: &dyn Fsdp) -> How<'_> {
    How { attempt, dequantizer: &DEQUANTIZER, pipeline: None, sharding: Sharding::Parameters }
}

fn one_rank(job: &Job) -> Result<Trained, String> {
    Ok(job.train(&[(FSDP, 1)], how(&Solution))?.swap_remove(0))
}

/// The most bytes of frozen weights that one of the ranks may hold - 1/n of each in whole blocks, and tables - and the
/// bytes of all weights.
fn share(job: &Job) -> [usize; 2] {
    let mut sums = [0; 2];
    for spec in job.spec.config.tensor_specs() {
        let storage = job.spec.storages.get(&spec.name).copied();
        let storage = storage.unwrap_or(Storage::Dense(job.spec.compute));
        let parameter = Parameter { name: spec.name, shape: spec.shape, storage };
        sums[0] += Solution.place(&parameter, RANKS).rank_bytes(&parameter);
        sums[1] += parameter.parts().iter().map(|part| part.elements() * part.dtype.bytes()).sum::<usize>();
    }
    sums
}

pub(super) fn number(value: f64, unit: &str) -> Measurement {
    Measurement { value, unit: unit.into(), interval: None, samples: vec![] }
}

fn report_shards(child: &mut Child, Shards { one, ranks, share }: &Shards) {
    child.measured("fsdp.training", number(losses_apart(one, ranks), "relative"));
    let mut series = |name: &str, samples: &[f64]| {
        if let Some(last) = samples.last().filter(|_| samples.iter().all(|sample| sample.is_finite())) {
            let samples = samples.to_vec();
            child
                .measured(&format!("fsdp.training.{name}"), Measurement { samples, ..number(*last, "nats") });
        }
    };
    series("one", &one.losses);
    for (rank, trained) in ranks.iter().enumerate() {
        series(&format!("rank_{rank}"), &trained.losses);
    }
    let most = |of: fn(&Trained) -> usize| ranks.iter().map(of).max().unwrap_or(0) as f64;
    let recompiled = |trained: &Trained| trained.compilations[1] - trained.compilations[0];
    for (name, value, unit) in [
        ("norms", ranks.iter().map(|own| apart(&one.norms, &own.norms)).fold(0.0, f64::max), "relative"),
        ("adapter", ranks.iter().map(|own| state_apart(one, own)).fold(0.0, f64::max), "relative"),
        ("ranks", ranks.len() as f64, "count"),
        ("bytes", most(|trained| trained.weight_bytes), "B"),
        ("share", share[0] as f64, "B"),
        ("all_bytes", share[1] as f64, "B"),
        ("gathered", most(|trained| trained.gathered_bytes as usize), "B"),
        ("compilations", most(|trained| trained.compilations[0]), "count"),
        ("recompilations", ranks.iter().map(recompiled).max().unwrap_or(0) as f64, "count"),
        ("runs", ranks.iter().map(|trained| trained.runs).min().unwrap_or(0) as f64, "count"),
    ] {
        child.measured(&format!("fsdp.training.{name}"), number(value, unit));
    }
}

/// The largest difference, relative, of any rank's losses from those of one.
fn losses_apart(one: &Trained, ranks: &[Trained]) -> f64 {
    ranks.iter().map(|own| apart(&one.losses, &own.losses)).fold(0.0, f64::max)
}

fn apart(one: &[f64], own: &[f64]) -> f64 {
    crate::loss::series_apart(&[one.to_vec(), own.to_vec()])
}

/// The largest difference of an adapter's number, as a part of the largest one.
fn state_apart(one: &Trained, own: &Trained) -> f64 {
    let trained = |name: &&String| name.starts_with("base_model.");
    let mut largest: [f64; 2] = [0.0; 2];
    for name in one.state.keys().filter(trained) {
        let Some(other) = own.state.get(name) else { return f64::MAX };
        for (x, y) in one.state[name].wide().into_iter().zip(other.wide()) {
            largest[0] = largest[0].max((x - y).abs());
            largest[1] = largest[1].max(x.abs());
        }
    }
    if largest[0].is_finite() { largest[0] / largest[1].max(f64::MIN_POSITIVE) } else { f64::MAX }
}

/// Two ranks that share layers, and two stages of a pipeline, against one rank; and the bubble of the schedule.
pub(super) fn run_in_parts(child: &mut Child, attempt: &dyn Fsdp) {
    let seed = child.request.effort.seed;
    let job = || Job::drawn(LLAMA, seed, RATE, [STEPS_IN_PARTS, MICRO_BATCHES], SHAPE);
    let tensor = || -> Result<f64, String> {
        let job = job()?;
        Ok(losses_apart(&one_rank(&job)?, &job.train(&[(TP, RANKS)], how(attempt))?))
    };
    if let Some(apart) = told(child, "fsdp.tensor", tensor) {
        child.measured("fsdp.tensor", number(apart, "relative"));
    }
    let pipeline = || -> Result<f64, String> {
        let job = job()?;
        let schedule = |shape: Shape, workload: &Workload| attempt.schedule(shape, workload);
        let workload = asked(None, None);
        let pipeline =
            Pipeline { chunks: 1, placement: Placement::Looped, workload, schedule: &schedule, turns: None };
        let how = How { pipeline: Some(&pipeline), ..how(attempt) };
        Ok(losses_apart(&one_rank(&job)?, &job.train(&[(PP, RANKS)], how)?))
    };
    if let Some(apart) = told(child, "fsdp.pipeline", pipeline) {
        child.measured("fsdp.pipeline", number(apart, "relative"));
    }
    let flat = || -> Result<[f64; 3], String> {
        let job = job()?;
        let ranks = job.train(&[(FSDP, RANKS)], How { sharding: Sharding::Flat, ..how(attempt) })?;
        let bytes = ranks.iter().map(|rank| rank.weight_bytes).max().unwrap_or(0);
        Ok([losses_apart(&one_rank(&job)?, &ranks), bytes as f64, share(&job)[0] as f64])
    };
    if let Some([apart, bytes, share]) = told(child, "fsdp.flat", flat) {
        child.measured("fsdp.flat", number(apart, "relative"));
        child.measured("fsdp.flat.bytes", number(bytes, "B"));
        child.measured("fsdp.flat.share", number(share, "B"));
    }
    if let Some([bubble, least]) = told(child, "fsdp.bubble", || bubble(attempt)) {
        child.measured("fsdp.bubble", number(bubble, "part"));
        child.measured("fsdp.bubble.least", number(least, "part"));
    }
}

/// The bubble of the attempt's schedule for 4 ranks and 8 micro-batches, and that of the bound.
fn bubble(attempt: &dyn Fsdp) -> Result<[f64; 2], String> {
    let (shape, workload) = (Shape::line(4, 8).map_err(describe)?, asked(None, None));
    let schedule: Schedule = attempt.schedule(shape, &workload).map_err(describe)?;
    let timeline = check(&schedule, &workload).map_err(describe)?.simulate();
    let busy: f64 = timeline.busy().iter().sum();
    let least = 1.0 - busy / (4.0 * bound(shape, &workload).map_err(describe)?);
    Ok([timeline.bubble(), least])
}

/// What a run gives; or what stood in the way is reported under a name.
pub(super) fn told<T>(child: &mut Child, name: &str, run: impl FnOnce() -> Result<T, String>) -> Option<T> {
    match caught(run) {
        Ok(Ok(seen)) => return Some(seen),
        Ok(Err(reason)) | Err(Unwound::Panic(reason)) => child.unmeasured(name, &reason),
        Err(Unwound::Hole(hole)) => child.unmeasured(name, &format!("not written yet: {hole}")),
    }
    None
}
