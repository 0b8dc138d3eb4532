//! A Hugging Face Llama: its configuration, its weights, and the model as a graph.
//!
//! ```text
//! let llama = Llama::open("org/name")?;                    // every tensor is there and fits
//! let graph = llama.spec().forward()?;                     // ids -> logits
//! let mut values = llama.values::<f32>()?;
//! values.append(&mut rope::values(&llama.config, 64));
//! values.insert("ids".into(), ids);
//! let logits = interpret(&graph, &values)?;
//! ```
//!
//! A projection is dense or NF4, as it is stored; in a graph it is an input, or an operation on the parts that it is
//! decoded from. What depends on the sequence's length alone, the rotary tables, is an input too. Rows of several
//! documents, or with padding, have two inputs more: see [`Rows`]. Tokens that follow those in a cache have a graph
//! of their own: [`Spec::decode`]. A model with a [`Classifier`] has the logits of its classes where another one has
//! those of its tokens; one that reads [`Images`] takes what a vision tower gives where a token stands for a part of one.

mod cache;
mod classifier;
pub mod classify;
mod config;
mod decode;
mod error;
mod fields;
mod gguf;
mod gguf_keys;
pub mod hub;
mod images;
mod model;
mod pieces;
pub mod rope;
mod rows;
mod storage;
pub mod train;
mod weights;

pub use classifier::{Classifier, unnamed};
pub use config::{Config, Rope, Scaling};
pub use error::Error;
pub(crate) use fields::Fields;
pub use images::{Images, open_checkpoint};
pub use model::{DROPOUT_KEY, Model, Spec};
pub use pieces::Piece;
pub use rows::{IMAGE_FEATURES, IMAGE_SLOTS, Rows};
pub use storage::{Storage, Storages, StoredInput, TensorSpec};
pub(crate) use weights::dense;
pub use weights::{Llama, SCORE, parts};
