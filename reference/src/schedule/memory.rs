//! What each rank holds while its operations run; the rule is at the top of `schedule/workload.rs`.
//!
//! Ranks run their lines in order, so what is held depends on the order alone, not on time.

use super::{Error, Kind, Operation, Schedule, Site, Workload};

/// The most units that each rank holds at once.
///
/// Fails at the first operation during which a rank holds more than the cap.
pub(super) fn peaks(schedule: &Schedule, workload: &Workload) -> Result<Vec<u64>, Error> {
    (0..schedule.shape().ranks()).map(|rank| peak(schedule, workload, rank)).collect()
}

/// A sum that does not fit in 64 bits counts as the largest number that does.
fn peak(schedule: &Schedule, workload: &Workload, rank: usize) -> Result<u64, Error> {
    let (mut held, mut peak) = (0_u64, 0);
    for at in schedule.sites_of(rank) {
        let stage = schedule.shape().stage(rank, at.operation.chunk);
        let units = held.saturating_add(taken(workload, at.operation, stage));
        within_cap(at, units, workload)?;
        peak = peak.max(units);
        held = units.saturating_sub(given_back(workload, at.operation, stage));
    }
    Ok(peak)
}

fn within_cap(at: Site, units: u64, workload: &Workload) -> Result<(), Error> {
    match workload.cap {
        Some(cap) if units > cap => Err(Error::Memory { at, units, cap }),
        _ => Ok(()),
    }
}

/// Units that an operation of a stage holds from its start on.
pub(super) fn taken(workload: &Workload, operation: Operation, stage: usize) -> u64 {
    let held = workload.stage(stage).held;
    let of = |kind| match kind {
        Kind::Forward => held.forward,
        Kind::Recompute => held.recompute,
        Kind::Dequantize | Kind::Backward | Kind::Weight => 0,
    };
    operation.kinds.iter().map(of).sum()
}

/// Units that are no longer held after an operation of a stage.
pub(super) fn given_back(workload: &Workload, operation: Operation, stage: usize) -> u64 {
    let stage = workload.stage(stage);
    let of = |kind| match kind {
        Kind::Backward => stage.held_by_backward() - stage.held_by_weight(),
        Kind::Weight => stage.held_by_weight(),
        Kind::Dequantize | Kind::Forward | Kind::Recompute => 0,
    };
    operation.kinds.iter().map(of).sum()
}
