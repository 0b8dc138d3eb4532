//! A time below which no schedule of a workload stays.
//!
//! Take a rank, and of its stages the first, `s`. Before its first F, R or B the micro-batch has to come down:
//!
//! ```text
//! head = D of stage 0, F of the stages before s, and their messages
//! ```
//!
//! Then it does all its F, R and B. The last of them is a B, for each B comes after its own F and R. Afterwards that
//! micro-batch's gradient has to go up through the stages before it, and stage 0 has its W still to do:
//!
//! ```text
//! tail = B of the stages s - 1 .. 0, and their messages, and W of stage 0
//! ```
//!
//! So the step takes at least `head + work + tail`, with `work` the sum of F, R and B over all micro-batches and all
//! the rank's stages; and at least `head + work + all its W`. R does not stand in the tail: that is what a schedule
//! wins that recomputes before the gradient comes, and what one that recomputes in its backward cannot reach. W does
//! not stand in the work: it may be put off, as in arXiv 2401.10241.
//!
//! With several stages a rank, one micro-batch alone may take longer: `head + F + R + B + tail` of the last stage.
//!
//! *Memory* limits how much W is put off. While the last B of a rank runs it holds that micro-batch, and `held.weight`
//! of each one whose W is not done. With one stage a rank at most `k = 1 + (cap - held by the last) / held.weight` W
//! are left when the last B ends, and the other `m - k` belong to the work.
//!
//! *Dequantisation*: the D that comes before the first read of a chunk may run in the head; all others belong to the
//! work, for a D that nothing reads afterwards is of no use. A micro-batch is read at least twice, by F and by B, which
//! only the last stage may do in one operation.
//!
//! For p equal stages without a cap the last rank gives the largest: `(p - 1)(F + B) + m (F + R + B) + W`, if all its W
//! but one fit in the tail.

use super::{Error, Kind, Shape, Workload};

/// A time that no schedule undercuts which does this work under this cap, in the workload's unit of time.
///
/// Fails where [`Workload::check`] does.
pub fn bound(shape: Shape, workload: &Workload) -> Result<f64, Error> {
    workload.check(shape)?;
    let paths = paths(shape, workload);
    let ranks = (0..shape.ranks()).map(|rank| of_rank(shape, workload, rank, &paths));
    Ok(ranks.fold(of_micro_batch(shape, workload, &paths), f64::max))
}

/// For each stage its head and its tail.
fn paths(shape: Shape, workload: &Workload) -> Vec<(f64, f64)> {
    let load = |stage| if workload.buffer.is_some() { workload.time(Kind::Dequantize, stage) } else { 0.0 };
    let (mut head, mut tail): (f64, f64) = (load(0), weight(workload, 0));
    let mut paths = vec![(head, tail)];
    for stage in 1..shape.stages() {
        let hop = workload.hop(shape, stage - 1, stage);
        head = load(stage).max(head + workload.time(Kind::Forward, stage - 1) + hop);
        tail += workload.time(Kind::Backward, stage - 1) + hop;
        paths.push((head, tail));
    }
    paths
}

/// The way of one micro-batch through all stages and back.
fn of_micro_batch(shape: Shape, workload: &Workload, paths: &[(f64, f64)]) -> f64 {
    let last = shape.stages() - 1;
    paths[last].0 + in_between(workload, last) + paths[last].1
}

fn of_rank(shape: Shape, workload: &Workload, rank: usize, paths: &[(f64, f64)]) -> f64 {
    let stages: Vec<usize> = (0..shape.chunks()).map(|chunk| shape.stage(rank, chunk)).collect();
    let least =
        |of: fn(&(f64, f64)) -> f64| stages.iter().map(|stage| of(&paths[*stage])).fold(f64::MAX, f64::min);
    let micro_batches = shape.micro_batches() as f64;
    let work: f64 = stages.iter().map(|stage| micro_batches * in_between(workload, *stage)).sum();
    let load: f64 = stages.iter().map(|stage| later_loads(shape, workload, *stage)).sum();
    let weights: f64 = stages.iter().map(|stage| micro_batches * weight(workload, *stage)).sum();
    let early = if let [stage] = stages[..] { early_weights(shape, workload, stage) } else { 0.0 };
    let tail = least(|path| path.1).max(weights - early);
    least(|path| path.0) + work + load + early + tail
}

/// F, R and B of one micro-batch.
fn in_between(workload: &Workload, stage: usize) -> f64 {
    let asked = [Kind::Forward, Kind::Recompute, Kind::Backward].into_iter();
    asked.filter(|kind| workload.asks(*kind, stage)).map(|kind| workload.time(kind, stage)).sum()
}

fn weight(workload: &Workload, stage: usize) -> f64 {
    if workload.asks(Kind::Weight, stage) { workload.time(Kind::Weight, stage) } else { 0.0 }
}

/// Time of the W that the cap does not allow to be put off beyond the last B.
fn early_weights(shape: Shape, workload: &Workload, stage: usize) -> f64 {
    let costs = workload.stage(stage);
    let (Some(cap), held @ 1..) = (workload.cap, costs.held_by_weight()) else { return 0.0 };
    let late = 1 + cap.saturating_sub(costs.held_by_backward()) / held;
    (shape.micro_batches() as u64).saturating_sub(late) as f64 * weight(workload, stage)
}

/// Time of all D of a chunk but its first.
fn later_loads(shape: Shape, workload: &Workload, stage: usize) -> f64 {
    let Some(reads) = workload.buffer.and_then(|buffer| buffer.reads) else { return 0.0 };
    let a_micro_batch = if stage + 1 == shape.stages() { 1 } else { 2 };
    let loads = (shape.micro_batches() * a_micro_batch).div_ceil(reads);
    (loads - 1) as f64 * workload.time(Kind::Dequantize, stage)
}
