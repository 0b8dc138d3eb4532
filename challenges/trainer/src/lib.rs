//! What the five challenges are together: a program around a checkpoint.
//!
//! ```text
//! trainer train             a checkpoint in, an adapter out    train/
//! trainer generate          a prompt in, a text out           generate/ -> constrain
//! trainer export            a model with its adapter         export.rs
//! trainer tools             tool calling learnt, shown      tools/ -> train, generate
//! trainer template render   a conversation as text           template/render.rs
//! trainer template lint     what a template loses            template/lint.rs
//! trainer template repair   a mended template, its markers   template/repair.rs -> repair, markers, resize
//! ```
//!
//! [`picture`] reads image files; [`constrain`] holds a model's calls to a tool's schema.
//!
//! The grader knows nothing of it, and nothing that only it needs is compiled before a scorecard.

#![warn(clippy::print_stdout, clippy::print_stderr)] // `output` prints

extern crate solutions as _; // the steps of challenge D that templates call

mod byte_model;
pub mod chat_templates;
mod cli;
pub mod constrain;
mod decoder;
mod export;
pub mod files;
mod four_bits;
pub mod generate;
mod gguf_tokenizer;
pub mod markers;
mod messages;
mod model_files;
mod output;
pub mod picture;
pub mod repair;
pub mod resize;
mod roles;
mod template;
pub mod tools;
pub mod train;

pub use cli::run;
pub use output::Failure;
