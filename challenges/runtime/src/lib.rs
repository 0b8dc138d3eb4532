//! The given machinery of the challenges: everything between a learner's decisions that runs.
//!
//! Each part is run with an attempt, a trait of which it owns: the contract of a challenge, which `challenges`
//! re-exports. Nothing here knows who answers. The compiler, graph to plan, is the package `compiler` in the folder
//! `compiler/`.
//!
//! | module | holds |
//! |---|---|
//! | [`weights`] | a checkpoint's weights on a device |
//! | [`loss`] (E) | the losses as graphs, and the chunk runner |
//! | [`step`] | micro-batches, the numbers of an update, a loss in chunks |
//! | [`engine`] | the training engine: a rank of a mesh of 1 to N |
//! | [`decode`] | text from a model, token by token |
//! | [`shard`] (B) | ranks: programs around the pieces, layouts, schedules |
//! | [`attention`], [`gguf`] (D) | attention's back ends; the writer of GGUF files |

pub mod attention;
pub mod decode;
pub mod engine;
pub mod gguf;
pub mod loss;
pub mod shard;
pub mod step;
pub mod weights;
