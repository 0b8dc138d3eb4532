//! The book's workshop: what mdBook does not know about this workbook.
//!
//! A chapter is Markdown in `book/src`. mdBook turns it into HTML; between the two stands one
//! preprocessor ([`preprocess::Warpbook`]) that fills in what must not be typed by hand:
//!
//! | in the Markdown | becomes | from |
//! |---|---|---|
//! | `$...$`, `$$...$$` | `MathML` | [`maths`] |
//! | `{{#rubric NAME}}` | the published marking scheme as a table | [`rubric`] |
//! | `{{#quiz NAME}}` | questions with folded answers | [`quiz`] |
//! | `{{#figure NAME}}` | a drawing, inlined so that it follows the theme | [`figure`] |
//! | `{{#stub NAME STEP}}`, `{{#hints NAME STEP}}` | a step without its body, its folded hints | [`steps`] |
//! | `{{#results}}` | every recorded scorecard | [`results`] |
//! | `{{#measured PREFIX ...}}` | the recorded numbers whose names begin so | [`measured`] |
//! | `{{#number NAME @WHICH}}` | one recorded number, within a sentence | [`measured`] |
//! | `{{#cases NAME}}`, `{{#versions NAME}}` | a challenge's timed cases, its staircase, as tables | [`measured`] |
//! | `{{#plot NAME FIGURE}}` | one plot of a challenge for each recorded scorecard | [`measured`] |
//! | `{{#profile FILE ROW ... : COLUMN ...}}` | rows and columns of a recorded profile | [`profile`] |
//! | `{{#tile NAME}}` | a challenge's tile program as it prints | [`tile`] |
//! | `{{#zoo PART}}` | what breaks a capture, or what changes it, with its cure | [`zoo`] |
//!
//! A number that a text types itself is held to a report by a comment after it, see [`typed`].
//!
//! A last word `@cuda`, `@cpu` or `@REPORT` keeps the numbers of that device or report only.
//!
//! The same value runs inside `cargo dev book` and, over mdBook's stdin protocol, under a plain
//! `mdbook serve book`. Nothing on a finished page comes from a network, and [`check`] holds that.

#![allow(clippy::format_push_string)] // pages are small, and `+= &format!` shows the markup in one piece

pub mod attention;
pub mod chat;
pub mod check;
mod classify;
pub mod directive;
pub mod drawn;
pub mod figure;
pub mod gguf;
pub mod gpu_tests;
pub mod html;
pub mod markdown;
pub mod maths;
pub mod measured;
pub mod preprocess;
pub mod profile;
pub mod ptx;
pub mod quiz;
pub mod ranks;
pub mod results;
pub mod rubric;
pub mod serve;
pub mod steps;
pub mod stubs;
pub mod tile;
pub mod typed;
mod vision;
pub mod zoo;

use std::fmt;
use std::path::{Path, PathBuf};

use mdbook_driver::MDBook;

/// Something in the book that a person has to mend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// A chapter, a page or another file, as it is named below the book's folder, with a line where known.
    pub at: String,
    /// What is wrong, with the offending text.
    pub what: String,
}

/// Why the book could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// mdBook refused; its own words, the cause last.
    Mdbook(String),
    /// The pages or their sources have faults.
    Faults(Vec<Fault>),
    /// A file could not be read or written.
    File {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// The folder that holds `book.toml`: `book/` of the workbook that cargo runs this in, else of the one around the
/// current folder or the program. A path compiled in would lead to where a checkout was before it moved.
///
/// # Panics
/// If none of them lies in a workbook.
pub fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let starts = [package, std::env::current_dir().ok(), std::env::current_exe().ok()];
    let mut books =
        starts.iter().flatten().flat_map(|start| start.ancestors()).map(|above| above.join("book"));
    books.find(|book| book.join("book.toml").is_file()).expect("this runs in a workbook or below it")
}

/// Builds the book at `root` into `dest`, or into the folder that `book.toml` names.
///
/// Returns the folder of the pages.
///
/// # Errors
/// Where a chapter names an anchor, figure, quiz or rubric that is not there, or mdBook fails.
pub fn build(root: &Path, dest: Option<&Path>) -> Result<PathBuf, Error> {
    let mut book = MDBook::load(root).map_err(|error| mdbook(&error))?;
    if let Some(dest) = dest {
        book.config.build.build_dir = dest.to_path_buf();
    }
    book.with_preprocessor(preprocess::Warpbook);
    book.build().map_err(|error| mdbook(&error))?;
    Ok(book.build_dir_for("html"))
}

fn mdbook(error: &mdbook_driver::errors::Error) -> Error {
    Error::Mdbook(error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": "))
}

/// Reads a text file, naming it in the error.
pub(crate) fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::File { path: path.to_path_buf(), source })
}

/// Every file below a folder whose name ends so, in the order of their paths.
pub(crate) fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::File { path: folder.to_path_buf(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            found.extend(files(&path, extension)?);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Mdbook(words) => f.write_str(words),
            Error::Faults(faults) => {
                let lines: Vec<_> = faults.iter().map(ToString::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
            Error::File { path, source } => write!(f, "{}: {source}", path.display()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::File { source, .. } => Some(source),
            _ => None,
        }
    }
}
