//! Challenge C in the grader: what is tried, what is measured, and what that says about each published line.

mod alone;
mod begun;
mod bench;
mod capture;
mod checks;
mod compare;
mod evidence;
mod guards;
mod lengths;
mod losses;
pub(crate) mod model;
mod part_a;
mod shown;
pub mod trial;

use challenges::graph::Compile;
use challenges::nf4::Nf4;

pub(crate) use compare::{difference, narrowed, sizes, told};
pub(crate) use evidence::facts;
pub(crate) use part_a::look as dequantizer_in_a_graph;

use crate::gather::{Child, Effort, Item};

/// Bytes that a child of this challenge may hold: the timed step operation by operation, twice.
pub(crate) const MEMORY_LIMIT: usize = 3 << 30;

/// What `watch/lengths` counts.
const COUNTED: [&str; 26] = [
    "graph.answers",
    "graph.attention_layers",
    "graph.breaks",
    "graph.buckets",
    "graph.captures",
    "graph.compilations",
    "graph.dequantized",
    "graph.dequantizer_calls",
    "graph.flex_launches",
    "graph.hidden_compilations",
    "graph.hits",
    "graph.launches",
    "graph.layers",
    "graph.lengths",
    "graph.lengths_right",
    "graph.loss_parts",
    "graph.mlp_layers",
    "graph.nodes",
    "graph.norm_layers",
    "graph.part_a",
    "graph.products",
    "graph.programs",
    "graph.questions",
    "graph.trials",
    "graph.tuning_us",
    "graph.wrong",
];

/// What `bench/step` measures.
const TIMED: [&str; 12] = [
    "graph.arena",
    "graph.compile",
    "graph.longest.*",
    "graph.losses.*",
    "graph.op_by_op.*",
    "graph.over_op_by_op",
    "graph.pays_after",
    "graph.plan.*",
    "graph.step",
    "graph.step_launches",
    "graph.timeline.*",
    "graph.tuning",
];

/// Everything that there is to do, in order.
pub(crate) fn items(effort: &Effort) -> Vec<Item> {
    let checks = checks::names().into_iter().map(|name| Item::new(name, 30));
    let guards = guards::NAMES.iter().map(|name| Item::new(format!("guard/{name}"), 30));
    let seconds = if effort.model.is_some() { 3600 } else { 120 };
    let lengths = Item::new("watch/lengths", seconds).measuring(&COUNTED).fresh();
    let bench = Item::new("bench/step", if effort.quick { 30 } else { 90 }).measuring(&TIMED);
    checks.chain(guards).chain([lengths, bench]).collect()
}

/// The first check that an attempt does not pass, for a challenge that would use it.
pub(crate) fn wrong(attempt: &dyn Compile, seed: u64) -> Option<String> {
    let passes =
        |name: &String| matches!(crate::gather::caught(|| checks::run(name, attempt, seed)), Ok(Ok(0)));
    checks::names().into_iter().find(|name| !passes(name))
}

/// Does one item. `own` is the attempt at A that belongs to this one, if there is one.
pub(crate) fn work(child: &mut Child, attempt: &dyn Compile, own: Option<&dyn Nf4>, name: &str) {
    let (seed, source) = (child.request.effort.seed, child.request.source);
    match name.split_once('/') {
        Some(("guard", guard)) => child.guard(guard, || guards::run(guard, attempt, seed)),
        Some(("watch", _)) => lengths::run(child, attempt, own),
        Some(("bench", _)) => bench::run(child, attempt),
        Some(("level", level)) => trial::work(child, attempt, own, level),
        _ => child.check(name, || checks::run(name, attempt, seed).and_then(|asked| source.own_work(asked))),
    }
}
