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
    use crate::course::{COURSES, Course};
    use crate::gather::Effort;
    use crate::rubric::{Facts, RUBRICS};
    use crate::scorecard::{Measurement, Scorecard};

    /// What is seen of an attempt that does everything right, with the numbers of a kept report.
    struct Right {
        course: &'static Course,
        checks: Vec<Check>,
        guards: Vec<Guard>,
        measurements: BTreeMap<String, Measurement>,
    }

    /// The courses that a processor answers.
    fn all_right() -> Vec<Right> {
        let kept = include_str!("../../book/src/results/zen-2-cores.json");
        let kept: Scorecard = serde_json::from_str(kept).expect("a kept report");
        let on_a_processor = COURSES.iter().filter(|course| course.backend == crate::course::Backend::Cpu);
        let right = on_a_processor.map(|course| {
            let effort = Effort { seed: 1, ..Effort::default() };
            let items = (course.items)(&effort);
            let of = kept.challenges.iter().find(|challenge| challenge.name == course.name);
            let guards =
                items.iter().flat_map(|item| item.guard().into_iter().chain(item.guards.iter().copied()));
            let mut guards: Vec<&str> = guards.collect();
            guards.sort_unstable();
            guards.dedup();
            Right {
                course,
                checks: items.iter().filter(|item| item.is_check()).map(|item| passed(&item.name)).collect(),
                guards: guards.into_iter().map(|name| clear(course.name, name)).collect(),
                measurements: of.expect("all five are there").measurements.clone(),
            }
        });
        right.collect()
    }

    fn passed(name: &str) -> Check {
        let (detail, replay) = (String::new(), String::new());
        Check { name: name.into(), outcome: Outcome::Passed, detail, replay }
    }

    fn clear(challenge: &str, name: &str) -> Guard {
        Guard {
            challenge: challenge.into(),
            name: name.into(),
            ran: true,
            tripped: false,
            detail: String::new(),
        }
    }

    impl Right {
        fn facts(&self, checks: &[Check], guards: &[Guard]) -> Facts {
            let unmeasured = BTreeMap::new();
            (self.course.facts)(&Seen {
                checks,
                guards,
                measurements: &self.measurements,
                unmeasured: &unmeasured,
            })
        }

        /// The points without a guard, or with it changed, and the facts.
        fn with_guard(&self, name: &str, change: impl Fn(Guard) -> Option<Guard>) -> (i32, Facts) {
            let changed =
                |guard: &Guard| if guard.name == name { change(guard.clone()) } else { Some(guard.clone()) };
            let guards: Vec<Guard> = self.guards.iter().filter_map(changed).collect();
            let facts = self.facts(&self.checks, &guards);
            (self.points(&facts), facts)
        }

        fn points(&self, facts: &Facts) -> i32 {
            let rubric =
                RUBRICS.iter().find(|rubric| rubric.name == self.course.name).expect("a published name");
            rubric.score(facts, "cpu").points
        }
    }

    fn tripped(guard: Guard) -> Guard {
        Guard { tripped: true, detail: "caught".into(), ..guard }
    }

    fn blind(guard: Guard) -> Guard {
        let detail = "left the process with exit(0) instead of returning".into();
        Guard { ran: false, detail, ..guard }
    }

    #[test]
    fn a_blind_guard_costs_what_a_tripped_one_costs() {
        for right in all_right() {
            let best = right.points(&right.facts(&right.checks, &right.guards));
            assert!(best > 0, "{}: {:#?}", right.course.name, right.facts(&right.checks, &right.guards));
            for guard in &right.guards {
                let (name, what) = (&guard.name, format!("{}: {}", right.course.name, guard.name));
                let (caught, seen) = right.with_guard(name, |guard| Some(tripped(guard)));
                let (unseen, left) = right.with_guard(name, |guard| Some(blind(guard)));
                assert!(caught < best, "{what} trips for nothing");
                assert_eq!(unseen, caught, "{what}");
                let truths = |facts: &Facts| facts.values().map(|fact| fact.truth).collect::<Vec<_>>();
                assert_eq!(truths(&left), truths(&seen), "{what}");
            }
        }
    }

    #[test]
    fn a_missing_guard_or_check_wins_nothing() {
        for right in all_right() {
            let best = right.points(&right.facts(&right.checks, &right.guards));
            for guard in &right.guards {
                let (points, facts) = right.with_guard(&guard.name, |_| None);
                let open = facts.values().any(|fact| fact.evidence.contains("was not run"));
                assert!(points <= best && open, "{} without {}", right.course.name, guard.name);
            }
            for at in 0..right.checks.len() {
                let mut checks = right.checks.clone();
                let name = checks.remove(at).name;
                let points = right.points(&right.facts(&checks, &right.guards));
                assert!(points <= best, "{} without {name}", right.course.name);
            }
            let nothing = right.points(&right.facts(&[], &right.guards));
            assert!(nothing < best, "{} without a check has {nothing} points", right.course.name);
        }
    }

    #[test]
    fn a_hole_that_only_a_guard_reaches_is_no_hole() {
        let check = |outcome| Check { outcome, ..passed("C.1/one") };
        let guard =
            Guard { ran: false, detail: "not written yet: C.1: capture".into(), ..clear("graph", "late") };
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
