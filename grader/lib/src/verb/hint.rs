//! `hint`: three sizes, from a nudge to nearly the code, for the step that the last run stopped at.

use std::collections::BTreeMap;

use crate::course::Course;
use crate::courses::{self, COURSES, Supplied};
use crate::options::{Failure, Options};
use crate::progress::Progress;
use crate::scorecard::{Check, Outcome};
use crate::stub;
use crate::terminal::{print, warn, wrapped};
use crate::workbook::Workbook;

const SIZES: [&str; 3] = ["small", "medium", "large"];

/// Prints the next larger hint of a step.
pub(crate) fn hint(options: &Options, asked: Option<&str>) -> Result<u8, Failure> {
    let workbook = Workbook::find().map_err(Failure::Usage)?;
    let mut progress = Progress::load(&workbook);
    let Some((course, step)) = which(options, asked, &progress)? else {
        print(&wrapped(
            "every step is done; `diff` your exercise with the solution beside it, and read the rest of the lesson there\n",
        ));
        return Ok(0);
    };
    print(&wrapped(&next_hint(course, &step, &mut progress)?));
    if let Err(error) = progress.save(&workbook) {
        warn(&format!("progress is not kept ({error}); the next hint will be this one again"));
    }
    Ok(0)
}

/// The hint's text; counts it.
pub(crate) fn next_hint(course: &Course, step: &str, progress: &mut Progress) -> Result<String, Failure> {
    let hints: BTreeMap<String, BTreeMap<String, String>> = toml::from_str(course.hints)
        .map_err(|error| Failure::Fault(format!("the hints cannot be read: {error}")))?;
    let of_step = hints.get(step).ok_or_else(|| Failure::Usage(format!("there is no hint for {step:?}")))?;
    let shown = progress.hints.entry(step.to_owned()).or_default();
    let size = SIZES[(*shown).min(SIZES.len() - 1)];
    *shown += 1;
    let failed = progress
        .challenges
        .get(&course.exercise_key())
        .and_then(|standing| failed_check(&standing.checks, step));
    let mut text = format!("{step}, {size} hint: {}\n", of_step.get(size).map_or("", String::as_str));
    if let Some((check, cause)) = failed.and_then(|check| Some((check, cause(check)?))) {
        text = format!("{} failed. {cause}\n{text}", check.name);
    }
    text.push_str(if size == "large" {
        "(there is no larger one)\n"
    } else {
        "(ask again for a larger one)\n"
    });
    Ok(text)
}

fn failed_check<'a>(checks: &'a [Check], step: &str) -> Option<&'a Check> {
    checks.iter().find(|check| check.step() == step && check.outcome == Outcome::Wrong)
}

/// What the check found out already.
fn cause(check: &Check) -> Option<String> {
    let line = check.detail.lines().find(|line| line.trim_start().starts_with("likely cause: "))?;
    let cause = line.trim();
    (!cause.contains("none of the known")).then(|| format!("Its {cause}."))
}

/// The step that is meant: a named one, or the one to go on with; none if all have passed. Without a name it is of the
/// challenge that was graded last.
fn which(
    options: &Options,
    asked: Option<&str>,
    progress: &Progress,
) -> Result<Option<(&'static Course, String)>, Failure> {
    let (course, is_step) = match asked {
        Some(asked) => {
            let (courses, is_step) = options.courses(asked, options.backend(&Supplied::everything()))?;
            (courses[0], is_step)
        }
        None => (graded_last(progress), false),
    };
    if let Some(step) = asked.filter(|_| is_step) {
        return Ok(Some((course, step.to_uppercase())));
    }
    let steps = stub::steps(course.solution());
    let next = match progress.challenges.get(&course.exercise_key()) {
        Some(standing) => standing.next_step(&steps).map(|(step, _)| step.name.to_owned()),
        None => steps.first().map(|step| step.name.to_owned()),
    };
    Ok(next.map(|step| (course, step)))
}

/// The course that was graded last, else the first.
fn graded_last(progress: &Progress) -> &'static Course {
    let last = courses::exercises().find(|course| Some(course.exercise_key()) == progress.last);
    last.unwrap_or(&COURSES[0])
}
