//! Reverse-mode differentiation, graph to graph.
//!
//! From an output back to the inputs, every node hands each of its inputs the gradient that its [rule] derives
//! from its own; where several uses meet, gradients are added, the last use first. Nothing is computed here: the result
//! is more nodes in the same graph, to be checked, transformed and run like the others.
//!
//! The sweep differentiates whatever it passes, needed or not: the gradient of a frozen weight is there, and nothing
//! uses it. To take such nodes out is a transformation of its own.
//!
//! Reading: Griewank and Walther, "Evaluating Derivatives" (2008), chapter 3.

#![deny(clippy::wildcard_enum_match_arm)] // a new operation does not compile where it has to be known

mod rules;

use std::collections::BTreeMap;

use crate::graph::{Builder, Dtype, Error, Fault, Graph, Id, Op, Tensor};

pub use rules::rule;

/// Adds the gradient of a single number `loss` (a float with one element) with respect to each node of `wrt`, and
/// returns where they are, in that order. A node that the loss does not depend on has a gradient of zeros.
///
/// Fails where the loss is no single float, a node of `wrt` is not of floats, or one is an ancestor of an operation
/// that no gradient passes though its result depends on it.
pub fn differentiate(graph: &mut Graph, loss: Id, wrt: &[Id]) -> Result<Vec<Id>, Error> {
    let ty = graph.ty(loss).clone();
    if !ty.shape.iter().all(crate::graph::Dim::is_one) {
        let reason = format!("the loss has the shape of {ty}, and no gradient is given for it");
        return Err(Fault::NoGradient { reason }.of(&format!("%{}", loss.0)));
    }
    let seed = graph.push_as(Op::Constant { value: 1.0 }, &[], ty)?;
    pull_back(graph, loss, seed, wrt)
}

/// [`differentiate`] for any output, given the gradient `seed` of something with respect to it. Where it fails, the
/// graph is as it was.
pub fn pull_back(graph: &mut Graph, output: Id, seed: Id, wrt: &[Id]) -> Result<Vec<Id>, Error> {
    check_differentiable(graph, output, wrt)?;
    let builder = Builder::onto(graph.clone());
    let gradients = sweep(&builder, output, seed, wrt)?;
    *graph = builder.finish()?;
    Ok(gradients)
}

/// That what is asked for is a float, and is no ancestor of a frozen weight.
fn check_differentiable(graph: &Graph, output: Id, wrt: &[Id]) -> Result<(), Error> {
    let refuse = |id: &Id, reason: &str| {
        Err(Fault::NoGradient { reason: reason.to_owned() }.at(id.0 as usize, &graph.node(*id).op))
    };
    let frozen = |id: &Id| matches!(graph.node(*id).op, Op::Dequantize { .. });
    let ancestors = graph.ancestors(graph.ancestors([output]).into_iter().filter(frozen));
    for id in wrt.iter().chain([&output]) {
        if !graph.ty(*id).dtype.is_float() {
            return refuse(id, "it is not of floats");
        }
    }
    match wrt.iter().find(|id| ancestors.contains(id) && !frozen(id)) {
        Some(id) => refuse(id, "a quantised weight that is made of it is frozen"),
        None => Ok(()),
    }
}

/// Backwards from the output; the gradients of `wrt`.
fn sweep(builder: &Builder, output: Id, seed: Id, wrt: &[Id]) -> Result<Vec<Id>, Error> {
    let mut gradients: BTreeMap<Id, Tensor> = BTreeMap::from([(output, builder.tensor(seed))]);
    for id in (0..=output.0).rev().map(Id) {
        let Some(gradient) = gradients.get(&id).cloned() else { continue };
        let node = builder.node(id);
        let inputs: Vec<Tensor> = node.inputs.iter().map(|input| builder.tensor(*input)).collect();
        let dot = if node.scope.is_empty() { "" } else { "." };
        let scope = format!("grad{dot}{}", node.scope);
        let of_inputs =
            builder.tape().within(&scope, || rule(&node.op, &inputs, &builder.tensor(id), &gradient))?;
        for (input, part) in node.inputs.iter().zip(of_inputs) {
            let Some(part) = part else { continue };
            let sum = gradients.get(input).map(|so_far| so_far + &part);
            gradients.insert(*input, sum.unwrap_or(part));
        }
    }
    let zeros = |id: &Id| builder.tensor(*id).like(0.0);
    let of = |id: &Id| gradients.get(id).cloned().unwrap_or_else(|| zeros(id));
    wrt.iter().map(|id| builder.id(&of(id))).collect()
}

/// Whether a gradient can arrive at a tensor at all.
fn takes_gradient(tensor: &Tensor) -> bool {
    tensor.ty().dtype != Dtype::U8 && tensor.ty().dtype.is_float()
}
