//! What a report names: its checks and guards, their order, the commands that replay them, the code.

use std::collections::BTreeSet;

use super::{About, Findings, Subject, seed};
use crate::calls::replay_command;
use crate::courses;
use crate::expected::Expected;
use crate::score::Attempt;
use crate::scorecard::{Check, Guard, Outcome};
use crate::stub::Language;

impl Findings {
    pub(super) fn names(&mut self, subject: &Subject<'_>, expected: &Expected) {
        let checks: Vec<&str> = subject.challenge.checks.iter().map(|check| check.name.as_str()).collect();
        self.list(&subject.what("checks"), &checks, &expected.checks);
        let guards: Vec<&str> = subject.guards.iter().map(|guard| guard.name.as_str()).collect();
        let timed = expected.timed_guards.iter().map(|name| (*name).to_owned());
        let known: Vec<String> = expected.guards.iter().cloned().chain(timed).collect();
        self.list(&subject.what("guards"), &guards, &known);
        self.timed_guards(subject, expected);
        let seed = seed(subject.card).unwrap_or_default();
        for check in &subject.challenge.checks {
            self.check(subject, check, seed);
        }
        for guard in &subject.guards {
            self.guard(subject, guard);
        }
        self.numbers_together(subject);
    }

    /// A list holds names of this version, each at most once, in their order.
    fn list(&mut self, what: &str, names: &[&str], known: &[String]) {
        let mut next = 0;
        for name in names {
            match known.iter().position(|known| known == name) {
                None => self.add(About::Version, what, name, "a name of this version"),
                Some(at) if at < next => {
                    self.add(
                        About::Version,
                        what,
                        &format!("{name} again or late"),
                        "each name once, in order",
                    );
                }
                Some(at) => next = at + 1,
            }
        }
    }

    /// Where a case was timed, the guards that watch the timed cases are there.
    fn timed_guards(&mut self, subject: &Subject<'_>, expected: &Expected) {
        if !subject.challenge.measurements.keys().any(|name| name.starts_with("nf4.speedup.")) {
            return;
        }
        for name in &expected.timed_guards {
            if !subject.guards.iter().any(|guard| guard.name == *name) {
                self.add(About::Version, &subject.what("guards"), "none of that name", name);
            }
        }
    }

    fn check(&mut self, subject: &Subject<'_>, check: &Check, seed: u64) {
        let what = subject.what(&format!("check {}", check.name));
        let replay = replay_command(subject.challenge.name.as_str(), &check.name, seed);
        self.compare(About::Version, &format!("{what} (replay)"), &check.replay, &replay);
        if check.outcome == Outcome::Passed && !check.detail.is_empty() {
            self.add(About::Numbers, &what, &check.detail, "no detail where it passed");
        }
    }

    fn guard(&mut self, subject: &Subject<'_>, guard: &Guard) {
        let what = subject.what(&format!("guard {}", guard.name));
        let saw = !guard.detail.is_empty();
        match (guard.ran, guard.tripped) {
            (false, true) => self.add(About::Numbers, &what, "tripped without having run", "one that ran"),
            (true, tripped) if tripped != saw => {
                let says = if tripped { "tripped by nothing" } else { &guard.detail };
                self.add(About::Numbers, &what, says, "what it saw where it tripped, nothing elsewhere");
            }
            _ => {}
        }
    }

    fn numbers_together(&mut self, subject: &Subject<'_>) {
        let there = &subject.challenge.measurements;
        for group in subject.courses.iter().flat_map(|course| course.together) {
            if !group.iter().any(|name| there.contains_key(*name)) {
                continue;
            }
            let missing: Vec<&str> =
                group.iter().filter(|name| !there.contains_key(**name)).copied().collect();
            for name in missing {
                self.add(
                    About::Version,
                    &subject.what("numbers"),
                    &format!("no {name}"),
                    "it beside its like",
                );
            }
        }
        let own = format!("{}.", subject.challenge.name);
        let foreign: BTreeSet<&String> = there.keys().filter(|name| !name.starts_with(&own)).collect();
        for name in foreign {
            self.add(About::Version, &subject.what("numbers"), name, &format!("names that begin with {own}"));
        }
        for name in there.keys() {
            self.plain(&subject.what("numbers"), name);
        }
    }

    /// The hash of what was graded: 64 digits, and this version's where it is the solution.
    pub(super) fn code(&mut self, subject: &Subject<'_>) {
        let (what, code) = (subject.what("code"), &subject.challenge.code);
        let solution = courses::code_of_solutions(&subject.courses);
        let ran = subject.challenge.attempted;
        let describe = |code: &str| if code.is_empty() { "none".to_owned() } else { code.to_owned() };
        match super::attempt(subject.card) {
            Some(Attempt::Own) | None if !code.is_empty() => {
                self.add(About::Numbers, &what, code, "none, where an attempt is a program's own");
            }
            Some(Attempt::Solution) if *code != solution && (ran || !code.is_empty()) => {
                self.add(About::Version, &what, &describe(code), &solution);
            }
            Some(Attempt::Exercise) if !is_hash(code) && (ran || !code.is_empty()) => {
                self.add(About::Numbers, &what, &describe(code), "64 hexadecimal digits");
            }
            // An exercise says `Exercise` where the solution says `Solution`; kernels have no such name.
            Some(Attempt::Exercise) if *code == solution && subject.courses[0].language == Language::Rust => {
                self.add(About::Numbers, &what, "the solution's", "that of an exercise");
            }
            _ => {}
        }
    }
}

fn is_hash(code: &str) -> bool {
    code.len() == 64 && code.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}
