//! `cargo dev stubs` writes every exercise from its solution; `cargo dev check` holds the repository to that.
//!
//! An exercise in which a hole is filled is a reader's text and no concern of the check. One that is all
//! holes and still not what the solution gives today is stale.

use std::fs;
use std::path::{Path, PathBuf};

use grader::stub::{Language, Origin, derive, solutions};

use crate::{Error, Fault};

fn exercise(root: &Path, origin: &Origin) -> PathBuf {
    root.join("challenges/src").join(origin.challenge).join(origin.file)
}

fn fault(name: &str, file: &str, what: String) -> Error {
    Error::Faults(vec![Fault { at: format!("challenges/src/{name}/{file}"), what }])
}

fn derived(origin: &Origin) -> Result<String, Error> {
    derive(origin.solution, origin.language).map_err(|what| fault(origin.challenge, "solution", what))
}

/// Writes all exercises afresh, over whatever is there.
pub fn write(root: &Path) -> Result<(), Error> {
    for origin in solutions() {
        let path = exercise(root, &origin);
        let stub = derived(&origin)?;
        fs::write(&path, stub).map_err(|source| Error::File { path: path.clone(), source })?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Refuses a stale exercise.
pub fn check(root: &Path) -> Result<(), Error> {
    for origin in solutions() {
        let path = exercise(root, &origin);
        let (name, file, stub) = (origin.challenge, origin.file, derived(&origin)?);
        let found = crate::read(&path)?.replace("\r\n", "\n");
        let hole = if origin.language == Language::Cuda { "TODO(" } else { "todo!(" };
        let holes = |text: &str| text.matches(hole).count();
        if found == stub {
            println!("{name}: {file} is its solution with {} holes", holes(&stub));
        } else if holes(&found) < holes(&stub) {
            println!("{name}: {file} is a reader's text ({} of {} holes left)", holes(&found), holes(&stub));
        } else {
            let what = "is not what its solution gives: `cargo dev stubs` writes it";
            return Err(fault(name, file, what.into()));
        }
    }
    Ok(())
}
