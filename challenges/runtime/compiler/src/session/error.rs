//! Why a session does not run a graph.

use std::fmt;

use kernels::DeviceError;
use reference::graph::Symbol;

use crate::rewrite::pad;
use crate::{compile, groups, tune};

/// Why a graph does not run.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Padding would change a result.
    Pad(pad::Error),
    /// It does not compile.
    Compile(compile::Error),
    /// The device refused.
    Device(DeviceError),
    /// The file of tuning.
    Tuned(tune::Error),
    /// The ranks are not those that the graph's collectives ask for.
    Groups(groups::Error),
    /// An input is not given.
    Missing {
        /// Its name.
        name: String,
    },
    /// An input that the run updates is neither donated nor kept.
    NotDonated {
        /// Its name.
        name: String,
    },
    /// An input that the run updates would have to be padded, and a padded copy is not what it updates.
    DonatedSize {
        /// Its name.
        name: String,
        /// Its dimensions.
        got: Vec<usize>,
        /// Those of its bucket.
        need: Vec<usize>,
    },
    /// An output that the graph does not have.
    NoOutput {
        /// Its name.
        name: String,
    },
    /// An input has other dimensions.
    Shape {
        /// Its name.
        name: String,
        /// The dimensions given.
        got: Vec<usize>,
        /// Those of the graph.
        need: String,
    },
    /// A size is not what is known of its symbol.
    Size {
        /// The symbol.
        symbol: Symbol,
        /// Its size.
        got: i64,
        /// What is known.
        need: String,
    },
    /// The buckets of a symbol leave a size out, or go beyond what is known of it.
    Buckets {
        /// The symbol.
        symbol: Symbol,
        /// The size.
        size: i64,
        /// The buckets.
        buckets: Vec<i64>,
    },
    /// It would have to be compiled again, and it is sealed.
    Sealed {
        /// The sizes.
        sizes: String,
        /// Those that are compiled.
        compiled: Vec<String>,
    },
}

impl From<compile::Error> for Error {
    fn from(error: compile::Error) -> Self {
        Self::Compile(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Pad(error) => error.fmt(f),
            Error::Compile(error) => error.fmt(f),
            Error::Device(error) => error.fmt(f),
            Error::Tuned(error) => error.fmt(f),
            Error::Groups(error) => error.fmt(f),
            Error::Missing { name } => write!(f, "missing input `{name}`"),
            Error::NotDonated { name } => {
                write!(f, "input `{name}` is updated by the run: expected it donated or kept, found neither")
            }
            Error::DonatedSize { name, got, need } => {
                write!(f, "donated tensor `{name}` must have its bucket's size: ")?;
                write!(f, "expected {need:?}, found {got:?}")
            }
            Error::NoOutput { name } => write!(f, "the graph has no output `{name}`"),
            Error::Shape { name, got, need } => {
                write!(f, "input `{name}`: expected {need}, found the shape {got:?}")
            }
            Error::Size { symbol, got, need } => write!(f, "{symbol}: expected {need}, found {got}"),
            Error::Buckets { symbol, size, buckets } => {
                write!(
                    f,
                    "the buckets {buckets:?} of {symbol} are not fit for {size}: expected growing sizes within "
                )?;
                write!(f, "what is known of it, up to the largest")
            }
            Error::Sealed { sizes, compiled } => {
                write!(f, "{sizes} would have to be compiled, and nothing is compiled any more; there is ")?;
                write!(
                    f,
                    "{}: warm up with this size, or let its bucket be one of these",
                    compiled.join("; ")
                )
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Pad(error) => Some(error),
            Error::Compile(error) => Some(error),
            Error::Device(error) => Some(error),
            Error::Tuned(error) => Some(error),
            Error::Groups(error) => Some(error),
            _ => None,
        }
    }
}
