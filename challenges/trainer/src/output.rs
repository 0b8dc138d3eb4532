//! What a verb has for an answer, whichever it is: a failure, a text on the screen or in a file.

use std::fmt;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use kernels::{Device, Which};
use reference::atomic_write;
use reference::clean::clean;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// The command line asks for something that does not exist or is not what it should be: 2.
    Usage(String),
    /// The asked device cannot be had: 3.
    Device(String),
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

impl From<challenges::train::Error> for Failure {
    fn from(error: challenges::train::Error) -> Self {
        Self::bug(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failure::Usage(reason) | Failure::Device(reason) | Failure::Fault(reason)) = self;
        f.write_str(reason)
    }
}

/// Flags of the verbs whose answer is a text.
#[derive(Debug, Args)]
#[command(next_help_heading = "Flags of template and generate")]
pub(crate) struct Options {
    /// What is found as JSON on standard output, and nothing else there
    #[arg(long, global = true)]
    pub json: bool,
    /// Where the output goes instead of standard output
    #[arg(short, long, global = true, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// The device of a name; where `auto` passes a card over, that is said.
pub(crate) fn opened(which: Which) -> Result<Box<dyn Device>, Failure> {
    let passed_over = |reason| warn(&format!("{which} runs on the CPU: {reason}"));
    which.open(passed_over).map_err(|reason| Failure::Device(format!("{which}: {reason}")))
}

/// Prints a message on standard error, without control characters that it may quote from a file. A message that cannot
/// be written is lost.
pub(crate) fn warn(message: &str) {
    let _ = writeln!(io::stderr(), "warpbook: {}", clean(message));
}

/// Whether an error of standard output was reported.
static HAS_LOST_OUTPUT: AtomicBool = AtomicBool::new(false);

/// Prints on standard output. All of the program's output goes through here.
///
/// An error is reported at once and decides the exit code ([`has_lost_output`]), so that a run whose log is lost still saves
/// what it trained. A closed pipe (`| head`) is not an error.
pub(crate) fn print(text: &str) {
    let mut output = io::stdout().lock();
    note_output(output.write_all(text.as_bytes()).and_then(|()| output.flush()));
}

/// Reports the first error of standard output.
pub(crate) fn note_output(written: io::Result<()>) {
    let Err(error) = written else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        return;
    }
    if !HAS_LOST_OUTPUT.swap(true, Ordering::Relaxed) {
        warn(&format!("standard output cannot be written: {error}"));
    }
}

/// Returns true if some of the output could not be written.
pub(crate) fn has_lost_output() -> bool {
    HAS_LOST_OUTPUT.load(Ordering::Relaxed)
}

/// Prints a text that somebody else wrote: as it is into a file or a pipe, on a terminal without what would steer it.
pub(crate) fn print_foreign(text: &str) {
    if io::stdout().is_terminal() { print(&clean(text)) } else { print(text) }
}

impl Options {
    /// That none is given, to a verb whose answer is a folder.
    pub fn are_none(&self) -> Result<(), Failure> {
        if self.json || self.output.is_some() {
            let reason =
                "--json and --output: expected template or generate; a run's numbers are in metrics.jsonl";
            return Err(Failure::usage(reason));
        }
        Ok(())
    }

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
