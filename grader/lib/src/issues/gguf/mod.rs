//! GGUF: each step's checks, and files that are written by all steps together and read again.

mod blocks;
mod course;
mod drawn;
mod evidence;
mod files;
mod guards;
mod layout;
mod projector;
mod step_under_test;
mod text;

use challenges::issues::gguf::Gguf;

pub(crate) use course::COURSE;
use evidence::facts;
use step_under_test::step_under_test;

use super::part;
use crate::gather::{Child, Effort, Item};
use crate::random::Random;
use crate::step_under_test::EVERY;
use crate::table::{self, Measured, Rows};

/// What a check does with the attempt's step among the solution's others.
type Check = fn(&dyn Gguf, &mut Random) -> Result<(), String>;

/// Every check, by step.
const CHECKS: &table::Steps<Check> = &[
    ("D.19", layout::CHECKS),
    ("D.20", blocks::CHECKS),
    ("D.21", text::CHECKS),
    ("D.22", projector::CHECKS),
];

/// Every check's name, in the order of the steps.
fn names() -> Vec<String> {
    table::checks(CHECKS)
}

/// Measures something.
type Measure = fn(&mut Child, &dyn Gguf);

/// What is measured.
const MEASURED: [Measured<Measure>; 1] = [Measured {
    name: "watch/files",
    seconds: 60,
    numbers: &["issues.gguf.files", "issues.gguf.tensors", "issues.gguf.equal", "issues.gguf.keys"],
    fresh: true,
    quick: true,
    run: files::files,
}];

/// Everything that there is to do, in order.
fn items(_: &Effort) -> Vec<Item> {
    part::items(names(), &guards::NAMES, MEASURED.iter().map(Measured::item))
}

/// Does one item.
fn work(child: &mut Child, attempt: &dyn Gguf, name: &str) {
    let seed = child.request.effort.seed;
    let watched = step_under_test(EVERY, attempt);
    let attempt = &watched;
    let guard = |guard: &str| guards::run(guard, attempt, seed);
    let number = |child: &mut Child| table::measured(&MEASURED, name).map(|run| run(child, attempt));
    part::work(child, name, || check(name, attempt, seed), guard, number);
}

/// Runs one check by its name; the other steps are the solution's. Says how often the attempt's step asked that one.
fn check(name: &str, attempt: &dyn Gguf, seed: u64) -> Result<u64, String> {
    let (step, _, run) = table::check(CHECKS, name)?;
    let under_test = step_under_test(step, attempt);
    run(&under_test, &mut Random::named(seed, name))?;
    Ok(under_test.asked.load(std::sync::atomic::Ordering::Relaxed))
}
