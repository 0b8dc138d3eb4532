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

pub(crate) use course::COURSE;
use evidence::facts;
pub(crate) use train::apart as series_apart;

use crate::gather::{Child, Effort, Item, Kind};
use crate::table::{self, Measured};

/// Measures something; the last argument is the attempt at C that belongs to this one, if there is one.
type Measure = fn(&mut Child, &dyn Chunked, Option<&dyn Compile>);

/// What is measured.
const MEASURED: [Measured<Measure>; 6] = [
    Measured {
        name: "watch/bytes",
        seconds: 60,
        numbers: &["loss.bytes.*", "loss.policy.bytes.*"],
        fresh: true,
        quick: true,
        run: |child, attempt, _| bytes::run(child, attempt),
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
        run: |child, attempt, _| train::run(child, attempt),
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
        run: |child, attempt, _| stairs::run(child, attempt),
    },
    Measured {
        name: "bench/sizes",
        seconds: 120,
        numbers: &["loss.over_whole", "loss.timed.*", "loss.sizes.*"],
        fresh: true,
        quick: true,
        run: |child, attempt, _| bench::run(child, attempt),
    },
    Measured {
        name: "watch/published",
        seconds: 180,
        numbers: &["loss.published.*"],
        fresh: true,
        quick: false,
        run: |child, attempt, _| published::run(child, attempt),
    },
];

/// Everything that there is to do, in order.
fn items(effort: &Effort) -> Vec<Item> {
    let checks = checks::names().into_iter().map(|name| Item::new(name, 30));
    let guards = guards::NAMES.iter().map(|name| Item::new(format!("guard/{name}"), 30));
    let limit = |item: Item| if effort.model.is_some() { item.within(3600) } else { item };
    let measured = MEASURED.iter().filter(|measured| measured.quick || !effort.quick);
    let measured = measured.map(|measured| limit(measured.item()));
    checks.chain(guards).chain(measured).collect()
}

/// Does one item. `own` is the attempt at C that belongs to this one, if there is one.
fn work(child: &mut Child, attempt: &dyn Chunked, own: Option<&dyn Compile>, name: &str) {
    let (seed, source) = (child.request.effort.seed, child.request.source);
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
