//! Runs of several steps together: each is a check, whose outcome says whose fault it is that a run gave no numbers.
//!
//! A step that is right alone may fail among ranks that train: it panics there, gives up, or leaves the process. That
//! is the attempt's fault, and wrong with its cause. A hole is not attempted where a check of its step reaches it, too;
//! one that only training reaches is none. What this machine cannot do is not measured.

use challenges::fsdp::Fsdp;

use super::checks;
use super::job::HOLE;
use crate::gather::{Child, Unwound, caught};
use crate::scorecard::{Measurement, Outcome};

/// Two ranks in shards.
pub(super) const IN_SHARDS: &str = "B/trains-in-shards";
/// Two ranks that share layers.
pub(super) const SHARED: &str = "B/shares-layers";
/// Two stages of a pipeline.
pub(super) const PIPELINE: &str = "B/runs-a-pipeline";
/// Two ranks with flat rows.
pub(super) const FLAT: &str = "B/flat-rows";
/// A step with A's dequantiser beside one with three passes.
pub(super) const TIMED: &str = "B/times-a-step";

/// Steps of a training, as published.
pub(super) const STEPS: usize = 60;
/// Steps of the run with room: what is done in it is the same in each, and the last of them rests on all before.
pub(super) const STEPS_WITH_ROOM: usize = 4;
/// Ranks of a run.
pub(super) const RANKS: usize = 2;
/// Widths of the narrower layers that the report shows next to the one that counts: they may stay in a processor's cache between the dequantiser and the
/// product, where streaming stores cost more than they save.
pub(super) const NARROWER: [usize; 2] = [512, 1024];

/// Why a run ends early.
pub(super) enum Stop {
    /// Something that no attempt has a part in.
    Machine(String),
    /// What the attempt did.
    Attempt(String),
}

/// What a run is about: the check of which it is the outcome, and whose it is.
#[derive(Clone, Copy)]
pub(super) struct Trial<'a> {
    pub name: &'a str,
    pub attempt: &'a dyn Fsdp,
}

impl Trial<'_> {
    /// Runs, and reports what came of it: `report` says what numbers there are, and whether they are right.
    pub fn run<T>(
        self,
        child: &mut Child,
        run: impl FnOnce() -> Result<T, Stop>,
        report: impl FnOnce(&mut Child, &T) -> Result<(), String>,
    ) {
        let (outcome, detail) = match caught(run) {
            Ok(Ok(seen)) => match report(child, &seen) {
                Ok(()) => (Outcome::Passed, String::new()),
                Err(reason) => (Outcome::Wrong, reason),
            },
            Ok(Err(Stop::Machine(reason))) => (Outcome::NotMeasured, reason),
            Ok(Err(Stop::Attempt(reason))) => match reason.strip_prefix(HOLE) {
                Some(hole) => self.hole(hole, child.request.effort.seed),
                None => (Outcome::Wrong, reason),
            },
            Err(Unwound::Hole(hole)) => self.hole(&hole, child.request.effort.seed),
            Err(Unwound::Panic(reason)) => (Outcome::Wrong, reason),
        };
        child.outcome(self.name, outcome, &detail);
    }

    /// The outcome of a run that reached a hole.
    fn hole(self, hole: &str, seed: u64) -> (Outcome, String) {
        let step = hole.split(':').next().unwrap_or_default();
        let of_step = |name: &String| !step.starts_with("B.") || name.starts_with(&format!("{step}/"));
        let reaches = |name: String| {
            let ran = caught(|| checks::run(&name, self.attempt, seed));
            matches!(ran, Err(Unwound::Hole(own)) if own == hole)
        };
        if checks::names().into_iter().filter(of_step).any(reaches) {
            return (Outcome::NotAttempted, hole.to_owned());
        }
        (
            Outcome::Wrong,
            format!("expected a step that is written, found a hole that no check reaches: {hole}"),
        )
    }
}

/// A number alone.
pub(super) fn number(value: f64, unit: &str) -> Measurement {
    Measurement { value, unit: unit.into(), interval: None, samples: vec![] }
}
