//! The tasks of a piece: parts of its graph that run at different times.
//!
//! ```text
//! Evaluate             x -> y, without dropout
//! Forward        F     x -> y
//! Keep           F     x -> y, kept                           what backward reads stays
//! Recompute      R     x -> kept                              or is computed again
//! Backward       RBW   x, stream.grad -> stream.grad, sums    all of it at once
//! BackwardKept   BW    kept, stream.grad -> stream.grad, sums
//! InputGrad      B     kept, y.grad -> stream.grad, saved     the gradient of x alone
//! WeightGrad     W     kept, saved, y.grad -> sums            that of what is trained
//! Dequantize     D     whole parts -> dense parts             what all of them but W read instead
//! ```
//!
//! A loss in chunks is computed between tasks of the head:
//!
//! ```text
//! States               x -> hidden
//! OutputWeight         whole parts -> weight
//!                      hidden, weight -> hidden.grad, weight.grad    challenge E's runner
//! OutputGrad           weight.grad -> sums                    if the output layer is trained
//! StatesGrad           x, hidden.grad -> stream.grad, sums
//! ```
//!
//! Each is a part of the piece's training graph, cut where [`split`] cuts. A tensor that a task writes for a later one is
//! an input of it, too, of which it reads nothing: a session that donates leaves it in the memory of that input.
//!
//! Letters are those of [`reference::schedule`].

use std::collections::{BTreeMap, BTreeSet};

use compiler::rewrite::remat::RematPolicy;
use compiler::rewrite::split::{Halves, split};
use reference::graph::{Builder, Error, Graph, Id, Op, Symbol, Tensor};
use reference::llama::Piece;
use reference::llama::train::STREAM_GRAD;

use super::programs::{GRADIENT, NEXT, PieceGraphs};

/// A part of a piece's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Task {
    /// To `y`, or to what is logged, without dropout.
    Evaluate,
    /// To `y`.
    Forward,
    /// To `y` and what backward reads.
    Keep,
    /// To what backward reads.
    Recompute,
    /// To all gradients, from `x`.
    Backward,
    /// To all gradients, from what is kept.
    BackwardKept,
    /// To the gradient of `x`, from what is kept.
    InputGrad,
    /// To the gradients of what is trained.
    WeightGrad,
    /// From parts as they are stored to such that are read.
    Dequantize,
    /// From the head's `x` to what the output layer is given.
    States,
    /// To the weight of the output layer.
    OutputWeight,
    /// From the gradient of that weight to the gradients of what is trained.
    OutputGrad,
    /// From the gradient of what the output layer is given to all other gradients of the head.
    StatesGrad,
}

impl Task {
    /// Whether the task reads the whole parts that a task before it has gathered.
    pub fn follows(self) -> bool {
        matches!(self, Task::WeightGrad | Task::OutputWeight | Task::OutputGrad | Task::StatesGrad)
    }
}

/// The states that the output layer reads.
pub const HIDDEN: &str = "hidden";
/// The weight of the output layer.
pub const WEIGHT: &str = "weight";

/// The gradient of `y`, where it is read and not replaced by that of `x`.
pub const Y_GRAD: &str = "y.grad";
/// The prefix of tensors that a forward pass keeps for its backward pass.
pub const KEPT: &str = "kept.";
/// The prefix of tensors that the gradient of `x` keeps for the gradients of trained parameters.
pub const SAVED: &str = "saved.";
/// A part after [`Task::Dequantize`].
pub const DENSE: &str = "dense.";

/// A graph that also gathers the parts of a piece, under names of their own, after everything else: a plan that may have
/// operations in flight starts them first.
///
/// # Errors
/// If it cannot be written.
pub fn with_gather(graph: &Graph, gather: &Graph) -> Result<Graph, Error> {
    let builder = Builder::onto(graph.clone());
    let tape = builder.tape();
    let input = |(name, id): (&str, Id)| {
        let ty = gather.ty(id);
        tape.input(&format!("{NEXT}{name}"), ty.dtype, &ty.shape)
    };
    let inputs: Vec<Tensor> = gather.inputs().map(input).collect();
    let outputs = tape.inline(gather, &inputs);
    for ((name, _), output) in gather.outputs().iter().zip(outputs) {
        tape.output(&format!("{NEXT}{name}"), &output);
    }
    builder.finish()
}

/// The graph of a task; `None` where there is nothing to do. With `is_dense`, it reads what [`Task::Dequantize`] wrote.
///
/// # Errors
/// If a graph cannot be written.
pub fn graph(graphs: &PieceGraphs, task: Task, is_dense: bool) -> Result<Option<Graph>, Error> {
    let parts = if task == Task::Dequantize { Some(dequantize(graphs)?) } else { part(graphs, task)? };
    let Some(part) = parts.filter(|part| !part.outputs().is_empty()) else { return Ok(None) };
    let part = if is_dense { dense(&part, &gathered(graphs))? } else { part };
    donating(part).map(Some)
}

fn part(graphs: &PieceGraphs, task: Task) -> Result<Option<Graph>, Error> {
    let has_loss = graphs.piece == Piece::Head;
    let chunked = || graphs.chunked.as_ref().expect("only the head has these tasks");
    Ok(Some(match task {
        Task::Evaluate => graphs.evaluation.clone(),
        Task::Forward => graphs.forward.clone(),
        Task::Backward if has_loss => graphs.training.clone(),
        Task::Backward => only(&graphs.training, |name| name != "y")?,
        Task::Keep => halves(&graphs.training)?.forward,
        Task::Recompute => only(&halves(&graphs.training)?.forward, |name| name != "y")?,
        Task::BackwardKept => halves(&graphs.training)?.backward,
        Task::InputGrad | Task::WeightGrad => return gradients(&halves(&graphs.training)?.backward, task),
        Task::Dequantize => return Ok(None),
        Task::States => chunked().states.clone(),
        Task::OutputWeight => chunked().weight.clone(),
        Task::OutputGrad => return Ok(chunked().weight_grad.clone()),
        Task::StatesGrad => chunked().states_grad.clone(),
    }))
}

/// A training graph, cut behind `y`.
fn halves(training: &Graph) -> Result<Halves, Error> {
    let Halves { forward, backward, saved } = split(training, &usual(training), &RematPolicy::cheap())?;
    let name = |name: &str| name.strip_prefix(SAVED).map(|number| format!("{KEPT}{number}"));
    Ok(Halves { forward: renamed(&forward, name)?, backward: renamed(&backward, name)?, saved })
}

/// A backward, cut behind the gradient of x.
fn gradients(backward: &Graph, task: Task) -> Result<Option<Graph>, Error> {
    let backward = renamed_inputs(backward, |name| (name == STREAM_GRAD).then(|| Y_GRAD.to_owned()))?;
    let has_first = backward.outputs().first().is_some_and(|(name, _)| name == STREAM_GRAD);
    if !has_first {
        return Ok((task == Task::WeightGrad).then_some(backward));
    }
    let Halves { forward, backward, .. } = split(&backward, &usual(&backward), &RematPolicy::none())?;
    Ok(Some(if task == Task::InputGrad { forward } else { backward }))
}

/// Sizes for which a cut is chosen: all that is kept grows with the tokens alike.
fn usual(graph: &Graph) -> BTreeMap<Symbol, i64> {
    let size = |symbol: &Symbol| {
        let most = graph.known().get(symbol).map_or(1, |facts| facts.max);
        if &**symbol == "T" { most.min(1024) } else { 1 }
    };
    graph.known().keys().map(|symbol| (symbol.clone(), size(symbol))).collect()
}

/// A graph with some of its outputs, and what they are computed from.
fn only(graph: &Graph, is_kept: impl Fn(&str) -> bool) -> Result<Graph, Error> {
    let mut named = graph.clone();
    named.clear_outputs();
    for (name, id) in graph.outputs().iter().filter(|(name, _)| is_kept(name)) {
        named.output(name.clone(), *id);
    }
    let needed = named.ancestors(named.outputs().iter().map(|(_, id)| *id));
    Ok(named.rewrite(|to, id| needed.contains(&id).then(|| to.copy(id)).transpose())?.graph)
}

/// A graph with other names for some inputs.
fn renamed_inputs(graph: &Graph, name: impl Fn(&str) -> Option<String>) -> Result<Graph, Error> {
    let written = graph.rewrite(|to, id| {
        let node = to.node(id);
        let Op::Input { name: old } = &node.op else { return to.copy(id).map(Some) };
        let new = name(old).unwrap_or_else(|| old.clone());
        to.add(Op::Input { name: new }, &[], Some(node.ty.clone()), &node.scope).map(Some)
    })?;
    Ok(written.graph)
}

/// A graph with other names for some inputs and outputs.
fn renamed(graph: &Graph, name: impl Fn(&str) -> Option<String>) -> Result<Graph, Error> {
    let mut graph = renamed_inputs(graph, &name)?;
    let outputs = graph.outputs().to_vec();
    graph.clear_outputs();
    for (old, id) in outputs {
        graph.output(name(&old).unwrap_or(old), id);
    }
    Ok(graph)
}

/// A graph each of whose outputs is an input as well.
fn donating(graph: Graph) -> Result<Graph, Error> {
    let is_tensor = |name: &str| {
        [STREAM_GRAD, "y", HIDDEN, WEIGHT].contains(&name)
            || [KEPT, SAVED, DENSE, GRADIENT].iter().any(|prefix| name.starts_with(prefix))
    };
    let mut graph = graph;
    for (name, id) in graph.outputs().to_vec() {
        if is_tensor(&name) && graph.find_input(&name).is_none() {
            let ty = graph.ty(id).clone();
            graph.push_as(Op::Input { name }, &[], ty)?;
        }
    }
    Ok(graph)
}

/// The parts of a piece that are gathered.
fn gathered(graphs: &PieceGraphs) -> BTreeSet<String> {
    let gather = graphs.gather.iter().flat_map(Graph::outputs);
    gather.map(|(name, _)| name.clone()).collect()
}

/// The name of a quantised weight: that of its codes.
fn weight(graph: &Graph, dequantize: Id) -> Option<&str> {
    let codes = graph.node(*graph.node(dequantize).inputs.first()?);
    if let Op::Input { name } = &codes.op { Some(name) } else { None }
}

/// A graph that reads dense parts where it gathered or dequantised.
fn dense(graph: &Graph, gathered: &BTreeSet<String>) -> Result<Graph, Error> {
    let written = graph.rewrite(|to, id| {
        let node = to.node(id);
        let Some(name) = dense_name(graph, gathered, id) else { return to.copy(id).map(Some) };
        if let Some(found) = to.to().find_input(&name).filter(|found| to.to().ty(*found) == &node.ty) {
            return Ok(Some(found));
        }
        to.add(Op::Input { name }, &[], Some(node.ty.clone()), &node.scope).map(Some)
    })?;
    only(&written.graph, |_| true) // without the parts that nothing reads any more
}

/// The name of what a node is after [`Task::Dequantize`]; `None` if that leaves it as it is.
fn dense_name(graph: &Graph, gathered: &BTreeSet<String>, id: Id) -> Option<String> {
    let op = &graph.node(id).op;
    let name = if matches!(op, Op::Dequantize { .. }) {
        weight(graph, id)?
    } else if let Op::Input { name } = op {
        Some(name).filter(|name| gathered.contains(*name) && !is_read_by_dequantize(graph, id))?
    } else {
        return None;
    };
    Some(format!("{DENSE}{name}"))
}

fn is_read_by_dequantize(graph: &Graph, part: Id) -> bool {
    let readers = graph.ids().filter(|id| graph.node(*id).inputs.contains(&part));
    readers.into_iter().any(|id| matches!(graph.node(id).op, Op::Dequantize { .. }))
}

/// From parts as they are stored to such that are read.
fn dequantize(graphs: &PieceGraphs) -> Result<Graph, Error> {
    let (graph, gathered) = (&graphs.forward, gathered(graphs));
    let mut from = graph.clone();
    from.clear_outputs();
    "dequantize".clone_into(&mut from.name);
    let builder = Builder::onto(from);
    for id in graph.ids() {
        let Some(name) = dense_name(graph, &gathered, id) else { continue };
        let part = builder.tensor(id);
        let is_input = matches!(graph.node(id).op, Op::Input { .. });
        builder.tape().output(&name, &if is_input { part.detach() } else { part });
    }
    only(&builder.finish()?, |_| true)
}
