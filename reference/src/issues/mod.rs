//! (D) `issues`: the open issues. What they speak of: conversations, and what attention means.

pub mod attention;
mod calls;
pub mod chat;

pub use calls::oracle_calls;
