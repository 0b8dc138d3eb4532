//! A report beside a new run of the same attempt with the same seed: the same code ends alike.

use figures::number::ratio;
use reference::clean::clean;

use super::{About, Finding};
use crate::scorecard::{Challenge, Guard, Measurement, Row, Scorecard, Truth};

/// What a new run shows.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    /// Checks, guards and rows that ended otherwise.
    pub findings: Vec<Finding>,
    /// Ratios of times, then and now: told, for another hour is another time.
    pub times: Vec<String>,
}

/// Compares what a report says with what a run says now.
pub(crate) fn compare(report: &Scorecard, now: &Scorecard) -> Compared {
    let mut compared = Compared::default();
    for then in &report.challenges {
        let Some(again) = now.challenges.iter().find(|again| again.name == then.name) else { continue };
        compared.outcome(&format!("{} code", then.name), &then.code, &again.code);
        compared.checks(then, again);
        compared.rows(then, again);
        compared.times(then, again);
    }
    for guard in &report.guards {
        let is_same = |other: &&Guard| (&other.challenge, &other.name) == (&guard.challenge, &guard.name);
        let again = now.guards.iter().find(is_same).map_or("not there", state);
        compared.outcome(&format!("{} guard {}", guard.challenge, guard.name), state(guard), again);
    }
    compared
}

fn state(guard: &Guard) -> &'static str {
    match guard {
        Guard { tripped: true, .. } => "tripped",
        Guard { ran: true, .. } => "saw nothing",
        _ => "did not run",
    }
}

impl Compared {
    fn outcome(&mut self, what: &str, says: &str, follows: &str) {
        if says != follows {
            let (what, says, follows) = (what.into(), says.into(), format!("{follows} (now)"));
            self.findings.push(Finding { about: About::Numbers, what, says, follows });
        }
    }

    fn checks(&mut self, then: &Challenge, now: &Challenge) {
        for check in &then.checks {
            let again = now.checks.iter().find(|again| again.name == check.name);
            let again = again.map_or("not there", |again| again.outcome.word());
            self.outcome(&format!("{} check {}", then.name, check.name), check.outcome.word(), again);
        }
    }

    /// Rows that rest on a time are told by their times.
    fn rows(&mut self, then: &Challenge, now: &Challenge) {
        let judged = |row: &&Row| row.fact != Truth::Unmeasured && !row.wording.starts_with("speedup");
        for row in then.rows.iter().filter(judged) {
            let again = now.rows.iter().find(|again| again.wording == row.wording);
            let again = again.map_or("not there", |again| crate::report::truth(again.fact));
            let what = format!("{} row {}", then.name, row.wording);
            self.outcome(&what, crate::report::truth(row.fact), again);
        }
    }

    fn times(&mut self, then: &Challenge, now: &Challenge) {
        for (name, number) in &then.measurements {
            let Some(again) = now.measurements.get(name) else { continue };
            if let Some(overlap) = overlap(number, again) {
                let word = if overlap { "overlap" } else { "do not overlap" };
                let (then, now) = (ratio(number), ratio(again));
                self.times.push(format!("{}: {then} then, {now} now; the intervals {word}", clean(name)));
            }
        }
    }
}

/// Whether the intervals of two numbers overlap, where both have one.
fn overlap(one: &Measurement, other: &Measurement) -> Option<bool> {
    let ([low, high], [other_low, other_high]) = (one.interval?, other.interval?);
    Some(low <= other_high && other_low <= high)
}
