//! (D) `issues`: the open issues. What they speak of: conversations, what attention means, and classes of texts.

pub mod attention;
pub mod chat;
pub mod classify;
pub mod gguf;
