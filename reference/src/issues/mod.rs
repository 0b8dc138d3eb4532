//! (D) `issues`: the open issues. What they speak of: conversations.

pub mod chat;
