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
        [13, 16, 26, 48, 100].into_iter().try_for_each(|cap| runs(steps, 4, 8, &asked(Some(cap), None)))
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
        (0..60).try_for_each(|_| runs(steps, 1 + random.below(5), 1 + random.below(10), &drawn(random)))
    }),
    ("bubble-of-4-ranks", |steps, _| bubble(steps, 4, 8, 0.177)),
    ("bubble-of-8-ranks", |steps, _| bubble(steps, 8, 32, 0.100)),
    ("shorter-than-1f1b", |steps, _| {
        for (ranks, count) in [(2, 4), (3, 6), (4, 8), (6, 12)] {
            let (shape, workload) = (Shape::line(ranks, count).map_err(describe)?, asked(None, None));
            let own = checked(steps, shape, &workload, |checked| checked.simulate().makespan())?;
            let known = one_f_one_b(shape, &workload).map_err(describe)?;
            let known = check(&known, &workload).map_err(describe)?.simulate().makespan();
            if own > known {
                return Err(format!("{shape}: {own} units of time, 1F1B takes {known}"));
            }
        }
        Ok(())
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

fn drawn(random: &mut Random) -> Workload {
    let mut time = || 0.1 + random.unit();
    let times = Times {
        forward: time(),
        backward: time(),
        weight: time(),
        recompute: time(),
        dequantize: time() / 4.0,
    };
    let (recomputed, trained) = (random.below(2) == 0, random.below(4) > 0);
    let held = Held { forward: 2, recompute: 3, weight: 2 };
    let latency = if random.below(2) == 0 { 0.0 } else { random.unit() / 4.0 };
    let buffer = (random.below(3) == 0).then_some(Buffer { chunks: 1, reads: None });
    Workload { latency, buffer, ..Workload::uniform(Stage { times, held, recomputed, trained }) }
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

fn runs(attempt: &dyn Fsdp, ranks: usize, micro_batches: usize, workload: &Workload) -> Result<(), String> {
    let shape = Shape::line(ranks, micro_batches).map_err(describe)?;
    let least = bound(shape, workload).map_err(describe)?;
    let found = checked(attempt, shape, workload, |checked| checked.simulate().makespan())?;
    if found < least * (1.0 - 1e-9) {
        return Err(format!("{shape}: {found} units of time, below the bound of {least}"));
    }
    Ok(())
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
