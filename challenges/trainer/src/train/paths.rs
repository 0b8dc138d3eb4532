//! Where the relative paths of a config lead: into the config's folder, and where that has no such file, into the
//! working directory. The second is said; where neither has it, an error names both.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::output::Failure;

/// What was found out about the relative paths of a config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lookup {
    places: BTreeMap<&'static str, String>, // of the paths that are nowhere: where they were looked for
    notes: Vec<String>,
}

impl Lookup {
    /// Makes a path of a config lead where its file is.
    pub fn resolve(&mut self, key: &'static str, path: &mut String, folder: &Path) {
        if path.is_empty() || Path::new(path.as_str()).is_absolute() {
            return;
        }
        let (there, own, working) = (folder.join(&*path), absolute(folder), absolute(Path::new("")));
        let [of_config, of_work] = [("the config's folder", &own), ("the working directory", &working)]
            .map(|(name, place)| format!("{name}, {}", place.display()));
        if there.exists() {
            *path = there.display().to_string();
        } else if own == working {
            self.places.insert(key, of_config);
        } else if Path::new(path.as_str()).exists() {
            self.notes.push(format!("{key}: {path} is taken from {of_work}; {of_config}, has none"));
        } else {
            self.places.insert(key, format!("{of_config}, and in {of_work}"));
        }
    }

    /// What is said before a run: which paths lead into the working directory.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Why a key's file or folder cannot be opened, with the places where it was looked for.
    pub fn explain(&self, key: &str, error: impl std::fmt::Display) -> Failure {
        match self.places.get(key) {
            Some(places) => Failure::Usage(format!("{key}: {error}; it was looked for in {places}")),
            None => Failure::usage(error),
        }
    }
}

/// A folder without the links and dots on the way to it; the empty path is the working directory.
fn absolute(folder: &Path) -> PathBuf {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    folder.canonicalize().unwrap_or_else(|_| folder.into())
}
