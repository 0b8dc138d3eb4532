//! Where the reader stands: `.warpbook/` in the workbook, ignored by git.
//!
//! `progress.json` holds the outcomes of the last run of each exercise with the hash of its code and the time, its last
//! score, and how many hints were asked for; `last.json` the last scorecard and `report.html` the same as a page;
//! `times.json` what each item took; `backups/` what `reset` replaced. All of it may be deleted at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Once;

use reference::atomic_write;
use reference::clean::clean;
use scorecard::file::read_text;
use serde::{Deserialize, Serialize};

use crate::course::{Backend, Course};
use crate::courses;
use crate::date;
use crate::report;
use crate::rubric;
use crate::score::Scope;
use crate::scorecard::{Challenge, Check, ELSEWHERE, Outcome, Scorecard};
use crate::stub::Step;
use crate::terminal::warn;
use crate::workbook::{Workbook, folder};

/// Bytes of the file that are read.
const MOST_BYTES: u64 = 16 << 20;

/// Hints of a step that are counted: there are three.
const MOST_HINTS: usize = 3;

/// The reader's progress.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// By course: `nf4`, `nf4.cuda`, `issues.chat`.
    pub challenges: BTreeMap<String, Standing>,
    /// Hints shown, by step.
    pub hints: BTreeMap<String, usize>,
    /// The course that was graded last.
    #[serde(default)]
    pub last: Option<String>,
}

/// What is known of one exercise.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// Hash of the code that was graded last.
    pub code: String,
    /// Points it got, if this text was scored.
    pub points: Option<i32>,
    /// Its checks.
    pub checks: Vec<Check>,
    /// The names of those that ran on an earlier text only.
    #[serde(default)]
    pub earlier: BTreeSet<String>,
    /// When each step passed last, in seconds since 1970; what came after does not take it away.
    #[serde(default)]
    pub passed: BTreeMap<String, u64>,
    /// What the points rest on, if they are known.
    #[serde(default)]
    pub scored: Option<Scored>,
}

/// A whole score of an exercise.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Scored {
    /// Hash of the code that was scored.
    pub code: String,
    /// When, in seconds since 1970.
    pub when: u64,
    /// The rows that could have added more, and how much: `(wording, points)`.
    pub left: Vec<(String, i32)>,
}

/// How a step stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    /// A check of today's text has not passed.
    Open,
    /// No check has run, or only found a hole that was there before.
    Untried,
    /// It has not passed, and has not run since the file changed.
    OpenEarlier,
    /// It had passed, and has not run since the file changed.
    PassedEarlier,
    /// Everything has passed.
    Passed,
}

impl Standing {
    /// As it is once the file holds another text: whatever ran, ran on an earlier one.
    pub fn of_text(&self, code: &str) -> Self {
        let mut standing = self.clone();
        if self.code != code {
            standing.earlier = self.checks.iter().map(|check| check.name.clone()).collect();
        }
        standing
    }

    /// Whether the points are those of the text with this hash.
    pub fn is_scored(&self, code: &str) -> bool {
        self.points.is_some() && self.scored.as_ref().is_none_or(|scored| scored.code == code)
    }

    /// Takes over the outcomes of a run. One of some checks leaves the others as they were; where they are of another
    /// text, that is noted.
    fn merge(&mut self, code: &str, checks: &[Check], is_all: bool) {
        if is_all {
            self.checks.clear();
            self.earlier.clear();
        } else if self.code != code {
            self.earlier = self.checks.iter().map(|check| check.name.clone()).collect();
        }
        for check in checks {
            self.earlier.remove(&check.name);
            match self.checks.iter_mut().find(|known| known.name == check.name) {
                Some(known) => known.clone_from(check),
                None => self.checks.push(check.clone()),
            }
        }
    }

    /// How a step stands, by all its checks.
    pub fn stands(&self, step: &str) -> Stands {
        let of_step: Vec<&Check> = self.checks.iter().filter(|check| check.step() == step).collect();
        let done = |check: &&Check| matches!(check.outcome, Outcome::Passed | Outcome::NotMeasured);
        let (done, open): (Vec<&Check>, Vec<&Check>) = of_step.into_iter().partition(done);
        let earlier = |check: &&Check| self.earlier.contains(&check.name);
        let hole = |check: &&Check| check.outcome == Outcome::NotAttempted;
        if open.is_empty() {
            return match done.iter().any(earlier) {
                _ if done.is_empty() => Stands::Untried,
                true => Stands::PassedEarlier,
                false => Stands::Passed,
            };
        }
        match open.iter().all(earlier) {
            false => Stands::Open,
            true if open.iter().all(hole) => Stands::Untried,
            true => Stands::OpenEarlier,
        }
    }

    /// Whether the compiler refused the text because of this step: its words are reported there, and only named
    /// elsewhere.
    fn is_refused(&self, step: &str) -> bool {
        let describe =
            |check: &Check| check.outcome == Outcome::DoesNotCompile && !check.detail.starts_with(ELSEWHERE);
        self.checks
            .iter()
            .any(|check| check.step() == step && describe(check) && !self.earlier.contains(&check.name))
    }

    /// The step to go on with: the one that does not compile, else the first, in their order, of which today's text has
    /// not passed a check; else the first that no text has passed; else the first that has to be run again.
    pub fn next_step<'a>(&self, steps: &'a [Step<'a>]) -> Option<(&'a Step<'a>, Stands)> {
        let all = || steps.iter().map(|step| (step, self.stands(step.name)));
        let find = |these: &[Stands]| all().find(|(_, stands)| these.contains(stands));
        let never = |(step, stands): &(&Step<'_>, Stands)| {
            let has_passed = *stands == Stands::PassedEarlier || self.passed.contains_key(step.name);
            *stands != Stands::Passed && !has_passed
        };
        let refused = steps.iter().find(|step| self.is_refused(step.name)).map(|step| (step, Stands::Open));
        refused
            .or_else(|| find(&[Stands::Open]))
            .or_else(|| all().find(never))
            .or_else(|| find(&[Stands::Untried, Stands::OpenEarlier]))
            .or_else(|| find(&[Stands::PassedEarlier]))
    }

    /// Steps that have passed, and were not run since the file changed.
    pub fn stale<'a>(&self, steps: &[Step<'a>]) -> Vec<&'a str> {
        let is_stale = |step: &&Step<'a>| {
            let stands = self.stands(step.name);
            stands == Stands::PassedEarlier
                || (stands == Stands::OpenEarlier && self.passed.contains_key(step.name))
        };
        steps.iter().filter(is_stale).map(|step| step.name).collect()
    }
}

impl Scored {
    fn of(course: &Course, code: &str, challenge: &Challenge) -> Self {
        let open = course.rows_of(challenge).filter(|row| report::is_left(challenge, row));
        let left = open.map(|row| (row.wording.clone(), row.worth - row.points.max(0)));
        Self { code: code.into(), when: date::now(), left: left.collect() }
    }
}

impl Progress {
    /// What was written last, as far as it can be; nothing if it was never written. One that cannot be read is reported
    /// once.
    pub fn load(workbook: &Workbook) -> Self {
        static TOLD: Once = Once::new();
        let path = folder(workbook).join("progress.json");
        if !path.exists() {
            return Self::default();
        }
        let read = read_text(&path, MOST_BYTES).and_then(|text| {
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
        });
        match read {
            Ok(progress) => Self::possible(progress),
            Err(reason) => {
                TOLD.call_once(|| warn(&format!("progress is not read: {reason}")));
                Self::default()
            }
        }
    }

    /// The file is the reader's: what cannot be is not taken from it.
    fn possible(mut self) -> Self {
        self.by_part();
        for (key, standing) in &mut self.challenges {
            let rubric = rubric::find(key.split('.').next().unwrap_or(key));
            let passes = standing.checks.iter().any(|check| check.outcome == Outcome::Passed);
            let earned = passes || !standing.passed.is_empty(); // by today's text, or by one before
            let most = rubric.filter(|_| earned).map_or(0, |rubric| rubric.possible);
            let least = -rubric::possible(); // no challenge takes more than all of them give
            standing.points = standing.points.map(|points| points.clamp(least, most));
            for check in &mut standing.checks {
                (check.name, check.detail) = (clean(&check.name), clean(&check.detail));
            }
        }
        self.hints.values_mut().for_each(|shown| *shown = (*shown).min(MOST_HINTS));
        self
    }

    /// An earlier version kept the first part of a challenge under the challenge's name.
    fn by_part(&mut self) {
        let renamed = |key: &str| {
            let of_challenge = courses::of_challenge(key, Backend::Cpu);
            of_challenge.first().filter(|course| course.part.is_some()).map(|course| course.exercise_key())
        };
        let old: Vec<String> = self.challenges.keys().filter(|key| renamed(key).is_some()).cloned().collect();
        for key in old {
            if let (Some(new), Some(standing)) = (renamed(&key), self.challenges.remove(&key)) {
                self.challenges.entry(new).or_insert(standing);
            }
        }
        self.last = self.last.take().map(|last| renamed(&last).unwrap_or(last));
    }

    /// Writes it.
    pub fn save(&self, workbook: &Workbook) -> std::io::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        atomic_write::write(&folder(workbook).join("progress.json"), text.as_bytes())
    }

    /// Takes over the outcomes of a run, of all checks or of some.
    pub fn record(&mut self, card: &Scorecard, scope: Scope, is_all: bool) {
        for challenge in card.challenges.iter().filter(|challenge| !challenge.checks.is_empty()) {
            for (course, code) in courses::that_ran(challenge) {
                self.record_course(course, &code, challenge, scope == Scope::Score && is_all, is_all);
            }
        }
    }

    fn record_course(&mut self, course: &Course, code: &str, ran: &Challenge, is_score: bool, is_all: bool) {
        let checks: Vec<Check> = ran.checks.iter().filter(|check| course.owns(check)).cloned().collect();
        let key = course.exercise_key();
        let standing = self.challenges.entry(key.clone()).or_default();
        standing.merge(code, &checks, is_all);
        if is_score {
            standing.points = Some(course.points(ran));
            standing.scored = Some(Scored::of(course, code, ran));
        } else if standing.code != code && standing.scored.is_none() {
            standing.points = None; // nobody knows of which text they were
        }
        code.clone_into(&mut standing.code);
        let ran: BTreeSet<&str> = checks.iter().map(Check::step).collect();
        let passed = |step: &str| ran.contains(step) && standing.stands(step) == Stands::Passed;
        let now = ran.iter().filter(|step| passed(step)).map(|step| ((*step).to_owned(), date::now()));
        let now: Vec<(String, u64)> = now.collect();
        self.hints.retain(|step, _| !passed(step));
        standing.passed.extend(now);
        self.last = Some(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, outcome: Outcome, detail: &str) -> Check {
        Check { name: name.into(), outcome, detail: detail.into(), replay: String::new() }
    }

    const STEPS: [Step<'_>; 2] = [Step { name: "A.1", task: "one" }, Step { name: "A.2", task: "two" }];

    #[test]
    fn the_step_that_does_not_compile_comes_next() {
        let named = check("A.1/x", Outcome::DoesNotCompile, "the exercise does not compile, because of A.2");
        let words = check("A.2/y", Outcome::DoesNotCompile, "error: expected expression\n --> exercise.rs");
        let refused = check("A.2/y", Outcome::DoesNotCompile, "exercise.rs:3: `Solution` is refused: no");
        for told in [words, refused] {
            let standing = Standing { checks: vec![named.clone(), told], ..Standing::default() };
            assert_eq!(standing.next_step(&STEPS).map(|(step, _)| step.name), Some("A.2"));
        }
    }

    #[test]
    fn another_text_makes_outcomes_earlier_and_takes_no_points() {
        let checks = vec![check("A.1/x", Outcome::Passed, "")];
        let scored = Some(Scored { code: "old".into(), ..Scored::default() });
        let known = Standing { code: "old".into(), points: Some(3), checks, scored, ..Standing::default() };
        let changed = known.of_text("new");
        assert_eq!((changed.stands("A.1"), changed.points), (Stands::PassedEarlier, Some(3)));
        assert!(known.is_scored("old") && !known.is_scored("new"));
        assert_eq!(known.of_text("old").stands("A.1"), Stands::Passed);
    }

    #[test]
    fn a_step_that_no_text_has_passed_comes_before_one_that_has_to_run_again() {
        let checks =
            vec![check("A.1/x", Outcome::DoesNotCompile, ""), check("A.2/y", Outcome::NotAttempted, "")];
        let earlier = checks.iter().map(|check| check.name.clone()).collect();
        let passed = BTreeMap::from([("A.1".to_owned(), 1)]);
        let standing = Standing { checks, earlier, passed, ..Standing::default() };
        assert_eq!(standing.next_step(&STEPS).map(|(step, _)| step.name), Some("A.2"));
        assert_eq!(standing.stale(&STEPS), ["A.1"]);
    }

    #[test]
    fn a_file_of_an_earlier_version_is_read() {
        let old = r#"{"challenges": {"nf4": {"code": "c", "points": 3, "checks": []}}, "hints": {"A.1": 1}}"#;
        let progress: Progress = serde_json::from_str(old).unwrap();
        let standing = &progress.challenges["nf4"];
        assert!(standing.is_scored("c") && standing.passed.is_empty());
    }

    #[test]
    fn what_was_kept_under_a_challenges_name_is_that_of_its_first_part() {
        let old = r#"{"challenges": {"issues": {"code": "c", "points": null, "checks": []}}, "hints": {}, "last": "issues"}"#;
        let progress: Progress = serde_json::from_str(old).unwrap();
        let progress = progress.possible();
        assert_eq!(progress.challenges["issues.chat"].code, "c");
        assert_eq!(progress.last.as_deref(), Some("issues.chat"));
    }
}
