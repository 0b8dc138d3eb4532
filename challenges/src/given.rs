//! Counters of the calls to given code that computes what a step asks for.
//!
//! Most given code is the machinery around the steps, and steps may use it. A baseline or a general matcher does more:
//! it computes a step's answer. Such code counts its calls here, as the oracles of `reference` do.

use linked::Calls;

pub use chat::given::chat_calls;

/// The three-pass baseline of NF4 and its tile programs.
pub(crate) static NF4: Calls = Calls::new();

/// The number of calls so far to given code that dequantises NF4.
pub fn nf4_calls() -> u64 {
    NF4.so_far()
}
