//! How an attempt is built and started.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use super::plan::{Attempt, Plan};
use crate::course::Course;
use crate::gather::{Launch, Source};
use crate::stub::{Language, code_hash};
use crate::workbook::{NotBuilt, Program, Workbook};

/// The reader's text.
pub(super) fn exercise(course: &Course) -> Result<String, String> {
    Workbook::find()?.exercise(course)
}

/// How a child is started.
pub(crate) struct Start {
    /// The program.
    pub launch: Launch,
    /// What it is to work on.
    pub source: Source,
    /// The hash of the attempt's code.
    pub(super) code: String,
    /// A copy of the reader's kernels, so that a save in the middle of a run changes nothing.
    pub(super) text: Option<tempfile::NamedTempFile>,
    /// What was built of the reader's text, as long as it is run.
    pub(super) _built: Option<Program>,
}

/// The program to start, and what it is to work on.
pub(crate) fn start(plan: &Plan, course: &'static Course) -> Result<Start, NotBuilt> {
    let own = || {
        std::env::current_exe()
            .map_err(|error| NotBuilt::Unavailable(format!("this program has no path: {error}")))
    };
    let here = |program: PathBuf| Launch { program, arguments: Vec::<OsString>::new() };
    match plan.attempt {
        Attempt::Solution => {
            let code = code_hash(course.solution());
            Ok(Start { launch: here(own()?), source: Source::Solution, code, text: None, _built: None })
        }
        Attempt::Own => Ok(Start {
            launch: here(own()?),
            source: Source::Own,
            code: String::new(),
            text: None,
            _built: None,
        }),
        Attempt::Exercise if course.language == Language::Cuda => {
            let text = Workbook::find().map_err(NotBuilt::Unavailable)?.screened(course)?;
            let copy = kept_aside(&text).map_err(|error| {
                NotBuilt::Unavailable(format!("no temporary file can be written: {error}"))
            })?;
            Ok(Start {
                launch: here(own()?),
                source: Source::Own,
                code: code_hash(&text),
                text: Some(copy),
                _built: None,
            })
        }
        Attempt::Exercise => {
            let workbook = Workbook::find().map_err(NotBuilt::Unavailable)?;
            let code = code_hash(&exercise(course).map_err(NotBuilt::Unavailable)?);
            (plan.progress)("compiling the exercise");
            let built = workbook.build(course)?;
            let launch = here(built.path.clone());
            Ok(Start { launch, source: Source::Own, code, text: None, _built: Some(built) })
        }
    }
}

/// A text in a file of its own, removed with the value.
fn kept_aside(text: &str) -> std::io::Result<tempfile::NamedTempFile> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}
