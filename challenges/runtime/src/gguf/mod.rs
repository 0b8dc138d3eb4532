//! The writer of GGUF files: names, keys and blocks are an attempt's, the bytes of the file are written here.
//!
//! The attempt is the steps of [`Gguf`], challenge D's contract of `gguf`.

mod contract;
mod write;

pub use contract::Gguf;
pub use reference::checkpoint::gguf::{Array, TensorType, Value};
pub use reference::issues::gguf::{Activation, Architecture, Part, Piece, Projector, TextModel, Tower};
pub use write::{Error, Model, Source, Written, write};
