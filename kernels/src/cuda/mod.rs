//! NVIDIA GPUs: found at run time, used where they answer.

pub mod condition;
pub mod library;
