//! B.8: schedules that can be run, with bubbles as small as is asked for.

use challenges::fsdp::Fsdp;
use reference::schedule::{
    Buffer, Checked, Held, Schedule, Shape, Stage, Times, Workload, bound, check, one_f_one_b,
};

use super::{Check, Rows};
use crate::compare::describe;
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("can-be-run", |steps, _| {
        for ranks in [1, 2, 3, 5] {
            (1..=9).try_for_each(|count| runs(steps, ranks, count, &asked(None, None)))?;
        }
        Ok(())
    }),
    ("caps", |steps, _| {
        for (ranks, count) in [(4, 8), (2, 7), (5, 12)] {
            let caps = [13, 16, 26, 48, 100].into_iter();
            caps.map(|cap| asked(Some(cap), None)).try_for_each(|asked| runs(steps, ranks, count, &asked))?;
        }
        Ok(())
    }),
    ("a-cap-without-room", |steps, _| {
        let (shape, workload) = (Shape::line(4, 8).map_err(describe)?, asked(Some(12), None));
        match steps.schedule(shape, &workload) {
            Err(_) => Ok(()),
            Ok(_) => {
                Err("a micro-batch takes 13 units, the cap is 12: expected an error, found a schedule".into())
            }
        }
    }),
    ("a-buffer", |steps, _| {
        for reads in [None, Some(1), Some(2), Some(5)] {
            runs(steps, 4, 8, &asked(None, Some(Buffer { chunks: 1, reads })))?;
        }
        Ok(())
    }),
    ("any-workload", |steps, random| {
        (0..150).try_for_each(|_| {
            let [ranks, count] = [1 + random.below(6), 1 + random.below(12)];
            runs(steps, ranks, count, &drawn(ranks, random))
        })
    }),
    ("bubble-of-4-ranks", |steps, _| bubble(steps, 4, 8, 0.177)),
    ("bubble-of-8-ranks", |steps, _| bubble(steps, 8, 32, 0.100)),
    ("shorter-than-1f1b", |steps, _| {
        [(2, 4), (3, 6), (4, 8), (6, 12), (5, 7), (2, 2), (7, 9)]
            .into_iter()
            .try_for_each(|(ranks, count)| shorter(steps, ranks, count))
    }),
];

/// Layers that are computed again and adapters that are trained: F = R = B = 1, W = 0.1; an input of 1 unit, and 12
/// units that R makes and W reads.
pub(in crate::fsdp) fn asked(cap: Option<u64>, buffer: Option<Buffer>) -> Workload {
    let dequantize = if buffer.is_some() { 0.2 } else { 0.0 };
    let times = Times { forward: 1.0, backward: 1.0, weight: 0.1, recompute: 1.0, dequantize };
    let held = Held { forward: 1, recompute: 12, weight: 12 };
    let stage = Stage { times, held, recomputed: true, trained: true };
    Workload { cap, buffer, ..Workload::uniform(stage) }
}

/// Stages that are alike, or each with costs of its own; with and without a cap, messages that take time, and a buffer
/// whose weights go after some reads.
fn drawn(ranks: usize, random: &mut Random) -> Workload {
    let (recomputed, trained) = (random.below(2) == 0, random.below(4) > 0);
    let stages = if random.below(2) == 0 { 1 } else { ranks };
    let stages: Vec<Stage> = (0..stages).map(|_| stage(recomputed, trained, random)).collect();
    let latency = if random.below(2) == 0 { 0.0 } else { random.unit() / 4.0 };
    let reads = (random.below(2) == 0).then(|| 1 + random.below(6));
    let buffer = (random.below(3) == 0).then_some(Buffer { chunks: 1, reads });
    let needed = stages.iter().map(|stage| stage.held.forward + stage.held.recompute).max().unwrap_or(0);
    let cap = (random.below(2) == 0).then(|| needed + random.below(40) as u64);
    Workload { latency, buffer, cap, stages: stages.clone(), ..Workload::uniform(stages[0]) }
}

fn stage(recomputed: bool, trained: bool, random: &mut Random) -> Stage {
    let mut time = || 0.1 + random.unit();
    let [forward, backward, weight, recompute, dequantize] = [time(), time(), time(), time(), time() / 4.0];
    let times = Times { forward, backward, weight, recompute, dequantize };
    let [forward, recompute] = [1 + random.below(4), 1 + random.below(6)].map(|units| units as u64);
    let held = Held { forward, recompute, weight: random.below(forward as usize + 1) as u64 };
    Stage { times, held, recomputed, trained }
}

/// What is asked of a schedule that can be run.
fn checked<T>(
    attempt: &dyn Fsdp,
    shape: Shape,
    workload: &Workload,
    ask: impl FnOnce(&Checked<'_>) -> T,
) -> Result<T, String> {
    let schedule: Schedule =
        attempt.schedule(shape, workload).map_err(|error| format!("{shape}: {error}"))?;
    if schedule.shape() != shape {
        return Err(format!("expected a schedule of {shape}, found one of {}", schedule.shape()));
    }
    let checked = check(&schedule, workload).map_err(|error| format!("{error}\n{schedule}"))?;
    Ok(ask(&checked))
}

/// That a schedule can be run, in a time that is not below the bound, and near that of 1F1B or below it.
fn runs(attempt: &dyn Fsdp, ranks: usize, micro_batches: usize, workload: &Workload) -> Result<(), String> {
    let shape = Shape::line(ranks, micro_batches).map_err(describe)?;
    let least = bound(shape, workload).map_err(describe)?;
    let found = checked(attempt, shape, workload, |checked| checked.simulate().makespan())?;
    if found < least * (1.0 - SAME) {
        return Err(format!("{shape}: {} units of time, below the bound of {}", units(found), units(least)));
    }
    match known(shape, workload) {
        Some(known) if found > known * allowed(workload) => Err(format!(
            "{shape}: {} units of time, and 1F1B takes {}, of\n{workload:?}",
            units(found),
            units(known)
        )),
        _ => Ok(()),
    }
}

/// Times that are nearer than this part of them are the same.
const SAME: f64 = 1e-9;

/// What a schedule may take of the time of 1F1B. Where all stages are alike and only their times count, no more than
/// that; a rule that is good there is not the best for every other workload, and up to a quarter slower for some.
fn allowed(workload: &Workload) -> f64 {
    let Workload { stages, latency, buffer, cap, .. } = workload;
    let is_plain = stages.len() == 1 && *latency == 0.0 && buffer.is_none();
    match cap {
        Some(_) => f64::INFINITY, // a tight one lets a rule do one micro-batch at a time
        None if is_plain => 1.0 + SAME,
        None => 1.5,
    }
}

/// The time of 1F1B, if it can be run.
fn known(shape: Shape, workload: &Workload) -> Option<f64> {
    let schedule = one_f_one_b(shape, workload).ok()?;
    Some(check(&schedule, workload).ok()?.simulate().makespan())
}

/// That a schedule is shorter than 1F1B where a layer takes as long to compute again as it took first, and W is short.
fn shorter(attempt: &dyn Fsdp, ranks: usize, micro_batches: usize) -> Result<(), String> {
    let (shape, workload) = (Shape::line(ranks, micro_batches).map_err(describe)?, asked(None, None));
    let own = checked(attempt, shape, &workload, |checked| checked.simulate().makespan())?;
    let known = known(shape, &workload).ok_or("1F1B cannot be run")?;
    if own < known {
        return Ok(());
    }
    Err(format!(
        "{shape}: expected less than the {} units of time of 1F1B, found {}",
        units(known),
        units(own)
    ))
}

/// A time as it is read: sums of tenths are no tenths.
fn units(time: f64) -> f64 {
    (time * 1e6).round() / 1e6
}

/// Idle time of all ranks, as a part of theirs, where layers are computed again.
fn bubble(attempt: &dyn Fsdp, ranks: usize, micro_batches: usize, most: f64) -> Result<(), String> {
    let (shape, workload) = (Shape::line(ranks, micro_batches).map_err(describe)?, asked(None, None));
    let found = checked(attempt, shape, &workload, |checked| checked.simulate().bubble())?;
    if found <= most {
        return Ok(());
    }
    let known = one_f_one_b(shape, &workload).map_err(describe)?;
    let known = check(&known, &workload).map_err(describe)?.simulate().bubble();
    let cause = if found >= known {
        "\nlikely cause: R waits for the gradient, as in 1F1B; it needs its own F alone"
    } else {
        ""
    };
    Err(format!(
        "{shape}: a bubble of {:.2} % (limit {:.1} %; 1F1B: {:.2} %){cause}",
        100.0 * found,
        100.0 * most,
        100.0 * known
    ))
}
