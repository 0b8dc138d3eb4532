//! What people read: one scorecard as terminal text, as Markdown and as one HTML file.
//!
//! The three formats are written separately, because a page of each is laid out by different rules, but
//! they must not disagree: every sentence that two of them share - the total, the thresholds, the state of
//! the guards, how failing checks are gathered into findings - is made here, once, and so is the cleaning
//! of texts. What a compiler or an attempt said is data: it may hold escape sequences that would paint the
//! reader's terminal, markup that would run in the reader's browser, or direction marks that make code read
//! as something else. [`clean`] takes those out; each format then escapes its own markup.

pub mod html;
pub mod markdown;
pub mod text;

pub(crate) mod paper;

use std::collections::BTreeSet;

use figures::number::{bytes, digits, quantity, ratio};
use figures::timing::{self, Versus};
use kernels::cpu::VECTOR_VARIABLE;
use reference::clean::clean;

use crate::rubric::{RUBRICS, THRESHOLDS};
use crate::scorecard::{Challenge, Check, ELSEWHERE, Machine, Measurement, Outcome, Row, Scorecard, Truth};

/// What a row did to the score; decides its symbol and its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// It added points.
    Won,
    /// It took points.
    Lost,
    /// It could have added points and did not.
    Open,
    /// It had nothing to give and took nothing.
    Idle,
    /// Nobody could measure it.
    Unknown,
}

/// Why a row that adds nothing was not missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aside {
    /// The published text gives the points once, and the line directly above won them.
    WonAbove,
    /// The same, by a line that is further away: its number, from 1.
    WonByLine(usize),
    /// The row can only take points, and took none.
    Avoided,
}

/// Checks that ended alike for the same reason.
#[derive(Clone, Debug)]
pub struct Finding<'a> {
    /// How they ended.
    pub outcome: Outcome,
    /// The words that they share.
    pub detail: &'a str,
    /// The checks, in their order; at least one.
    pub checks: Vec<&'a Check>,
}

impl Tone {
    /// The tone of a row of a challenge.
    pub fn of(challenge: &Challenge, row: &Row) -> Self {
        match row {
            _ if Aside::of(challenge, row).is_some() => Self::Idle,
            Row { fact: Truth::Unmeasured, .. } => Self::Unknown,
            Row { points: 1.., .. } => Self::Won,
            Row { points: ..=-1, .. } => Self::Lost,
            Row { worth: 1.., .. } => Self::Open,
            _ => Self::Idle,
        }
    }

    /// A symbol of its own for each tone, so that colour is never needed.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Won => "\u{2713}",
            Self::Lost => "\u{2717}",
            Self::Open => "\u{25cb}",
            Self::Idle => "\u{b7}",
            Self::Unknown => "?",
        }
    }

    /// The name of the tone in style sheets.
    pub fn name(self) -> &'static str {
        match self {
            Self::Won => "won",
            Self::Lost => "lost",
            Self::Open => "open",
            Self::Idle => "idle",
            Self::Unknown => "unknown",
        }
    }
}

impl Aside {
    /// Of a row of a challenge; `None` if the row won or lost points, could not be measured, or was missed.
    pub fn of(challenge: &Challenge, row: &Row) -> Option<Self> {
        if row.fact != Truth::Unmet || row.points != 0 {
            return None;
        }
        let lines = RUBRICS.iter().find(|rubric| rubric.name == challenge.name)?.lines;
        let line_of = |row: &Row| lines.iter().position(|line| line.wording == row.wording);
        let own = line_of(row)?;
        if row.worth == 0 {
            return (!lines[own].branches.is_empty()).then_some(Self::Avoided);
        }
        let wins = |other: &&Row| {
            let excluded = line_of(other).is_some_and(|line| lines[own].excludes(&lines[line]));
            excluded && other.points >= row.worth
        };
        let winner = line_of(challenge.rows.iter().find(wins)?)?;
        Some(if winner + 1 == own { Self::WonAbove } else { Self::WonByLine(winner + 1) })
    }

    /// As every report says it.
    pub fn words(self) -> String {
        match self {
            Self::WonAbove => "won by the line above".into(),
            Self::WonByLine(number) => format!("won by line {number}"),
            Self::Avoided => "penalty avoided".into(),
        }
    }
}

/// Whether a row could have added more than it did, in this version of the workbook.
pub fn is_left(challenge: &Challenge, row: &Row) -> bool {
    let absent = row.fact == Truth::Unmeasured && row.evidence.contains("not part of this version");
    row.points < row.worth && !absent && Aside::of(challenge, row).is_none()
}

impl Finding<'_> {
    /// The checks' names, the rest of a long list counted.
    pub fn names(&self) -> String {
        if self.outcome == Outcome::DoesNotCompile {
            return format!("the exercise, in {}", self.checks[0].step());
        }
        let shown = if self.checks.len() > 4 { 3 } else { 4 };
        let names: Vec<&str> = self.checks.iter().take(shown).map(|check| check.name.as_str()).collect();
        let rest = self.checks.len() - names.len();
        if rest == 0 { names.join(", ") } else { format!("{} and {rest} more", names.join(", ")) }
    }

    /// Whether the attempt, or the grader, did something wrong, as opposed to nothing.
    pub fn is_fault(&self) -> bool {
        !matches!(self.outcome, Outcome::NotAttempted | Outcome::NotMeasured | Outcome::Passed)
    }
}

/// `met`, `unmet` or `not measured`.
pub fn truth(truth: Truth) -> &'static str {
    match truth {
        Truth::Met => "met",
        Truth::Unmet => "unmet",
        Truth::Unmeasured => "not measured",
    }
}

/// The effect of a row beside what it could add: `+3 of 3`, `-3`, `? of 1`; in words where nothing was missed.
pub fn points(challenge: &Challenge, row: &Row) -> String {
    if let Some(aside) = Aside::of(challenge, row) {
        return aside.words();
    }
    let effect = match row {
        Row { fact: Truth::Unmeasured, .. } => "?".to_owned(),
        Row { points: 0, .. } => "0".to_owned(),
        Row { points, .. } => format!("{points:+}"),
    };
    if row.worth > 0 { format!("{effect} of {}", row.worth) } else { effect }
}

/// What a row's evidence adds to that of the row above it: parts of the sentence that it has are `as above`.
pub(crate) fn unsaid<'a>(above: &mut BTreeSet<&'a str>, evidence: &'a str) -> String {
    let parts: Vec<&str> = evidence.split("; ").collect();
    let new: Vec<&str> = parts.iter().copied().filter(|part| !above.contains(part)).collect();
    *above = parts.iter().copied().collect();
    match (evidence.is_empty(), new.len()) {
        (false, 0) => "as above".into(),
        (_, count) if count == parts.len() => evidence.into(),
        _ => format!("as above; {}", new.join("; ")),
    }
}

/// The checks that did not pass, gathered by outcome and detail: faults first, then what is missing.
pub fn findings(challenge: &Challenge) -> Vec<Finding<'_>> {
    let mut all: Vec<Finding> = Vec::new();
    for check in challenge.checks.iter().filter(|check| check.outcome != Outcome::Passed) {
        match all.iter_mut().find(|one| one.outcome == check.outcome && one.detail == check.detail) {
            Some(finding) => finding.checks.push(check),
            None => all.push(Finding { outcome: check.outcome, detail: &check.detail, checks: vec![check] }),
        }
    }
    let is_told = |finding: &Finding| !finding.detail.starts_with(ELSEWHERE);
    if all.iter().any(|finding| finding.outcome == Outcome::DoesNotCompile && is_told(finding)) {
        // The compiler's words are reported once, not once more for each step that they keep from running.
        all.retain(|finding| finding.outcome != Outcome::DoesNotCompile || is_told(finding));
    }
    all.sort_by_key(|finding| !finding.is_fault());
    all
}

/// `8 passed, 2 wrong`: how many checks ended in which way.
pub fn tally(challenge: &Challenge) -> String {
    let all = [
        Outcome::Passed,
        Outcome::Wrong,
        Outcome::DoesNotCompile,
        Outcome::GraderFault,
        Outcome::NotAttempted,
        Outcome::NotMeasured,
    ];
    // it is one text that does not compile, whatever it keeps from running
    let word = |how: Outcome| {
        if how == Outcome::DoesNotCompile { "not run: the exercise does not compile" } else { how.word() }
    };
    let ended = |how| challenge.checks.iter().filter(|check| check.outcome == how).count();
    let parts = all.map(|how| (ended(how), word(how))).into_iter().filter(|(n, _)| *n > 0);
    parts.map(|(n, word)| format!("{n} {word}")).collect::<Vec<_>>().join(", ")
}

/// The earlier points of a challenge that was not run now, or of those of its parts that were not.
#[derive(Clone, Debug)]
pub struct Before {
    /// The challenge.
    pub name: String,
    /// The points.
    pub points: i32,
    /// The points in words, with their time.
    pub message: String,
}

/// Whether nothing of a challenge was run: nobody asked for it.
pub fn not_run(challenge: &Challenge) -> bool {
    let Challenge { built, attempted, checks, measurements, .. } = challenge;
    *built && !attempted && checks.is_empty() && measurements.is_empty()
}

/// Points that could still be reached, by why they are open: not measured here, not run, not part of this version.
fn open_points(card: &Scorecard) -> [(i32, &'static str); 3] {
    let of = |which: &dyn Fn(&Challenge) -> bool| {
        card.challenges.iter().filter(|c| which(c)).fold(0i32, |sum, c| sum.saturating_add(c.unmeasured))
    };
    let all = card.unmeasured.max(0);
    let absent = of(&|c| !c.built).clamp(0, all);
    let idle = of(&not_run).clamp(0, all - absent);
    let here = all - absent - idle;
    [(here, "not measured here"), (idle, "not run"), (absent, "not in this version")]
}

/// `13 of 55 (13 rest on stand-ins; 1 not measured here; 41 not run)`.
pub fn total(card: &Scorecard) -> String {
    let mut parts = Vec::new();
    if card.stand_in != 0 {
        parts.push(format!(
            "{} {} on stand-ins",
            card.stand_in,
            if card.stand_in == 1 { "rests" } else { "rest" }
        ));
    }
    let open = open_points(card).into_iter().filter(|(points, _)| *points > 0);
    parts.extend(open.map(|(points, why)| format!("{points} {why}")));
    let notes = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join("; ")) };
    format!("{} of {}{notes}", card.points, card.possible)
}

/// Which of the published thresholds are passed and how far the next one is.
pub fn thresholds(points: i32) -> String {
    let passed: Vec<String> = THRESHOLDS.iter().filter(|t| points >= **t).map(ToString::to_string).collect();
    let next = THRESHOLDS.iter().find(|t| points < **t);
    let first =
        if passed.is_empty() { "none passed".to_owned() } else { format!("{} passed", passed.join(", ")) };
    match next {
        Some(next) => format!("{first}, {} short of {next}", next.saturating_sub(points)),
        None => first,
    }
}

/// One sentence on the guards that tripped none, ran, or could not.
pub fn guards(card: &Scorecard) -> String {
    let ran = card.guards.iter().filter(|guard| guard.ran).count();
    let tripped = card.guards.iter().filter(|guard| guard.tripped).count();
    let idle = card.guards.len() - ran;
    let tripped = if tripped == 0 { "none tripped".to_owned() } else { format!("{tripped} TRIPPED") };
    let idle = if idle == 0 { String::new() } else { format!("; {idle} could not run") };
    format!("{ran} ran, {tripped}{idle}")
}

/// The machine in one line, unknown parts left out.
pub fn machine(machine: &Machine) -> String {
    let mut parts = vec![machine.cpu.clone()];
    parts.push(format!("{} {}", machine.cores, if machine.cores == 1 { "core" } else { "cores" }));
    parts.push(match &machine.widest {
        None => machine.vector.clone(),
        Some(widest) => format!("{} (limited by {VECTOR_VARIABLE}, {widest} is there)", machine.vector),
    });
    if machine.cache_bytes > 0 {
        parts.push(format!("{} cache", bytes(machine.cache_bytes as f64)));
    }
    if machine.memory_bytes > 0 {
        parts.push(format!("{} memory", bytes(machine.memory_bytes as f64)));
    }
    parts.push(format!("{} {}", system(machine), machine.arch));
    parts.extend(machine.gpu.clone());
    parts.retain(|part| !part.trim().is_empty());
    parts.join(", ")
}

/// The operating system, and what stands in for it.
pub fn system(machine: &Machine) -> String {
    match &machine.wine {
        Some(version) => format!("{} (Wine {version})", machine.os),
        None => machine.os.clone(),
    }
}

/// A card, as reports name it.
pub fn card(card: &kernels::cuda::Card) -> String {
    let (major, minor) = card.driver;
    format!(
        "{}, {} multiprocessors, {}, {} L2, {} memory, driver for CUDA {major}.{minor}",
        card.name,
        card.sms,
        card.architecture(),
        bytes(card.l2_bytes as f64),
        bytes(card.memory_bytes as f64)
    )
}

/// What the challenge asks, in a few words.
pub fn title(challenge: &Challenge) -> &'static str {
    RUBRICS.iter().find(|rubric| rubric.name == challenge.name).map_or("", |rubric| rubric.title)
}

/// The line of a challenge that has nothing to show: not built, not run, or only holes.
pub fn idle(challenge: &Challenge) -> Option<String> {
    let holes =
        challenge.checks.iter().all(|c| matches!(c.outcome, Outcome::NotAttempted | Outcome::NotMeasured));
    match challenge {
        Challenge { built: false, .. } => {
            Some(format!("not built in this version, {} points", challenge.possible))
        }
        challenge if not_run(challenge) => Some(format!("not run, {} points", challenge.possible)),
        Challenge { attempted: false, checks, .. } if all_unmeasured(checks) => {
            Some(format!("not measured, {} points: {}", challenge.possible, checks[0].detail))
        }
        Challenge { attempted: false, checks, .. } if holes => {
            let one_step = checks.iter().all(|check| check.step() == checks[0].step());
            let hole = checks.iter().find(|check| one_step && !check.detail.is_empty());
            let hole = hole.map_or_else(String::new, |check| format!("; still a hole: {}", check.detail));
            Some(format!("not attempted, {} of {} points{hole}", challenge.points, challenge.possible))
        }
        _ => None,
    }
}

fn all_unmeasured(checks: &[Check]) -> bool {
    !checks.is_empty() && checks.iter().all(|check| check.outcome == Outcome::NotMeasured)
}

/// A count as people read it, its unit after it; `streaming_stores` becomes `streaming stores`.
pub fn amount(name: &str, measurement: &Measurement) -> String {
    format!("{} {}", name.replace('_', " "), quantity(measurement))
}

/// A row of a table of the attempt beside another way: what, the other way's, the attempt's, the ratio.
pub(crate) fn compared(row: &Versus) -> [String; 4] {
    let baseline = row.baseline.map_or(String::new(), quantity);
    [row.what.clone(), baseline, quantity(row.attempt), row.ratio.as_ref().map_or(String::new(), ratio)]
}

/// The counters of a challenge that compiles, as `(what, how many)`.
pub(crate) fn counters(challenge: &Challenge) -> Vec<(&'static str, String)> {
    let describe = |m: &Measurement| match m.unit.as_str() {
        "us" => format!("{} ms", digits(m.value / 1e3)),
        _ => quantity(m),
    };
    timing::counters(challenge).into_iter().map(|(says, m)| (says, describe(&m))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn the_total_names_stand_ins_and_what_is_not_measured() {
        let card = fixture::solved();
        assert_eq!(
            total(&card),
            "13 of 55 (13 rest on stand-ins; 1 not measured here; 41 not in this version)"
        );
        let mut alone = card.clone();
        alone.challenges[1..].iter_mut().for_each(|challenge| challenge.built = true);
        assert_eq!(total(&alone), "13 of 55 (13 rest on stand-ins; 1 not measured here; 41 not run)");
        assert_eq!(idle(&alone.challenges[1]).as_deref(), Some("not run, 10 points"));
        let full = Scorecard { points: 55, unmeasured: 0, stand_in: 0, ..card };
        assert_eq!(total(&full), "55 of 55");
    }

    #[test]
    fn the_next_threshold_is_named_with_its_distance() {
        let said = [-3, 0, 17, 18, 46, 47, 55].map(thresholds);
        let want = [
            "none passed, 21 short of 18",
            "none passed, 18 short of 18",
            "none passed, 1 short of 18",
            "18 passed, 14 short of 32",
            "18, 32 passed, 1 short of 47",
            "18, 32, 47 passed",
            "18, 32, 47 passed",
        ];
        assert_eq!(said, want);
    }

    #[test]
    fn findings_with_the_same_words_are_told_once_and_faults_come_first() {
        let card = fixture::half_done();
        let findings = findings(&card.challenges[0]);
        let compile: Vec<_> = findings.iter().filter(|f| f.outcome == Outcome::DoesNotCompile).collect();
        assert_eq!((compile.len(), compile[0].checks.len()), (1, 2));
        let faults: Vec<bool> = findings.iter().map(Finding::is_fault).collect();
        assert!(faults.is_sorted_by(|a, b| a >= b), "{faults:?}");
    }

    #[test]
    fn no_report_panics_on_an_absurd_scorecard() {
        for points in [i32::MIN, -1, 0, i32::MAX] {
            let mut card = fixture::half_done();
            (card.points, card.possible, card.stand_in, card.unmeasured) = (points, points, points, points);
            card.warpbook = "\u{6f22}".repeat(300);
            let first = &mut card.challenges[0];
            first.name = "nf4".repeat(100);
            (first.rows[0].points, first.rows[0].worth, first.rows[1].worth) = (points, points, points);
            first.rows[2].wording = "speedup \u{e9}\u{e9} >".into();
            let mut names: Vec<String> = first.measurements.keys().cloned().collect();
            names.extend(["nf4.speedup.".into(), ".".into(), "nf4".into(), String::new()]);
            for (name, value) in
                names.into_iter().zip([f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300, 1e-300].into_iter().cycle())
            {
                let m = Measurement {
                    value,
                    unit: "count".into(),
                    interval: Some([value; 2]),
                    samples: vec![value; 3],
                };
                let long = name.replacen("nf4", &first.name, 1);
                first.measurements.insert(long, m.clone());
                first.measurements.insert(name, m);
            }
            for width in [0, 40, 80] {
                let text = text::render(&card, text::Options { color: true, width, points: true });
                assert!(
                    text.lines()
                        .all(|line| paper::columns(&clean(line)) <= width.max(paper::COMPILER_COLUMNS))
                );
            }
            assert!(!markdown::render(&card).is_empty());
            assert!(html::render(&card).is_ok());
        }
    }

    #[test]
    fn outcomes_are_spelt_as_in_the_json() {
        for how in [
            Outcome::Passed,
            Outcome::Wrong,
            Outcome::NotAttempted,
            Outcome::NotMeasured,
            Outcome::DoesNotCompile,
            Outcome::GraderFault,
        ] {
            assert_eq!(serde_json::to_value(how).unwrap(), how.word());
        }
    }
}
