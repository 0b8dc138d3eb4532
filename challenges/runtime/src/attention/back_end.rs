//! A back end, what it claims, and what it computes.

use reference::graph::Tensor;

use super::feature::Feature;

/// How a request is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Documents end to end.
    Packed,
    /// Pieces of the keys, merged.
    Split,
    /// Tile by tile.
    Tiled,
    /// Every score.
    Expanded,
}

/// A back end, and what it claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackEnd {
    /// Its name.
    pub name: &'static str,
    /// How it writes a request.
    pub way: Way,
    /// The features that it has.
    pub has: &'static [Feature],
    /// Requests that it is meant for: those with any of these; all, if there are none.
    pub of: &'static [Feature],
}

/// Attention to some or all of the keys.
#[derive(Clone)]
pub struct Part {
    /// (batch, heads, queries, width)
    pub output: Tensor,
    /// The logarithm of each query's sum of e^score, f32 (batch, heads, queries): minus infinity where it sees nothing.
    pub lse: Tensor,
}
