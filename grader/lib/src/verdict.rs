//! The one policy for what guards and checks allow a row, whatever the challenge.
//!
//! A row rests on checks and on guards. A guard that tripped makes it unmet, and so does one that could not look:
//! whatever kept it from looking was in the attempt. A check or a guard that was not run leaves the row unmeasured, and
//! so does a guard that reached a hole which its step's checks reached, too: that step is not written yet. Of the
//! checks that were run a wrong one makes it unmet; a hole leaves it unmeasured, and so does what this machine cannot
//! do.

use crate::evidence::{Seen, unmeasured, unmet};
use crate::rubric::Fact;
use crate::scorecard::{Check, Guard, Outcome, Truth};

/// What is left of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// Its own numbers decide.
    Sound,
    /// It was not looked at whole, and why.
    Unmeasured(String),
    /// It does not hold, and why.
    Unmet(String),
}

impl Verdict {
    /// A fact under this verdict. One that does not hold anyway keeps its own words.
    pub fn judge(&self, fact: Fact) -> Fact {
        match (self, fact.truth) {
            (Self::Unmet(reason), Truth::Met) => unmet(reason),
            (Self::Unmeasured(reason), Truth::Met | Truth::Unmet) => unmeasured(reason),
            _ => fact,
        }
    }
}

/// The verdict on a row that rests on these checks and guards.
pub(crate) fn verdict<'a>(
    seen: &Seen<'_>,
    checks: impl IntoIterator<Item = &'a str>,
    guards: &[&str],
) -> Verdict {
    let found = |name: &str| seen.guards.iter().find(|guard| guard.name == name);
    let looked: Vec<Verdict> = guards.iter().map(|name| look(seen, name, found(name))).collect();
    let worst = looked.iter().find(|verdict| matches!(verdict, Verdict::Unmet(_)));
    let open = looked.iter().find(|verdict| matches!(verdict, Verdict::Unmeasured(_)));
    if let Some(verdict) = worst.or(open) {
        return verdict.clone();
    }
    let mut checks = checks.into_iter();
    let missing = checks.find(|name| seen.checks.iter().all(|check| check.name != *name));
    missing.map_or(Verdict::Sound, |name| Verdict::Unmeasured(format!("the check {name} was not run")))
}

/// The verdict on a row by how its checks ended.
pub(crate) fn outcomes<'a>(checks: impl IntoIterator<Item = &'a Check>) -> Verdict {
    let checks: Vec<&Check> = checks.into_iter().collect();
    let first = |is: fn(Outcome) -> bool| checks.iter().find(|check| is(check.outcome));
    let is_wrong =
        |outcome| matches!(outcome, Outcome::Wrong | Outcome::DoesNotCompile | Outcome::GraderFault);
    if let Some(check) = first(is_wrong) {
        return Verdict::Unmet(format!("{} is {}", check.name, check.outcome.word()));
    }
    if let Some(check) = first(|outcome| outcome == Outcome::NotAttempted) {
        return Verdict::Unmeasured(format!("{} is not written yet", check.step()));
    }
    match first(|outcome| outcome == Outcome::NotMeasured) {
        Some(check) => Verdict::Unmeasured(format!("{}: {}", check.name, check.detail)),
        None => Verdict::Sound,
    }
}

fn look(seen: &Seen<'_>, name: &str, guard: Option<&Guard>) -> Verdict {
    match guard {
        Some(guard) if guard.tripped => Verdict::Unmet(format!("guard tripped: {name} - {}", guard.detail)),
        Some(guard) if guard.ran => Verdict::Sound,
        Some(guard) if reached_a_hole(seen, guard) => Verdict::Unmeasured(guard.detail.clone()),
        Some(guard) if !guard.detail.is_empty() => {
            Verdict::Unmet(format!("guard could not look: {name} - {}", guard.detail))
        }
        _ => Verdict::Unmeasured(format!("the guard {name:?} was not run")),
    }
}

/// Whether a guard could not look because of a hole that a check reached as well. A hole that only guards reach is
/// no hole.
fn reached_a_hole(seen: &Seen<'_>, guard: &Guard) -> bool {
    let message = &guard.detail;
    let names =
        |step: &str| message.contains(&format!("{step}: ")) || message.contains(&format!("{step} is "));
    let holes = seen.checks.iter().filter(|check| check.outcome == Outcome::NotAttempted);
    message.contains("not written yet") && holes.map(Check::step).any(names)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn passed(name: &str) -> Check {
        let (detail, replay) = (String::new(), String::new());
        Check { name: name.into(), outcome: Outcome::Passed, detail, replay }
    }

    #[test]
    fn a_hole_that_only_a_guard_reaches_is_no_hole() {
        let check = |outcome| Check { outcome, ..passed("C.1/one") };
        let guard = Guard {
            challenge: "graph".into(),
            name: "late".into(),
            ran: false,
            tripped: false,
            detail: "not written yet: C.1: capture".into(),
        };
        let of = |outcome| {
            let (checks, guards) = ([check(outcome)], [guard.clone()]);
            let (measurements, unmeasured) = (BTreeMap::new(), BTreeMap::new());
            let seen = Seen {
                checks: &checks,
                guards: &guards,
                measurements: &measurements,
                unmeasured: &unmeasured,
            };
            verdict(&seen, [], &["late"])
        };
        assert_eq!(of(Outcome::NotAttempted), Verdict::Unmeasured("not written yet: C.1: capture".into()));
        let message = "guard could not look: late - not written yet: C.1: capture";
        assert_eq!(of(Outcome::Passed), Verdict::Unmet(message.into()));
    }
}
