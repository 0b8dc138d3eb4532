//! Attention: each step's checks, and every back end held to the definition on the features that it claims.

mod choice;
mod course;
mod evidence;
mod guards;
mod lengths;
mod matrix;
mod merged;
mod packing;
mod pieces;
mod rules;
mod sinks;
mod step_under_test;

use challenges::issues::attention::Attend;

pub(crate) use course::COURSE;
use evidence::facts;
pub(crate) use lengths::LENGTHS;
pub(crate) use matrix::{FEATURES, results};
use step_under_test::step_under_test;

use super::part;
use crate::gather::{Child, Effort, Item};
use crate::random::Random;
use crate::step_under_test::EVERY;
use crate::table::{self, Measured, Rows};

/// What a check does with the attempt's step among the solution's others.
type Check = fn(&dyn Attend, &mut Random) -> Result<(), String>;

/// Every check, by step.
const CHECKS: &table::Steps<Check> = &[
    ("D.9", rules::CHECKS),
    ("D.10", choice::CHECKS),
    ("D.11", packing::CHECKS),
    ("D.12", merged::CHECKS),
    ("D.13", pieces::CHECKS),
    ("D.14", sinks::CHECKS),
];

/// Every check's name, in the order of the steps.
fn names() -> Vec<String> {
    table::checks(CHECKS)
}

/// Measures something.
type Measure = fn(&mut Child, &dyn Attend);

/// What is measured.
const MEASURED: [Measured<Measure>; 2] = [
    Measured {
        name: "watch/features",
        seconds: 120,
        numbers: &[
            "issues.attention.features.*",
            "issues.attention.same",
            "issues.attention.all",
            "issues.attention.wrong_feature.*",
        ],
        fresh: true,
        quick: true,
        run: matrix::watch,
    },
    Measured {
        name: "watch/lengths",
        seconds: 120,
        numbers: &[
            "issues.attention.lengths",
            "issues.attention.lengths_right",
            "issues.attention.compilations",
            "issues.attention.buckets",
            "issues.attention.wrong_length.*",
        ],
        fresh: true,
        quick: true,
        run: lengths::watch,
    },
];

/// Everything that there is to do, in order.
fn items(_: &Effort) -> Vec<Item> {
    part::items(names(), &guards::NAMES, MEASURED.iter().map(Measured::item))
}

/// Does one item.
fn work(child: &mut Child, attempt: &dyn Attend, name: &str) {
    let seed = child.request.effort.seed;
    let watched = step_under_test(EVERY, attempt);
    let attempt = &watched;
    let guard = |guard: &str| guards::run(guard, attempt, seed);
    let number = |child: &mut Child| table::measured(&MEASURED, name).map(|run| run(child, attempt));
    part::work(child, name, || check(name, attempt, seed), guard, number);
}

/// Runs one check by its name; the other steps are the solution's. Says how often the attempt's step asked that one.
fn check(name: &str, attempt: &dyn Attend, seed: u64) -> Result<u64, String> {
    let (step, _, run) = table::check(CHECKS, name)?;
    let under_test = step_under_test(step, attempt);
    run(&under_test, &mut Random::named(seed, name))?;
    Ok(under_test.asked.load(std::sync::atomic::Ordering::Relaxed))
}
