//! The reader's workbook on disk: where it is, and the program built from an exercise.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::course::Course;
use crate::courses::of_key;
use crate::gather::as_the_reader_knows_it;
use crate::screen;
use crate::stub;

/// A checkout of the workbook.
#[derive(Clone, Debug)]
pub(crate) struct Workbook {
    root: PathBuf,
}

/// Why an attempt could not be built.
#[derive(Debug)]
pub(crate) enum NotBuilt {
    /// The compiler refused it: the step at fault, if its line tells, and the compiler's words.
    Refused { step: Option<String>, words: String },
    /// It could not be tried at all.
    Unavailable(String),
}

impl Workbook {
    /// Looks upwards from the current folder, then where cargo says that this program's package lies.
    pub fn find() -> Result<Self, String> {
        let here = env::current_dir().unwrap_or_default();
        let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
        let above = here.ancestors().chain(package.ancestors());
        let root = above.into_iter().find(|folder| folder.join("challenges/src").is_dir());
        let root = root.map(Path::to_path_buf).ok_or_else(|| {
            format!(
                "no workbook: expected a folder that holds challenges/src at {} or above it",
                here.display()
            )
        })?;
        Ok(Self { root })
    }

    /// A workbook in a folder.
    #[cfg(test)]
    pub fn at(root: &Path) -> Self {
        Self { root: root.into() }
    }

    /// The workbook's folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The reader's text.
    pub fn exercise(&self, course: &Course) -> Result<String, String> {
        let path = self.root.join(course.exercise());
        std::fs::read_to_string(&path).map_err(|error| {
            format!(
                "{} cannot be read ({error}); `cargo grader reset {}` writes it afresh",
                path.display(),
                course.name
            )
        })
    }

    /// Builds the program of an exercise: cargo, one binary with a feature for the exercise and one for the exercise
    /// that it uses, if that may be built and compiles. Challenges B and C use the reader's dequantiser, E the reader's
    /// compiler. The program runs that exercise's checks and uses it only if they pass.
    pub fn build(&self, course: &Course) -> Result<Program, NotBuilt> {
        let companion = course.takes.and_then(of_key).filter(|companion| self.screened(companion).is_ok());
        if let Some(companion) = companion {
            let both = self.build_program(course, &format!("{},{}", course.feature(), companion.feature()));
            if !matches!(both, Err(NotBuilt::Refused { .. })) {
                return both;
            }
        }
        self.build_program(course, course.feature())
    }

    /// The reader's text, if it names nothing that an attempt may not name.
    pub fn screened(&self, course: &Course) -> Result<String, NotBuilt> {
        let text = self.exercise(course).map_err(NotBuilt::Unavailable)?;
        let Err(refused) = screen::look_through(&text, course.language) else { return Ok(text) };
        let file = course.exercise().display().to_string().replace('\\', "/");
        let words = format!("{file}:{}: `{}` is refused: {}", refused.line, refused.what, refused.why);
        let step = stub::step_at(&text, refused.line).map(|step| step.name.to_owned());
        Err(NotBuilt::Refused { step, words })
    }

    fn build_program(&self, course: &Course, features: &str) -> Result<Program, NotBuilt> {
        let text = self.screened(course)?;
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.current_dir(&self.root).stdin(Stdio::null());
        command.args(["build", "--release", "--quiet", "-p", "attempts", "--features", features]);
        command.args(["--bin", "attempts", "--message-format", "json"]);
        let output = command.output().map_err(|error| {
            NotBuilt::Unavailable(format!(
                "cargo cannot be started ({error}): an exercise needs a Rust toolchain"
            ))
        })?;
        let messages: Vec<Value> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        if output.status.success() {
            let built =
                built(&messages).ok_or_else(|| NotBuilt::Unavailable("cargo built no program".into()))?;
            return Program::keep(&built).map_err(|error| {
                NotBuilt::Unavailable(format!("{} cannot be kept aside: {error}", built.display()))
            });
        }
        let words = errors(&messages);
        if words.is_empty() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(NotBuilt::Unavailable(format!("cargo failed: {said}")));
        }
        let step = error_line(&messages)
            .and_then(|line| stub::step_at(&text, line))
            .map(|step| step.name.to_owned());
        Err(NotBuilt::Refused { step, words })
    }
}

/// The folder of what is remembered of a reader, ignored by git.
pub(crate) fn folder(workbook: &Workbook) -> PathBuf {
    workbook.root().join(".warpbook")
}

/// A program of its own, gone with the value. Cargo writes the program of every exercise to one path; whoever builds
/// another one meanwhile, in a second terminal say, does not change what is graded here.
#[derive(Debug)]
pub(crate) struct Program {
    /// Where it is.
    pub path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Program {
    /// Beside the program that was built, so that no byte is copied where the file system links files.
    fn keep(built: &Path) -> std::io::Result<Self> {
        let beside = built.parent().unwrap_or(Path::new("."));
        let folder = tempfile::Builder::new().prefix("attempt-").tempdir_in(beside)?;
        let path = folder.path().join(built.file_name().unwrap_or(built.as_os_str()));
        if std::fs::hard_link(built, &path).is_err() {
            std::fs::copy(built, &path)?;
        }
        Ok(Self { path, _folder: folder })
    }
}

/// The path of the program that cargo built.
fn built(messages: &[Value]) -> Option<PathBuf> {
    let path = messages.iter().rev().find_map(|message| message["executable"].as_str())?;
    Some(PathBuf::from(path))
}

/// The compiler's own words, errors only.
fn errors(messages: &[Value]) -> String {
    let of = messages.iter().map(|message| &message["message"]);
    let is_sum =
        |message: &Value| message["message"].as_str().is_some_and(|said| said.starts_with("aborting due to"));
    let errors = of.filter(|message| message["level"] == "error" && !is_sum(message));
    let words = errors.filter_map(|message| message["rendered"].as_str()).collect::<Vec<_>>().join("\n");
    as_the_reader_knows_it(&words).trim().to_owned()
}

/// The line of the first error in the exercise.
fn error_line(messages: &[Value]) -> Option<usize> {
    let errors =
        messages.iter().map(|message| &message["message"]).filter(|message| message["level"] == "error");
    let mut spans = errors.flat_map(|message| message["spans"].as_array().into_iter().flatten());
    let span = spans.find(|span| {
        span["is_primary"] == true
            && span["file_name"].as_str().is_some_and(|name| name.ends_with("exercise.rs"))
    })?;
    usize::try_from(span["line_start"].as_u64()?).ok()
}
