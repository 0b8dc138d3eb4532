//! The three things that a program can be started as: the command line, a child that an attempt runs in, and the process
//! that is single-stepped.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::attempts::Attempts;
use crate::cli;
use crate::course::Course;
use crate::courses::{COURSES, Supplied, of_key};
use crate::gather::{CHILD_FLAG, Source, run_child};
use crate::step::{AS_TIMED, STEP_FLAG};

impl Attempts {
    /// Runs the grader's command line; `arguments` begin with the program's name.
    ///
    /// The same program also serves as the child process that an attempt runs in, and as the process that is
    /// single-stepped; hidden first arguments tell.
    pub fn run(self, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
        let arguments: Vec<OsString> = arguments.into_iter().collect();
        let text = |i: usize| arguments.get(i).and_then(|argument| argument.to_str()).unwrap_or_default();
        match text(1) {
            CHILD_FLAG => serve(&self, &COURSES),
            STEP_FLAG => step_through(&self, text(2), text(3), text(4) == AS_TIMED),
            _ => cli::run(&Supplied::of(self.keys().cloned()), arguments),
        }
    }
}

/// Works as a child: does the items of the one of some courses that is asked for.
pub(crate) fn serve(attempts: &Attempts, courses: &[Course]) -> ExitCode {
    run_child(|child, item| {
        let (source, key) = (child.request.source, child.request.course.clone());
        match courses.iter().find(|course| course.key() == key) {
            Some(course) => (course.work)(child, attempts, source, item),
            None => child.impossible(item, &format!("expected a course of this version, found {key:?}")),
        }
    })
}

fn step_through(attempts: &Attempts, course: &str, source: &str, as_timed: bool) -> ExitCode {
    let source = if source == "own" { Source::Own } else { Source::Solution };
    let done = of_key(course).map(|course| (course.step_through)(attempts, source, as_timed));
    if matches!(done, Some(Ok(()))) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
