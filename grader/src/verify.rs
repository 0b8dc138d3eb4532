//! `verify-report`: does a scorecard follow from what it holds?
//!
//! Intervals are computed again from the raw samples, facts from checks, guards and numbers, rows and points
//! from the facts, and the hash of the code is compared with the solution of this version. A report that was
//! edited, or that tells of other code, does not hold.

use std::collections::BTreeMap;
use std::fmt;

use crate::course;
use crate::evidence::Seen;
use crate::rubric::{self, RUBRICS};
use crate::score::{basis, judged};
use crate::scorecard::{Basis, Challenge, Measurement, Scorecard};
use crate::stub::code_hash;
use crate::timing::{Pairs, median, speedup};

/// Something in a report that does not follow.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What it is about: `nf4 row speedup >= 1.05`.
    pub what: String,
    /// What the report says.
    pub says: String,
    /// What follows from its contents.
    pub follows: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: the report says {}, its contents say {}", self.what, self.says, self.follows)
    }
}

/// Everything in a report that does not follow; nothing if it holds.
pub fn verify(card: &Scorecard) -> Vec<Finding> {
    let mut findings = Findings(Vec::new());
    let names: Vec<&str> = card.challenges.iter().map(|challenge| challenge.name.as_str()).collect();
    let known: Vec<&str> = RUBRICS.iter().map(|rubric| rubric.name).collect();
    findings.compare("challenges", &names.join(", "), &known.join(", "));
    for challenge in &card.challenges {
        findings.challenge(card, challenge);
    }
    let sum = |of: fn(&Challenge) -> i32| card.challenges.iter().map(of).sum::<i32>();
    findings.compare("points", &card.points, &sum(|challenge| challenge.points));
    findings.compare("unmeasured", &card.unmeasured, &sum(|challenge| challenge.unmeasured));
    findings.compare("possible", &card.possible, &rubric::possible());
    let stand_in = card.challenges.iter().flat_map(|challenge| &challenge.rows);
    let stand_in = stand_in.filter(|row| row.basis == Basis::StandIn).map(|row| row.points).sum::<i32>();
    findings.compare("stand_in", &card.stand_in, &stand_in);
    findings.0
}

struct Findings(Vec<Finding>);

impl Findings {
    fn compare<T: PartialEq + fmt::Display>(&mut self, what: &str, says: &T, follows: &T) {
        if says != follows {
            self.0.push(Finding { what: what.into(), says: says.to_string(), follows: follows.to_string() });
        }
    }

    fn challenge(&mut self, card: &Scorecard, challenge: &Challenge) {
        let name = &challenge.name;
        let (Some(rubric), Some(course)) =
            (rubric::find(name), course::find(name, course::back_of(&challenge.device)))
        else {
            return self.compare(&format!("{name} points"), &challenge.points, &0);
        };
        if card.attempt == "solution" && !challenge.code.is_empty() {
            self.compare(&format!("{name} code"), &challenge.code, &code_hash(course.solution));
        }
        self.numbers(name, &challenge.measurements);
        let guards: Vec<_> = card.guards.iter().filter(|guard| guard.challenge == *name).cloned().collect();
        let facts = (course.facts)(&Seen {
            checks: &challenge.checks,
            guards: &guards,
            measurements: &challenge.measurements,
            unmeasured: &BTreeMap::new(),
        });
        let again = judged(rubric, &facts, challenge.clone());
        self.compare(&format!("{name} points"), &challenge.points, &again.points);
        self.compare(&format!("{name} unmeasured"), &challenge.unmeasured, &again.unmeasured);
        self.compare(&format!("{name} rows"), &challenge.rows.len(), &again.rows.len());
        for (row, again) in challenge.rows.iter().zip(&again.rows) {
            let told = |row: &crate::scorecard::Row| {
                format!(
                    "{} ({:?}, {:?}, {} of {} points)",
                    row.wording, row.fact, row.basis, row.points, row.worth
                )
            };
            self.compare(&format!("{name} row {}", again.wording), &told(row), &told(again));
        }
        let rests_on = |row: &crate::scorecard::Row| row.basis == basis(challenge);
        self.compare(&format!("{name} basis"), &challenge.rows.iter().all(rests_on), &true);
    }

    /// Medians, ratios and intervals from the raw samples.
    fn numbers(&mut self, name: &str, numbers: &BTreeMap<String, Measurement>) {
        for (key, number) in numbers {
            let what = format!("{name} number {key}");
            if !number.samples.is_empty() && number.unit == "us" {
                self.near(&what, number.value, median(&number.samples));
            }
            let Some(case) = key.strip_prefix(&format!("{name}.speedup.")) else { continue };
            let times = |kind: &str| {
                numbers.get(&format!("{name}.{kind}.{case}")).map(|number| number.samples.as_slice())
            };
            let (Some(baseline), Some(attempt)) = (times("baseline"), times("attempt")) else {
                self.compare(&what, &"a ratio".to_string(), &"no samples of it".to_string());
                continue;
            };
            let pairs = Pairs { baseline, attempt };
            self.speedup(&what, number, speedup(pairs));
            self.samples(&what, &number.samples, &pairs.ratios());
            let share = numbers.get(&format!("{name}.share_of_bound.{case}")).zip(times("bound"));
            if let Some((share, bound)) = share {
                let what = format!("{name} number {name}.share_of_bound.{case}");
                self.near(&what, share.value, median(bound) / median(attempt));
            }
        }
        if let Some(total) = numbers.get("nf4.speedup").filter(|_| name == "nf4") {
            match crate::nf4::total_speedup(numbers) {
                Some(again) => self.speedup("nf4 number nf4.speedup", total, again),
                None => self.compare(
                    "nf4 number nf4.speedup",
                    &"a total".to_string(),
                    &"not all of its cases".to_string(),
                ),
            }
        }
    }

    fn speedup(&mut self, what: &str, number: &Measurement, (value, interval): (f64, [f64; 2])) {
        self.near(what, number.value, value);
        let [low, high] = number.interval.unwrap_or([f64::NAN; 2]);
        self.near(&format!("{what} (lower end)"), low, interval[0]);
        self.near(&format!("{what} (upper end)"), high, interval[1]);
    }

    /// The ratios that a report shows are those of its times, pair by pair.
    fn samples(&mut self, what: &str, says: &[f64], follows: &[f64]) {
        self.compare(&format!("{what} (samples)"), &says.len(), &follows.len());
        for (i, (says, follows)) in says.iter().zip(follows).enumerate() {
            self.near(&format!("{what} (sample {i})"), *says, *follows);
        }
    }

    /// Equal but for the last digits of a decimal number that was written and read.
    fn near(&mut self, what: &str, says: f64, follows: f64) {
        let equal = (says - follows).abs() <= 1e-9 * follows.abs();
        if !equal {
            self.compare(what, &format!("{says}"), &format!("{follows} "));
        }
    }
}
