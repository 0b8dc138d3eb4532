//! `verify-report`: does a scorecard follow from its own numbers?
//!
//! The names of checks and guards are held against those that this version runs, the hash of the code against
//! this version's solution; medians, ratios, intervals, rates and the guard on the physical bound are computed
//! again from the raw samples, facts and their sentences from checks, guards and numbers, rows and points from
//! the facts. What nobody can compute again - that the samples and counts were ever taken, the machine's name,
//! the day, what a check that did not pass said - is not covered: [`again`] compares with a new run.

mod again;
mod names;
mod numbers;
#[cfg(test)]
mod ranks;
mod rows;
#[cfg(test)]
mod windows;

use std::fmt;

pub(crate) use again::compare;

use reference::clean::clean;

use crate::course::{self, Backend, Course};
use crate::courses;
use crate::expected::{Expected, unit, widest};
use crate::rubric::{self, RUBRICS, Rubric};
use crate::score::Attempt;
use crate::scorecard::{Basis, Challenge, Check, Guard, Outcome, Scorecard};

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// The report contradicts itself.
    Numbers,
    /// The report is not what this version writes: edited, or written by another version.
    Version,
}

/// Something in a report that does not follow.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Whether it contradicts itself, or this version.
    pub about: About,
    /// What it is in: `nf4 row speedup >= 1.05`.
    pub what: String,
    /// What the report says.
    pub says: String,
    /// What follows from its contents.
    pub follows: String,
}

/// What became of a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verified {
    /// Everything that does not follow; nothing if the report holds.
    pub findings: Vec<Finding>,
    /// The challenges of which a part was run, with what they lack: none of their rows is measured.
    pub parts: Vec<String>,
}

/// Letters of a text that a finding quotes.
const QUOTED: usize = 240;

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [what, follows, says] = [&self.what, &self.follows, &self.says].map(|text| quoted(text));
        write!(f, "{what}: expected {follows}, found {says}")
    }
}

/// A text of a report on one line of a terminal.
fn quoted(text: &str) -> String {
    let line = clean(text).replace('\n', " ");
    match line.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{} ...", &line[..end]),
        None => line,
    }
}

/// Computes a report again.
pub fn verify(card: &Scorecard) -> Verified {
    let mut found = Findings::default();
    found.head(card);
    let names: Vec<&str> = card.challenges.iter().map(|challenge| challenge.name.as_str()).collect();
    let known: Vec<&str> = RUBRICS.iter().map(|rubric| rubric.name).collect();
    if names != known {
        found.add(About::Numbers, "challenges", &names.join(", "), &known.join(", "));
        return found.0;
    }
    for guard in card.guards.iter().filter(|guard| !known.contains(&guard.challenge.as_str())) {
        found.add(About::Version, "guards", &describe(guard), "a guard of one of the challenges");
    }
    for (challenge, rubric) in card.challenges.iter().zip(&RUBRICS) {
        found.challenge(card, challenge, rubric);
    }
    found.totals(card);
    found.0
}

fn describe(guard: &Guard) -> String {
    format!("{} of {}", guard.name, guard.challenge)
}

/// A challenge of a report with what this version knows of it.
struct Subject<'a> {
    card: &'a Scorecard,
    challenge: &'a Challenge,
    guards: Vec<Guard>,
    /// The challenge's courses that ran.
    courses: Vec<&'static Course>,
    rubric: &'static Rubric,
    /// What it lacks of a whole run.
    part: Option<String>,
}

impl Subject<'_> {
    /// What ran it: every part of a report's challenge runs on one device.
    fn backend(&self) -> Backend {
        self.courses[0].backend
    }

    /// `nf4 number nf4.speedup`.
    fn what(&self, of: &str) -> String {
        format!("{} {of}", self.challenge.name)
    }
}

#[derive(Default)]
struct Findings(Verified);

impl Findings {
    fn add(&mut self, about: About, what: &str, says: &str, follows: &str) {
        let (what, says, follows) = (what.into(), says.into(), follows.into());
        self.0.findings.push(Finding { about, what, says, follows });
    }

    fn compare<T: PartialEq + fmt::Display>(&mut self, about: About, what: &str, says: &T, follows: &T) {
        if says != follows {
            self.add(about, what, &says.to_string(), &follows.to_string());
        }
    }

    /// What stands above the challenges.
    fn head(&mut self, card: &Scorecard) {
        self.compare(About::Version, "warpbook", &card.warpbook.as_str(), &env!("CARGO_PKG_VERSION"));
        if attempt(card).is_none() {
            self.add(About::Numbers, "attempt", &card.attempt, "exercise, solution or own");
        }
        if seed(card).is_none_or(|seed| format!("{seed:#x}") != card.seed) {
            self.add(About::Numbers, "seed", &card.seed, "0x and up to 16 hexadecimal digits");
        }
        self.machine(card);
    }

    fn machine(&mut self, card: &Scorecard) {
        let machine = &card.machine;
        if widest(machine).is_none() {
            let units = "a vector unit of that processor";
            self.add(About::Numbers, "machine", &format!("{} on {}", machine.vector, machine.arch), units);
        }
        if let Some(own) = &machine.widest
            && unit(machine, own).is_none_or(|own| Some(own) <= widest(machine))
        {
            let found = format!("{} held from {own} on {}", machine.vector, machine.arch);
            self.add(About::Numbers, "machine", &found, "a wider vector unit of that processor");
        }
        let [gpu, wine] = [&machine.gpu, &machine.wine].map(|text| text.as_deref().unwrap_or_default());
        for text in [&machine.cpu, &machine.os, &machine.arch, &machine.date, gpu, wine] {
            self.plain("machine", text);
        }
        if machine.wine.is_some() && machine.os != "windows" {
            self.add(About::Numbers, "machine", &format!("Wine on {}", machine.os), "Wine for windows");
        }
        let on_a_card = |challenge: &Challenge| challenge.device.starts_with("cuda") && challenge.attempted;
        let used = card.challenges.iter().any(on_a_card);
        if used && machine.gpu.is_none() {
            self.add(About::Numbers, "machine", "no GPU", "the GPU that a challenge ran on");
        }
    }

    /// The grader writes no control characters and no marks of direction into names.
    fn plain(&mut self, what: &str, text: &str) {
        if clean(text) != text || text.contains('\n') {
            self.add(About::Numbers, what, &format!("{text:?}"), "plain text on one line");
        }
    }

    fn challenge(&mut self, card: &Scorecard, challenge: &Challenge, rubric: &'static Rubric) {
        let name = &challenge.name;
        let all = courses::of_challenge(name, course::backend_of(&challenge.device));
        let ran: Vec<&Course> = courses::that_ran(challenge).into_iter().map(|(course, _)| course).collect();
        let courses = if ran.is_empty() { all } else { ran };
        let is_built = !courses.is_empty();
        let expected = [rubric.letter, &rubric.possible.to_string(), &is_built.to_string()].join(", ");
        let says = format!("{}, {}, {}", challenge.letter, challenge.possible, challenge.built);
        self.compare(About::Version, &format!("{name} (letter, possible, built)"), &says, &expected);
        self.device(challenge, &courses);
        let is_its = |guard: &&Guard| guard.challenge == *name;
        let guards: Vec<Guard> = card.guards.iter().filter(is_its).cloned().collect();
        if !is_built || !rows::was_run(challenge, &guards) {
            return self.absent(challenge, rubric, &guards);
        }
        let widest = widest(&card.machine).unwrap_or(kernels::Vector::Portable);
        let expected = Expected::of(&courses, widest);
        let part = expected.part(&challenge.checks, &guards);
        self.0.parts.extend(part.iter().map(|part| format!("{name}: {part}")));
        let subject = Subject { card, challenge, guards, courses, rubric, part };
        self.names(&subject, &expected);
        self.code(&subject);
        self.numbers(&subject);
        self.rows(&subject);
    }

    /// A device is one of those that there are, and one without a back end measures nothing.
    fn device(&mut self, challenge: &Challenge, courses: &[&Course]) {
        let number = challenge.device.strip_prefix("cuda:");
        let known = matches!(challenge.device.as_str(), "cpu" | "sim")
            || number.is_some_and(|n| n.parse::<usize>().is_ok_and(|parsed| parsed.to_string() == n));
        if !known {
            let what = format!("{} device", challenge.name);
            self.add(About::Numbers, &what, &challenge.device, "cpu, sim or cuda:N");
        }
        let backend = course::backend_of(&challenge.device);
        let runs = challenge.device != "sim" && courses.iter().any(|course| course.backend == backend);
        let ran = |check: &Check| check.outcome != Outcome::NotMeasured;
        if !runs && (challenge.checks.iter().any(ran) || !challenge.measurements.is_empty()) {
            let what = format!("{} on {}", challenge.name, challenge.device);
            self.add(
                About::Version,
                &what,
                "something was run",
                "nothing measured, for there is no back end",
            );
        }
    }

    fn totals(&mut self, card: &Scorecard) {
        let sum = |of: fn(&Challenge) -> i32| {
            card.challenges.iter().fold(0i32, |sum, challenge| sum.saturating_add(of(challenge)))
        };
        self.compare(About::Numbers, "points", &card.points, &sum(|challenge| challenge.points));
        self.compare(About::Numbers, "unmeasured", &card.unmeasured, &sum(|challenge| challenge.unmeasured));
        self.compare(About::Numbers, "possible", &card.possible, &rubric::possible());
        let stand_in = card.challenges.iter().flat_map(|challenge| &challenge.rows);
        let stand_in = stand_in.filter(|row| row.basis == Basis::StandIn);
        let stand_in = stand_in.fold(0i32, |sum, row| sum.saturating_add(row.points));
        self.compare(About::Numbers, "stand_in", &card.stand_in, &stand_in);
    }
}

/// The attempt that a report names.
pub(crate) fn attempt(card: &Scorecard) -> Option<Attempt> {
    let all = [Attempt::Exercise, Attempt::Solution, Attempt::Own];
    all.into_iter().find(|attempt| attempt.name() == card.attempt)
}

/// The seed that a report names.
pub(crate) fn seed(card: &Scorecard) -> Option<u64> {
    u64::from_str_radix(card.seed.strip_prefix("0x")?, 16).ok()
}
