//! Attention that no launch computes, by its definition.
//!
//! A score or mask program that challenge C's step `flex` turns into elementwise operations over blocks runs inside the
//! attention's own launch. Every other attention is opened here into products and a softmax.

use std::collections::BTreeMap;

use reference::graph::{self, Error, Graph, Id, Op, Type};

use crate::contract::Compile;
use crate::fuse::attend::{flex, of};
use crate::ir::sized::Sized;

/// The same graph, where every attention that has no such form is computed by its definition; without passes, each.
///
/// Fails only where the graph itself is not sound.
pub fn open(passes: Option<&dyn Compile>, sized: &Sized) -> Result<Graph, Error> {
    let from = sized.graph;
    let mut to = Graph::new(&from.name);
    from.known().iter().for_each(|(symbol, facts)| to.know(symbol, *facts));
    let mut place: BTreeMap<Id, Id> = BTreeMap::new();
    for id in from.ids() {
        let node = from.node(id);
        let inputs: Vec<Id> = node.inputs.iter().map(|input| place[input]).collect();
        let here = if of(&node.op).is_some() && !passes.is_some_and(|passes| has_form(passes, sized, id)) {
            by_definition(&mut to, &node.op, &inputs)?
        } else {
            to.add(node.op.clone(), &inputs, Some(node.ty.clone()), &node.scope)?
        };
        place.insert(id, here);
    }
    from.outputs().iter().for_each(|(name, id)| to.output(name, place[id]));
    Ok(to)
}

/// Whether an attention, or its gradient, is one launch.
fn has_form(passes: &dyn Compile, sized: &Sized, id: Id) -> bool {
    let op = &sized.graph.node(id).op;
    !matches!(op, Op::AttentionGrad { wrt, .. } if *wrt > 2) && flex(passes, sized, id).is_some()
}

fn by_definition(to: &mut Graph, op: &Op, inputs: &[Id]) -> Result<Id, Error> {
    let types: Vec<Type> = inputs.iter().map(|input| to.ty(*input).clone()).collect();
    let definition = graph::expand(op, &types)?;
    let names: Vec<&str> = definition.inputs().map(|(name, _)| name).collect();
    let given = names.into_iter().zip(inputs.iter().copied()).collect();
    let moved = to.inline(&definition, &given)?;
    Ok(moved[&definition.outputs()[0].1])
}
