//! The command line: verbs, flags, exit codes.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done, and nothing is found |
//! | 1 | done, and something is found |
//! | 2 | usage: also a file that cannot be read or is not what it should be |
//! | 6 | a fault: a file or standard output cannot be written |

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::export::{self, Export};
use crate::generate;
use crate::output::{Failure, Options, has_lost_output, note_output, warn};
use crate::template::{self, TemplateVerb};
use crate::tools::{self, Tools};
use crate::train;

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
    /// Writes a dense model with its adapter as one checkpoint
    Export(Export),
    /// Shows a small model learning to call functions: before training, while it trains, after
    Tools(Tools),
}

/// Runs the command line; answers the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let Command { verb, options } = match Command::try_parse_from(arguments) {
        Ok(command) => command,
        Err(error) => {
            let printed = error.print();
            if error.use_stderr() {
                return ExitCode::from(2);
            }
            note_output(printed.and_then(|()| std::io::stdout().flush()));
            return exit_code(0);
        }
    };
    if let Err(message) = kernels::Vector::limit() {
        warn(&message);
        return ExitCode::from(2);
    }
    let done = match &verb {
        Verb::Template { what } => template::run(&options, what),
        Verb::Generate(what) => generate::run(&options, what),
        Verb::Train(what) => options.are_none().and_then(|()| train::run(what)),
        Verb::Export(what) => options.are_none().and_then(|()| export::run(what)),
        Verb::Tools(what) => options.are_none().and_then(|()| tools::run(what)),
    };
    let (code, message) = match done {
        Ok(code) => return exit_code(code),
        Err(Failure::Usage(message)) => (2, message),
        Err(Failure::Device(message)) => (3, message),
        Err(Failure::Fault(message)) => (6, message),
    };
    warn(&message);
    ExitCode::from(code)
}

/// The exit code of a verb that returned `code`: lost output is a fault.
fn exit_code(code: u8) -> ExitCode {
    ExitCode::from(if has_lost_output() { 6 } else { code })
}
