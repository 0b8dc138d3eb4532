//! Challenge E in the grader: what is tried, what is measured, and what that says about each published line.

mod bench;
mod bytes;
mod case;
mod checks;
mod course;
mod evidence;
mod guards;
mod published;
mod stairs;
mod step_under_test;
mod train;

use challenges::graph::Compile;
use challenges::loss::Chunked;

pub(crate) use course::{COURSE, ON_A_CARD};
pub(crate) use train::apart as series_apart;

use case::Trial;
use evidence::facts;
use step_under_test::step_under_test;

use crate::course::Backend;
use crate::device::Processor;
use crate::gather::{Child, Effort, Item, Kind};
use crate::step_under_test::EVERY;
use crate::table::{self, Measured};

/// Measures something; the last argument is the attempt at C that belongs to this one, if there is one.
type Measure = fn(&mut Child, Processor, &dyn Chunked, Option<&dyn Compile>);

/// What is measured.
const MEASURED: [Measured<Measure>; 6] = [
    Measured {
        name: "watch/bytes",
        seconds: 60,
        numbers: &["loss.bytes.*", "loss.policy.bytes.*"],
        fresh: true,
        quick: true,
        run: |child, on, attempt, _| bytes::run(child, on, attempt),
    },
    Measured {
        name: "watch/training",
        seconds: 60,
        numbers: &[
            "loss.training",
            "loss.training.whole",
            "loss.training.chunked",
            "loss.training.ulp",
            "loss.training.parameters",
        ],
        fresh: true,
        quick: true,
        run: |child, on, attempt, _| train::run(child, on, attempt),
    },
    Measured {
        name: "watch/compiler",
        seconds: 120,
        numbers: &["loss.compiler", "loss.training.own"],
        fresh: true,
        quick: true,
        run: train::run_compiled_by,
    },
    Measured {
        name: "watch/stairs",
        seconds: 60,
        numbers: &["loss.stairs.*"],
        fresh: true,
        quick: true,
        run: |child, on, attempt, _| stairs::run(child, on, attempt),
    },
    Measured {
        name: "bench/sizes",
        seconds: 120,
        numbers: &["loss.over_whole", "loss.timed.*", "loss.sizes.*"],
        fresh: true,
        quick: true,
        run: |child, on, attempt, _| bench::run(child, on, attempt),
    },
    Measured {
        name: "watch/published",
        seconds: 180,
        numbers: &["loss.published.*"],
        fresh: true,
        quick: false,
        run: |child, on, attempt, _| published::run(child, on, attempt),
    },
];

/// Seconds that a card may take for what it compiles as it goes, a model of 1B among it: its kernels are compiled on
/// the CPU.
const COMPILING: u64 = 480;

/// Everything that there is to do, in order.
fn items(effort: &Effort, backend: Backend) -> Vec<Item> {
    let compiling = if backend == Backend::Cuda { COMPILING } else { 0 };
    let checks = checks::names().into_iter().map(|name| Item::new(name, 30 + compiling));
    let guards = guards::NAMES.iter().map(|name| Item::new(format!("guard/{name}"), 30 + compiling));
    let limit = |item: Item| {
        let seconds = if effort.model.is_some() { 3600 } else { item.limit.as_secs() + compiling };
        item.within(seconds)
    };
    let measured = MEASURED.iter().filter(|measured| measured.quick || !effort.quick);
    let measured = measured.map(|measured| limit(measured.item()));
    checks.chain(guards).chain(measured).collect()
}

/// Does one item. `own` is the attempt at C that belongs to this one, if there is one.
fn work(
    child: &mut Child,
    processor: Processor,
    attempt: &dyn Chunked,
    own: Option<&dyn Compile>,
    name: &str,
) {
    let (seed, source) = (child.request.effort.seed, child.request.source);
    let device = processor.checked();
    let watched = step_under_test(EVERY, attempt);
    let attempt = &watched;
    let on = Trial { attempt, device: &*device };
    match Kind::of(name) {
        Kind::Check => {
            child.check(name, || checks::run(name, on, seed).and_then(|asked| source.own_work(asked)));
        }
        Kind::Guard(guard) => child.guard(guard, || guards::run(guard, on, seed)),
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

    use challenges::loss::Solution;
    use kernels::{Cpu, Device};

    use super::*;

    /// What stands in for a card: the same items, on a device that outlives them.
    static CPU: LazyLock<Cpu> = LazyLock::new(|| Cpu::with_threads(2));

    #[test]
    fn items_run_on_whatever_device_they_are_given() {
        let card = Processor::Card(&*CPU);
        let device = card.checked();
        let on = Trial { attempt: &Solution, device: &*device };
        for name in ["E.3/frozen-head", "E.4/accumulation", "E.4/preferences", "E.5/gspo"] {
            let done = checks::run(name, on, 1);
            assert!(done.is_ok(), "{name}: {done:?}");
        }
        for name in ["chunk size ignored", "mean of chunk means"] {
            assert_eq!(guards::run(name, on, 1), Ok(None), "{name}");
        }
        // The guard counts the bytes of the whole process, in which other tests allocate, too. That can only trip it.
        let is_quiet = (1..=20).any(|seed| guards::run("logits kept", on, seed) == Ok(None));
        assert!(is_quiet, "logits kept");
        assert!(CPU.counts().launches > 0 && card.is_sound());
    }

    #[test]
    fn a_card_has_the_items_of_a_cpu() {
        for effort in [Effort::default(), Effort { quick: true, ..Effort::default() }] {
            let names = |on| items(&effort, on).into_iter().map(|item| item.name).collect::<Vec<_>>();
            assert_eq!(names(Backend::Cpu), names(Backend::Cuda));
        }
    }
}
