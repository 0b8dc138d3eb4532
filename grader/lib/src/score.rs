//! From a command to a scorecard: which attempt, on which device, what was seen, what it is worth.

mod card;
mod device;
mod judged;
mod plan;
mod start;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};

use kernels::cpu;

use crate::course::{self, Course};
use crate::gather::{Gathered, Item, Request, gather};
use crate::pace::Pace;
use crate::rubric::RUBRICS;
use crate::scorecard::{Check, ELSEWHERE, Guard, Measurement, Outcome, Scorecard};
use crate::stub::code_hash;
use crate::workbook::{NotBuilt, Workbook, folder};

use card::{add, begun};
pub(crate) use card::{exit_code, machine};
pub(crate) use device::Device;
pub use judged::absent;
use judged::challenge;
pub(crate) use judged::{blank, is_attempt, judged, of_part};
use plan::chosen;
pub(crate) use plan::{Attempt, Plan, Scope, has_items, will_run};
pub(crate) use start::start;
use start::{Start, exercise};

/// Why a run has no whole scorecard.
pub(crate) enum RunError {
    /// A fault of the grader or of the machine under it, in a sentence.
    Fault(String),
    /// The scorecard could not be written while it was made; what was scored until then.
    Write(io::Error, Box<Scorecard>),
}

/// Runs a plan.
///
/// # Errors
/// A fault of the grader or of the machine under it, in a sentence.
pub(crate) fn run(plan: &Plan) -> Result<Scorecard, String> {
    run_with(plan, &mut |_| Ok(())).map_err(|ended| match ended {
        RunError::Fault(message) => message,
        RunError::Write(error, _) => error.to_string(),
    })
}

/// Runs a plan and hands `on_update` the scorecard while it is made: before anything runs, and with each challenge that
/// is scored. Its challenges come in the published order, its sums are those of the challenges that it holds.
///
/// # Errors
/// A fault, or that `on_update` failed. The children have ended by then.
pub(crate) fn run_with(
    plan: &Plan,
    on_update: &mut dyn FnMut(&Scorecard) -> io::Result<()>,
) -> Result<Scorecard, RunError> {
    let card = graded(plan, on_update);
    (plan.progress)(""); // whatever is printed next has the line to itself
    card
}

fn graded(
    plan: &Plan,
    on_update: &mut dyn FnMut(&Scorecard) -> io::Result<()>,
) -> Result<Scorecard, RunError> {
    let pace = pace(plan);
    let mut card = begun(plan);
    let mut update = |card: &Scorecard| {
        (plan.progress)("");
        on_update(card).map_err(|error| RunError::Write(error, Box::new(card.clone())))
    };
    update(&card)?;
    for rubric in &RUBRICS {
        let courses = plan.courses_of(rubric);
        if courses.is_empty() {
            add(&mut card, absent(rubric), Vec::new());
        } else {
            let parts = courses.iter().map(|course| grade(plan, course, &pace)).collect::<Result<_, _>>();
            let graded = together(&courses, parts.map_err(RunError::Fault)?);
            let challenge = challenge(rubric, plan, &courses, &graded, &card.machine);
            add(&mut card, challenge, graded.guards);
        }
        update(&card)?;
    }
    pace.over();
    Ok(card)
}

/// Runs the first course of a plan; its checks, and what the attempt printed meanwhile.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_printing(plan: &Plan) -> Result<(Vec<Check>, String), String> {
    let graded = grade(plan, plan.courses[0], &pace(plan));
    (plan.progress)("");
    graded.map(|graded| (graded.checks, graded.printed))
}

/// The items of a plan. Their seconds are kept where they are shown: with a reader at a terminal.
fn pace(plan: &Plan) -> Pace {
    let of_course = |course: &&'static Course| {
        let items = chosen(plan, (course.items)(&plan.effort));
        items.into_iter().map(|item| timed_as(plan, course, &item.name)).collect::<Vec<_>>()
    };
    let file = Workbook::find().ok().filter(|_| std::io::stderr().is_terminal());
    let file = file.map(|workbook| folder(&workbook).join("times.json"));
    Pace::new(plan.courses.iter().flat_map(of_course).collect(), file)
}

/// What the seconds of an item are kept under: they depend on whose attempt it is, and on how much is measured.
fn timed_as(plan: &Plan, course: &Course, item: &str) -> String {
    let effort = if plan.effort.quick { "quick" } else { "whole" };
    format!("{} {effort} {} {item}", plan.attempt.name(), course.key())
}

/// What was seen of one attempt, and the hash of its code.
#[derive(Default)]
struct Graded {
    code: String,
    printed: String,
    guards: Vec<Guard>,
    checks: Vec<Check>,
    measurements: BTreeMap<String, Measurement>,
    unmeasured: BTreeMap<String, String>,
}

/// What was seen of all parts of a challenge.
fn together(courses: &[&Course], parts: Vec<Graded>) -> Graded {
    let codes: Vec<(&Course, String)> =
        courses.iter().copied().zip(parts.iter().map(|part| part.code.clone())).collect();
    let mut all = Graded { code: course::code(&codes), ..Graded::default() };
    for part in parts {
        all.printed.push_str(&part.printed);
        all.guards.extend(part.guards);
        all.checks.extend(part.checks);
        all.measurements.extend(part.measurements);
        all.unmeasured.extend(part.unmeasured);
    }
    all
}

fn grade(plan: &Plan, course: &'static Course, pace: &Pace) -> Result<Graded, String> {
    let items = chosen(plan, (course.items)(&plan.effort));
    if let Some(reason) = plan.device.cannot_run(course) {
        return Ok(without_answer(plan, course, &items, Outcome::NotMeasured, |_| reason.clone()));
    }
    let Start { launch, source, code, text, _built } = match start(plan, course) {
        Ok(start) => start,
        Err(NotBuilt::Unavailable(reason)) => return Err(reason),
        Err(NotBuilt::Refused { step, words }) => {
            let is_of = |name: &str, step: &str| name.starts_with(&format!("{step}/"));
            let describe = |check: &str| match &step {
                Some(step) if !is_of(check, step) => {
                    let why = format!("{ELSEWHERE}{step}");
                    let is_told = items.iter().any(|item| is_of(&item.name, step));
                    if is_told { why } else { format!("{why}\n{words}") }
                }
                _ => words.clone(),
            };
            let code = code_hash(&exercise(course)?);
            return Ok(Graded {
                code,
                ..without_answer(plan, course, &items, Outcome::DoesNotCompile, describe)
            });
        }
    };
    let request = Request {
        challenge: course.name.into(),
        course: course.key(),
        source,
        effort: plan.effort.clone(),
        ranks: course.ranks,
        memory_limit: memory_limit(plan, course),
        ordinal: plan.device.ordinal(),
        text: text.as_ref().map(|file| file.path().to_path_buf()),
        graph: None,
    };
    let progress = |item: &str| (plan.progress)(&pace.begin(&timed_as(plan, course, item), item));
    let gathered =
        gather(&launch, &request, &items, &progress).map_err(|error| format!("no child process: {error}"))?;
    let Gathered { checks, guards, measurements, unmeasured, printed, .. } = gathered;
    Ok(Graded { code, printed, guards, checks, measurements, unmeasured })
}

/// Bytes that a child may hold: what the course needs; beside a reader's own checkpoint, most of what there is.
fn memory_limit(plan: &Plan, course: &Course) -> usize {
    let most = usize::try_from(cpu::host().memory_bytes / 4 * 3).unwrap_or(usize::MAX);
    if plan.effort.model.is_some() { most.max(course.memory_limit) } else { course.memory_limit }
}

/// Every check with the same outcome, because none could be run.
fn without_answer(
    plan: &Plan,
    course: &Course,
    items: &[Item],
    outcome: Outcome,
    detail: impl Fn(&str) -> String,
) -> Graded {
    let checks = items.iter().filter(|item| item.is_check()).map(|item| Check {
        name: item.name.clone(),
        outcome,
        detail: detail(&item.name),
        replay: crate::calls::replay_command(course.name, &item.name, plan.effort.seed),
    });
    let guards = items.iter().filter_map(Item::guard).map(|name| Guard {
        challenge: course.name.into(),
        name: name.into(),
        ran: false,
        tripped: false,
        detail: String::new(),
    });
    Graded {
        code: String::new(),
        printed: String::new(),
        checks: checks.collect(),
        guards: guards.collect(),
        measurements: BTreeMap::new(),
        unmeasured: BTreeMap::new(),
    }
}
