//! Challenge C in the grader: what is tried, what is measured, and what that says about each published line.

mod begun;
mod bench;
mod checks;
mod counting;
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

pub(crate) use course::{COURSE, ON_A_CARD};
use evidence::facts;
use step_under_test::step_under_test;

use crate::course::Backend;
use crate::device::Processor;
use crate::gather::{Child, Effort, Item, Kind};
use crate::step_under_test::EVERY;
use crate::table::{self, Measured};

/// What `watch/lengths` counts.
const COUNTED: [&str; 27] = [
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
    "graph.parameters",
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
type Measure = fn(&mut Child, Processor, &dyn Compile, Option<&dyn Nf4>);

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
        run: |child, on, attempt, _| bench::run(child, on, attempt),
    },
];

/// Seconds that a card may take for what it compiles as it goes: its kernels are compiled on the CPU.
const COMPILING: u64 = 300;

/// Everything that there is to do, in order.
fn items(effort: &Effort, backend: Backend) -> Vec<Item> {
    let compiling = if backend == Backend::Cuda { COMPILING } else { 0 };
    let checks = checks::names().into_iter().map(|name| Item::new(name, 30 + compiling));
    let guards = guards::NAMES.iter().map(|name| Item::new(format!("guard/{name}"), 30 + compiling));
    let [lengths, step] = MEASURED.map(|measured| measured.item());
    let longer = |item: Item, seconds: u64| item.within(seconds + compiling);
    let lengths = longer(lengths, if effort.model.is_some() { 3600 } else { 120 });
    let step = longer(step, if effort.quick { 30 } else { 120 });
    checks.chain(guards).chain([lengths, step]).collect()
}

/// The first check that an attempt does not pass, for a challenge that would use it.
pub(crate) fn wrong(attempt: &dyn Compile, processor: Processor, seed: u64) -> Option<String> {
    let device = processor.checked();
    let check = |name: &String| checks::run(name, attempt, &*device, seed);
    let passes = |name: &String| matches!(crate::gather::caught(|| check(name)), Ok(Ok(0)));
    checks::names().into_iter().find(|name| !passes(name))
}

/// Does one item. `own` is the attempt at A that belongs to this one, if there is one.
fn work(child: &mut Child, processor: Processor, attempt: &dyn Compile, own: Option<&dyn Nf4>, name: &str) {
    let (seed, source) = (child.request.effort.seed, child.request.source);
    if let Some(level) = name.strip_prefix("level/") {
        return trial::work(child, attempt, own, level);
    }
    let watched = step_under_test(EVERY, attempt);
    let attempt = &watched;
    let device = processor.checked();
    match Kind::of(name) {
        Kind::Check => {
            let check = || checks::run(name, attempt, &*device, seed);
            child.check(name, || check().and_then(|asked| source.own_work(asked)));
        }
        Kind::Guard(guard) => child.guard(guard, || guards::run(guard, attempt, &*device, seed)),
        Kind::Number => match table::measured(&MEASURED, name) {
            Ok(run) => run(child, processor, attempt, own),
            Err(unknown) => child.unmeasured(name, &unknown),
        },
    }
    child.ends_if(!processor.is_sound());
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use challenges::graph::Solution;
    use kernels::{Cpu, Device};

    use super::*;

    /// What stands in for a card: the same items, on a device that outlives them.
    static CPU: LazyLock<Cpu> = LazyLock::new(|| Cpu::with_threads(2));

    #[test]
    fn items_run_on_whatever_device_they_are_given() {
        let card = Processor::Card(&*CPU);
        let device = card.checked();
        for name in ["C.4/swiglu", "C.6/arithmetic", "C.6/half-precision", "C.8/causal"] {
            let done = checks::run(name, &Solution, &*device, 1);
            assert!(done.is_ok(), "{name}: {done:?}");
        }
        assert_eq!(guards::run("a recompilation that is not counted", &Solution, &*device, 1), Ok(None));
        assert!(CPU.counts().launches > 0 && card.is_sound());
    }
}
