//! The counter of the calls to given code that computes what a step asks for.
//!
//! Most given code is the machinery around the steps, and steps may use it. A general matcher does more: it computes a
//! step's answer. Such code counts its calls here, as the oracles of `reference` do.

use linked::Calls;

/// The marking of special tokens, and the patterns that find markers in a text.
pub(crate) static CHAT: Calls = Calls::new();

/// The number of calls so far to given code that marks special tokens or compiles a pattern.
pub fn chat_calls() -> u64 {
    CHAT.so_far()
}
