//! What a challenge is worth by what was seen.

use std::collections::BTreeMap;

use kernels::Vector;

use super::Graded;
use super::plan::Plan;
use crate::course::Course;
use crate::courses::{self, COURSES};
use crate::evidence::{Seen, unmeasured};
use crate::expected::Expected;
use crate::rubric::{Facts, Rubric};
use crate::scorecard::{Challenge, Machine, Outcome};
use crate::workbook::{Workbook, folder};

pub(super) fn challenge(
    rubric: &Rubric,
    plan: &Plan,
    courses: &[&Course],
    graded: &Graded,
    machine: &Machine,
) -> Challenge {
    let Graded { code, guards, checks, measurements, unmeasured, .. } = graded;
    let facts = match Expected::of(courses, Vector::widest()).part(checks, guards) {
        Some(part) => of_part(rubric, &part),
        None => courses::facts(rubric, courses, &Seen { checks, guards, measurements, unmeasured }, machine),
    };
    let mut measurements = measurements.clone();
    let folder = Workbook::find().ok().map(|workbook| folder(&workbook));
    let follow = courses.iter().filter_map(|course| course.follow);
    let following: Vec<_> =
        follow.flat_map(|follow| follow(&measurements, machine, folder.as_deref())).collect();
    measurements.extend(following);
    judged(
        rubric,
        &facts,
        Challenge {
            device: plan.device_of(courses).unwrap_or_default(),
            code: code.clone(),
            attempted: checks.iter().any(|check| is_attempt(check.outcome)) || !measurements.is_empty(),
            checks: checks.clone(),
            measurements,
            ..blank(rubric, true)
        },
    )
}

/// The facts of a run of part of the checks and guards: nothing is measured by it.
pub(crate) fn of_part(rubric: &Rubric, part: &str) -> Facts {
    rubric.facts().into_iter().map(|name| (name, unmeasured(part))).collect()
}

/// Whether a check saw more than a hole.
pub(crate) fn is_attempt(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Passed | Outcome::Wrong | Outcome::DoesNotCompile)
}

/// Fills in the rows and points from the facts.
pub(crate) fn judged(rubric: &Rubric, facts: &Facts, challenge: Challenge) -> Challenge {
    let score = rubric.score(facts, &challenge.device);
    let looked = challenge.attempted || !challenge.checks.is_empty(); // else nobody asked for it
    let points = if challenge.attempted || !looked { score.points } else { rubric.not_attempted };
    Challenge { points, unmeasured: score.unmeasured + score.points - points, rows: score.rows, ..challenge }
}

pub(crate) fn blank(rubric: &Rubric, built: bool) -> Challenge {
    Challenge {
        name: rubric.name.into(),
        letter: rubric.letter.into(),
        built,
        attempted: false,
        device: "cpu".into(),
        code: String::new(),
        points: 0,
        possible: rubric.possible,
        unmeasured: 0,
        rows: vec![],
        checks: vec![],
        measurements: BTreeMap::new(),
    }
}

/// A challenge that is not built, or that nobody asked for.
pub fn absent(rubric: &Rubric) -> Challenge {
    let built = COURSES.iter().any(|course| course.name == rubric.name);
    let reason = if built { "not asked for" } else { "not part of this version" };
    let facts = rubric.facts().into_iter().map(|name| (name, unmeasured(reason))).collect();
    let blank = blank(rubric, built);
    let score = rubric.score(&facts, &blank.device);
    Challenge { unmeasured: score.unmeasured, rows: score.rows, ..blank }
}
