//! (D) `issues`: the open issues.

pub mod attention;
pub mod chat;
pub mod classify;
pub mod gguf;
pub mod vision;
