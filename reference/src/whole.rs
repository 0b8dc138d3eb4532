//! Files that are there as a whole or not at all.
//!
//! A file is written beside its place, brought to the disk, and renamed into its place: whoever looks meanwhile, or after
//! a process that ended half-way, sees the old file or none.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes a file of `bytes`.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_by(path, |file| file.write_all(bytes))
}

/// Writes a file piece by piece. What `fill` fails with is handed on, and no file is left.
pub fn write_by<E: From<io::Error>>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
) -> Result<(), E> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = filled(&aside, fill).and_then(|()| Ok(fs::rename(&aside, path)?));
    if written.is_err() {
        let _ = fs::remove_file(&aside); // the reason is the one above
    }
    written
}

fn filled<E: From<io::Error>>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
) -> Result<(), E> {
    let mut file = BufWriter::new(File::create(path)?);
    fill(&mut file)?;
    file.flush()?;
    Ok(file.get_ref().sync_all()?)
}
