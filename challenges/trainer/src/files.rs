//! The JSON files of a checkpoint: read with a bound, written whole.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use reference::file_kind::{FileKind, LOOKED_AT};
use reference::{atomic_write, json};
use serde_json::Value as Json;

/// What is wrong with a checkpoint's file.
#[derive(Debug)]
pub struct FileError {
    /// Which file or folder.
    pub path: PathBuf,
    /// What is wrong.
    pub problem: Problem,
}

/// What can be wrong with a file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// It cannot be read or written.
    Io(io::Error),
    /// It is larger than it may be, in bytes.
    TooLarge {
        /// The bound.
        most: u64,
    },
    /// It is a file of another kind.
    Foreign {
        /// The expected kind.
        need: &'static str,
        /// The kind that its first bytes show.
        got: FileKind,
    },
    /// It is not UTF-8.
    Utf8 {
        /// The offset of the first byte that is none.
        at: usize,
    },
    /// It is not JSON.
    Json(json::Error),
    /// An entry is not what it should be.
    Entry {
        /// Where in the file: `added_tokens[3].id`.
        entry: String,
        /// What was found.
        got: String,
        /// What was expected.
        need: &'static str,
    },
    /// Two files name different ids for a token.
    Disagree {
        /// The token.
        token: String,
        /// Here.
        here: u32,
        /// In the other file.
        there: u32,
    },
    /// The folder holds none of the files that are needed.
    Missing {
        /// Their names.
        need: &'static str,
    },
    /// The bytes of a safetensors file do not fit its header.
    Layout {
        /// What does not fit.
        what: String,
    },
}

impl Problem {
    /// That an entry is not what was expected.
    pub fn entry(entry: impl Into<String>, got: &Json, need: &'static str) -> Problem {
        let mut got = got.to_string();
        if let Some((end, _)) = got.char_indices().nth(60) {
            got.truncate(end);
            got.push_str("...");
        }
        Problem::Entry { entry: entry.into(), got, need }
    }

    /// The same, of a file.
    pub fn of(self, path: &Path) -> FileError {
        FileError { path: path.into(), problem: self }
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        Problem::Io(error)
    }
}

impl From<serde_json::Error> for Problem {
    fn from(error: serde_json::Error) -> Problem {
        Problem::Json(json::Error::Invalid(error))
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.problem {
            Problem::Io(error) => write!(f, "{error}"),
            Problem::TooLarge { most } => write!(f, "the file is larger than {most} bytes"),
            Problem::Foreign { need, got } => write!(f, "expected {need}, found {got}"),
            Problem::Utf8 { at } => write!(f, "expected text in UTF-8, found another byte at offset {at}"),
            Problem::Json(error) => write!(f, "{error}"),
            Problem::Entry { entry, got, need } => write!(f, "{entry}: expected {need}, found {got}"),
            Problem::Disagree { token, here, there } => {
                write!(f, "the token {token:?} has the id {here}, and {there} in another file of the folder")
            }
            Problem::Missing { need } => write!(f, "the folder holds no {need}"),
            Problem::Layout { what } => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Io(error) => Some(error),
            Problem::Json(error) => Some(error),
            _ => None,
        }
    }
}

/// Bytes that a text file of a checkpoint may have.
const MOST_BYTES: u64 = 256 << 20;

/// Reads a text; `None` if the file is missing.
///
/// Fails where the file is not UTF-8, and where it is the pointer of a large file.
pub fn read_text(path: &Path) -> Result<Option<String>, FileError> {
    let text = |bytes: Vec<u8>| match (FileKind::of(&bytes), String::from_utf8(bytes)) {
        (Some(got), Err(_)) | (Some(got @ FileKind::LfsPointer), _) => {
            Err(Problem::Foreign { need: "text", got })
        }
        (None, Err(error)) => Err(Problem::Utf8 { at: error.utf8_error().valid_up_to() }),
        (_, Ok(text)) => Ok(text), // a template may begin as a web page does
    };
    let read = read_bytes(path)?.map(text).transpose();
    read.map_err(|problem| problem.of(path))
}

/// Reads JSON of any kind; `None` if the file is missing.
pub fn read_value(path: &Path) -> Result<Option<Json>, FileError> {
    let parsed = read_bytes(path)?.map(|bytes| json::parse(&bytes).map_err(Problem::Json));
    parsed.transpose().map_err(|problem| problem.of(path))
}

/// Reads JSON of any kind with whole numbers of any size, see `reference::exact`; `None` if the file is missing.
pub fn read_exact(path: &Path) -> Result<Option<Json>, FileError> {
    let parsed = read_bytes(path)?.map(|bytes| json::parse_exact(&bytes).map_err(Problem::Json));
    parsed.transpose().map_err(|problem| problem.of(path))
}

/// Reads a JSON object; `None` if the file is missing.
pub fn read_json(path: &Path) -> Result<Option<Json>, FileError> {
    match read_value(path)? {
        Some(json) if !json.is_object() => Err(Problem::entry("it", &json, "an object").of(path)),
        json => Ok(json),
    }
}

/// Reads a file of limited size; `None` if it is missing.
fn read_bytes(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    let read = || -> Result<Vec<u8>, Problem> {
        let mut bytes = Vec::new();
        let count = File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
        if count as u64 > MOST_BYTES { Err(Problem::TooLarge { most: MOST_BYTES }) } else { Ok(bytes) }
    };
    match read() {
        Err(Problem::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).map_err(|problem| problem.of(path)),
    }
}

/// Returns the kind of a safetensors file that is something else; `None` if its first bytes do not show it.
pub fn not_safetensors(path: &Path) -> Option<Problem> {
    let mut begin = Vec::new();
    File::open(path).ok()?.take(LOOKED_AT as u64).read_to_end(&mut begin).ok()?;
    let got = FileKind::of(&begin).filter(|kind| *kind != FileKind::Safetensors)?;
    Some(Problem::Foreign { need: "safetensors", got })
}

/// Copies a file, whatever it weighs, as a whole; whether there was one.
pub fn copy(from: &Path, to: &Path) -> Result<bool, FileError> {
    let mut file = match File::open(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file.map_err(|error| Problem::Io(error).of(from))?,
    };
    let copied = atomic_write::write_by(to, |out| io::copy(&mut file, out).map(|_| ()));
    copied.map(|()| true).map_err(|error| Problem::Io(error).of(to))
}

/// Writes a JSON file, indented, as a whole.
pub fn write_json(path: &Path, json: &Json) -> Result<(), FileError> {
    let mut text = serde_json::to_vec_pretty(json).map_err(|error| Problem::from(error).of(path))?;
    text.push(b'\n');
    atomic_write::write(path, &text).map_err(|error| Problem::Io(error).of(path))
}
