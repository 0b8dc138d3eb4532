//! What buffers share, and what they come to.

pub mod carry;
pub mod forecast;
pub mod reuse;
