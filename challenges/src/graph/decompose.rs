//! Operations that have one kernel, in its terms.
//!
//! The machine multiplies, scatters and attends in f32. What a graph does in f16 or bf16 means sums in f32 that are
//! rounded once, at the end: casts before and behind say the same. And a quantised weight is dequantised anew for each
//! product that reads it, since four bits and a table are cheaper to keep than a float.

use std::collections::BTreeMap;

use reference::graph::{Dtype, Error, Graph, Id, Node, Op};

/// The same graph, in which what the machine does in f32 is done in f32.
///
/// Fails only where the graph itself is not sound.
pub fn widen(graph: &Graph) -> Result<Graph, Error> {
    rewrite(
        graph,
        |_| true,
        |to, node, inputs| match &node.op {
            op if is_short(op) && node.ty.dtype != Dtype::F32 => in_f32(to, node, inputs),
            op => to.add(op.clone(), inputs, Some(node.ty.clone()), &node.scope),
        },
    )
}

/// The same graph, in which every use of a quantised weight has a dequantisation of its own.
///
/// Fails only where the graph itself is not sound.
pub fn split(graph: &Graph) -> Result<Graph, Error> {
    let is_weight = |node: &Node| matches!(node.op, Op::Dequantize { .. });
    rewrite(
        graph,
        |node| !is_weight(node),
        |to, node, inputs| to.add(node.op.clone(), inputs, Some(node.ty.clone()), &node.scope),
    )
}

/// Writes a graph anew, node by node; what `first` does not hold of is written where it is used, and as often.
fn rewrite(
    from: &Graph,
    first: impl Fn(&Node) -> bool,
    write: impl Fn(&mut Graph, &Node, &[Id]) -> Result<Id, Error>,
) -> Result<Graph, Error> {
    let mut to = Graph::new(&from.name);
    from.known().iter().for_each(|(symbol, facts)| to.know(symbol, *facts));
    let mut place: BTreeMap<Id, Id> = BTreeMap::new();
    let moved = |to: &mut Graph, place: &BTreeMap<Id, Id>, id: Id| match place.get(&id) {
        Some(here) => Ok(*here),
        None => {
            let parts: Vec<Id> = from.node(id).inputs.iter().map(|part| place[part]).collect();
            write(to, from.node(id), &parts)
        }
    };
    for id in from.ids().filter(|id| first(from.node(*id))) {
        let inputs = from.node(id).inputs.iter().map(|input| moved(&mut to, &place, *input));
        let inputs: Vec<Id> = inputs.collect::<Result<_, _>>()?;
        place.insert(id, write(&mut to, from.node(id), &inputs)?);
    }
    for (name, id) in from.outputs() {
        let id = moved(&mut to, &place, *id)?;
        to.output(name, id);
    }
    to.check()?;
    Ok(to)
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
        _ => false,
    }
}
