//! Files that are there as a whole or not at all: the one way in which the workbook writes a file of a reader.
//!
//! A file is written beside its place, brought to the disk, and renamed into its place: whoever looks meanwhile, or
//! after a process that ended half-way, sees the old file or none. Missing folders are made. A symbolic link stays, and
//! the file that it names is written; permissions stay; what is no regular file (a folder, a device, a pipe) or may not
//! be written is refused, for a rename would put a file in its place.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, Error, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{process, thread};

/// Writes a file of `bytes`.
///
/// # Errors
/// What [`write_by`] fails with.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_by(path, |file| file.write_all(bytes))
}

/// Writes a file piece by piece. What `fill` fails with is handed on, and no file is left.
///
/// # Errors
/// What `fill` fails with; where `path` is something else than a regular file; where the disk fails.
pub fn write_by<E: From<io::Error>>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
) -> Result<(), E> {
    let (path, there) = target(path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let (file, aside) = beside(folder)?;
    let written = filled(file, there.as_ref(), fill).and_then(|()| Ok(replace(&aside, &path)?));
    if written.is_err() {
        let _ = fs::remove_file(&aside); // the reason is the one above
    }
    written
}

/// Where a file is written that is asked for as `path`: there, or where the symbolic link leads.
///
/// # Errors
/// Where something else than a regular file is there, a link that leads nowhere, or a file that may not be written.
pub fn target(path: &Path) -> io::Result<(PathBuf, Option<Metadata>)> {
    let found =
        |kind: ErrorKind, what: &str| Err(Error::new(kind, format!("expected a regular file, found {what}")));
    let there = match fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((path.into(), None)),
        Err(error) => return Err(error),
    };
    if there.is_symlink() {
        return match fs::metadata(path) {
            Ok(there) if there.is_file() => target(&fs::canonicalize(path)?),
            Ok(_) => found(ErrorKind::InvalidInput, "a symbolic link to something else"),
            Err(_) => found(ErrorKind::NotFound, "a symbolic link that leads nowhere"),
        };
    }
    if there.is_dir() {
        return found(ErrorKind::IsADirectory, "a directory");
    }
    if !there.is_file() {
        return found(ErrorKind::InvalidInput, "a device, a pipe or a socket");
    }
    if there.permissions().readonly() {
        return found(ErrorKind::PermissionDenied, "one that is read-only");
    }
    Ok((path.into(), Some(there)))
}

/// Renames a file over another. On Windows that is denied as long as somebody reads the other one, which is for an
/// instant, as a rule: it is tried again for a while.
fn replace(new: &Path, old: &Path) -> io::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(2);
    let begin = Instant::now();
    loop {
        match fs::rename(new, old) {
            Err(error)
                if cfg!(windows)
                    && error.kind() == ErrorKind::PermissionDenied
                    && begin.elapsed() < PATIENCE =>
            {
                thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}

/// A new file in a folder, under a name that nobody else has.
fn beside(folder: &Path) -> io::Result<(File, PathBuf)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".warpbook-{}-{number}", process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {} // of a process that ended half-way
            opened => return Ok((opened?, path)),
        }
    }
}

fn filled<E: From<io::Error>>(
    file: File,
    there: Option<&Metadata>,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
) -> Result<(), E> {
    if let Some(there) = there {
        file.set_permissions(there.permissions())?;
    }
    let mut file = BufWriter::new(file);
    fill(&mut file)?;
    file.flush()?;
    Ok(file.get_ref().sync_all()?)
}
