//! Concatenations: where their parts are written.
//!
//! A part that a pass computes is stored by it in its stretch of the whole. A part that a product writes can lie there
//! from the start, with the whole's strides, if all who read it do so by strides; else a pass copies it.

use std::collections::{BTreeMap, BTreeSet};

use kernels::plan::contiguous;
use reference::graph::{Class, Id, Op};

use super::Fused;
use super::emit::{Layout, Root};
use super::sums::Term;
use crate::ir::sized::Sized;

/// Lets what products write lie in the concatenation that puts it beside others, so that they write it there; the nodes
/// that do. One of which another piece is computed stays apart: no step writes where it reads.
pub(super) fn place_pieces(sized: &Sized, terms: &BTreeMap<Id, Term>, fused: &mut Fused) -> BTreeSet<Id> {
    let mut placed = BTreeSet::new();
    let mut sums: BTreeMap<Id, bool> = BTreeMap::new(); // whether their terms are whole
    for (id, term) in terms {
        *sums.entry(term.sum).or_insert(true) &= is_whole(sized, *id, term);
    }
    let is_written = |id: Id| match sums.get(&id) {
        Some(whole) => *whole,
        None => sized.graph.node(id).op == Op::Matmul && !terms.contains_key(&id),
    };
    for id in sized.graph.ids().filter(|id| is_concat(sized, *id)) {
        let (Op::Concat { dim }, Some(to)) = (&sized.graph.node(id).op, fused.layouts.get(&id)) else {
            continue;
        };
        if to.strides != contiguous(sized.shape(id)) {
            continue;
        }
        for Root { node, layout } in pieces(sized, id, *dim, &to.clone()) {
            let is_own = |own: &Layout| {
                own.strides == contiguous(sized.shape(node)) && !fused.given.contains_key(&own.buffer)
            };
            let moves = is_written(node) && may_be_piece(sized, node, id);
            if moves && fused.layouts.get(&node).is_some_and(is_own) {
                fused.layouts.insert(node, layout);
                placed.insert(node);
            }
        }
    }
    placed
}

fn is_concat(sized: &Sized, id: Id) -> bool {
    matches!(sized.graph.node(id).op, Op::Concat { .. })
}

/// Whether one concatenation alone has a node, once, no other part of it is computed from the node, and all who read it
/// do so by its strides.
fn may_be_piece(sized: &Sized, id: Id, concat: Id) -> bool {
    let is_put_once = sized.users(id).iter().filter(|user| is_concat(sized, **user)).count() == 1;
    is_put_once && !sized.is_output(id) && is_read_by_strides(sized, id) && !leads_to_other(sized, id, concat)
}

/// Whether another part of a concatenation is computed from a node.
fn leads_to_other(sized: &Sized, id: Id, concat: Id) -> bool {
    let inputs = |of: Id| sized.graph.node(of).inputs.iter().copied().filter(move |input| *input > id);
    let mut open: Vec<Id> = inputs(concat).collect();
    let mut seen: BTreeSet<Id> = open.iter().copied().collect();
    while let Some(next) = open.pop() {
        if sized.graph.node(next).inputs.contains(&id) {
            return true;
        }
        open.extend(inputs(next).filter(|input| seen.insert(*input)));
    }
    false
}

/// Whether all who read a node are passes, products and concatenations; a table, what an attention reads, what ranks
/// exchange, has to lie in one piece.
fn is_read_by_strides(sized: &Sized, id: Id) -> bool {
    sized.users(id).iter().all(|user| match sized.graph.node(*user).op.class() {
        Class::Pointwise | Class::Reduction | Class::Contraction => true,
        Class::View => !sized.is_output(*user) && is_read_by_strides(sized, *user),
        Class::Indexing => is_concat(sized, *user),
        Class::Source | Class::Collective | Class::Opaque => false,
    })
}

/// Whether a product of a sum has the sum's elements in its order.
pub(super) fn is_whole(sized: &Sized, product: Id, term: &Term) -> bool {
    sized.shape(product) == sized.shape(term.sum) && term.strides == contiguous(sized.shape(product))
}

/// The parts of a concatenation, each with its stretch of the whole.
pub(super) fn pieces(sized: &Sized, id: Id, dim: usize, to: &Layout) -> Vec<Root> {
    let mut offset = 0;
    let piece = |part: &Id| {
        let layout = Layout { offset, ..to.clone() };
        offset += sized.shape(*part)[dim] * to.strides[dim];
        Root { node: *part, layout }
    };
    let pieces: Vec<Root> = sized.graph.node(id).inputs.iter().map(piece).collect();
    pieces.into_iter().filter(|root| sized.elements(root.node) > 0).collect()
}
