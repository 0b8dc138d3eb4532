//! (D) `issues`: the open issues. What they speak of: conversations, and classes of texts.

pub mod chat;
pub mod classify;
