//! Running a program of the workbook and reading what it says.

use std::path::Path;
use std::process::Command;

use scorecard::{Check, Guard, Outcome, Scorecard};

use crate::attempts::VARIABLE;
use crate::place;

/// What a program left behind.
#[derive(Debug)]
pub struct Ran {
    /// Exit code; -1 if a signal ended it.
    pub code: i32,
    /// All of standard output.
    pub stdout: String,
    /// All of standard error.
    pub stderr: String,
}

impl Ran {
    /// Standard output as a scorecard, and nothing else.
    ///
    /// # Panics
    /// If it is anything else.
    pub fn card(&self) -> Scorecard {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("no scorecard: {error}\n{}\n{}", self.stdout, self.stderr))
    }
}

/// A screen whose lines that go on, as their indentation says, stand after the line that they go on with.
pub fn unwrapped(screen: &str) -> String {
    let mut text = String::new();
    for line in screen.lines() {
        text.push(if line.starts_with(' ') { ' ' } else { '\n' });
        text.push_str(line.trim_start());
    }
    text
}

/// Runs `program` in `folder`.
///
/// # Panics
/// If it cannot be started.
pub fn run(program: &Path, folder: &Path, arguments: &[&str]) -> Ran {
    finish(Command::new(place::program(program)).current_dir(folder).args(arguments).env_remove(VARIABLE))
}

/// Runs the program `own` with the attempt called `attempt`.
///
/// # Panics
/// As [`run`].
pub fn own(program: &str, attempt: &str, arguments: &[&str]) -> Ran {
    finish(Command::new(place::program(Path::new(program))).args(arguments).env(VARIABLE, attempt))
}

/// Runs a prepared command to its end.
///
/// # Panics
/// As [`run`].
pub fn finish(command: &mut Command) -> Ran {
    // Cargo's variables would tell the grader of the workbook that the tests belong to.
    let command = command.env_remove("CARGO_MANIFEST_DIR").env_remove("NO_COLOR");
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The checks of A that did not pass.
pub fn unpassed(card: &Scorecard) -> Vec<&Check> {
    checks(card).iter().filter(|check| check.outcome != Outcome::Passed).collect()
}

/// The checks of A.
pub fn checks(card: &Scorecard) -> &[Check] {
    &card.challenges[0].checks
}

/// The names of the guards that tripped.
pub fn tripped(card: &Scorecard) -> Vec<&str> {
    card.guards.iter().filter(|guard| guard.tripped).map(|guard: &Guard| guard.name.as_str()).collect()
}
