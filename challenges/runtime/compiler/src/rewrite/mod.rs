//! From graph to graph, before anything is fused: [`pad`] when a session loads a graph, the others when it is compiled.

pub mod attend;
pub mod collective;
pub mod decompose;
pub mod join;
pub mod merge;
pub mod pad;
pub mod remat;
pub mod split;
