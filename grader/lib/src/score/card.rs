//! A scorecard while it is made, and its exit code.

use kernels::cuda::Gpu;
use kernels::{Vector, cpu};

use super::plan::Plan;
use crate::report;
use crate::rubric::{RUBRICS, possible};
use crate::scorecard::{Basis, Challenge, Guard, Machine, Outcome, Scorecard};

/// A scorecard without a challenge yet.
pub(super) fn begun(plan: &Plan) -> Scorecard {
    Scorecard {
        warpbook: env!("CARGO_PKG_VERSION").into(),
        attempt: plan.attempt.name().into(),
        seed: format!("{:#x}", plan.effort.seed),
        machine: Machine { gpu: gpu(plan), ..machine() },
        points: 0,
        possible: possible(),
        unmeasured: 0,
        stand_in: 0,
        challenges: Vec::new(),
        guards: Vec::new(),
    }
}

/// Takes the next challenge in, with what its guards saw.
pub(super) fn add(card: &mut Scorecard, challenge: Challenge, guards: Vec<Guard>) {
    let stand_in = challenge.rows.iter().filter(|row| row.basis == Basis::StandIn);
    card.stand_in += stand_in.map(|row| row.points).sum::<i32>();
    card.points += challenge.points;
    card.unmeasured += challenge.unmeasured;
    card.challenges.push(challenge);
    card.guards.extend(guards);
}

/// The GPU that a challenge runs on, as a report names it.
fn gpu(plan: &Plan) -> Option<String> {
    let devices = RUBRICS.iter().filter_map(|rubric| plan.device_of(&plan.courses_of(rubric)));
    let is_used = devices.into_iter().any(|device| device.starts_with("cuda"));
    let card = is_used.then(|| Gpu::look(plan.device.ordinal()).ok()).flatten()?;
    Some(report::card(&card))
}

/// This machine, as a report names it.
pub(crate) fn machine() -> Machine {
    let host = cpu::host();
    let own = Vector::of_machine().into_iter().max().filter(|own| *own != Vector::widest());
    Machine {
        cpu: host.cpu,
        cores: host.cores,
        vector: Vector::widest().to_string(),
        widest: own.map(|own| own.to_string()),
        cache_bytes: host.cache_bytes,
        memory_bytes: host.memory_bytes,
        gpu: None,
        os: std::env::consts::OS.into(),
        wine: host.wine,
        arch: std::env::consts::ARCH.into(),
        date: crate::date::today(),
    }
}

/// What is wrong with a scorecard, as an exit code: 0 nothing, 1 a check or a guard. A guard that could not
/// look at an attempt counts like one that tripped: whatever kept it from looking was in the attempt.
pub(crate) fn exit_code(card: &Scorecard, strict: bool) -> u8 {
    let checks = || card.challenges.iter().flat_map(|challenge| &challenge.checks);
    let is = |outcome| checks().any(|check| check.outcome == outcome);
    if is(Outcome::GraderFault) {
        return 6;
    }
    let failed = is(Outcome::Wrong) || is(Outcome::NotAttempted) || is(Outcome::DoesNotCompile);
    let blind = |guard: &Guard| !guard.ran && !guard.detail.is_empty();
    if failed || card.guards.iter().any(|guard| guard.tripped || blind(guard)) {
        return 1;
    }
    let open = is(Outcome::NotMeasured)
        || card
            .challenges
            .iter()
            .filter(|challenge| challenge.built)
            .flat_map(|challenge| &challenge.rows)
            .any(|row| {
                row.fact == crate::scorecard::Truth::Unmeasured || row.evidence.starts_with("inconclusive")
            });
    if strict && open { 4 } else { 0 }
}
