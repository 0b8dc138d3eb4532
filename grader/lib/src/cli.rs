//! The command line: verbs, flags, exit codes.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | no check is wrong or not attempted |
//! | 1 | some are |
//! | 2 | usage |
//! | 3 | the asked device cannot be had |
//! | 4 | with `--strict`: something was inconclusive or unmeasured |
//! | 6 | a fault of the grader; also where standard output cannot be written |
//! | 124 | `--timeout` ended the whole command |

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use kernels::Vector;

use crate::course::Course;
use crate::courses::Supplied;
use crate::options::{Failure, Options};
use crate::score::Scope;
use crate::terminal::{has_lost_output, note_output, output, warn};
use crate::verb::{self, Consent};

#[derive(Debug, Parser)]
#[command(
    name = "grader",
    version,
    about = "Grades an attempt at warpbook's challenges: every point of the published rubric, measured.",
    after_help = "Exit codes: 0 nothing is wrong, 1 some checks are wrong or not attempted, 2 usage,\n\
                  3 the asked device cannot be had, 4 with --strict: something was not measured,\n\
                  6 a fault of the grader, 124 --timeout ended the command."
)]
struct Command {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Checks, guards, measurements: the whole scorecard
    Score {
        /// nf4, fsdp, graph, issues, loss, a part of D (chat, attention, classify, gguf, vision), a letter, or a step as
        /// A.3; all that are built if none is named
        challenges: Vec<String>,
    },
    /// Only the checks and guards
    Test {
        /// As for score
        challenges: Vec<String>,
    },
    /// Only the timed cases and what is watched
    Bench {
        /// As for score
        challenges: Vec<String>,
    },
    /// Grades again whenever the exercise is saved
    Watch {
        /// The challenge to watch; the one that comes next if none is named
        challenge: Option<String>,
    },
    /// The steps, and where you stand
    List {
        /// As for score
        challenges: Vec<String>,
    },
    /// A hint for the step that comes next; ask again for a larger one
    Hint {
        /// A challenge or a step: nf4, A, A.4
        step: Option<String>,
    },
    /// Writes an exercise, or one step of it, afresh; a copy is kept under .warpbook/backups
    Reset {
        /// The whole exercise of a challenge, or one step alone: nf4, A.9
        challenge: String,
        /// Does not ask before a whole exercise is written afresh
        #[arg(short, long)]
        yes: bool,
    },
    /// The published rubric, and how each line is measured here
    Rubric {
        /// As for score
        challenges: Vec<String>,
    },
    /// What this machine has, and what each missing thing would take
    Doctor,
    /// Runs one check alone and tells all about it
    Replay {
        /// As a check prints it: nf4:A.4/every-code; of a step alone, nf4:A.4, its checks are listed
        case: String,
        /// No time limit: a program at a breakpoint looks like one that hangs
        #[arg(long)]
        debugger: bool,
    },
    /// Shows the last scorecard again, or one from a file
    Report {
        /// A scorecard in JSON
        file: Option<PathBuf>,
    },
    /// Tries a graph of your own: checks it, compiles it at every level, compares it with its meaning
    Graph(verb::GraphFile),
    /// Computes a report again: does it follow from its own numbers?
    VerifyReport {
        /// A scorecard in JSON
        file: PathBuf,
        /// Runs its attempt anew with its seed, too, and compares
        #[arg(long)]
        again: bool,
    },
}

/// Runs the command line.
pub(crate) fn run(own: &Supplied, arguments: Vec<OsString>) -> ExitCode {
    let command = match Command::try_parse_from(arguments) {
        Ok(command) => command,
        Err(error) => {
            let printed = error.print();
            if error.use_stderr() {
                return ExitCode::from(2);
            }
            note_output(printed.and_then(|()| output().flush()));
            return exit_code(0);
        }
    };
    if let Some(seconds) = command.options.timeout {
        end_after(Duration::from_secs(seconds));
    }
    match dispatch(own, command) {
        Ok(code) => exit_code(code),
        Err(failure) => {
            let (code, message) = match failure {
                Failure::Usage(message) => (2, message),
                Failure::NoDevice(message) => (3, message),
                Failure::Fault(message) => (6, message),
            };
            warn(&message);
            ExitCode::from(code)
        }
    }
}

/// The exit code of a verb that returned `code`: lost output is a fault.
fn exit_code(code: u8) -> ExitCode {
    ExitCode::from(if has_lost_output() { 6 } else { code })
}

/// Children end with their parent, so leaving is enough.
fn end_after(limit: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        warn(&format!("ended by --timeout after {} s", limit.as_secs()));
        std::process::exit(124);
    });
}

fn dispatch(own: &Supplied, command: Command) -> Result<u8, Failure> {
    Vector::limit().map_err(Failure::Usage)?;
    let Command { verb, options } = command;
    match verb {
        Some(Verb::Score { challenges }) => {
            verb::score(&options, &options.plan(own, &challenges, Scope::Score)?)
        }
        Some(Verb::Test { challenges }) => {
            verb::score(&options, &options.plan(own, &challenges, Scope::Test)?)
        }
        Some(Verb::Bench { challenges }) => {
            verb::score(&options, &options.plan(own, &challenges, Scope::Bench)?)
        }
        Some(Verb::Watch { challenge }) => {
            let named: Vec<String> = challenge.into_iter().collect();
            verb::watch(&options, &options.plan(own, &named, Scope::Score)?)
        }
        Some(Verb::Hint { step }) => verb::hint(&options, step.as_deref()),
        Some(Verb::Reset { challenge, yes }) => {
            let (courses, is_step) = options.courses(&challenge, options.backend(&Supplied::everything()))?;
            let step = is_step.then(|| challenge.to_uppercase());
            let consent = if yes { Consent::Given } else { Consent::Asked };
            let reset = |course: &&Course| verb::reset(course, step.as_deref(), consent);
            courses.iter().try_fold(0, |code, course| Ok(code.max(reset(course)?)))
        }
        Some(Verb::Rubric { challenges }) => verb::rubric(&options, &challenges),
        Some(Verb::Doctor) => Ok(verb::doctor()),
        Some(Verb::Replay { case, debugger }) => verb::replay(&options, own, &case, debugger),
        Some(Verb::Report { file }) => verb::report(&options, file.as_deref()),
        Some(Verb::Graph(file)) => verb::graph(&options, own, &file),
        Some(Verb::VerifyReport { file, again }) => verb::verify_report(&options, own, &file, again),
        None if std::io::stdout().is_terminal() && std::io::stdin().is_terminal() => {
            verb::watch(&options, &options.plan(own, &[], Scope::Score)?)
        }
        Some(Verb::List { challenges }) => verb::list(&options, &challenges),
        None => verb::list(&options, &[]),
    }
}
