//! `list`, and what the grader says without a verb: the steps, and where the reader stands.

use std::fmt::Write;

use kernels::cuda::Gpu;

use crate::course::{Back, COURSES, Course};
use crate::options::{Failure, Options};
use crate::progress::{Progress, Standing, Stands};
use crate::report;
use crate::rubric::{RUBRICS, possible};
use crate::scorecard::Outcome;
use crate::stub::{self, Step, code_hash};
use crate::terminal::print;
use crate::workbook::Workbook;

/// Where one exercise stands, without running anything.
enum State {
    Untouched,
    Changed,
    Graded(Standing),
    Missing(String),
}

/// Prints the first screen.
pub(crate) fn list(_: &Options) -> Result<u8, Failure> {
    let workbook = Workbook::find().map_err(Failure::Usage)?;
    print(&first_screen(&workbook));
    Ok(0)
}

/// The total, the steps, and what comes next.
pub(crate) fn first_screen(workbook: &Workbook) -> String {
    let progress = Progress::load(workbook);
    let states: Vec<(&Course, State)> =
        COURSES.iter().map(|course| (course, state(workbook, course, &progress))).collect();
    let points: i32 = RUBRICS.iter().map(|rubric| best(rubric.name, &states)).sum();
    let graded_last = |(course, _): &&(&Course, State)| Some(course.key()) == progress.last;
    let first = states.iter().find(graded_last).and_then(to_do); // who is at E need not be sent to A
    let next = first.unwrap_or_else(|| next(&states));
    let mut text = format!("{points} of {}. {next}\n", possible());
    let _ = writeln!(text, "thresholds: {}", report::thresholds(points));
    let _ = writeln!(text, "{}\n", penalty());
    for rubric in &RUBRICS {
        let built = states.iter().filter(|(course, _)| course.name == rubric.name);
        let told: String = built.map(|(course, state)| challenge(course, state)).collect();
        if told.is_empty() {
            let _ = writeln!(text, "{} {:<7} not built in this version", rubric.letter, rubric.name);
        }
        text.push_str(&told);
    }
    text
}

/// The points of a challenge: those of the back end that it did best on.
fn best(challenge: &str, states: &[(&Course, State)]) -> i32 {
    let of =
        |state: &State| if let State::Graded(standing) = state { standing.points.unwrap_or(0) } else { 0 };
    let own = states.iter().filter(|(course, _)| course.name == challenge);
    own.map(|(_, state)| of(state)).max().unwrap_or(0)
}

/// Where the reader goes on after a run of some courses, in one line.
pub(crate) fn what_next(courses: &[&'static Course]) -> String {
    let Ok(workbook) = Workbook::find() else { return String::new() };
    let progress = Progress::load(&workbook);
    let states: Vec<(&Course, State)> =
        courses.iter().map(|course| (*course, state(&workbook, course, &progress))).collect();
    format!("{}\n", next(&states))
}

fn state(workbook: &Workbook, course: &Course, progress: &Progress) -> State {
    let text = match workbook.exercise(course) {
        Ok(text) => text,
        Err(reason) => return State::Missing(reason),
    };
    let code = code_hash(&text);
    match progress.challenges.get(&course.key()) {
        Some(standing) if standing.code == code => State::Graded(standing.clone()),
        _ if stub::derive(course.solution, course.language()).is_ok_and(|stub| code_hash(&stub) == code) => {
            State::Untouched
        }
        _ => State::Changed,
    }
}

/// The step that the reader goes on with.
fn next(states: &[(&Course, State)]) -> String {
    let gpu = Gpu::look(0).is_ok();
    let here = |course: &Course| course.back == Back::Cpu || gpu;
    if !states.iter().any(|(course, _)| here(course)) {
        return "These steps need a GPU; `cargo grader doctor` says what is missing.".into();
    }
    let mut here = states.iter().filter(|(course, _)| here(course));
    here.find_map(to_do).unwrap_or_else(|| all_done(states))
}

/// What there is to do in one exercise; nothing where every step has passed.
fn to_do((course, state): &(&Course, State)) -> Option<String> {
    let steps = stub::steps(course.solution);
    match state {
        State::Untouched => Some(steps.first().map_or_else(String::new, |step| start(course, step))),
        State::Changed => {
            let device = if Gpu::look(0).is_ok() {
                format!(" --device {}", course.back.name())
            } else {
                String::new()
            };
            let (path, name) = (course.exercise(), course.name);
            Some(format!("{} has changed: `cargo grader test {name}{device}`", path.display()))
        }
        State::Missing(reason) => Some(reason.clone()),
        State::Graded(standing) => standing.next_step(&steps).map(|(step, stands)| match stands {
            Stands::OpenEarlier | Stands::PassedEarlier => {
                format!("Next: {} {}, {EARLIER} (`cargo grader test {}`)", step.name, step.task, step.name)
            }
            _ => format!("Next: {} {} (`cargo grader hint {}` helps)", step.name, step.task, step.name),
        }),
    }
}

/// What is said of a step whose outcome is that of an earlier text.
const EARLIER: &str = "not run since the file changed";

/// What is said where every step has passed: the points, or how they are measured.
fn all_done(states: &[(&Course, State)]) -> String {
    let open = |state: &State| matches!(state, State::Graded(standing) if standing.points.is_none());
    match states.iter().find(|(_, state)| open(state)) {
        Some((course, _)) if states.len() == 1 => {
            format!(
                "Every step of {} is done: `cargo grader score {}` measures the points.",
                course.letter(),
                course.name
            )
        }
        Some(_) => "Every step is done: `cargo grader score` measures the points.".into(),
        None => {
            let of =
                if let [(course, _)] = states { format!(" of {}", course.letter()) } else { String::new() };
            format!(
                "Every step{of} is done, and the points are measured: `diff` the exercise with the solution beside it."
            )
        }
    }
}

fn start(course: &Course, step: &Step<'_>) -> String {
    format!("Start: {} {}, in {}", step.name, step.task, course.exercise().display())
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

fn challenge(course: &Course, state: &State) -> String {
    let told = match state {
        State::Untouched => "not started".into(),
        State::Changed => "changed since it was graded".into(),
        State::Missing(_) => "the exercise is missing".into(),
        State::Graded(standing) => {
            standing.points.map_or("not scored yet".into(), |points| format!("{points} points"))
        }
    };
    let place = if course.back == Back::Cuda { " on CUDA" } else { "" };
    let mut text = format!("{} {:<7} {told}{place}\n", course.letter(), course.name);
    for step in stub::steps(course.solution) {
        let (word, mark) = step_state(state, step.name);
        let _ = writeln!(text, "  {:<5} {word:<14} {}{mark}", step.name, step.task);
    }
    text
}

/// How a step stands, and a mark behind it: the worst of its checks, the undone first. What an earlier text got is not told.
fn step_state(state: &State, step: &str) -> (&'static str, String) {
    let State::Graded(standing) = state else { return ("-", String::new()) };
    if matches!(standing.stands(step), Stands::OpenEarlier | Stands::PassedEarlier) {
        return ("-", format!(" ({EARLIER})"));
    }
    let of_step = standing
        .checks
        .iter()
        .filter(|check| check.step() == step && !standing.earlier.contains(&check.name));
    let outcomes: Vec<Outcome> = of_step.map(|check| check.outcome).collect();
    let worst = [
        Outcome::DoesNotCompile,
        Outcome::Wrong,
        Outcome::NotAttempted,
        Outcome::NotMeasured,
        Outcome::Passed,
    ];
    (worst.into_iter().find(|outcome| outcomes.contains(outcome)).map_or("-", Outcome::word), String::new())
}
