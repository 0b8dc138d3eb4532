//! Crates of a registry, carried from one build folder to another as they were compiled.
//!
//! A workbook that a test copies elsewhere needs the same crates of a registry as the one that was just built, of the
//! same versions, with the same features, for the same profile: half of what a first build of the copy takes. Cargo
//! names each compiled unit by a hash of just these, and not by where the build folder lies, so a unit that is carried
//! over with its times is as fresh there as here. The workbook's own crates have their folder in their hash; they stay.
//!
//! Cargo judges what it finds. A unit that does not fit is compiled anew, and so is everything if a later cargo lays
//! its folder out in another way: that takes time and changes no result.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Carries every compiled unit of the packages that `lock`, the text of a `Cargo.lock`, takes from a registry: from one
/// profile's folder (`target/release`) to another; how many there were. What is there already stays as it is.
///
/// # Errors
/// A file that cannot be read or written.
pub fn carry(lock: &str, from: &Path, to: &Path) -> io::Result<usize> {
    let packages = from_registry(lock);
    let mut hashes = BTreeSet::new();
    for unit in names(&from.join(".fingerprint"))? {
        if let Some((package, hash)) = unit.rsplit_once('-')
            && packages.contains(package)
            && !to.join(".fingerprint").join(&unit).exists()
        {
            hashes.insert(hash.to_owned());
        }
    }
    // Fingerprints come last: what was not carried to its end has none, and cargo compiles it.
    for folder in ["build", "deps", ".fingerprint"] {
        for name in
            names(&from.join(folder))?.iter().filter(|name| hash(name).is_some_and(|h| hashes.contains(h)))
        {
            copy(&from.join(folder).join(name), &to.join(folder).join(name))?;
        }
    }
    Ok(hashes.len())
}

/// The packages of a `Cargo.lock` that have a source.
fn from_registry(lock: &str) -> BTreeSet<&str> {
    let packages = lock.split("[[package]]").filter(|package| package.contains("\nsource = "));
    packages.filter_map(|package| package.split("name = \"").nth(1)?.split('"').next()).collect()
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
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        return names(from)?.iter().try_for_each(|name| copy(&from.join(name), &to.join(name)));
    }
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::copy(from, to)?;
    File::options().append(true).open(to)?.set_modified(fs::metadata(from)?.modified()?)
}

/// The folder of the running test's profile, if it is `release`.
pub fn release() -> Option<std::path::PathBuf> {
    let here = std::env::current_exe().ok()?;
    let profile = here.parent()?.parent()?; // above `deps`
    (profile.file_name() == Some(OsStr::new("release"))).then(|| profile.to_path_buf())
}
