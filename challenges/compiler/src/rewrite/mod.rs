//! From graph to graph, before anything is fused.

pub mod attend;
pub mod collective;
pub mod decompose;
pub mod pad;
pub mod remat;
