//! Challenge B in the grader: what is tried, what is measured, and what that says about each published line.

mod bench;
mod checkpoint;
mod checks;
mod course;
mod evidence;
mod guards;
mod job;
mod spans;
mod step_under_test;
mod train;

use challenges::fsdp::Fsdp;
use challenges::nf4::Nf4;

pub(crate) use course::COURSE;
use evidence::facts;

use crate::gather::{Child, Effort, Item, Kind};
use crate::table::{self, Measured};

/// Measures something; the last argument is the attempt at A that belongs to this one, if there is one.
type Measure = fn(&mut Child, &dyn Fsdp, Option<&dyn Nf4>);

/// What is measured.
const MEASURED: [Measured<Measure>; 5] = [
    Measured {
        name: "watch/training",
        seconds: 120,
        numbers: &["fsdp.training", "fsdp.training.*"],
        fresh: true,
        quick: true,
        run: |child, attempt, _| train::run_in_shards(child, attempt),
    },
    Measured {
        name: "watch/layers",
        seconds: 120,
        numbers: &[
            "fsdp.tensor",
            "fsdp.pipeline",
            "fsdp.flat",
            "fsdp.flat.*",
            "fsdp.bubble",
            "fsdp.bubble.*",
        ],
        fresh: true,
        quick: true,
        run: |child, attempt, _| train::run_in_parts(child, attempt),
    },
    Measured {
        name: "watch/bubbles",
        seconds: 120,
        numbers: &["fsdp.bubbles.*", "fsdp.gantt.*"],
        fresh: true,
        quick: false,
        run: |child, attempt, _| spans::bubbles(child, attempt),
    },
    Measured {
        name: "watch/overlap",
        seconds: 60,
        numbers: &["fsdp.step.*"],
        fresh: true,
        quick: false,
        run: |child, attempt, _| spans::overlap(child, attempt),
    },
    Measured {
        name: "bench/step",
        seconds: 120,
        numbers: &["fsdp.over_baseline", "fsdp.narrower.*", "fsdp.timed.*", "fsdp.dequantizer.*"],
        fresh: true,
        quick: true,
        run: bench::run,
    },
];

/// Everything that there is to do, in order.
fn items(effort: &Effort) -> Vec<Item> {
    let checks = checks::names().into_iter().map(|name| Item::new(name, 30));
    let guards = guards::NAMES.iter().map(|name| Item::new(format!("guard/{name}"), 30));
    let measured = MEASURED.iter().filter(|measured| measured.quick || !effort.quick).map(Measured::item);
    checks.chain(guards).chain(measured).collect()
}

/// Does one item. `own` is the attempt at A that belongs to this one, if there is one.
fn work(child: &mut Child, attempt: &dyn Fsdp, own: Option<&dyn Nf4>, name: &str) {
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
