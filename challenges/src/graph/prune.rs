//! A graph without what nobody needs.
//!
//! What no output depends on is gone: above all the gradients of frozen weights, which differentiation writes down like
//! all others. What is computed twice is computed once. What does nothing - a reshape to the same shape, a cast to the
//! same type, a broadcast that repeats nothing - is skipped. Only one thing is done twice on purpose: a quantised weight
//! is dequantised anew for each product that reads it, since four bits and a table are cheaper to keep than a float.

use std::collections::{BTreeMap, HashMap};

use reference::graph::{Dtype, Error, Graph, Id, Node, Op};

/// The same graph, pruned.
///
/// Fails only where the graph itself is not sound.
pub fn prune(graph: &Graph) -> Result<Graph, Error> {
    let slim = rebuild(graph, Rule::Once)?;
    let open = rebuild(&widen(&slim)?, Rule::Once)?;
    rebuild(&open, Rule::DequantizeForEach)
}

/// Whether an operation has one kernel, for f32.
fn is_short(op: &Op) -> bool {
    matches!(op, Op::Matmul | Op::ScatterAdd | Op::Attention(_) | Op::AttentionGrad { .. })
}

/// What a rebuilt graph does with nodes that compute the same.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// There is one of each.
    Once,
    /// There is one of each, but every user of a dequantised weight has its own.
    DequantizeForEach,
}

/// A graph that is written anew, node by node.
struct Rebuilt<'a> {
    from: &'a Graph,
    to: Graph,
    place: BTreeMap<Id, Id>,
    seen: HashMap<String, Id>,
}

fn rebuild(graph: &Graph, rule: Rule) -> Result<Graph, Error> {
    let needed = graph.ancestors(graph.outputs().iter().map(|(_, id)| *id));
    let mut to = Graph::new(&graph.name);
    graph.known().iter().for_each(|(symbol, facts)| to.know(symbol, *facts));
    let mut rebuilt = Rebuilt { from: graph, to, place: BTreeMap::new(), seen: HashMap::new() };
    for id in graph.ids() {
        let node = graph.node(id);
        let is_weight = rule == Rule::DequantizeForEach && matches!(node.op, Op::Dequantize { .. });
        let is_input = matches!(node.op, Op::Input { .. }); // inputs stay, so that callers may give them
        if (needed.contains(&id) || is_input) && !is_weight {
            let inputs =
                node.inputs.iter().map(|input| rebuilt.input(*input)).collect::<Result<Vec<_>, _>>()?;
            let here = rebuilt.add(node, &inputs)?;
            rebuilt.place.insert(id, here);
        }
    }
    for (name, id) in graph.outputs() {
        let id = rebuilt.input(*id)?;
        rebuilt.to.output(name, id);
    }
    rebuilt.to.check()?;
    Ok(rebuilt.to)
}

impl Rebuilt<'_> {
    /// Where a node is now; a weight that was left out is dequantised here and now.
    fn input(&mut self, id: Id) -> Result<Id, Error> {
        if let Some(place) = self.place.get(&id) {
            return Ok(*place);
        }
        let node = self.from.node(id);
        let inputs: Vec<Id> = node.inputs.iter().map(|input| self.place[input]).collect();
        self.to.add(node.op.clone(), &inputs, Some(node.ty.clone()), &node.scope)
    }

    /// A node, or the earlier one that computes the same, or what it only passes on.
    fn add(&mut self, node: &Node, inputs: &[Id]) -> Result<Id, Error> {
        if let Some(same) = self.passes_on(node, inputs) {
            return Ok(same);
        }
        let key = format!("{:?} {inputs:?} {}", node.op, node.ty);
        if let Some(same) = self.seen.get(&key) {
            return Ok(*same);
        }
        let here = self.to.add(node.op.clone(), inputs, Some(node.ty.clone()), &node.scope)?;
        self.seen.insert(key, here);
        Ok(here)
    }

    /// The input, where a node gives nothing else.
    fn passes_on(&self, node: &Node, inputs: &[Id]) -> Option<Id> {
        let same = |id: &Id| *self.to.ty(*id) == node.ty;
        let idle = match &node.op {
            Op::Detach => true,
            Op::Reshape | Op::Broadcast | Op::Cast | Op::Slice { .. } => same(&inputs[0]),
            Op::Transpose { order } => order.iter().copied().eq(0..order.len()),
            Op::Concat { .. } => inputs.len() == 1,
            _ => false,
        };
        idle.then(|| inputs[0])
    }
}

/// Attention, products and sums of short floats in f32, rounded once, which is what they mean.
fn widen(graph: &Graph) -> Result<Graph, Error> {
    let mut to = Graph::new(&graph.name);
    graph.known().iter().for_each(|(symbol, facts)| to.know(symbol, *facts));
    let mut place: BTreeMap<Id, Id> = BTreeMap::new();
    for id in graph.ids() {
        let node = graph.node(id);
        let inputs: Vec<Id> = node.inputs.iter().map(|input| place[input]).collect();
        let here = match &node.op {
            op if is_short(op) && node.ty.dtype != Dtype::F32 => in_f32(&mut to, node, &inputs)?,
            op => to.add(op.clone(), &inputs, Some(node.ty.clone()), &node.scope)?,
        };
        place.insert(id, here);
    }
    graph.outputs().iter().for_each(|(name, id)| to.output(name, place[id]));
    Ok(to)
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
