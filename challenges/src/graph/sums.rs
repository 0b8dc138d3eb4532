//! Sums of products: each product adds to one buffer, and nobody adds them up.
//!
//! `x W^T + s (x A^T) B^T`, a projection with its adapter, is two products into one buffer; so is the gradient of what
//! several projections read. What may stand between a product and the sum: reshapes, signs, constant factors. The order
//! of the additions is another one than the graph's, as in any sum that a product library takes.

use std::collections::BTreeMap;

use reference::graph::{Binary, Dtype, Id, Op, Unary};

use super::sized::Sized;

/// What becomes of a product that is part of a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Term {
    /// The node that is the sum.
    pub sum: Id,
    /// What the product is multiplied with.
    pub scale: f32,
    /// Whether it is the first one, which begins the sum.
    pub first: bool,
}

/// The products that are part of a sum of products, by their node.
pub fn find(sized: &Sized) -> BTreeMap<Id, Term> {
    let mut terms: BTreeMap<Id, Term> = BTreeMap::new();
    let mut inside: Vec<Id> = Vec::new(); // sums that are part of a larger one
    for id in sized.graph.ids().rev() {
        let node = sized.graph.node(id);
        let adds = matches!(node.op, Op::Binary(Binary::Add | Binary::Sub)) && node.ty.dtype == Dtype::F32;
        if !adds || inside.contains(&id) {
            continue;
        }
        let mut found = Found::default();
        if found.collect(sized, id, 1.0, true) {
            found.products.sort_unstable_by_key(|(id, _)| *id);
            inside.append(&mut found.sums);
            for (i, (product, scale)) in found.products.into_iter().enumerate() {
                terms.insert(product, Term { sum: id, scale, first: i == 0 });
            }
        }
    }
    terms
}

/// What a sum is made of.
#[derive(Default)]
struct Found {
    products: Vec<(Id, f32)>,
    sums: Vec<Id>,
}

impl Found {
    /// Whether a node, times a factor, is a sum of products that nobody else reads.
    fn collect(&mut self, sized: &Sized, id: Id, scale: f32, is_root: bool) -> bool {
        let node = sized.graph.node(id);
        let private = sized.users(id).len() == 1 && !sized.is_output(id);
        if !is_root && !private {
            return false;
        }
        let input = |i: usize| node.inputs[i];
        match node.op {
            Op::Matmul if !is_root => {
                self.products.push((id, scale));
                true
            }
            Op::Reshape | Op::Detach => self.collect(sized, input(0), scale, false),
            Op::Binary(Binary::Add | Binary::Sub) => {
                self.sums.push(id);
                let second = if node.op == Op::Binary(Binary::Sub) { -scale } else { scale };
                self.collect(sized, input(0), scale, false) && self.collect(sized, input(1), second, false)
            }
            _ => match scaled(sized, id) {
                Some((inner, factor)) => self.collect(sized, inner, scale * factor, false),
                None => false,
            },
        }
    }
}

/// The node of f32 that a node is a multiple of, and the factor.
pub fn scaled(sized: &Sized, id: Id) -> Option<(Id, f32)> {
    let node = sized.graph.node(id);
    let input = |i: usize| node.inputs[i];
    match node.op {
        _ if node.ty.dtype != Dtype::F32 => None,
        Op::Unary(Unary::Neg) => Some((input(0), -1.0)),
        Op::Binary(Binary::Mul) => match (constant(sized, input(0)), constant(sized, input(1))) {
            (None, Some(factor)) => Some((input(0), factor)),
            (Some(factor), None) => Some((input(1), factor)),
            _ => None,
        },
        _ => None,
    }
}

/// The number that a node is everywhere, if it is one that a product may be scaled by.
fn constant(sized: &Sized, id: Id) -> Option<f32> {
    match sized.graph.node(id).op {
        Op::Constant { value } => Some(value as f32).filter(|value| value.is_normal()),
        Op::Reshape | Op::Broadcast => constant(sized, sized.graph.node(id).inputs[0]),
        _ => None,
    }
}
