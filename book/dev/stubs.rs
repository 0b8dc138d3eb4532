//! `cargo dev stubs` writes every exercise from its solution; `cargo dev check` holds the repository to that.
//!
//! An exercise in which a hole is filled is a reader's text and no concern of the check. One that is all
//! holes and still not what the solution gives today is stale.

use std::fs;
use std::path::Path;

use grader::courses::{Origin, solutions};
use grader::stub::{Language, derive};

use crate::{Error, Fault};

fn fault(exercise: &Path, what: String) -> Error {
    Error::Faults(vec![Fault { at: exercise.display().to_string(), what }])
}

fn derived(origin: &Origin) -> Result<String, Error> {
    let describe = |what| fault(&origin.exercise, format!("cannot be derived from its solution: {what}"));
    derive(origin.solution, origin.language).map_err(describe)
}

/// Writes all exercises afresh, over whatever is there.
pub fn write(root: &Path) -> Result<(), Error> {
    for origin in solutions() {
        let path = root.join(&origin.exercise);
        let stub = derived(&origin)?;
        fs::write(&path, stub).map_err(|source| Error::File { path: path.clone(), source })?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Refuses a stale exercise.
pub fn check(root: &Path) -> Result<(), Error> {
    for origin in solutions() {
        let path = root.join(&origin.exercise);
        let (name, stub) = (origin.exercise.display(), derived(&origin)?);
        let found = crate::read(&path)?.replace("\r\n", "\n");
        let hole = if origin.language == Language::Cuda { "TODO(" } else { "todo!(" };
        let holes = |text: &str| text.matches(hole).count();
        if found == stub {
            println!("{name} is its solution with {} holes", holes(&stub));
        } else if holes(&found) < holes(&stub) {
            println!("{name} is a reader's text ({} of {} holes left)", holes(&found), holes(&stub));
        } else {
            let what = "is not what its solution gives: `cargo dev stubs` writes it";
            return Err(fault(&origin.exercise, what.into()));
        }
    }
    Ok(())
}
