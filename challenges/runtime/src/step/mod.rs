//! The parts that every training step has: micro-batches, their upload, the numbers of an update, the loss in chunks.
//!
//! | module | holds |
//! |---|---|
//! | `microbatch` | rows and their inputs; what is logged of them |
//! | `updates` | the optimiser's rates and the factor of the loss |
//! | [`chunks`] | a loss whose logits are computed a chunk at a time |
//! | `scored` | the results of objectives |

use std::fmt;

use compiler::Compile;
use compiler::session;
use kernels::{Callee, Device};
use reference::graph;

use crate::loss::run;
use crate::weights;

pub mod chunks;
mod microbatch;
mod scored;
mod updates;

pub use microbatch::{Evaluated, ImageRows, Logged, Microbatch};
pub(crate) use microbatch::{device_error, put, upload};
pub use scored::{Rows, Scored, Whose};
pub(crate) use updates::Updates;
pub use updates::{LEAST, LossScale};

/// The compiler and the device of a model.
#[derive(Clone, Copy)]
pub struct Machine<'a> {
    /// The compiler.
    pub passes: &'a dyn Compile,
    /// Where it runs.
    pub device: &'a dyn Device,
    /// The dequantiser that plans call.
    pub dequantizer: &'a dyn Callee,
}

/// The tensors that the forward pass of a layer keeps for its backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activations {
    /// All but what costs next to nothing to compute again.
    #[default]
    Kept,
    /// The layer's input alone: the rest is computed again, which is gradient checkpointing.
    Recomputed,
}

/// Why a step was not made.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A graph does not compile or run.
    Session(session::Error),
    /// The chunked loss.
    Loss(run::Error),
    /// A graph cannot be built.
    Graph(graph::Error),
    /// Weights are not on the device.
    Weights(weights::Error),
    /// Too many tokens for the context, or none.
    Room {
        /// Tokens that were given.
        got: usize,
        /// Tokens that the context has room for.
        room: usize,
    },
    /// The batch lacks something.
    Batch {
        /// The name of the input.
        name: &'static str,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Session(error) => error.fmt(f),
            Error::Loss(error) => error.fmt(f),
            Error::Graph(error) => error.fmt(f),
            Error::Weights(error) => error.fmt(f),
            Error::Room { got, room } => write!(f, "expected 1 to {room} tokens, found {got}"),
            Error::Batch { name } => write!(f, "the batch has no `{name}`"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Session(error) => Some(error),
            Error::Loss(error) => Some(error),
            Error::Graph(error) => Some(error),
            Error::Weights(error) => Some(error),
            Error::Batch { .. } | Error::Room { .. } => None,
        }
    }
}
