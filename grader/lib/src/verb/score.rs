//! `score`, `test`, `bench`, `replay`, `rubric`: run, then show.

use std::io::{self, ErrorKind};
use std::path::Path;

use reference::atomic_write;
use reference::clean::clean;

use crate::course::{Backend, Course};
use crate::courses::{self, Supplied};
use crate::gather::{Effort, Item};
use crate::live::Live;
use crate::options::{Failure, Options, named};
use crate::progress::Progress;
use crate::report::{self, Before, text};
use crate::rubric::{RUBRICS, Rubric};
use crate::score::{Attempt, Device, Plan, RunError, Scope, exit_code, has_items, run_printing, run_with};
use crate::scorecard::{Outcome, Scorecard};
use crate::terminal::{output, print, warn, width};
use crate::verb;
use crate::workbook::{Workbook, folder};

/// Grades and shows the scorecard: while it is made, if it goes to standard output as text.
pub(crate) fn score(options: &Options, plan: &Plan) -> Result<u8, Failure> {
    if let Some(name) = plan.case.as_deref().or(plan.step.as_deref()).filter(|_| !has_items(plan)) {
        return Err(Failure::Usage(format!("no check or case is called {name:?}")));
    }
    let is_live = !options.json && options.output.is_none();
    let earlier = |card: &Scorecard| earlier(plan, card);
    let has_pages = options.html.is_some() || options.md.is_some();
    let live = Live::new(plan, &earlier, output(), look(options, plan.scope));
    let mut live = live.outliving_reader(has_pages);
    let card = match run_with(plan, &mut |card| if is_live { live.update(card) } else { Ok(()) }) {
        Ok(card) => card,
        Err(RunError::Fault(message)) => return Err(Failure::Fault(message)),
        Err(RunError::Write(error, card)) => {
            return unless_closed(&error).map(|()| exit_code(&card, options.strict));
        }
    };
    remember(&card, plan);
    if is_live {
        live.finish(&card).or_else(|error| unless_closed(&error))?;
        write_pages(options, &card)?;
    } else {
        show(options, &card, plan.scope, &earlier(&card))?;
    }
    if plan.scope == Scope::Score && plan.is_all() {
        keep_page(&card, is_live)?;
    }
    if plan.attempt == Attempt::Exercise && is_live {
        if plan.scope != Scope::Score {
            print(&verb::so_far());
        }
        print(&verb::what_next(&plan.courses));
    }
    Ok(exit_code(&card, options.strict))
}

/// A fault, unless the reader closed the pipe (`| head`).
fn unless_closed(error: &io::Error) -> Result<(), Failure> {
    if error.kind() == ErrorKind::BrokenPipe {
        return Ok(());
    }
    Err(Failure::Fault(format!("standard output cannot be written: {error}")))
}

/// What the challenges that an exercise's scorecard leaves out got before.
fn earlier(plan: &Plan, card: &Scorecard) -> Vec<Before> {
    let workbook = Workbook::find().ok().filter(|_| plan.attempt == Attempt::Exercise);
    workbook.map(|workbook| verb::before(&workbook, card)).unwrap_or_default()
}

fn look(options: &Options, scope: Scope) -> text::Options {
    text::Options { color: options.color(), width: width(), points: scope != Scope::Test }
}

/// Progress is of exercises, and a convenience: where it cannot be written, the score still stands.
fn remember(card: &Scorecard, plan: &Plan) {
    let Some(workbook) = Workbook::find().ok().filter(|_| plan.attempt == Attempt::Exercise) else { return };
    let mut progress = Progress::load(&workbook);
    progress.record(card, plan.scope, plan.is_all());
    if plan.scope != Scope::Score {
        let _ = progress.save(&workbook); // the last scorecard stays that of a whole run
        return;
    }
    let json = serde_json::to_string_pretty(card).unwrap_or_default();
    let last = folder(&workbook).join("last.json");
    let written = progress.save(&workbook).and_then(|()| atomic_write::write(&last, json.as_bytes()));
    if let Err(error) = written {
        warn(&format!("progress is not kept: {} cannot be written ({error})", folder(&workbook).display()));
    }
}

/// The scorecard as a page in the workbook's own folder. Without a workbook there is no place for it.
fn keep_page(card: &Scorecard, says_where: bool) -> Result<(), Failure> {
    let Ok(workbook) = Workbook::find() else { return Ok(()) };
    let page = report::html::render(card).map_err(|error| Failure::Fault(error.to_string()))?;
    let path = folder(&workbook).join("report.html");
    match atomic_write::write(&path, page.as_bytes()) {
        Ok(()) if says_where => print(&format!("report   {}\n", path.display())),
        Ok(()) => {}
        Err(error) => warn(&format!("no report: {} cannot be written ({error})", path.display())),
    }
    Ok(())
}

/// Every form that was asked for.
pub(super) fn show(
    options: &Options,
    card: &Scorecard,
    scope: Scope,
    before: &[Before],
) -> Result<(), Failure> {
    let mut shown = if options.json {
        serde_json::to_string_pretty(card).map_err(|error| Failure::Fault(error.to_string()))?
    } else {
        text::render_after(card, look(options, scope), before)
    };
    if options.json {
        shown.push('\n');
    }
    match &options.output {
        Some(path) => write(path, &shown)?,
        None => print(&shown),
    }
    write_pages(options, card)
}

/// The files of `--html` and `--md`.
fn write_pages(options: &Options, card: &Scorecard) -> Result<(), Failure> {
    if let Some(path) = &options.html {
        let html = report::html::render(card).map_err(|error| Failure::Fault(error.to_string()))?;
        write(path, &html)?;
    }
    if let Some(path) = &options.md {
        write(path, &report::markdown::render(card))?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    atomic_write::write(path, text.as_bytes())
        .map_err(|error| Failure::Fault(format!("{} cannot be written: {error}", path.display())))
}

/// Runs one check alone; shows with what the step was called, and what it printed.
pub(crate) fn replay(options: &Options, own: &Supplied, case: &str, debugger: bool) -> Result<u8, Failure> {
    let (challenge, name) = case.split_once(':').ok_or_else(|| {
        Failure::Usage(format!("expected CHALLENGE:CHECK, as in nf4:A.4/every-code, found {case:?}"))
    })?;
    let mut plan = options.plan(own, &[challenge.to_owned()], Scope::Test)?;
    let step = name.split('/').next().unwrap_or_default();
    if let Some(course) = courses::of_step(step, plan.courses[0].backend) {
        let is_asked = plan.courses.iter().any(|asked| asked.key() == course.key());
        if is_asked || plan.device == Device::Auto {
            plan.courses = vec![course]; // a step says itself of which part it is, and where it runs
        }
    }
    if !name.contains('/') {
        return Err(Failure::Usage(checks_of(plan.courses[0], challenge, name)));
    }
    plan.case = Some(name.to_owned());
    plan.effort.shows_calls = true;
    plan.has_no_limit = debugger;
    let course = plan.courses[0];
    let (checks, printed) = run_printing(&plan).map_err(Failure::Fault)?;
    let Some(check) = checks.iter().find(|check| check.name == name) else {
        return Err(Failure::Usage(format!("challenge {} has no check called {name:?}", course.letter())));
    };
    print(&format!("{}: {}\n", check.name, check.outcome.word()));
    if !check.detail.is_empty() {
        print(&format!("{}\n", clean(&check.detail)));
    }
    if !printed.is_empty() {
        print(&format!("\ncalls (>), and what your code printed:\n{}\n", capped(&clean(&printed))));
    }
    Ok(u8::from(!matches!(check.outcome, Outcome::Passed | Outcome::NotMeasured)))
}

/// What can be replayed of a step, or of everything where there is no such step.
fn checks_of(course: &Course, challenge: &str, step: &str) -> String {
    let items = (course.items)(&Effort::default());
    let all = || items.iter().filter(|item| item.is_check());
    let of_step: Vec<&str> =
        all().filter(|item| item.group() == step).map(|item| item.name.as_str()).collect();
    if of_step.is_empty() {
        let mut steps: Vec<&str> = all().map(Item::group).collect();
        steps.dedup();
        return format!("expected a check of one of the steps {}, found {step:?}", steps.join(", "));
    }
    let commands = of_step.iter().map(|name| format!("\n  cargo grader replay {challenge}:{name}"));
    format!("expected one check of {step}, found the step. It has these:{}", commands.collect::<String>())
}

/// Lines of what was printed that are shown at either end.
const PRINTED_LINES: usize = 60;

/// The first and the last lines of a text.
fn capped(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let hidden = lines.len().saturating_sub(2 * PRINTED_LINES);
    if hidden == 0 {
        return lines.join("\n");
    }
    let (head, tail) = (&lines[..PRINTED_LINES], &lines[PRINTED_LINES + hidden..]);
    format!("{}\n... {hidden} lines are not shown ...\n{}", head.join("\n"), tail.join("\n"))
}

/// The published scheme.
pub(crate) fn rubric(options: &Options, challenges: &[String]) -> Result<u8, Failure> {
    options.writes_elsewhere(&[])?;
    let is_called = |rubric: &Rubric, name: &String| {
        rubric.name == name.to_lowercase() || rubric.letter == name.to_uppercase()
    };
    if let Some(name) = challenges.iter().find(|name| !RUBRICS.iter().any(|rubric| is_called(rubric, name))) {
        let unknown = || Failure::Usage(format!("{name:?} is a part of a challenge, expected a challenge"));
        return Err(named(name, Backend::Cpu).err().unwrap_or_else(unknown));
    }
    let is_asked =
        |rubric: &&Rubric| challenges.is_empty() || challenges.iter().any(|name| is_called(rubric, name));
    let text: String = RUBRICS.iter().filter(is_asked).map(ToString::to_string).collect();
    match &options.output {
        Some(path) => write(path, &text)?,
        None => print(&text),
    }
    Ok(0)
}
