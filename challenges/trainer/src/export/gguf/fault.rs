//! Why a file was not written.

use std::path::Path;

use crate::output::Failure;

/// The reason that a file was not written.
pub(super) enum Fault {
    Io(std::io::Error),
    Export(challenges::issues::gguf::Error),
    /// Of another file.
    Other(Failure),
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Fault::Io(error)
    }
}

impl Fault {
    /// The failure of a file.
    pub fn at(self, path: &Path) -> Failure {
        match self {
            Fault::Io(error) => Failure::fault(path, error),
            Fault::Export(error) => Failure::Usage(format!("{}: {error}", path.display())),
            Fault::Other(failure) => failure,
        }
    }
}
