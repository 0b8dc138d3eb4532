//! The bytes of a file: mapped from disk, or handed in.

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;

use super::Error;

/// All bytes of a file.
pub(super) enum Bytes {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Bytes {
    /// Maps a file to be read.
    #[allow(unsafe_code)] // a map is only as constant as its file: see below
    pub fn map(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|source| Error::Open { source })?;
        // SAFETY: nothing here writes to the file or to the map. That nobody else changes or shortens the
        // file meanwhile cannot be had from the operating system; `Checkpoint::open` tells its caller so.
        let mapped = unsafe { Mmap::map(&file) };
        mapped.map(Bytes::Mapped).map_err(|source| Error::Open { source })
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Owned(bytes) => bytes,
        }
    }
}
