//! Operations that have one kernel, in its terms.
//!
//! The machine multiplies, scatters and attends in f32. What a graph does in f16 or bf16 means sums in f32 that are
//! rounded once, at the end: casts before and behind say the same. And a quantised weight is dequantised anew for each
//! product that reads it, since four bits and a table are cheaper to keep than a float.

use std::collections::{BTreeMap, BTreeSet};

use reference::graph::{Dtype, Error, Graph, Id, Node, Op};

/// The same graph, in which what the machine does in f32 is done in f32.
///
/// Fails only where the graph itself is not sound.
pub fn widen(graph: &Graph) -> Result<Graph, Error> {
    rewrite(graph, &BTreeSet::new(), |to, node, inputs| match &node.op {
        op if is_short(op) && node.ty.dtype != Dtype::F32 => in_f32(to, node, inputs),
        op => to.add(op.clone(), inputs, Some(node.ty.clone()), &node.scope),
    })
}

/// The same graph, in which every use of a quantised weight has a dequantisation of its own, and views and casts of its
/// own: nothing of it is kept from the forward pass to the backward pass.
///
/// Fails only where the graph itself is not sound.
pub fn split(graph: &Graph) -> Result<Graph, Error> {
    let plain = |to: &mut Graph, node: &Node, inputs: &[Id]| {
        to.add(node.op.clone(), inputs, Some(node.ty.clone()), &node.scope)
    };
    rewrite(graph, &passing(graph), plain)
}

/// What is written anew wherever it is used: quantised weights, and views and casts of them.
pub fn passing(graph: &Graph) -> BTreeSet<Id> {
    let mut passing: BTreeSet<Id> = BTreeSet::new();
    for id in graph.ids() {
        let node = graph.node(id);
        let is_view = matches!(node.op, Op::Reshape | Op::Transpose { .. } | Op::Cast | Op::Detach);
        if matches!(node.op, Op::Dequantize { .. }) || (is_view && passing.contains(&node.inputs[0])) {
            passing.insert(id);
        }
    }
    passing
}

/// A graph that is written anew.
struct Rewrite<'a, W> {
    from: &'a Graph,
    to: Graph,
    place: BTreeMap<Id, Id>,
    write: W,
}

/// Writes a graph anew, node by node; the `passing` ones are written where they are used, and as often.
fn rewrite<W>(from: &Graph, passing: &BTreeSet<Id>, write: W) -> Result<Graph, Error>
where
    W: Fn(&mut Graph, &Node, &[Id]) -> Result<Id, Error>,
{
    let mut to = Graph::new(&from.name);
    from.known().iter().for_each(|(symbol, facts)| to.know(symbol, *facts));
    let mut rewrite = Rewrite { from, to, place: BTreeMap::new(), write };
    for id in from.ids().filter(|id| !passing.contains(id)) {
        let here = rewrite.node(id)?;
        rewrite.place.insert(id, here);
    }
    for (name, id) in from.outputs() {
        let id = rewrite.moved(*id)?;
        rewrite.to.output(name, id);
    }
    rewrite.to.check()?;
    Ok(rewrite.to)
}

impl<W> Rewrite<'_, W>
where
    W: Fn(&mut Graph, &Node, &[Id]) -> Result<Id, Error>,
{
    fn node(&mut self, id: Id) -> Result<Id, Error> {
        let node = self.from.node(id);
        let inputs = node.inputs.iter().map(|input| self.moved(*input)).collect::<Result<Vec<_>, _>>()?;
        (self.write)(&mut self.to, node, &inputs)
    }

    /// Where a node is now, or a copy of it.
    fn moved(&mut self, id: Id) -> Result<Id, Error> {
        match self.place.get(&id) {
            Some(here) => Ok(*here),
            None => self.node(id),
        }
    }
}

/// Whether an operation has one kernel, for f32.
fn is_short(op: &Op) -> bool {
    matches!(op, Op::Matmul | Op::ScatterAdd | Op::Attention(_) | Op::AttentionGrad { .. })
}

fn in_f32(to: &mut Graph, node: &Node, inputs: &[Id]) -> Result<Id, Error> {
    let mut wide = Vec::new();
    for (i, input) in inputs.iter().enumerate() {
        let ty = to.ty(*input).clone();
        let casts = ty.dtype.is_float() && !is_extra(&node.op, i, inputs.len());
        let cast = |to: &mut Graph| to.add(Op::Cast, &[*input], Some(ty.with(Dtype::F32)), &node.scope);
        wide.push(if casts { cast(to)? } else { *input });
    }
    let result = to.add(node.op.clone(), &wide, Some(node.ty.with(Dtype::F32)), &node.scope)?;
    to.add(Op::Cast, &[result], Some(node.ty.clone()), &node.scope)
}

/// Whether an input of an attention belongs to its programs, which read it in its own type.
fn is_extra(op: &Op, input: usize, inputs: usize) -> bool {
    match op {
        Op::Attention(_) => input > 2,
        Op::AttentionGrad { .. } => input > 2 && input + 1 < inputs,
        Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } | Op::Dequantize { .. } => false,
        Op::Cast | Op::Detach | Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select => false,
        Op::Reduce(..) | Op::Matmul | Op::Gather | Op::ScatterAdd | Op::Concat { .. } => false,
        Op::Reshape | Op::Transpose { .. } | Op::Broadcast | Op::Slice { .. } => false,
    }
}
