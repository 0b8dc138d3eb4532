//! The reasons why a graph cannot be compiled or run.

use std::fmt;

use kernels::DeviceError;
use reference::graph::{self, Symbol};

use crate::fuse::emit::LowerError;

/// Why a graph cannot be compiled or run.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The graph is not sound, or does not have the sizes given.
    Graph(graph::Error),
    /// A size is given for a symbol that the graph does not have.
    Unknown {
        /// The symbol.
        symbol: Symbol,
    },
    /// No kernel computes this.
    NoKernel {
        /// The operation and its scope.
        node: String,
        /// What stood in the way.
        stop: LowerError,
    },
    /// Buffers meet, or lie outside their arena.
    Arena {
        /// Which, and how.
        fault: String,
    },
    /// Whatever is computed again, the arena is larger than it may be.
    Cap {
        /// The most bytes allowed.
        cap: usize,
        /// The least arena that was reached.
        least: usize,
        /// What runs when the most bytes of it are alive.
        part: String,
        /// What is alive then: the largest buffers first, with their bytes.
        alive: Vec<(String, usize)>,
    },
    /// The device refused.
    Device(DeviceError),
    /// A pass left a collective out, merged two, or exchanged their order: ranks would not meet.
    Collectives {
        /// What is there and what has to be.
        what: String,
    },
    /// The compiler contradicts itself.
    Internal {
        /// What is there and what has to be.
        what: String,
    },
}

/// That the compiler contradicts itself.
pub(super) fn internal(what: String) -> Error {
    Error::Internal { what }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Graph(error) => error.fmt(f),
            Error::Unknown { symbol } => {
                write!(f, "a size is given for {symbol}, which is no symbol of the graph")
            }
            Error::NoKernel { node, stop } => write!(f, "{node}: {stop}"),
            Error::Arena { fault } => write!(f, "the arena: {fault}"),
            Error::Cap { cap, least, part, alive } => {
                let list: Vec<String> =
                    alive.iter().map(|(what, bytes)| format!("{what} of {bytes}")).collect();
                write!(
                    f,
                    "the arena may have {cap} bytes, and the least that is reached by computing again is {least}: "
                )?;
                write!(f, "at {part}, when there are alive {}", list.join(", "))
            }
            Error::Device(error) => error.fmt(f),
            Error::Collectives { what } => write!(f, "pruning: {what}"),
            Error::Internal { what } => write!(f, "internal error: {what}"),
        }
    }
}

impl std::error::Error for Error {}
