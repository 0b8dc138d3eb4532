//! Why a chunked loss does not run.

use std::fmt;

use compiler::session;
use kernels::DeviceError;
use reference::graph;

/// Why a plan does not run.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A graph is not sound.
    Graph(graph::Error),
    /// A graph does not compile, or its run failed.
    Session(session::Error),
    /// An input is not given.
    Missing {
        /// Its name.
        name: String,
    },
    /// An input or a result has another type.
    Shape {
        /// Its name.
        name: String,
        /// What there is.
        got: String,
        /// What is needed.
        need: String,
    },
    /// A row that counts has a label that is no entry of the vocabulary.
    Label {
        /// The row, from 0.
        row: usize,
        /// Its label.
        got: i32,
        /// The entries of the vocabulary.
        vocab: usize,
    },
    /// The chunks are not the rows that count, each once.
    Chunks {
        /// What is wrong.
        fault: String,
    },
    /// Even one row takes more than there is.
    Budget {
        /// Bytes that there are.
        budget: usize,
        /// Bytes that one row takes.
        least: usize,
    },
}

/// What a device says.
pub(super) fn device(error: DeviceError) -> Error {
    Error::Session(session::Error::Device(error))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Graph(error) => error.fmt(f),
            Error::Session(error) => error.fmt(f),
            Error::Missing { name } => write!(f, "missing input `{name}`"),
            Error::Shape { name, got, need } => write!(f, "`{name}`: expected {need}, found {got}"),
            Error::Label { row, got, vocab } => {
                write!(
                    f,
                    "`labels`[{row}] of a row that counts: expected 0 to {}, found {got}",
                    *vocab as i64 - 1
                )
            }
            Error::Chunks { fault } => write!(f, "the chunks: {fault}"),
            Error::Budget { budget, least } => {
                write!(
                    f,
                    "budget: expected at least {least} bytes, as a chunk of one row takes, found {budget}"
                )
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Graph(error) => Some(error),
            Error::Session(error) => Some(error),
            _ => None,
        }
    }
}
