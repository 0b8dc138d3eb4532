//! Operations between ranks in the machine's terms.
//!
//! A [`Start`](kernels::plan::Start) gathers and scatters bytes that lie side by side, rank 0's first: that is an
//! all-gather or a reduce-scatter along the first dimension. Along another one it is the same between two transposes,
//! which are views:
//!
//! ```text
//! %2 = all_gather %1 dim 1 : f32[3, 8]        %2 = transpose %1 to 1, 0 : f32[2, 3]
//!                                             %3 = all_gather %2 dim 0 : f32[8, 3]
//!                                             %4 = transpose %3 to 1, 0 : f32[3, 8]
//! ```
//!
//! What one rank does alone it does without an operation between ranks. And what nobody needs is left out, at each
//! level: a collective without a reader is no part of a graph's meaning
//! ([`interpret_ranks`](reference::graph::ranks::interpret_ranks)), and another rank may have no partner for it.
//!
//! **Every other collective stays what and where it is.** No pass may leave one out, merge two that look alike, compute
//! one again or exchange the order of two: what another rank does in the same place is not known here, and ranks meet
//! by count. [`kept`] holds that of the passes that others write.
//!
//! A *token*, what a `send` gives, is no tensor of its own. An output that names one is the tensor that was sent.

use std::collections::{BTreeMap, BTreeSet};

use reference::graph::{Collective, Dim, Error, Graph, Group, Id, Op, Rewrite, Symbol};

use crate::ir::sized;

/// A graph whose collectives have steps.
pub struct Lowered {
    /// The graph.
    pub graph: Graph,
    /// What each collective was in the graph as it is written, in order: its tensor's type, its dimension and axis, on
    /// which all ranks that take part have to agree.
    pub labels: Vec<String>,
}

/// The same graph in the terms of steps.
///
/// Fails where a group's size has no number, and else only where the graph itself is not sound.
pub fn lower(graph: &Graph, sizes: &BTreeMap<Symbol, i64>) -> Result<Lowered, Error> {
    if all(graph).next().is_none() {
        return Ok(Lowered { graph: graph.clone(), labels: Vec::new() });
    }
    let graph = &without_worlds_of_one(graph, sizes)?;
    let (live, mut labels, mut dropped) = (graph.live(), Vec::new(), BTreeSet::new());
    let rewritten = graph.rewrite(|rewrite, id| {
        let node = rewrite.node(id);
        let Op::Collective { kind, group } = &node.op else {
            let is_dropped = node.inputs.iter().any(|input| dropped.contains(input)) && dropped.insert(id);
            return if is_dropped { Ok(None) } else { rewrite.copy(id).map(Some) };
        };
        if !live.contains(&id) {
            dropped.insert(id);
            return Ok(None);
        }
        if kind.is_joint() && size(graph, id, group, sizes)? == 1 {
            return rewrite.input(id, 0).map(Some);
        }
        let shape = sized::shape(graph, node.inputs[0], sizes)?;
        labels.push(label(*kind, group, &format!("{}{shape:?}", node.ty.dtype.name())));
        along_the_first(rewrite, id, *kind, group).map(Some)
    })?;
    Ok(Lowered { graph: without_tokens(&rewritten.graph), labels })
}

/// The collectives of a graph, in order.
pub fn all(graph: &Graph) -> impl Iterator<Item = (Id, Collective, &Group)> {
    graph.ids().filter_map(|id| {
        let Op::Collective { kind, group } = &graph.node(id).op else { return None };
        Some((id, *kind, group))
    })
}

/// The collectives that an output needs, in order, each as it prints.
fn needed(graph: &Graph) -> Vec<String> {
    let live = graph.live();
    let needed = all(graph).filter(|(id, ..)| live.contains(id));
    needed.map(|(id, _, group)| format!("{} over {:?}", graph.node(id).op.name(), group.axis)).collect()
}

/// That a pass kept every collective that an output needs, in order; else what it was given and what it made of it.
pub fn kept(before: &Graph, after: &Graph) -> Result<(), String> {
    let [expected, found] = [before, after].map(needed);
    if expected == found {
        return Ok(());
    }
    Err(format!(
        "expected the collectives that outputs need to stay, in their order: [{}], found [{}]",
        expected.join(", "),
        found.join(", ")
    ))
}

/// How many ranks a group has.
///
/// Fails where its size has no number.
pub fn size(graph: &Graph, id: Id, group: &Group, sizes: &BTreeMap<Symbol, i64>) -> Result<usize, Error> {
    Ok(sized::numbers(graph, id, std::slice::from_ref(&group.size), sizes)?[0])
}

/// What all ranks that take part have to say alike.
fn label(kind: Collective, group: &Group, ty: &str) -> String {
    let axis = &group.axis;
    match kind {
        Collective::AllGather { dim } | Collective::ReduceScatter { dim } => {
            format!("{ty} along dimension {dim} over {axis:?}")
        }
        Collective::AllReduce | Collective::Send { .. } | Collective::Receive { .. } => {
            format!("{ty} over {axis:?}")
        }
    }
}

/// The same graph with a number for each symbol that is the size of a group of one: its tensors then are as large as
/// their shards.
fn without_worlds_of_one(graph: &Graph, sizes: &BTreeMap<Symbol, i64>) -> Result<Graph, Error> {
    let symbols = all(graph).filter_map(|(.., group)| group.size.as_symbol());
    let ones: BTreeMap<Symbol, Dim> = symbols
        .filter(|symbol| sizes.get(*symbol) == Some(&1))
        .map(|symbol| (symbol.clone(), Dim::fixed(1)))
        .collect();
    if ones.is_empty() { Ok(graph.clone()) } else { graph.substitute(&ones) }
}

/// Writes a collective along the first dimension.
fn along_the_first(rewrite: &mut Rewrite<'_>, id: Id, kind: Collective, group: &Group) -> Result<Id, Error> {
    let (dim, kind) = match kind {
        Collective::AllGather { dim } if dim > 0 => (dim, Collective::AllGather { dim: 0 }),
        Collective::ReduceScatter { dim } if dim > 0 => (dim, Collective::ReduceScatter { dim: 0 }),
        Collective::AllGather { .. } | Collective::ReduceScatter { .. } => return rewrite.copy(id),
        Collective::AllReduce | Collective::Send { .. } | Collective::Receive { .. } => {
            return rewrite.copy(id);
        }
    };
    let (node, x) = (rewrite.node(id), rewrite.input(id, 0)?);
    let mut front: Vec<usize> = (0..node.ty.rank()).collect();
    front[..=dim].rotate_right(1);
    let mut back: Vec<usize> = (0..node.ty.rank()).collect();
    back[..=dim].rotate_left(1);
    let x = rewrite.add(Op::Transpose { order: front }, &[x], None, &node.scope)?;
    let x = rewrite.add(Op::Collective { kind, group: group.clone() }, &[x], None, &node.scope)?;
    rewrite.add(Op::Transpose { order: back }, &[x], None, &node.scope)
}

/// The same graph, whose outputs name what was sent where they named its token.
fn without_tokens(graph: &Graph) -> Graph {
    let mut to = graph.clone();
    to.clear_outputs();
    for (name, id) in graph.outputs() {
        let node = graph.node(*id);
        let is_token = matches!(node.op, Op::Collective { kind: Collective::Send { .. }, .. });
        to.output(name, if is_token { node.inputs[0] } else { *id });
    }
    to
}
