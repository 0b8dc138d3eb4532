//! Sequence classification: each step's checks, and a classifier that is trained by all steps together.

mod answers;
mod costs;
mod course;
mod evidence;
mod guards;
mod measured;
mod rows;
mod step_under_test;
mod task;
mod tensors;
mod trial;

use challenges::issues::classify::Classify;

pub(crate) use course::COURSE;
use evidence::facts;
pub(crate) use measured::LAST_CONFUSION;
use step_under_test::step_under_test;

use super::part;
use crate::gather::{Child, Effort, Item};
use crate::random::Random;
use crate::step_under_test::EVERY;
use crate::table::{self, Measured, Rows};

/// What a check does with the attempt's step among the solution's others.
type Check = fn(&dyn Classify, &mut Random) -> Result<(), String>;

/// Every check, by step.
const CHECKS: &table::Steps<Check> =
    &[("D.15", rows::CHECKS), ("D.16", costs::CHECKS), ("D.17", tensors::CHECKS), ("D.18", answers::CHECKS)];

/// Every check's name, in the order of the steps.
fn names() -> Vec<String> {
    table::checks(CHECKS)
}

/// Measures something.
type Measure = fn(&mut Child, &dyn Classify);

/// What is measured.
const MEASURED: [Measured<Measure>; 2] = [
    Measured {
        name: "watch/gradients",
        seconds: 60,
        numbers: &["issues.classifier.batches", "issues.classifier.loss", "issues.classifier.gradient"],
        fresh: true,
        quick: true,
        run: measured::gradients,
    },
    Measured {
        name: "watch/training",
        seconds: 120,
        numbers: &[
            "issues.classifier.training",
            "issues.classifier.losses.*",
            "issues.classifier.accuracy",
            "issues.classifier.confusion.*",
        ],
        fresh: true,
        quick: true,
        run: measured::training,
    },
];

/// Everything that there is to do, in order.
fn items(_: &Effort) -> Vec<Item> {
    part::items(names(), &guards::NAMES, MEASURED.iter().map(Measured::item))
}

/// Does one item.
fn work(child: &mut Child, attempt: &dyn Classify, name: &str) {
    let seed = child.request.effort.seed;
    let watched = step_under_test(EVERY, attempt);
    let attempt = &watched;
    let guard = |guard: &str| guards::run(guard, attempt, seed);
    let number = |child: &mut Child| table::measured(&MEASURED, name).map(|run| run(child, attempt));
    part::work(child, name, || check(name, attempt, seed), guard, number);
}

/// Runs one check by its name; the other steps are the solution's. Says how often the attempt's step asked that one.
fn check(name: &str, attempt: &dyn Classify, seed: u64) -> Result<u64, String> {
    let (step, _, run) = table::check(CHECKS, name)?;
    let under_test = step_under_test(step, attempt);
    run(&under_test, &mut Random::named(seed, name))?;
    Ok(under_test.asked.load(std::sync::atomic::Ordering::Relaxed))
}
