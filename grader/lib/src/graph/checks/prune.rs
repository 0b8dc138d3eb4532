//! C.3: what a graph does not need.

use challenges::graph::{Compile, Solution};
use compiler::rewrite::collective;
use reference::grad;
use reference::graph::interpret::Values;
use reference::graph::ranks::{Mesh, interpret_ranks};
use reference::graph::{Dtype, Graph, Group, Id, Op, Tape, interpret};

use super::{Check, Rows, Trial, graph, input, values};
use crate::compare::{describe, narrowed, unequal};
use crate::graph::model::{Model, TINY};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("dead-gradients", |trial| prune(trial, &with_dead_gradients()?)),
    ("computed-twice", |trial| prune(trial, &graph("twice", computed_twice)?)),
    ("does-nothing", |trial| prune(trial, &graph("idle", does_nothing)?)),
    ("inputs-stay", |trial| prune(trial, &graph("unused", unused_input)?)),
    ("an-output-that-is-an-input", |trial| prune(trial, &graph("through", passed_through)?)),
    ("random-masks", |trial| prune(trial, &graph("masks", random_masks)?)),
    ("collectives", collectives),
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

/// Two masks of the same stream, which are one, and others of the same key and place, which are not.
fn random_masks(tape: &Tape) {
    let (x, key) = (input(tape, "x", &[8, 16]), tape.input("key", Dtype::I32, [2]));
    let other = tape.input("other", Dtype::I32, [2]);
    let drawn = [("y", &key, 0.5, 1), ("again", &key, 0.5, 1), ("stream", &key, 0.5, 2)];
    for (name, key, keep, stream) in
        drawn.into_iter().chain([("likely", &key, 0.75, 1), ("key", &other, 0.5, 1)])
    {
        tape.output(name, &x.dropout(key, keep, stream));
    }
}

/// Two that look alike, two that are named in another order than they are done in, and one that no output needs.
fn between_ranks(tape: &Tape) {
    let (x, group) = (input(tape, "x", &[4, 6]), Group::new("dp", RANKS));
    let [sum, again] = [x.exp().all_reduce(&group), x.exp().all_reduce(&group)];
    let (rows, columns) = (x.all_gather(0, &group), x.all_gather(1, &group));
    _ = x.reduce_scatter(0, &group);
    tape.output("columns", &columns);
    tape.output("rows", &rows);
    tape.output("y", &(&sum + &again));
}

const RANKS: usize = 2;

/// That collectives stay, each as often as it is written and in its order, and ranks have the results that they had.
fn collectives(trial: &mut Trial<'_>) -> Result<(), String> {
    let before = &graph(trial.case, between_ranks)?;
    let after = &trial.passes.prune(before).map_err(describe)?;
    after.check().map_err(describe)?;
    collective::kept(before, after)?;
    slim(before, after)?;
    let mesh = Mesh::line("dp", RANKS).map_err(describe)?;
    let given: [_; RANKS] = std::array::from_fn(|_| narrowed(&values(before, &mut trial.random, 2)));
    let [want, got] = [before, after].map(|graph| interpret_ranks(&[graph], &mesh, &given));
    let (want, got) = (want.map_err(describe)?, got.map_err(describe)?);
    let differs = want.iter().zip(&got).enumerate();
    let mut differs = differs.filter_map(|(rank, (want, got))| Some((rank, unequal(before, want, got)?)));
    differs.next().map_or(Ok(()), |(rank, message)| Err(format!("rank {rank}: {message}")))
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
        let stays = matches!(graph.node(id).op, Op::Input { .. } | Op::Collective { .. });
        let other = (0..id.0).map(Id).find(|other| !stays && graph.node(*other).is(graph.node(id)))?;
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
