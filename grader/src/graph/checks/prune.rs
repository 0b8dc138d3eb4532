//! C.3: what a graph does not need.

use challenges::graph::{Compile, Solution};
use reference::grad;
use reference::graph::interpret::Values;
use reference::graph::{Graph, Id, Op, Tape, interpret};

use super::{Check, Rows, Trial, graph, input, values};
use crate::graph::compare::{describe, narrowed, unequal};
use crate::graph::model::{Model, TINY};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("dead-gradients", |trial| prune(trial, &with_dead_gradients()?)),
    ("computed-twice", |trial| prune(trial, &graph("twice", computed_twice)?)),
    ("does-nothing", |trial| prune(trial, &graph("idle", does_nothing)?)),
    ("inputs-stay", |trial| prune(trial, &graph("unused", unused_input)?)),
    ("an-output-that-is-an-input", |trial| prune(trial, &graph("through", passed_through)?)),
    ("the-same-results", |trial| same_results(trial.passes)),
];

fn computed_twice(tape: &Tape) {
    let x = input(tape, "x", &[4, 6]);
    let (a, b) = (&x.exp() * &x.sigmoid(), &x.exp() * &x.sigmoid());
    tape.output("y", &(&a + &b));
    for (name, zero) in [("above", 0.0), ("below", -0.0)] {
        tape.output(name, &(&a / &a.like(zero))); // two zeros, which are equal, and not the same
    }
}

fn does_nothing(tape: &Tape) {
    let x = input(tape, "x", &[4, 6]);
    let same = tape.apply(Op::Reshape, &[&x], Some(x.ty().clone()));
    let same = tape.apply(Op::Cast, &[&same], Some(x.ty().clone()));
    let same = tape.apply(Op::Broadcast, &[&same], Some(x.ty().clone()));
    let same = same.transpose(&[0, 1]).slice(1, 0, 6).detach();
    tape.output("y", &tape.concat(&[&same], 0).exp());
}

fn unused_input(tape: &Tape) {
    let x = input(tape, "x", &[4]);
    _ = input(tape, "unused", &[5, 5]).exp();
    tape.output("y", &x.exp());
}

fn passed_through(tape: &Tape) {
    let x = input(tape, "x", &[4]);
    tape.output("x2", &x.detach());
    tape.output("x3", &x);
    tape.output("y", &x.exp());
}

fn prune(trial: &Trial<'_>, before: &Graph) -> Result<(), String> {
    let after = trial.passes.prune(before).map_err(describe)?;
    slim(before, &after)?;
    let narrow = narrowed(&values(before, &mut Random::named(1, trial.case), 2));
    means_the_same(before, &after, &narrow)
}

/// That two graphs have the same results, to the bit.
fn means_the_same(before: &Graph, after: &Graph, values: &Values<f32>) -> Result<(), String> {
    let (want, got) = (interpret(before, values), interpret(after, values));
    unequal(before, &want.map_err(describe)?, &got.map_err(describe)?).map_or(Ok(()), Err)
}

fn with_dead_gradients() -> Result<Graph, String> {
    let mut made = graph("frozen", |tape| {
        let x = input(tape, "x", &[8, 16]);
        let (w, a) = (input(tape, "frozen", &[16, 16]), input(tape, "trained", &[16, 16]));
        let y = &x.matmul(&w).sigmoid() + &x.matmul(&a);
        tape.output("loss", &(&y * &y).total());
    })?;
    let loss = made.outputs()[0].1;
    let inputs: Vec<Id> = made.inputs().map(|(_, id)| id).collect();
    let gradients = grad::differentiate(&mut made, loss, &inputs).map_err(describe)?;
    made.output("grad.trained", gradients[2]);
    Ok(made)
}

/// That nothing is lost, and nothing superfluous left.
fn slim(before: &Graph, after: &Graph) -> Result<(), String> {
    after.check().map_err(describe)?;
    let names = |graph: &Graph| graph.inputs().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    if names(before) != names(after) {
        return Err(format!("inputs are {:?}, they were {:?}", names(after), names(before)));
    }
    let outputs = |graph: &Graph| graph.outputs().iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    if outputs(before) != outputs(after) {
        return Err(format!("outputs are {:?}, they were {:?}", outputs(after), outputs(before)));
    }
    let needed = after.ancestors(after.outputs().iter().map(|(_, id)| *id));
    let is_input = |id: &Id| matches!(after.node(*id).op, Op::Input { .. });
    if let Some(dead) = after.ids().find(|id| !needed.contains(id) && !is_input(id)) {
        return Err(format!("no output needs {}", after.line(dead)));
    }
    let best = Solution.prune(before).map_err(describe)?;
    if after.nodes().len() > best.nodes().len() {
        let (got, want) = (after.nodes().len(), best.nodes().len());
        let left = format!("expected {want} nodes of {}, found {got}", before.nodes().len());
        return Err(format!("{left}{}", superfluous(after)));
    }
    Ok(())
}

/// A node of a graph that is superfluous: another one computes the same, or it does nothing.
fn superfluous(graph: &Graph) -> String {
    let twin = graph.ids().find_map(|id| {
        let is_input = matches!(graph.node(id).op, Op::Input { .. });
        let other = (0..id.0).map(Id).find(|other| !is_input && graph.node(*other).is(graph.node(id)))?;
        Some(format!("; %{} is what %{} is:\n{}", id.0, other.0, graph.line(id)))
    });
    let idle = || {
        let id = graph.ids().find(|id| {
            let node = graph.node(*id);
            let idle =
                matches!(node.op, Op::Cast | Op::Reshape | Op::Broadcast | Op::Slice { .. } | Op::Detach);
            idle && *graph.ty(node.inputs[0]) == node.ty
        })?;
        Some(format!("; this one does nothing:\n{}", graph.line(id)))
    };
    twin.or_else(idle).unwrap_or_default()
}

/// That a whole training step means what it meant.
fn same_results(attempt: &dyn Compile) -> Result<(), String> {
    let model = Model::drawn(TINY, 1)?;
    let step = Model::step(model.spec.training_loss().map_err(describe)?)?;
    let after = attempt.prune(&step).map_err(describe)?;
    slim(&step, &after)?;
    let mut values = model.fixed(&step);
    values.append(&mut model.tokens(5, &mut Random::new(1)));
    means_the_same(&step, &after, &values)
}
