//! What a program hands in, and the three things that it can be started as.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::process::ExitCode;

use crate::cli;
use crate::course::{self, COURSES, Course};
use crate::gather::{CHILD_FLAG, Source, run_child};
use crate::step::{AS_TIMED, STEP_FLAG};

/// The courses that a program hands in an attempt at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Supplied(BTreeSet<String>);

impl Supplied {
    /// As the workbook does.
    pub fn everything() -> Self {
        Self(COURSES.iter().map(Course::key).collect())
    }

    /// Whether it hands in anything.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether it hands in an attempt at a course.
    pub fn has(&self, course: &Course) -> bool {
        self.0.contains(&course.key())
    }
}

/// A program's own attempts, one for each challenge it wants graded. Each challenge adds its own method, beside its
/// course.
#[derive(Default)]
pub struct Attempts {
    own: BTreeMap<String, Box<dyn Any>>,
}

impl Attempts {
    /// None: the workbook's exercise and solution are graded.
    pub fn new() -> Self {
        Self::default()
    }

    /// Hands in an attempt at a course.
    pub(crate) fn with<T: Any>(mut self, course: &Course, attempt: T) -> Self {
        self.own.insert(course.key(), Box::new(attempt));
        self
    }

    /// What was handed in at a course, if anything was.
    pub(crate) fn own<T: Any>(&self, course: &Course) -> Option<&T> {
        self.own.get(&course.key())?.downcast_ref()
    }

    /// What was handed in at a course.
    ///
    /// # Errors
    /// If nothing was.
    pub(crate) fn required<T: Any>(&self, course: &Course) -> Result<&T, String> {
        self.own(course).ok_or_else(|| none_at(course))
    }

    /// Runs the grader's command line; `arguments` begin with the program's name.
    ///
    /// The same program also serves as the child process that an attempt runs in, and as the process that is
    /// single-stepped; hidden first arguments tell.
    pub fn run(self, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
        let arguments: Vec<OsString> = arguments.into_iter().collect();
        let text = |i: usize| arguments.get(i).and_then(|argument| argument.to_str()).unwrap_or_default();
        match text(1) {
            CHILD_FLAG => self.serve(),
            STEP_FLAG => self.step_through(text(2), text(3), text(4) == AS_TIMED),
            _ => cli::run(&self, arguments),
        }
    }

    /// What was handed in.
    pub(crate) fn supplied(&self) -> Supplied {
        Supplied(self.own.keys().cloned().collect())
    }

    /// Works as a child: does the items of the course that is asked for.
    pub(crate) fn serve(&self) -> ExitCode {
        self.serve_one_of(&COURSES)
    }

    /// The same for a table of courses.
    pub(crate) fn serve_one_of(&self, courses: &[Course]) -> ExitCode {
        run_child(|child, item| {
            let (source, key) = (child.request.source, child.request.course.clone());
            match courses.iter().find(|course| course.key() == key) {
                Some(course) => (course.work)(child, self, source, item),
                None => child.impossible(item, &format!("expected a course of this version, found {key:?}")),
            }
        })
    }

    fn step_through(&self, course: &str, source: &str, as_timed: bool) -> ExitCode {
        let source = if source == "own" { Source::Own } else { Source::Solution };
        let done = course::of_key(course).map(|course| (course.step_through)(self, source, as_timed));
        if matches!(done, Some(Ok(()))) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// What is said where a program is asked for an attempt that it does not hand in.
pub(crate) fn none_at(course: &Course) -> String {
    format!("this program hands in no attempt at challenge {} for {}", course.letter(), course.backend.name())
}
