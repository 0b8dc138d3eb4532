//! Where a factor of a product lies: what is behind views, signs, constant factors and a cast of it.
//!
//! A product reads its factors by strides and multiplies with a number, so none of those has to be computed. A view
//! that mixes dimensions has no strides, unless what it views lies in memory as the view needs it: an attention writes
//! heads side by side if that is how they are used, and then a reshape of a transpose is a row of what is there.

use kernels::plan::contiguous;
use reference::graph::{Dtype, Id, Op};

use super::emit::Layout;
use super::{strides, sums};
use crate::ir::map;
use crate::ir::sized::Sized;

/// What a factor of a product is made of: a node's elements, where they are in it, and what they are multiplied with.
#[derive(Clone)]
pub(super) struct Producer {
    pub node: Id,
    pub at: map::Map,
    pub strides: Option<Vec<usize>>, // of what `at` counts, where that is a view of the node as it lies in memory
    pub scale: f32,
}

impl Producer {
    /// A tensor itself.
    pub fn itself(sized: &Sized, tensor: Id) -> Self {
        Self { node: tensor, at: map::identity(sized.shape(tensor)), strides: None, scale: 1.0 }
    }

    /// Where the elements lie in the node's buffer: the first one, and the strides over a shape.
    pub fn place(&self, layout: &Layout, shape: &[usize]) -> Layout {
        let strides = self.strides.as_ref().unwrap_or(&layout.strides);
        let (offset, strides) = map::place(&self.at, strides, layout.offset, shape);
        Layout { buffer: layout.buffer, offset, strides }
    }
}

/// The node after views; nothing if its elements are no affine function of the tensor's.
pub(super) fn seen(sized: &Sized, tensor: Id) -> Option<Producer> {
    let space = sized.shape(tensor);
    let mut seen = Producer::itself(sized, tensor);
    while let Some(through) = map::through(sized, seen.node, &seen.at, space) {
        seen.at = through.ok()?;
        seen.node = sized.graph.node(seen.node).inputs[0];
    }
    Some(seen)
}

/// The node after views, signs and constant factors, as far as its elements are an affine function of the factor's.
///
/// A product widens f16 and bf16 itself: after a cast to f32 is what is cast, which takes half the memory.
pub(super) fn producer(sized: &Sized, factor: Id) -> Producer {
    let wide = unscaled(sized, Producer::itself(sized, factor), factor);
    let cast = sized.graph.node(wide.node);
    if cast.op != Op::Cast || cast.ty.dtype != Dtype::F32 || sized.is_output(wide.node) {
        return wide;
    }
    let source = Producer { node: cast.inputs[0], ..wide.clone() };
    let narrow = matches!(sized.graph.ty(source.node).dtype, Dtype::F16 | Dtype::Bf16);
    let found = if narrow { unscaled(sized, source, factor) } else { wide.clone() };
    let is_computed = !matches!(sized.graph.node(found.node).op, Op::Constant { .. } | Op::Iota { .. });
    if is_computed { found } else { wide }
}

/// What is after views, signs and constant factors. A view that mixes its tensor's dimensions is as far as it goes,
/// unless the tensor lies in memory as the view needs it.
fn unscaled(sized: &Sized, mut producer: Producer, factor: Id) -> Producer {
    loop {
        match map::through(sized, producer.node, &producer.at, sized.shape(factor)) {
            Some(Ok(at)) => {
                producer.at = at;
                producer.node = sized.graph.node(producer.node).inputs[0];
            }
            Some(Err(_)) => {
                if let Some((node, strides)) = lying(sized, producer.node) {
                    (producer.node, producer.strides) = (node, Some(strides));
                }
                return producer;
            }
            None => match sums::scaled(sized, producer.node) {
                Some((node, scale)) => (producer.node, producer.scale) = (node, producer.scale * scale),
                None => return producer,
            },
        }
    }
}

/// The attention or concatenation in whose buffer the elements of a view lie as they are written, and the view's
/// strides in it: heads side by side in a row, which are no affine function of (row, column).
fn lying(sized: &Sized, id: Id) -> Option<(Id, Vec<usize>)> {
    let node = sized.graph.node(id);
    let input = || lying(sized, *node.inputs.first()?);
    match &node.op {
        Op::Transpose { order } => {
            let (node, strides) = input()?;
            Some((node, order.iter().map(|dim| strides[*dim]).collect()))
        }
        Op::Reshape => {
            let (from, strides) = input()?;
            let shape = sized.shape(node.inputs[0]);
            let mut dims = shape.iter().zip(strides.iter().zip(contiguous(shape)));
            let is_flat = dims.all(|(size, (own, flat))| *size == 1 || *own == flat);
            is_flat.then(|| (from, contiguous(sized.shape(id))))
        }
        Op::Attention(_) | Op::AttentionGrad { .. } | Op::Concat { .. } => Some((id, strides(sized, id))),
        Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } | Op::Dequantize { .. } => None,
        Op::Cast | Op::Detach | Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select => None,
        Op::Reduce(..) | Op::Matmul | Op::Gather | Op::ScatterAdd | Op::Broadcast => None,
        Op::Slice { .. } | Op::AttentionLse(_) | Op::AttentionLseGrad { .. } => None,
        Op::RandomMask { .. } | Op::Collective { .. } => None,
    }
}
