//! (D) `issues`: the open issues.

pub mod chat;
pub mod classify;
