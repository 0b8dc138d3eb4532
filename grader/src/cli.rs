//! The command line: verbs, flags, exit codes.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | no check is wrong or not attempted |
//! | 1 | some are |
//! | 2 | usage |
//! | 3 | the asked device cannot be had |
//! | 4 | with `--strict`: something was inconclusive or unmeasured |
//! | 6 | a fault of the grader |
//! | 124 | `--timeout` ended the whole command |

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::Attempts;
use crate::course::{self, COURSES, Course};
use crate::gather::Effort;
use crate::random::fresh_seed;
use crate::rubric::RUBRICS;
use crate::score::{Attempt, Device, Plan, Scope};
use crate::verb;
use crate::workbook::Workbook;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line asks for something that does not exist: 2.
    Usage(String),
    /// The asked device cannot be had: 3.
    NoDevice(String),
    /// Reading or writing failed, or the grader did: 6.
    Fault(String),
}

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
        /// nf4, fsdp, graph, issues, loss, a letter, or a step as A.3; all that are built if none is named
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
    List,
    /// A hint for the step that comes next; ask again for a larger one
    Hint {
        /// A challenge or a step: nf4, A, A.4
        step: Option<String>,
    },
    /// Writes an exercise afresh; the old one is kept under .warpbook/backups
    Reset {
        /// The challenge
        challenge: String,
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
        /// As a check prints it: nf4:A.4/every-code
        case: String,
    },
    /// Shows the last scorecard again, or one from a file
    Report {
        /// A scorecard in JSON
        file: Option<PathBuf>,
    },
    /// Computes a report's score again from its samples and the hashes of the code
    VerifyReport {
        /// A scorecard in JSON
        file: PathBuf,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AttemptName {
    Exercise,
    Solution,
}

/// Flags of every verb.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools)] // each is a flag of the published command line
pub(crate) struct Options {
    /// What to grade: the reader's exercise or the workbook's solution
    #[arg(long, global = true, value_enum)]
    attempt: Option<AttemptName>,
    /// auto, cpu, sim, cuda or cuda:N
    #[arg(long, global = true, default_value = "auto", value_parser = device)]
    device: Device,
    /// Ranks of challenge B
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,
    /// A checkpoint for challenges B, C and E
    #[arg(long, global = true, value_name = "DIR")]
    model: Option<PathBuf>,
    /// The scorecard as JSON on standard output, and nothing else there
    #[arg(long, global = true)]
    pub json: bool,
    /// Where the output goes instead of standard output
    #[arg(short, long, global = true, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Writes the report as one self-contained HTML file, too
    #[arg(long, global = true, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Writes the report as Markdown, too
    #[arg(long, global = true, value_name = "FILE")]
    pub md: Option<PathBuf>,
    /// Seed of the generated inputs (decimal or 0x...); a fresh one if none is given
    #[arg(long, global = true, value_name = "S", value_parser = seed)]
    seed: Option<u64>,
    /// Only the checks and cases whose name contains this
    #[arg(long, global = true, value_name = "NAME")]
    case: Option<String>,
    /// Timed pairs a case; as many as the protocol needs if none is given
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    samples: Option<u32>,
    /// Fewer samples and the published cases only
    #[arg(long, global = true)]
    quick: bool,
    /// Ends the whole command after so many seconds
    #[arg(long, global = true, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// Exit code 4 if anything was inconclusive or could not be measured
    #[arg(long, global = true)]
    pub strict: bool,
    /// No colours
    #[arg(long, global = true)]
    no_color: bool,
}

fn device(text: &str) -> Result<Device, String> {
    match text.split_once(':').map_or((text, None), |(kind, number)| (kind, Some(number))) {
        ("auto", None) => Ok(Device::Auto),
        ("cpu", None) => Ok(Device::Cpu),
        ("sim", None) => Ok(Device::Sim),
        ("cuda", None) => Ok(Device::Cuda(0)),
        ("cuda", Some(number)) => {
            number.parse().map(Device::Cuda).map_err(|_| format!("{number:?} is no number of a GPU"))
        }
        _ => Err("auto, cpu, sim, cuda or cuda:N is needed".into()),
    }
}

fn seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "a number of 64 bits is needed, decimal or 0x and hexadecimal".into())
}

/// Runs the command line.
pub(crate) fn run(attempts: &Attempts, arguments: Vec<OsString>) -> ExitCode {
    let command = match Command::try_parse_from(arguments) {
        Ok(command) => command,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    if let Some(seconds) = command.options.timeout {
        end_after(Duration::from_secs(seconds));
    }
    match dispatch(attempts, command) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let (code, message) = match failure {
                Failure::Usage(message) => (2, message),
                Failure::NoDevice(message) => (3, message),
                Failure::Fault(message) => (6, message),
            };
            eprintln!("warpbook: {message}");
            ExitCode::from(code)
        }
    }
}

/// Children end with their parent, so leaving is enough.
fn end_after(limit: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        eprintln!("warpbook: ended by --timeout after {} s", limit.as_secs());
        std::process::exit(124);
    });
}

fn dispatch(attempts: &Attempts, command: Command) -> Result<u8, Failure> {
    let Command { verb, options } = command;
    let own = attempts.any();
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
        Some(Verb::Hint { step }) => verb::hint(step.as_deref()),
        Some(Verb::Reset { challenge }) => verb::reset(named(&challenge)?),
        Some(Verb::Rubric { challenges }) => verb::rubric(&options, &challenges),
        Some(Verb::Doctor) => Ok(verb::doctor()),
        Some(Verb::Replay { case }) => verb::replay(&options, own, &case),
        Some(Verb::Report { file }) => verb::report(&options, file.as_deref()),
        Some(Verb::VerifyReport { file }) => verb::verify_report(&file),
        None if std::io::stdout().is_terminal() && std::io::stdin().is_terminal() => {
            verb::watch(&options, &options.plan(own, &[], Scope::Score)?)
        }
        Some(Verb::List) | None => verb::list(&options),
    }
}

/// A built challenge, or why it cannot be named here.
pub(crate) fn named(name: &str) -> Result<&'static Course, Failure> {
    let known = RUBRICS
        .iter()
        .find(|rubric| rubric.name == name.to_lowercase() || rubric.letter == name.to_uppercase());
    course::find(name).ok_or_else(|| match known {
        Some(rubric) => Failure::Usage(format!(
            "challenge {} ({}) is not part of this version",
            rubric.letter, rubric.name
        )),
        None => Failure::Usage(format!(
            "no challenge is called {name:?}: nf4, fsdp, graph, issues, loss or A to E is needed"
        )),
    })
}

/// Without a text to grade the command line asks for something that does not exist.
fn there_are_exercises(courses: &[&Course]) -> Result<(), Failure> {
    let workbook = Workbook::find().map_err(Failure::Usage)?;
    courses.iter().try_for_each(|course| workbook.exercise(course).map(drop)).map_err(Failure::Usage)
}

impl Options {
    /// What a grading verb does.
    pub fn plan(&self, own: bool, challenges: &[String], scope: Scope) -> Result<Plan, Failure> {
        if let Some(flag) = self.flag_without_meaning() {
            return Err(Failure::Usage(flag));
        }
        if let Device::Cuda(n) = self.device {
            return Err(Failure::NoDevice(format!(
                "cuda:{n} cannot be had: this version has no CUDA back end"
            )));
        }
        let (mut courses, mut case): (Vec<&Course>, _) = (Vec::new(), self.case.clone());
        for name in challenges {
            let (challenge, step) = name.split_once('.').unwrap_or((name, ""));
            courses.push(named(challenge)?);
            if !step.is_empty() {
                case.get_or_insert(format!("{}/", name.to_uppercase())); // `test A.3`: that step alone
            }
        }
        if courses.is_empty() {
            courses = COURSES.iter().collect();
        }
        let attempt = self.attempt(own);
        if attempt == Attempt::Exercise {
            there_are_exercises(&courses)?;
        }
        Ok(Plan {
            attempt,
            device: self.device.clone(),
            courses,
            scope,
            case,
            effort: self.effort(),
            progress: verb::progress(),
        })
    }

    /// Whose attempt is meant.
    pub fn attempt(&self, own: bool) -> Attempt {
        match self.attempt {
            Some(AttemptName::Solution) => Attempt::Solution,
            _ if own => Attempt::Own,
            _ => Attempt::Exercise,
        }
    }

    fn effort(&self) -> Effort {
        Effort {
            seed: self.seed.unwrap_or_else(fresh_seed),
            quick: self.quick,
            samples: self.samples.map(|samples| samples as usize),
        }
    }

    /// A flag for a challenge that is not built has no meaning yet, and saying nothing would hide that.
    fn flag_without_meaning(&self) -> Option<String> {
        let flag = if self.ranks.is_some() { "--ranks" } else { self.model.as_ref().map(|_| "--model")? };
        Some(format!("{flag} is for challenges that are not part of this version"))
    }

    /// Whether text may be coloured.
    pub fn color(&self) -> bool {
        let wanted = !self.no_color && std::env::var_os("NO_COLOR").is_none();
        wanted && self.output.is_none() && std::io::stdout().is_terminal()
    }
}
