//! Challenge B in the grader: what is tried, what is measured, and what that says about each published line.

mod bench;
mod checkpoint;
mod checks;
mod course;
mod evidence;
mod guards;
mod job;
mod parts;
mod spans;
mod step_under_test;
mod train;
mod trial;
mod wire;

use challenges::fsdp::Fsdp;
use challenges::nf4::Nf4;

pub(crate) use course::COURSE;
use evidence::facts;
use step_under_test::step_under_test;

use crate::gather::{Child, Effort, Item, Kind};
use crate::step_under_test::EVERY;
use crate::table::{self, Measured};

/// Measures something; the last argument is the attempt at A that belongs to this one, if there is one.
type Measure = fn(&mut Child, &dyn Fsdp, Option<&dyn Nf4>);

/// Runs of several steps together. Each is a check, too, and one that takes as long as a measurement.
const RUNS: [Measured<Measure>; 5] = [
    Measured {
        name: trial::IN_SHARDS,
        seconds: 120,
        numbers: &["fsdp.training", "fsdp.training.*"],
        fresh: true,
        quick: true,
        run: |child, attempt, _| train::in_shards(child, attempt),
    },
    Measured {
        name: trial::SHARED,
        seconds: 60,
        numbers: &["fsdp.tensor"],
        fresh: true,
        quick: true,
        run: |child, attempt, _| parts::layers(child, attempt),
    },
    Measured {
        name: trial::PIPELINE,
        seconds: 60,
        numbers: &["fsdp.pipeline", "fsdp.bubble", "fsdp.bubble.*"],
        fresh: true,
        quick: true,
        run: |child, attempt, _| parts::pipeline(child, attempt),
    },
    Measured {
        name: trial::FLAT,
        seconds: 60,
        numbers: &["fsdp.flat", "fsdp.flat.*"],
        fresh: true,
        quick: true,
        run: |child, attempt, _| parts::flat(child, attempt),
    },
    Measured {
        name: trial::TIMED,
        seconds: 120,
        numbers: &["fsdp.over_baseline", "fsdp.narrower.*", "fsdp.timed.*", "fsdp.dequantizer.*"],
        fresh: true,
        quick: true,
        run: bench::run,
    },
];

/// What is measured beside them; no line of the scheme rests on it.
const MEASURED: [Measured<Measure>; 2] = [
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
];

/// Everything that there is to do, in order.
fn items(effort: &Effort) -> Vec<Item> {
    let checks = checks::names().into_iter().map(|name| Item::new(name, 30));
    let guards = guards::NAMES.iter().map(|name| Item::new(format!("guard/{name}"), 30));
    let runs = RUNS.iter().chain(&MEASURED).filter(|run| run.quick || !effort.quick).map(Measured::item);
    checks.chain(guards).chain(runs).collect()
}

/// Does one item. `own` is the attempt at A that belongs to this one, if there is one.
fn work(child: &mut Child, attempt: &dyn Fsdp, own: Option<&dyn Nf4>, name: &str) {
    let (seed, source) = (child.request.effort.seed, child.request.source);
    let watched = step_under_test(EVERY, attempt);
    let attempt = &watched;
    if let Ok(run) = table::measured(&RUNS, name) {
        return run(child, attempt, own);
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
