//! The system's loader: opens a file, or says why it was not opened.

#![allow(unsafe_code)] // opening a library runs its initialisers

use std::error::Error;
use std::path::{Path, PathBuf};

use libloading::Library;

/// Why a file was not opened.
#[derive(Debug)]
pub(super) enum Opening {
    /// It is not there.
    Absent,
    /// It is there and is of no use.
    Refused {
        /// The file, where it is known better than by what was asked for.
        path: Option<PathBuf>,
        /// Why.
        why: String,
    },
}

/// Opens a library.
pub(super) fn load(file: &Path) -> Result<Library, Opening> {
    // SAFETY: the initialisers of NVIDIA's libraries may run at any time, on any thread.
    unsafe { Library::new(file) }.map_err(|error| {
        let words = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        if is_absence(&words, file) { Opening::Absent } else { Opening::Refused { path: None, why: words } }
    })
}

/// Whether the loader says that there is no such file, rather than that a file is broken or misses another.
fn is_absence(words: &str, file: &Path) -> bool {
    if cfg!(windows) {
        return words.contains("os error 126");
    }
    let file = file.to_string_lossy();
    let subject = words.strip_prefix("Error loading shared library ").unwrap_or(words); // musl's words
    subject.strip_prefix(&*file).is_some_and(|rest| {
        rest.starts_with(':') && rest.contains("No such file") && !rest.contains("needed by")
    })
}
