//! The command line: verbs, flags, exit codes.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done, and nothing is found |
//! | 1 | done, and something is found |
//! | 2 | usage: also a file that cannot be read or is not what it should be |
//! | 6 | a fault: a file cannot be written |

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use reference::atomic_write;
use reference::clean::clean;

use crate::generate;
use crate::template::{self, TemplateVerb};
use crate::train;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// The command line asks for something that does not exist or is not what it should be: 2.
    Usage(String),
    /// Writing failed: 6.
    Fault(String),
}

impl Failure {
    /// What a file says may stand in the message: a template, or the names in a checkpoint.
    pub fn usage(error: impl std::fmt::Display) -> Failure {
        Failure::Usage(error.to_string())
    }

    /// What should not happen.
    pub fn bug(error: impl std::fmt::Display) -> Failure {
        Failure::Fault(error.to_string())
    }

    /// Writing `path` failed.
    pub fn fault(path: &Path, error: impl std::fmt::Display) -> Failure {
        Failure::Fault(format!("{}: {error}", path.display()))
    }
}

#[derive(Debug, Parser)]
#[command(
    name = "trainer",
    version,
    about = "Trains adapters beside Llama checkpoints, and makes checkpoints ready for tool calling.",
    after_help = "Exit codes: 0 done, 1 done and something is found, 2 usage, 6 a fault."
)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Chat templates: renders one, says what it loses, mends it
    Template {
        #[command(subcommand)]
        what: TemplateVerb,
    },
    /// Trains an adapter beside a model
    Train(train::Train),
    /// Says what a model goes on with, one largest logit after the other
    Generate(generate::Generate),
}

/// Flags of every verb.
#[derive(Debug, Args)]
#[command(next_help_heading = "Flags of every verb")]
pub(crate) struct Options {
    /// What is found as JSON on standard output, and nothing else there
    #[arg(long, global = true)]
    pub json: bool,
    /// Where the output goes instead of standard output
    #[arg(short, long, global = true, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Runs the command line; answers the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let Command { verb, options } = match Command::try_parse_from(arguments) {
        Ok(command) => command,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let done = match &verb {
        Verb::Template { what } => template::run(&options, what),
        Verb::Train(what) => train::run(what),
        Verb::Generate(what) => generate::run(&options, what),
    };
    let (code, message) = match done {
        Ok(code) => return ExitCode::from(code),
        Err(Failure::Usage(message)) => (2, message),
        Err(Failure::Fault(message)) => (6, message),
    };
    warn(&message);
    ExitCode::from(code)
}

/// Says what went wrong; the words may be a stranger's.
pub(crate) fn warn(message: &str) {
    eprintln!("warpbook: {}", clean(message));
}

/// Prints; a closed pipe (`| head`) is no fault.
pub(crate) fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Prints a text that somebody else wrote: as it is into a file or a pipe, on a terminal without what would steer it.
pub(crate) fn print_foreign(text: &str) {
    if std::io::stdout().is_terminal() { print(&clean(text)) } else { print(text) }
}

impl Options {
    /// Refuses an output that is no regular file or is one of those that are read.
    pub fn writes_elsewhere(&self, read: &[&Path]) -> Result<(), Failure> {
        let Some(output) = &self.output else { return Ok(()) };
        let refused = |what: &str| Failure::Usage(format!("-o {}: {what}", output.display()));
        let target = match atomic_write::target(output) {
            Err(error) if error.kind() == ErrorKind::NotADirectory => return Ok(()), // told when it is written
            target => target.map_err(|error| refused(&error.to_string()))?.0,
        };
        let Ok(target) = target.canonicalize() else { return Ok(()) }; // what is not there is not read
        if read.iter().any(|path| path.canonicalize().is_ok_and(|path| path == target)) {
            return Err(refused("expected a file of its own, found one that is read"));
        }
        Ok(())
    }

    /// Writes to `--output`, or prints.
    pub fn give(&self, text: &str) -> Result<(), Failure> {
        let Some(path) = &self.output else {
            print_foreign(text);
            return Ok(());
        };
        atomic_write::write(path, text.as_bytes()).map_err(|error| Failure::fault(path, error))
    }
}
