//! What is true.
//!
//! The CPU oracles and the vocabulary of warpbook: plain functions that are obviously right, in the
//! definition's own order and arithmetic. Nothing here is fast, and nothing here knows how anything is
//! made fast: an oracle that cannot reach the device code cannot inherit its bugs.

pub mod atomic_write;
pub mod checkpoint;
pub mod clean;
pub mod dtype;
pub mod grad;
pub mod graph;
pub mod issues;
pub mod jinja;
pub mod llama;
pub mod lora;
pub mod loss;
pub mod nf4;
pub mod optim;
pub mod philox;
