//! What the scope of a node says: its layer, and whether it is computed again.

use std::collections::BTreeSet;

use reference::graph::{Graph, Id, Node};

/// The layer that a scope lies in: `layers.3.mlp` in 3.
pub fn layer(scope: &str) -> Option<usize> {
    let mut parts = scope.split('.');
    parts.find(|part| *part == "layers")?;
    parts.next()?.parse().ok()
}

/// The scope of what is computed again, before its own.
pub(crate) const REMAT: &str = "remat";

/// Whether a node computes something again.
pub(crate) fn is_remat(node: &Node) -> bool {
    node.scope.strip_prefix(REMAT).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The node before which a pass must not be computed, because it computes something again: the first of the copies that
/// were made together with its latest one.
pub fn since(graph: &Graph, nodes: &BTreeSet<Id>) -> Option<Id> {
    let mut first = *nodes.iter().rev().find(|id| is_remat(graph.node(**id)))?;
    while first.0 > 0 && is_remat(graph.node(Id(first.0 - 1))) {
        first.0 -= 1;
    }
    Some(first)
}
