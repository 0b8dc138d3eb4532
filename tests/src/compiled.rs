//! Libraries, carried from one build folder to another as they were compiled.
//!
//! A copy of the workbook is compiled from the texts of the workbook that was just built: the same crates, of the same
//! versions, with the same features, for the same profile. Cargo names a compiled unit by a hash of just these and of
//! its package's place within the workspace, and calls it fresh while no file of its package is younger than it is. So
//! a unit that is carried over with its times, beside files that kept theirs, is as fresh there as here - once, into a
//! folder where nothing has been compiled: afterwards each folder follows its own files. (In one folder for both each
//! would take the other's units for its own.)
//!
//! Cargo judges what it finds. A unit that does not fit is compiled anew, and so is everything if a later cargo lays
//! its folder out in another way: that takes time and changes no result.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Carries every library and build script from one profile's folder (`target/release`) to another, in which nothing has
/// been compiled; how many there were.
///
/// # Errors
/// A file that cannot be read or written.
pub fn carry(from: &Path, to: &Path) -> io::Result<usize> {
    let mut hashes = BTreeSet::new();
    for unit in names(&from.join(".fingerprint"))? {
        let files = names(&from.join(".fingerprint").join(&unit))?;
        let is_program = |file: &String| file.starts_with("bin-") || file.contains("test-");
        if !files.iter().any(is_program) {
            hashes.extend(hash(&unit).map(str::to_owned));
        }
    }
    // Fingerprints come last: what was not carried to its end has none, and cargo compiles it.
    for folder in ["build", "deps", ".fingerprint"] {
        let names = names(&from.join(folder))?;
        for name in names.iter().filter(|name| hash(name).is_some_and(|hash| hashes.contains(hash))) {
            copy(&from.join(folder).join(name), &to.join(folder).join(name))?;
        }
    }
    Ok(hashes.len())
}

/// `libhalf-0123456789abcdef.rlib`, `half-0123456789abcdef`: the hash.
fn hash(name: &str) -> Option<&str> {
    name.split('.').next()?.rsplit_once('-').map(|(_, hash)| hash)
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    Ok(entries.iter().filter_map(|entry| entry.file_name().to_str().map(str::to_owned)).collect())
}

/// Copies a file or a folder with the times of its files, by which cargo orders what it has compiled.
///
/// # Errors
/// A file that cannot be read or written.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        return names(from)?.iter().try_for_each(|name| copy(&from.join(name), &to.join(name)));
    }
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::copy(from, to)?;
    File::options().append(true).open(to)?.set_modified(fs::metadata(from)?.modified()?)
}

/// The folder of the running test's profile, if it is `release`.
pub fn release() -> Option<PathBuf> {
    let here = std::env::current_exe().ok()?;
    let profile = here.parent()?.parent()?; // above `deps`
    (profile.file_name() == Some(OsStr::new("release"))).then(|| profile.to_path_buf())
}
