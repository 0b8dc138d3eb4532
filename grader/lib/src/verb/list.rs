//! `list`, and what the grader says without a verb: the steps, and where the reader stands.

use std::collections::BTreeSet;
use std::fmt::Write;

use kernels::cuda::Gpu;
use reference::clean::clean;

use crate::course::{Backend, Course};
use crate::courses;
use crate::date;
use crate::options::{Failure, Options};
use crate::progress::{Progress, Standing, Stands};
use crate::report::{self, Before};
use crate::rubric::{RUBRICS, possible};
use crate::scorecard::{Challenge, Outcome, Scorecard};
use crate::stub::{self, Language, Step, code_hash};
use crate::terminal::{hanging, print};
use crate::workbook::Workbook;

/// Where one exercise is, without running anything.
enum State {
    /// As it was derived.
    Untouched,
    /// Not the text that was graded last.
    Changed,
    /// The text that was graded last.
    Graded,
    /// There is no file, or it cannot be read: why.
    Missing(String),
}

/// An exercise, where it is, and what is known of it from before.
struct Entry<'a> {
    course: &'a Course,
    state: State,
    standing: Standing,
}

/// Prints the first screen, or of it the challenges that are named.
pub(crate) fn list(options: &Options, named: &[String]) -> Result<u8, Failure> {
    let workbook = Workbook::find().map_err(Failure::Usage)?;
    if named.is_empty() {
        print(&first_screen(&workbook));
        return Ok(0);
    }
    let progress = Progress::load(&workbook);
    for name in named {
        let (courses, _) = options.courses(name, Backend::Cpu)?;
        for course in courses {
            print(&challenge(&place(&workbook, course, &progress)));
        }
    }
    Ok(0)
}

/// The total, the steps, and what comes next.
pub(crate) fn first_screen(workbook: &Workbook) -> String {
    let progress = Progress::load(workbook);
    let places: Vec<Entry> = courses::exercises().map(|course| place(workbook, course, &progress)).collect();
    let points = total(&places);
    let graded_last = |place: &&Entry| Some(place.course.exercise_key()) == progress.last;
    let first = places.iter().find(graded_last).and_then(to_do); // who is at E need not be sent to A
    let next = first.unwrap_or_else(|| next(&places));
    let mut text = hanging(&format!("{points} of {}. ", possible()), &next);
    text += &hanging("thresholds: ", &report::thresholds(points));
    text += &hanging("", &penalty());
    text.push('\n');
    for rubric in &RUBRICS {
        let built = places.iter().filter(|place| place.course.name == rubric.name);
        let message: String = built.map(challenge).collect();
        if message.is_empty() {
            let _ = writeln!(text, "{} {:<7} not built in this version", rubric.letter, rubric.name);
        }
        text.push_str(&message);
    }
    text
}

/// The points of all challenges, each part on the back end that it did best on. What an earlier text of an exercise
/// earned stays earned until another one is scored.
fn total(places: &[Entry]) -> i32 {
    RUBRICS
        .iter()
        .flat_map(|rubric| best(rubric.name, places))
        .filter_map(|place| place.standing.points)
        .sum()
}

/// The best place of each part of a challenge.
fn best<'a, 'b>(challenge: &str, places: &'b [Entry<'a>]) -> Vec<&'b Entry<'a>> {
    let own = || places.iter().filter(|place| place.course.name == challenge);
    let parts: BTreeSet<Option<&str>> = own().map(|place| place.course.part).collect();
    let of_part = |part| own().filter(move |place| place.course.part == part);
    parts.into_iter().filter_map(|part| of_part(part).max_by_key(|place| place.standing.points)).collect()
}

/// The points of all challenges so far; empty where none were scored.
pub(crate) fn so_far() -> String {
    let Ok(workbook) = Workbook::find() else { return String::new() };
    let progress = Progress::load(&workbook);
    let places: Vec<Entry> = courses::exercises().map(|course| place(&workbook, course, &progress)).collect();
    if places.iter().all(|place| place.standing.points.is_none()) {
        return String::new();
    }
    format!("so far   {} of {} points\n", total(&places), possible())
}

/// Where the reader goes on after a run of some courses.
pub(crate) fn what_next(courses: &[&'static Course]) -> String {
    let Ok(workbook) = Workbook::find() else { return String::new() };
    let progress = Progress::load(&workbook);
    let places: Vec<Entry> = courses.iter().map(|course| place(&workbook, course, &progress)).collect();
    let next = next(&places);
    let (lead, rest) = next.split_once(": ").unwrap_or(("", &next));
    if lead.is_empty() || lead.contains(' ') {
        return hanging("", &next);
    }
    hanging(&format!("{lead}: "), rest)
}

/// The earlier points of what a scorecard leaves out: of challenges that were not run, and of the parts that were not
/// run of a challenge that was.
pub(crate) fn before(workbook: &Workbook, card: &Scorecard) -> Vec<Before> {
    let progress = Progress::load(workbook);
    let places: Vec<Entry> = courses::exercises().map(|course| place(workbook, course, &progress)).collect();
    let has_checks = |challenge: &&Challenge| report::not_run(challenge) || !challenge.checks.is_empty();
    let scored = card.challenges.iter().filter(has_checks).filter_map(|challenge| {
        let ran = parts_that_ran(challenge);
        let scored: Vec<_> = best(&challenge.name, &places)
            .into_iter()
            .filter(|place| !ran.contains(&place.course.part))
            .filter_map(|place| Some((place.standing.points?, points(place)?)))
            .collect();
        let message: Vec<&str> = scored.iter().map(|(_, message)| message.as_str()).collect();
        let points = scored.iter().map(|(points, _)| points).sum();
        (!scored.is_empty()).then(|| Before {
            name: challenge.name.clone(),
            points,
            message: message.join("; "),
        })
    });
    scored.collect()
}

/// The parts of a challenge that a scorecard's run covered; none if the challenge was not run.
fn parts_that_ran(challenge: &Challenge) -> Vec<Option<&'static str>> {
    if report::not_run(challenge) {
        return Vec::new();
    }
    courses::that_ran(challenge).into_iter().map(|(course, _)| course.part).collect()
}

fn place<'a>(workbook: &Workbook, course: &'a Course, progress: &Progress) -> Entry<'a> {
    let known = progress.challenges.get(&course.exercise_key());
    let standing = known.cloned().unwrap_or_default();
    let text = match workbook.exercise(course) {
        Ok(text) => text,
        Err(reason) => {
            return Entry { course, state: State::Missing(reason), standing: standing.of_text("") };
        }
    };
    let code = code_hash(&text);
    let state = match known {
        Some(standing) if standing.code == code => State::Graded,
        _ if stub::derive(course.solution(), course.language).is_ok_and(|stub| code_hash(&stub) == code) => {
            State::Untouched
        }
        _ => State::Changed,
    };
    Entry { course, state, standing: standing.of_text(&code) }
}

/// The step that the reader goes on with.
fn next(places: &[Entry]) -> String {
    let gpu = Gpu::look(0).is_ok();
    let here = |place: &&Entry| place.course.backend == Backend::Cpu || gpu;
    if !places.iter().any(|place| here(&place)) {
        return "These steps need a GPU; `cargo grader doctor` says what is missing.".into();
    }
    places.iter().filter(here).find_map(to_do).unwrap_or_else(|| all_done(places))
}

/// What there is to do in one exercise; `None` where every step has passed.
fn to_do(Entry { course, state, standing }: &Entry) -> Option<String> {
    let steps = stub::steps(course.solution());
    match state {
        State::Untouched => Some(steps.first().map_or_else(String::new, |step| start(course, step))),
        State::Changed => {
            let others =
                courses::exercises().filter(|other| other.name == course.name && other.part == course.part);
            let device = if others.count() > 1 && Gpu::look(0).is_ok() {
                format!(" --device {}", course.backend.name())
            } else {
                String::new()
            };
            let (path, name) = (course.exercise(), course.name);
            Some(format!("{} has changed: `cargo grader test {name}{device}`", path.display()))
        }
        State::Missing(reason) => Some(reason.clone()),
        State::Graded => standing.next_step(&steps).map(|(step, stands)| match stands {
            Stands::OpenEarlier | Stands::PassedEarlier => {
                format!("Next: {} {}, {EARLIER} (`cargo grader test {}`)", step.name, step.task, step.name)
            }
            _ => format!(
                "Next: {} {} (`cargo grader hint {}` helps){}",
                step.name,
                step.task,
                step.name,
                beside(&standing.stale(&steps), course)
            ),
        }),
    }
}

/// A note on the steps that passed before the file changed; empty where there are none.
fn beside(stale: &[&str], course: &Course) -> String {
    if stale.is_empty() {
        return String::new();
    }
    format!(". Passed, and {EARLIER}: {} (`cargo grader test {}`)", stale.join(", "), course.name)
}

/// What is said of a step whose outcome is that of an earlier text.
const EARLIER: &str = "not run since the file changed";

/// What is said where every step has passed: the points that are left, or how they are measured.
fn all_done(places: &[Entry]) -> String {
    let open = |place: &&Entry| !place.standing.is_scored(&place.standing.code);
    match places.iter().find(open) {
        Some(Entry { course, .. }) if places.len() == 1 => {
            format!(
                "Every step of {} is done: `cargo grader score {}` measures the points.",
                course.spoken(),
                course.word()
            )
        }
        Some(_) => "Every step is done: `cargo grader score` measures the points.".into(),
        None => {
            let of =
                if let [place] = places { format!(" of {}", place.course.spoken()) } else { String::new() };
            let left: Vec<String> = places.iter().filter_map(left).collect();
            let left = if left.is_empty() { String::new() } else { format!(" Left: {}.", left.join(", ")) };
            format!(
                "Every step{of} is done, and the points are measured.{left} `diff` the exercise with the solution \
                 beside it."
            )
        }
    }
}

fn start(course: &Course, step: &Step<'_>) -> String {
    format!("Start: {} {}, in `{}`", step.name, step.task, course.exercise().display())
}

/// One line on what the published scheme takes for leaving a challenge out.
fn penalty() -> String {
    let taken = RUBRICS.iter().filter(|rubric| rubric.not_attempted != 0);
    let taken: Vec<String> =
        taken.map(|rubric| format!("{} for {}", -rubric.not_attempted, rubric.letter)).collect();
    format!(
        "(the published scheme takes {} when they are not tried; what is not built yet costs nothing)",
        taken.join(" and ")
    )
}

fn challenge(place: &Entry) -> String {
    let Entry { course, state, standing } = place;
    let now = match state {
        State::Untouched => Some("not started"),
        State::Missing(_) => Some("the exercise is missing"),
        State::Changed if standing.points.is_none() => Some("changed since it was graded"),
        State::Graded if standing.points.is_none() => Some("not scored yet"),
        _ => None,
    };
    let mut message: Vec<String> = now.into_iter().map(String::from).chain(points(place)).collect();
    if course.language == Language::Cuda {
        message.push("on CUDA".into());
    }
    if let Some(left) = left(place) {
        message.push(format!("left: {left}"));
    }
    let mut text = hanging(&format!("{} {:<7} ", course.letter(), course.word()), &message.join("; "));
    for step in stub::steps(course.solution()) {
        let (word, mark) = step_state(standing, step.name);
        let lead = format!("  {:<5} {word:<14} ", step.name);
        text += &hanging(&lead, &format!("{}{mark}", step.task));
    }
    text
}

/// The points of an exercise, when they were measured, and whether it is still the same text: `13 of 14 points at 10:42
/// UTC, file changed since`. `None` if it was never scored.
fn points(Entry { course, state, standing }: &Entry) -> Option<String> {
    let possible = crate::rubric::find(course.name)?.possible;
    let message = format!("{} of {possible} points", standing.points?);
    let Some(scored) = &standing.scored else { return Some(message) };
    let same = matches!(state, State::Graded) && scored.code == standing.code;
    let since = if same { "" } else { ", file changed since" };
    Some(format!("{message} at {}{since}", date::describe(scored.when, date::now())))
}

/// The rows that could have added more, the first three by name.
fn left(place: &Entry) -> Option<String> {
    let rows = &place.standing.scored.as_ref()?.left;
    let named = rows.iter().take(3).map(|(wording, points)| format!("{wording} ({points})"));
    let rest = rows.iter().skip(3).fold(0, |sum, (_, points)| sum + points);
    let rest = (rest > 0).then(|| format!("{rest} in other rows"));
    let all: Vec<String> = named.chain(rest).collect();
    (!all.is_empty()).then(|| clean(&all.join(", ")))
}

/// How a step stands, and a mark after its task: the worst of its checks, the undone first, and when it passed, where
/// that was before.
fn step_state(standing: &Standing, step: &str) -> (&'static str, String) {
    let stands = standing.stands(step);
    let is_earlier = matches!(stands, Stands::OpenEarlier | Stands::PassedEarlier);
    let counts = |name: &String| is_earlier || !standing.earlier.contains(name);
    let of_step = standing.checks.iter().filter(|check| check.step() == step && counts(&check.name));
    let outcomes: Vec<Outcome> = of_step.map(|check| check.outcome).collect();
    let worst = [
        Outcome::GraderFault,
        Outcome::DoesNotCompile,
        Outcome::Wrong,
        Outcome::NotAttempted,
        Outcome::NotMeasured,
        Outcome::Passed,
    ];
    let word = worst.into_iter().find(|outcome| outcomes.contains(outcome)).map_or("not run", Outcome::word);
    let passed = standing.passed.get(step).filter(|_| stands != Stands::Passed);
    let passed = passed.map(|when| format!("passed {}", date::describe(*when, date::now())));
    let since = is_earlier.then(|| "file changed since".to_owned());
    let marks: Vec<String> = passed.into_iter().chain(since).collect();
    (word, if marks.is_empty() { String::new() } else { format!(" ({})", marks.join(", ")) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::issues::ATTENTION;
    use crate::scorecard::Check;

    /// As after `score vision` and then `score attention`.
    #[test]
    fn parts_that_did_not_run_keep_their_points() {
        let folder = tempfile::tempdir().expect("a folder");
        let standing = r#"{"code": "c", "points": 3, "checks": [], "passed": {"D.1": 1}}"#;
        let parts = ["issues.vision", "issues.attention", "graph"];
        let known = parts.map(|part| format!("{part:?}: {standing}")).join(", ");
        let progress = format!(r#"{{"challenges": {{{known}}}, "hints": {{}}}}"#);
        std::fs::create_dir_all(folder.path().join(".warpbook")).expect("a folder");
        std::fs::write(folder.path().join(".warpbook/progress.json"), progress).expect("it can be written");
        let workbook = Workbook::at(folder.path());
        let mut card = fixture::solved();
        card.challenges[1..].iter_mut().for_each(|challenge| challenge.built = true);
        let of = |card: &Scorecard| {
            let before = before(&workbook, card).into_iter();
            before.map(|before| (before.name, before.points)).collect::<Vec<_>>()
        };
        assert_eq!(of(&card), [("graph".to_owned(), 3), ("issues".to_owned(), 6)]);
        let step = stub::steps(ATTENTION.solution())[0].name.to_owned();
        let (outcome, detail, replay) = (Outcome::Passed, String::new(), String::new());
        card.challenges[3].checks = vec![Check { name: format!("{step}/x"), outcome, detail, replay }];
        assert_eq!(of(&card), [("graph".to_owned(), 3), ("issues".to_owned(), 3)], "vision's");
    }
}
