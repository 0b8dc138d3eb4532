//! Challenge C in the grader: what is tried, what is measured, and what that says about each published line.

mod begun;
mod bench;
mod checks;
mod course;
mod evidence;
mod guards;
mod lengths;
mod losses;
pub(crate) mod model;
mod shown;
mod step_under_test;
pub mod trial;

use challenges::graph::Compile;
use challenges::nf4::Nf4;

pub(crate) use course::COURSE;
use evidence::facts;

use crate::gather::{Child, Effort, Item, Kind};
use crate::table::{self, Measured};

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

/// Measures something; the last argument is the attempt at A that belongs to this one, if there is one.
type Measure = fn(&mut Child, &dyn Compile, Option<&dyn Nf4>);

/// What is measured.
const MEASURED: [Measured<Measure>; 2] = [
    Measured {
        name: "watch/lengths",
        seconds: 120,
        numbers: &COUNTED,
        fresh: true,
        quick: true,
        run: lengths::run,
    },
    Measured {
        name: "bench/step",
        seconds: 120,
        numbers: &TIMED,
        fresh: false,
        quick: true,
        run: |child, attempt, _| bench::run(child, attempt),
    },
];

/// Everything that there is to do, in order.
fn items(effort: &Effort) -> Vec<Item> {
    let checks = checks::names().into_iter().map(|name| Item::new(name, 30));
    let guards = guards::NAMES.iter().map(|name| Item::new(format!("guard/{name}"), 30));
    let [lengths, step] = MEASURED.map(|measured| measured.item());
    let lengths = if effort.model.is_some() { lengths.within(3600) } else { lengths };
    let step = if effort.quick { step.within(30) } else { step };
    checks.chain(guards).chain([lengths, step]).collect()
}

/// The first check that an attempt does not pass, for a challenge that would use it.
pub(crate) fn wrong(attempt: &dyn Compile, seed: u64) -> Option<String> {
    let passes =
        |name: &String| matches!(crate::gather::caught(|| checks::run(name, attempt, seed)), Ok(Ok(0)));
    checks::names().into_iter().find(|name| !passes(name))
}

/// Does one item. `own` is the attempt at A that belongs to this one, if there is one.
fn work(child: &mut Child, attempt: &dyn Compile, own: Option<&dyn Nf4>, name: &str) {
    let (seed, source) = (child.request.effort.seed, child.request.source);
    if let Some(level) = name.strip_prefix("level/") {
        return trial::work(child, attempt, own, level);
    }
    match Kind::of(name) {
        Kind::Check => {
            child.check(name, || checks::run(name, attempt, seed).and_then(|asked| source.own_work(asked)));
        }
        Kind::Guard(guard) => child.guard(guard, || guards::run(guard, attempt, seed)),
        Kind::Number => match table::measured(&MEASURED, name) {
            Ok(run) => run(child, attempt, own),
            Err(unknown) => child.unmeasured(name, &unknown),
        },
    }
}
