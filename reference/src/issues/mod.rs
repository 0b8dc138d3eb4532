//! (D) `issues`: the open issues. What they speak of: conversations, what attention means, and classes of texts.

pub mod attention;
mod calls;
pub mod chat;
pub mod classify;
pub mod gguf;

pub use calls::oracle_calls;
