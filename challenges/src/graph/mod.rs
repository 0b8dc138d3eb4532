//! (C) `graph`: compile QLoRA without a break.

pub mod compile;
pub mod emit;
pub mod fuse;
pub mod map;
pub mod memory;
pub mod prune;
pub mod sized;
pub mod sums;
