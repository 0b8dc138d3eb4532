//! `watch`: grade again whenever the exercise is saved.
//!
//! The file system tells (or is asked every half second where it cannot); saves that come in a burst are one.
//! On a terminal single keys work: n next step, h hint, l list, r run again, x reset, q quit. A run covers the
//! checks and guards; when all of them pass, the whole scorecard is measured once.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime};

use notify::{RecursiveMode, Watcher};
use reference::clean::clean;

use crate::course::Course;
use crate::options::{Failure, Options};
use crate::progress::{Progress, Standing, Stands};
use crate::report::{self, text};
use crate::score::{Attempt, Plan, Scope, exit_code, run};
use crate::scorecard::Scorecard;
use crate::stub;
use crate::terminal::{self, hanging, is_unread, print, warn, width};
use crate::verb::score::score;
use crate::verb::{Consent, first_screen, hint, reset, so_far, what_next};
use crate::workbook::Workbook;

/// Saves closer together than this are one: an editor writes a file in several steps.
const DEBOUNCE: Duration = Duration::from_millis(150);

/// How often the file's time is asked where the system does not tell.
const POLL: Duration = Duration::from_millis(500);

enum Event {
    Saved,
    Key(char),
}

/// Watches until `q`, the end of the terminal's input, or the end of whoever reads the output.
pub(crate) fn watch(options: &Options, plan: &Plan) -> Result<u8, Failure> {
    let workbook = Workbook::find().map_err(Failure::Usage)?;
    let course = plan.courses[0];
    if plan.attempt != Attempt::Exercise {
        return Err(Failure::Usage("only an exercise can be watched; `score` grades the others".into()));
    }
    let path = workbook.root().join(course.exercise());
    let (send, events) = channel();
    let _watcher = watch_file(&path, send.clone());
    read_keys(send);
    print(&first_screen(&workbook));
    if is_unread() {
        return Ok(0);
    }
    let mut code = grade(options, plan, course, &workbook);
    let mut waiting = meanwhile(&events);
    let mut asked_to_reset = false;
    while !is_unread() {
        match waiting.take().or_else(|| next(&events)) {
            Some(Event::Saved | Event::Key('r')) => {
                code = grade(options, plan, course, &workbook);
                waiting = meanwhile(&events);
            }
            Some(Event::Key('n')) => print(&next_step(&workbook, course)),
            Some(Event::Key('l')) => print(&first_screen(&workbook)),
            Some(Event::Key('h')) => tell(hint(options, Some(&course.exercise_key()))),
            Some(Event::Key('x')) if asked_to_reset => tell(reset(course, None, Consent::Given)),
            Some(Event::Key('x')) => {
                print("x again writes the exercise afresh (your text is kept); any other key does not\n");
                asked_to_reset = true;
                continue;
            }
            Some(Event::Key('q')) | None => return Ok(code),
            Some(Event::Key(key)) if key.is_whitespace() => {}
            Some(Event::Key(_)) => print(KEYS),
        }
        asked_to_reset = false;
    }
    Ok(code)
}

/// What the keys do.
const KEYS: &str = "n next  h hint  l list  r run again  x x reset  q quit\n";

/// What came in while a run was going on: a `q`, else a save. Other keys of a terminal were meant for what was
/// on the screen then, and are dropped.
fn meanwhile(events: &Receiver<Event>) -> Option<Event> {
    if !std::io::stdin().is_terminal() {
        return None;
    }
    let all: Vec<Event> = events.try_iter().collect();
    let quit = all.iter().any(|event| matches!(event, Event::Key('q')));
    let saved = all.iter().any(|event| matches!(event, Event::Saved));
    if quit { Some(Event::Key('q')) } else { saved.then_some(Event::Saved) }
}

/// The next event; a burst of saves is taken as one.
fn next(events: &Receiver<Event>) -> Option<Event> {
    let first = events.recv().ok()?;
    if matches!(first, Event::Saved) {
        loop {
            match events.recv_timeout(DEBOUNCE) {
                Ok(Event::Saved) => {}
                Ok(key) => return Some(key),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }
    Some(first)
}

fn tell(result: Result<u8, Failure>) {
    if let Err(Failure::Usage(message) | Failure::NoDevice(message) | Failure::Fault(message)) = result {
        warn(&message);
    }
}

/// One run; the exit code that it would have.
fn grade(options: &Options, plan: &Plan, course: &'static Course, workbook: &Workbook) -> u8 {
    let quick = Plan {
        attempt: plan.attempt,
        device: plan.device.clone(),
        courses: vec![course],
        scope: Scope::Test,
        step: plan.step.clone(),
        case: plan.case.clone(),
        effort: plan.effort.clone(),
        has_no_limit: false,
        progress: terminal::progress(),
    };
    let card = match run(&quick) {
        Ok(card) => card,
        Err(message) => {
            warn(&message);
            return 6;
        }
    };
    let mut progress = Progress::load(workbook);
    let before = progress.challenges.get(&course.exercise_key()).cloned().unwrap_or_default();
    progress.record(&card, Scope::Test, quick.is_all());
    if let Err(error) = progress.save(workbook) {
        warn(&format!("progress is not kept: {error}"));
    }
    let after = progress.challenges.get(&course.exercise_key()).cloned().unwrap_or_default();
    print(&finished(course, &before, &after));
    if exit_code(&card, false) == 0 {
        print("every check passes: measuring\n");
        let code = score(options, plan).unwrap_or_else(|failure| {
            tell(Err(failure));
            6
        });
        print(KEYS);
        return code;
    }
    print(&verdict(options, &card, course));
    print(&so_far());
    print(&what_next(&[course]));
    print(KEYS);
    1
}

/// The steps that have passed now and had not before.
fn finished(course: &Course, before: &Standing, after: &Standing) -> String {
    let is_new = |step: &&stub::Step<'_>| {
        after.stands(step.name) == Stands::Passed
            && !matches!(before.stands(step.name), Stands::Passed | Stands::PassedEarlier)
    };
    let steps = stub::steps(course.solution());
    let new = steps.iter().filter(is_new);
    new.map(|step| hanging(&format!("\u{2713} {} is finished: ", step.name), step.task)).collect()
}

/// What to look at first, as `test` tells it, and how many checks ended in which way.
fn verdict(options: &Options, card: &Scorecard, course: &Course) -> String {
    let look = text::Options { color: options.color(), width: width(), points: false };
    let challenge = card.challenges.iter().find(|challenge| challenge.name == course.name);
    let first = challenge.map(|challenge| text::first_fault(challenge, look)).unwrap_or_default();
    let tripped = card.guards.iter().filter(|guard| guard.tripped);
    let tripped = tripped
        .map(|guard| hanging("guard tripped: ", &clean(&format!("{} - {}", guard.name, guard.detail))));
    let tally = challenge.map(report::tally).unwrap_or_default();
    format!("{first}{}\n{}", tripped.collect::<String>(), hanging("checks: ", &tally))
}

/// The step that comes next, and where it is in the file.
fn next_step(workbook: &Workbook, course: &'static Course) -> String {
    let progress = Progress::load(workbook);
    let steps = stub::steps(course.solution());
    let standing = progress.challenges.get(&course.exercise_key()).cloned().unwrap_or_default();
    let step = standing.next_step(&steps).map(|(step, _)| step.name);
    let text = workbook.exercise(course).unwrap_or_default();
    let line = step.and_then(|step| stub::line_of(&text, step));
    let at = line.map_or_else(String::new, |line| format!("      {}:{line}\n", course.exercise().display()));
    format!("{}{at}", what_next(&[course]))
}

/// Saves, told by the system or found by asking.
fn watch_file(path: &Path, send: Sender<Event>) -> Option<notify::RecommendedWatcher> {
    let (folder, name) = (path.parent()?.to_path_buf(), path.file_name()?.to_owned());
    let tell = send.clone();
    let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let about = |event: &notify::Event| {
            let changes = event.kind.is_modify() || event.kind.is_create();
            changes && event.paths.iter().any(|path| path.file_name() == Some(&name))
        };
        if event.is_ok_and(|event| about(&event)) {
            let _ = tell.send(Event::Saved);
        }
    });
    // The folder, not the file: editors replace a file by another of its name.
    let watching = watcher.and_then(|mut watcher| {
        watcher.watch(&folder, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    watching.map_err(|_| poll(path, send)).ok()
}

fn poll(path: &Path, send: Sender<Event>) {
    let path = path.to_path_buf();
    std::thread::spawn(move || {
        let saved = || -> Option<SystemTime> { std::fs::metadata(&path).ok()?.modified().ok() };
        let mut last = saved();
        loop {
            std::thread::sleep(POLL);
            let now = saved();
            if now != last {
                last = now;
                if send.send(Event::Saved).is_err() {
                    return;
                }
            }
        }
    });
}

/// Single keys on a terminal; elsewhere letters of standard input, and its end is a `q`.
fn read_keys(send: Sender<Event>) {
    use std::io::Read;
    std::thread::spawn(move || {
        if std::io::stdin().is_terminal() {
            let terminal = console::Term::stdout();
            while let Ok(key) = terminal.read_char() {
                if send.send(Event::Key(key)).is_err() {
                    return;
                }
            }
            return;
        }
        for byte in std::io::stdin().lock().bytes().map_while(Result::ok) {
            if send.send(Event::Key(byte as char)).is_err() {
                return;
            }
        }
        let _ = send.send(Event::Key('q'));
    });
}
