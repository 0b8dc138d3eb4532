//! `cargo dev stubs` writes every exercise from its solution; `cargo dev check` holds the repository to that.
//!
//! An exercise in which a hole is filled is a reader's text and no concern of the check. One that is all
//! holes and still not what the solution gives today is stale.

use std::fs;
use std::path::{Path, PathBuf};

use grader::stub::{derive, solutions};

use crate::{Error, Fault};

fn exercise(root: &Path, name: &str) -> PathBuf {
    root.join("challenges/src").join(name).join("exercise.rs")
}

fn fault(name: &str, file: &str, what: String) -> Error {
    Error::Faults(vec![Fault { at: format!("challenges/src/{name}/{file}"), what }])
}

/// Writes all exercises afresh, over whatever is there.
pub fn write(root: &Path) -> Result<(), Error> {
    for (name, solution) in solutions() {
        let path = exercise(root, name);
        let stub = derive(solution).map_err(|what| fault(name, "solution.rs", what))?;
        fs::write(&path, stub).map_err(|source| Error::File { path: path.clone(), source })?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Refuses a stale exercise.
pub fn check(root: &Path) -> Result<(), Error> {
    for (name, solution) in solutions() {
        let path = exercise(root, name);
        let stub = derive(solution).map_err(|what| fault(name, "solution.rs", what))?;
        let found = crate::read(&path)?.replace("\r\n", "\n");
        let holes = |text: &str| text.matches("todo!(").count();
        if found == stub {
            println!("{name}: the exercise is its solution with {} holes", holes(&stub));
        } else if holes(&found) < holes(&stub) {
            println!(
                "{name}: the exercise is a reader's text ({} of {} holes left)",
                holes(&found),
                holes(&stub)
            );
        } else {
            let what = "is not what its solution gives: `cargo dev stubs` writes it";
            return Err(fault(name, "exercise.rs", what.into()));
        }
    }
    Ok(())
}
