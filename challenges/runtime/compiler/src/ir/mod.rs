//! What all passes speak of.

pub mod arena;
pub mod code;
pub mod map;
pub mod scope;
pub mod sized;
