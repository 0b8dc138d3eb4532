//! (D) `issues`: the open issues.

pub mod chat;
