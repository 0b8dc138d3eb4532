//! One graph in two, to be run one after the other: what is computed before something else is known, and the rest.
//!
//! ```text
//! whole        tokens -> hidden .. hidden.grad -> gradients
//! forward      tokens -> hidden, saved
//! backward     saved, hidden.grad -> gradients
//! ```
//!
//! The forward part is what the graph's first output is computed from, as in [`remat`](super::remat); what the rest
//! reads of it is saved between the two, or computed again from what is, by the same policies and the same minimum cut.
//! Views, and what is cheaper to compute from inputs than to keep, are never saved.
//!
//! A saved tensor is an input of the forward part, too, which reads nothing of it: a session that donates then leaves
//! it in the memory of that input, where the backward part finds it.

use std::collections::{BTreeMap, BTreeSet};

use reference::graph::{Error, Graph, Id, Op, Symbol, Type};

use super::remat::{ForwardBackward, RematPolicy, rematerialise};
use crate::ir::sized::Sized;

/// Both parts of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Halves {
    /// From what is known before to the first output and what is saved.
    pub forward: Graph,
    /// From what is saved and everything else to the other outputs.
    pub backward: Graph,
    /// What is saved: names and types.
    pub saved: Vec<(String, Type)>,
}

/// Splits a graph behind its first output. `sizes` decide what is saved and what is computed again; the parts hold for
/// all sizes.
///
/// Fails only where the graph itself is not sound.
pub fn split(graph: &Graph, sizes: &BTreeMap<Symbol, i64>, policy: &RematPolicy) -> Result<Halves, Error> {
    let alive = alive(graph)?;
    let (whole, _) = rematerialise(&Sized::new(&alive, sizes)?, policy)?;
    let sized = Sized::new(&whole, sizes)?;
    let parts = ForwardBackward::new(&sized);
    let kept = parts.kept(&BTreeSet::new());
    let saved: Vec<(Id, String)> =
        kept.iter().enumerate().map(|(number, id)| (*id, format!("saved.{number}"))).collect();
    let typed = saved.iter().map(|(id, name)| (name.clone(), whole.ty(*id).clone()));
    Ok(Halves {
        forward: forward(&whole, &saved)?,
        backward: backward(&whole, &saved.iter().cloned().collect())?,
        saved: typed.collect(),
    })
}

/// The graph without what no output is computed from: nothing is saved for that.
fn alive(graph: &Graph) -> Result<Graph, Error> {
    let needed = graph.ancestors(graph.outputs().iter().map(|(_, id)| *id));
    Ok(graph.rewrite(|to, id| needed.contains(&id).then(|| to.copy(id)).transpose())?.graph)
}

/// What the first output and what is saved are computed from.
fn forward(whole: &Graph, saved: &[(Id, String)]) -> Result<Graph, Error> {
    let mut named = whole.clone();
    named.clear_outputs();
    named.name.push_str("_forward");
    let first = whole.outputs().iter().take(1).cloned();
    for (name, id) in first.chain(saved.iter().map(|(id, name)| (name.clone(), *id))) {
        named.output(name, id);
    }
    let mut part = alive(&named)?;
    for (id, name) in saved {
        part.add(Op::Input { name: name.clone() }, &[], Some(whole.ty(*id).clone()), "")?;
    }
    Ok(part)
}

/// What the other outputs are computed from, as far as it is not saved.
fn backward(whole: &Graph, saved: &BTreeMap<Id, String>) -> Result<Graph, Error> {
    let mut named = whole.clone();
    named.clear_outputs();
    named.name.push_str("_backward");
    for (name, id) in whole.outputs().iter().skip(1) {
        named.output(name.clone(), *id);
    }
    let mut needed: BTreeSet<Id> = BTreeSet::new();
    let mut open: Vec<Id> = named.outputs().iter().map(|(_, id)| *id).collect();
    while let Some(id) = open.pop() {
        if needed.insert(id) && !saved.contains_key(&id) {
            open.extend(&whole.node(id).inputs);
        }
    }
    let written = named.rewrite(|to, id| match saved.get(&id) {
        Some(name) if needed.contains(&id) => {
            let (name, ty) = (name.clone(), to.node(id).ty.clone());
            to.add(Op::Input { name }, &[], Some(ty), "").map(Some)
        }
        _ => needed.contains(&id).then(|| to.copy(id)).transpose(),
    })?;
    Ok(written.graph)
}
