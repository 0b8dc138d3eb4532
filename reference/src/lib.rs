//! What is true.
//!
//! The CPU oracles and the vocabulary of warpbook: plain functions that are obviously right, in the
//! definition's own order and arithmetic. Nothing here is fast, and nothing here knows how anything is
//! made fast: an oracle that cannot reach the device code cannot inherit its bugs.
//!
//! | module | holds |
//! |---|---|
//! | [`checkpoint`], [`dtype`] | safetensors files as tensors by name; the types of their elements |
//! | [`nf4`] (A) | the format to the bit, and a quantised weight in a checkpoint |
//! | [`graph`], [`grad`] (C) | the intermediate representation, its meaning, its derivatives |
//! | [`llama`], [`lora`], [`optim`] | a model, its adapters and its training step as graphs |
//! | [`loss`] (E) | each loss as a function in f64 and as a graph |
//! | [`issues`] (D) | conversations, attention, classifiers, GGUF files |
//! | [`exact`] | JSON whose whole numbers are exact |
//! | [`vision`] (D) | images as patches, texts with images as batches, towers as graphs |
//! | [`philox`] | the random numbers of a dropout |
//! | [`fsdp`] (B), [`schedule`] | parameters in shards; pipeline schedules: what is valid, how long it takes |
//! | [`oracles`] | counters of the calls to functions that compute a step's answer |
//! | `rounding` | what MinGW's C library has wrong |
//! | [`file_kind`], [`json`] | what a file holds, by its first bytes; JSON with errors that name it |
//! | [`clean`], [`atomic_write`] | two helpers, here because every other room but the machine uses this one |

pub mod atomic_write;
pub mod checkpoint;
pub mod clean;
pub mod dtype;
pub mod exact;
pub mod file_kind;
pub mod fsdp;
pub mod grad;
pub mod graph;
pub mod issues;
pub mod json;
pub mod llama;
pub mod lora;
pub mod loss;
pub mod nf4;
pub mod optim;
pub mod oracles;
pub mod philox;
mod rounding;
pub mod schedule;
pub mod vision;
