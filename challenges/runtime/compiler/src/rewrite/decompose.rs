//! Operations that have one kernel, in its terms.
//!
//! What a graph multiplies, scatters or attends in f16 or bf16 means sums in f32 that are rounded once, at the end.
//! Casts before and after an operation in f32 say the same. They cost a product nothing: its step reads and writes f16
//! and bf16 itself, so where what is cast has a buffer, [`fuse`](crate::fuse) takes the cast into the product. An
//! attention that reads and writes one narrow type may be left as it is, for a step in that type. And a
//! quantised weight is dequantised anew for each product that reads it, since four bits and a table are cheaper to keep
//! than a float.

use std::collections::BTreeSet;

use reference::graph::{Dtype, Error, Graph, Id, Op, Rewrite};

/// The same graph, in which what the machine does in f32 is done in f32: attention too, unless it may be narrow.
///
/// Fails only where the graph itself is not sound.
pub fn upcast_contractions(graph: &Graph, narrow_attention: bool) -> Result<Graph, Error> {
    let rewritten = graph.rewrite(|rewrite, id| {
        let node = rewrite.node(id);
        let first = node.inputs.first().map_or(node.ty.dtype, |input| graph.ty(*input).dtype);
        let is_narrow = [node.ty.dtype, first].iter().any(|dtype| *dtype != Dtype::F32);
        let stays = narrow_attention && attends_in_one_type(graph, id);
        let widens = is_short(&node.op) && is_narrow && !stays;
        let here = if widens { in_f32(rewrite, id)? } else { rewrite.copy(id)? };
        Ok(Some(here))
    })?;
    Ok(rewritten.graph)
}

/// The same graph, in which every use of a quantised weight has a dequantisation of its own, and views and casts of its
/// own: nothing of it is kept from the forward pass to the backward pass.
///
/// Fails only where the graph itself is not sound.
pub fn clone_dequantize_per_use(graph: &Graph) -> Result<Graph, Error> {
    let rematerialisable = rematerialisable(graph);
    let is_output = |id| graph.outputs().iter().any(|(_, output)| *output == id);
    let rewritten = graph.rewrite(|rewrite, id| {
        let is_used_elsewhere = rematerialisable.contains(&id) && !is_output(id);
        if is_used_elsewhere { Ok(None) } else { with_own(rewrite, id, &rematerialisable).map(Some) }
    })?;
    Ok(rewritten.graph)
}

/// Writes a node, and, anew, what it reads of the `rematerialisable` ones.
fn with_own(rewrite: &mut Rewrite<'_>, id: Id, rematerialisable: &BTreeSet<Id>) -> Result<Id, Error> {
    let mut inputs = Vec::new();
    for input in &rewrite.node(id).inputs {
        let own = rematerialisable.contains(input);
        inputs.push(if own { with_own(rewrite, *input, rematerialisable)? } else { rewrite.at(*input)? });
    }
    rewrite.copy_to(id, &inputs)
}

/// What is written anew wherever it is used: quantised weights, and views and casts of them.
pub fn rematerialisable(graph: &Graph) -> BTreeSet<Id> {
    let mut rematerialisable: BTreeSet<Id> = BTreeSet::new();
    for id in graph.ids() {
        let node = graph.node(id);
        let repeats = matches!(node.op, Op::Broadcast | Op::Slice { .. });
        let is_whole = node.op == Op::Cast || (node.op.is_view() && !repeats);
        if matches!(node.op, Op::Dequantize { .. })
            || (is_whole && rematerialisable.contains(&node.inputs[0]))
        {
            rematerialisable.insert(id);
        }
    }
    rematerialisable
}

/// Whether a node is an attention, its logarithmic sums or a gradient of it whose queries, keys, values and results,
/// but for the sums, have one type.
fn attends_in_one_type(graph: &Graph, id: Id) -> bool {
    let node = graph.node(id);
    let of = |input: Option<&Id>| input.map(|input| graph.ty(*input).dtype);
    let first = of(node.inputs.first());
    let one = (1..3).all(|input| of(node.inputs.get(input)) == first);
    match node.op {
        Op::Attention(_) => one && Some(node.ty.dtype) == first,
        Op::AttentionLse(_) => one,
        Op::AttentionGrad { wrt, .. } => {
            wrt < 3 && one && of(node.inputs.last()) == first && Some(node.ty.dtype) == first
        }
        Op::AttentionLseGrad { .. } | Op::RandomMask { .. } | Op::Collective { .. } => false,
        Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } | Op::Dequantize { .. } => false,
        Op::Cast | Op::Detach | Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select => false,
        Op::Reduce(..) | Op::Matmul | Op::Gather | Op::ScatterAdd | Op::Concat { .. } => false,
        Op::Reshape | Op::Transpose { .. } | Op::Broadcast | Op::Slice { .. } => false,
    }
}

/// Whether an operation has one kernel, for f32.
fn is_short(op: &Op) -> bool {
    let attends = matches!(op, Op::Attention(_) | Op::AttentionLse(_) | Op::AttentionGrad { .. });
    attends || matches!(op, Op::Matmul | Op::ScatterAdd)
}

fn in_f32(rewrite: &mut Rewrite<'_>, id: Id) -> Result<Id, Error> {
    let (node, inputs) = (rewrite.node(id), rewrite.inputs(id)?);
    let mut wide = Vec::new();
    for (i, input) in inputs.iter().enumerate() {
        let ty = rewrite.to().ty(*input).clone();
        let casts = ty.dtype.is_float() && !is_extra(&node.op, i, inputs.len());
        let mut cast = || rewrite.add(Op::Cast, &[*input], Some(ty.with(Dtype::F32)), &node.scope);
        wide.push(if casts { cast()? } else { *input });
    }
    let result = rewrite.add(node.op.clone(), &wide, Some(node.ty.with(Dtype::F32)), &node.scope)?;
    if node.ty.dtype == Dtype::F32 {
        return Ok(result);
    }
    rewrite.add(Op::Cast, &[result], Some(node.ty.clone()), &node.scope)
}

/// Whether an input of an attention belongs to its programs, which read it in its own type.
fn is_extra(op: &Op, input: usize, inputs: usize) -> bool {
    match op {
        Op::Attention(_) | Op::AttentionLse(_) => input > 2,
        Op::AttentionGrad { .. } | Op::AttentionLseGrad { .. } => input > 2 && input + 1 < inputs,
        Op::RandomMask { .. } | Op::Collective { .. } => false,
        Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } | Op::Dequantize { .. } => false,
        Op::Cast | Op::Detach | Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select => false,
        Op::Reduce(..) | Op::Matmul | Op::Gather | Op::ScatterAdd | Op::Concat { .. } => false,
        Op::Reshape | Op::Transpose { .. } | Op::Broadcast | Op::Slice { .. } => false,
    }
}
