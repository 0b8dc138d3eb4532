//! What buffers share memory ([`donate`], [`reuse`]), and what they come to ([`profile`]).

pub mod donate;
pub mod profile;
pub mod reuse;
