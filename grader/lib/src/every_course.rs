//! What holds of every course, whatever it grades: a guard that could not look costs what a tripped one costs, and
//! nothing is won by leaving a guard or a check out.

use std::collections::BTreeMap;

use crate::course::{Backend, Course};
use crate::courses::COURSES;
use crate::evidence::Seen;
use crate::gather::Effort;
use crate::rubric::{Facts, RUBRICS};
use crate::scorecard::{Check, Guard, Measurement, Outcome, Scorecard};
use crate::stub::Language;

/// What is seen of an attempt that does everything right, with the numbers of a kept report, or made-up ones where the
/// report is older than the course.
struct Right {
    course: &'static Course,
    checks: Vec<Check>,
    guards: Vec<Guard>,
    measurements: BTreeMap<String, Measurement>,
}

/// The courses that run Rust, on a CPU or with their plans on a card.
fn all_right() -> Vec<Right> {
    let kept = include_str!("../../../book/src/results/zen-2-cores.json");
    let kept: Scorecard = serde_json::from_str(kept).expect("a kept report");
    let in_rust = COURSES.iter().filter(|course| course.language == Language::Rust);
    let right = in_rust.map(|course| {
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
            measurements: match of.expect("all five are there") {
                challenge
                    if course.backend == Backend::Cpu
                        && challenge.checks.iter().any(|check| course.owns(check)) =>
                {
                    challenge.measurements.clone()
                }
                _ => crate::whole_report::measurements(&course.key()),
            },
        }
    });
    right.collect()
}

fn passed(name: &str) -> Check {
    let (detail, replay) = (String::new(), String::new());
    Check { name: name.into(), outcome: Outcome::Passed, detail, replay }
}

fn clear(challenge: &str, name: &str) -> Guard {
    Guard { challenge: challenge.into(), name: name.into(), ran: true, tripped: false, detail: String::new() }
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
        let rubric = RUBRICS.iter().find(|rubric| rubric.name == self.course.name).expect("a published name");
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
