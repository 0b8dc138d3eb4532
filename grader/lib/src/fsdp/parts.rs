//! The same model on ranks that share its layers, on the stages of a pipeline, and in flat rows.
//!
//! Each of these runs takes the attempt's steps that it is about, and the solution's for the rest: who wrote B.7 alone
//! has ranks that share layers.

use challenges::fsdp::{FSDP, Fsdp, PP, Pipeline, Sharding, Solution, TP};
use reference::schedule::{Placement, Schedule, Shape, Workload, bound, check};

use super::checks::asked;
use super::job::{How, Job};
use super::step_under_test::{step_among, step_under_test};
use super::train::{LLAMA, MICRO_BATCHES, RATE, SHAPE, how, losses_apart, one_rank, share};
use super::trial::{FLAT, PIPELINE, RANKS, SHARED, Stop, Trial, number};
use crate::compare::describe;
use crate::gather::Child;
use crate::scorecard::LOSSES_APART;

/// Steps of these runs: what is wrong in them shows at the first.
const STEPS: usize = 12;

fn job(seed: u64) -> Result<Job, Stop> {
    Job::drawn(LLAMA, seed, RATE, [STEPS, MICRO_BATCHES], SHAPE).map_err(Stop::Machine)
}

/// How far a run on some ranks is from that of one.
fn apart(job: &Job, axes: &[(&str, usize)], how: How<'_>) -> Result<f64, Stop> {
    let one = one_rank(job, STEPS).map_err(Stop::Machine)?;
    let ranks = job.train(axes, how, STEPS).map_err(Stop::Attempt)?;
    Ok(losses_apart(&one, &ranks))
}

fn near(apart: f64) -> Result<(), String> {
    if apart <= LOSSES_APART {
        return Ok(());
    }
    Err(format!("expected losses at most {LOSSES_APART:.0e} from one rank's, found them {apart:.1e} apart"))
}

/// Two ranks that share every layer, by the attempt's B.7.
pub(super) fn layers(child: &mut Child, attempt: &dyn Fsdp) {
    let seed = child.request.effort.seed;
    let run = || {
        let steps = step_under_test("B.7", attempt);
        apart(&job(seed)?, &[(TP, RANKS)], how(&steps))
    };
    Trial { name: SHARED, attempt }.run(child, run, |child, found| {
        child.measured("fsdp.tensor", number(*found, "relative"));
        near(*found)
    });
}

/// Two stages of a pipeline, by the attempt's B.8; and the bubble of its schedule, simulated.
pub(super) fn pipeline(child: &mut Child, attempt: &dyn Fsdp) {
    let seed = child.request.effort.seed;
    let run = || {
        let apart = in_stages(&job(seed)?, attempt)?;
        Ok((apart, bubble(attempt).map_err(Stop::Attempt)?))
    };
    Trial { name: PIPELINE, attempt }.run(child, run, |child, (apart, [bubble, least])| {
        child.measured("fsdp.pipeline", number(*apart, "relative"));
        child.measured("fsdp.bubble", number(*bubble, "part"));
        child.measured("fsdp.bubble.least", number(*least, "part"));
        near(*apart)
    });
}

fn in_stages(job: &Job, attempt: &dyn Fsdp) -> Result<f64, Stop> {
    let schedule = |shape: Shape, workload: &Workload| attempt.schedule(shape, workload);
    let workload = asked(None, None);
    let pipeline =
        Pipeline { chunks: 1, placement: Placement::Looped, workload, schedule: &schedule, slots: None };
    apart(job, &[(PP, RANKS)], How { pipeline: Some(&pipeline), ..how(&Solution) })
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

/// Flat rows of everything frozen that a piece reads, by the attempt's B.1, B.2 and B.4.
pub(super) fn flat(child: &mut Child, attempt: &dyn Fsdp) {
    let seed = child.request.effort.seed;
    let run = || {
        let reduce = step_under_test("B.4", attempt);
        let gather = step_among("B.2", attempt, &reduce);
        let steps = step_among("B.1", attempt, &gather);
        let job = job(seed)?;
        let one = one_rank(&job, STEPS).map_err(Stop::Machine)?;
        let how = How { sharding: Sharding::Flat, ..how(&steps) };
        let ranks = job.train(&[(FSDP, RANKS)], how, STEPS).map_err(Stop::Attempt)?;
        let bytes = ranks.iter().map(|rank| rank.weight_bytes).max().unwrap_or(0);
        Ok((losses_apart(&one, &ranks), bytes, share(&job)[0]))
    };
    Trial { name: FLAT, attempt }.run(child, run, |child, (apart, bytes, share)| {
        child.measured("fsdp.flat", number(*apart, "relative"));
        child.measured("fsdp.flat.bytes", number(*bytes as f64, "B"));
        child.measured("fsdp.flat.share", number(*share as f64, "B"));
        if bytes > share {
            return Err(format!("expected at most {share} B of frozen weights on a rank, found {bytes}"));
        }
        near(*apart)
    });
}
