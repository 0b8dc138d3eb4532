//! What buffers share, and what they come to.

pub mod donate;
pub mod profile;
pub mod reuse;
