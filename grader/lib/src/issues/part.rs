//! What the parts of challenge D have in common in the grader: how a row follows from steps, guards and numbers, and
//! how two answers are compared.

use std::fmt::Debug;

use crate::evidence::{Seen, unmeasured, unmet};
use crate::gather::{Child, Item, Kind, Unwound, caught};
use crate::rubric::Fact;
use crate::scorecard::{Measurement, Outcome};
use crate::verdict::{Verdict, outcomes, verdict};

/// What a row rests on.
pub(super) struct Rests<'a> {
    /// The steps whose checks have to pass.
    pub steps: &'a [&'a str],
    /// The names of all checks of the part.
    pub checks: &'a [String],
    /// The guards that may not trip.
    pub guards: &'a [&'a str],
}

impl Rests<'_> {
    /// What the numbers say, if the steps are right and no guard tripped.
    pub fn judged(&self, seen: &Seen<'_>, numbers: impl FnOnce(&Seen<'_>) -> Fact) -> Fact {
        let checks = || seen.checks.iter().filter(|check| self.steps.contains(&check.step()));
        if checks().any(|check| check.outcome == Outcome::DoesNotCompile) {
            return unmeasured("the exercise does not compile");
        }
        let rests_on = |name: &&str| self.steps.iter().any(|step| name.split('/').next() == Some(step));
        let required = self.checks.iter().map(String::as_str).filter(rests_on);
        let verdict = verdict(seen, required, self.guards);
        if let Verdict::Unmet(reason) = &verdict {
            return unmet(reason);
        }
        match outcomes(checks().filter(|check| check.outcome != Outcome::NotMeasured)) {
            Verdict::Unmet(reason) => unmet(&reason),
            Verdict::Unmeasured(reason) => unmeasured(&reason),
            Verdict::Sound => verdict.judge(numbers(seen)),
        }
    }
}

/// Everything that there is to do for a part, in order.
pub(super) fn items(checks: Vec<String>, guards: &[&str], measured: impl Iterator<Item = Item>) -> Vec<Item> {
    let checks = checks.into_iter().map(|name| Item::new(name, 20));
    let guards = guards.iter().map(|name| Item::new(format!("guard/{name}"), 20));
    checks.chain(guards).chain(measured).collect()
}

/// Does one item: a check says how often the attempt asked the solution, a guard by its name what it caught.
pub(super) fn work(
    child: &mut Child,
    name: &str,
    check: impl FnOnce() -> Result<u64, String>,
    guard: impl FnOnce(&str) -> Result<Option<String>, String>,
    number: impl FnOnce(&mut Child) -> Result<(), String>,
) {
    let source = child.request.source;
    match Kind::of(name) {
        Kind::Check => child.check(name, || check().and_then(|asked| source.own_work(asked))),
        Kind::Guard(of) => child.guard(of, || guard(of)),
        Kind::Number => {
            if let Err(unknown) = number(child) {
                child.unmeasured(name, &unknown);
            }
        }
    }
}

/// That two answers to `what` are one.
pub(super) fn same<T: PartialEq + Debug>(what: &str, got: &T, want: &T) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("{what}: got {got:?}, want {want:?}")) }
}

/// What is wrong, with the usual mistake that gives this answer, if one does.
pub(super) fn likely(
    found: Result<(), String>,
    cause: impl FnOnce() -> Option<&'static str>,
) -> Result<(), String> {
    found.map_err(|message| match cause() {
        Some(cause) => format!("{message}\n  likely cause: {cause}"),
        None => message,
    })
}

/// What an attempt that remembers is caught at, of answers to different questions in the same memory: it answers as
/// before, or it is right of what checks ask. One that is wrong of that, too, is told by the checks.
pub(super) fn remembered<T: PartialEq>(
    is_right: bool,
    mut rounds: impl Iterator<Item = (T, Option<String>)>,
) -> Option<String> {
    let mut before = None;
    rounds.find_map(|(got, wrong)| {
        let is_caught = is_right || before.as_ref() == Some(&got);
        before = Some(got);
        wrong.filter(|_| is_caught)
    })
}

pub(super) fn number(value: f64, unit: &str, samples: Vec<f64>) -> Measurement {
    Measurement { value, unit: unit.into(), interval: None, samples }
}

/// What is computed, or nothing where the attempt cannot be measured, which is reported under a name.
pub(super) fn answer<T>(child: &mut Child, name: &str, run: impl FnOnce() -> Result<T, String>) -> Option<T> {
    match caught(run) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(reason)) | Err(Unwound::Panic(reason)) => child.unmeasured(name, &reason),
        Err(Unwound::Hole(hole)) => child.unmeasured(name, &format!("not written yet: {hole}")),
    }
    None
}
