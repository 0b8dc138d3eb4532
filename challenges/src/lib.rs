//! What you must write.
//!
//! One module a challenge: `mod.rs` is the contract, `exercise.rs` the reader's text, `solution.rs` the same items
//! filled in. Neither text is part of this crate: a program takes the exercises it grades, and is linked with the
//! solutions (the package `linked`). A challenge knows the oracles and the machine; it does not know the grader, so an
//! attempt cannot read its own marks.
//!
//! The code that calls a contract owns its trait: the packages `compiler`, `runtime` and `chat`. What a reader needs of
//! them is re-exported here.

extern crate self as challenges; // so that the same `use` lines serve an exercise, which is built outside

pub mod fsdp;
pub mod given;
pub mod graph;
pub mod issues;
pub mod loss;
pub mod nf4;

pub use chat::tool;
pub use linked::solution_calls_of_this_thread;
pub use runtime::engine as train;
pub use runtime::{decode, weights};
