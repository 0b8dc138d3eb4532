//! Vision: each step's checks, and what all steps together make of images and conversations.

mod batches;
mod course;
mod drawn;
mod evidence;
mod guards;
mod labels;
mod measured;
mod pixels;
mod rows;
mod sizes;
mod step_under_test;

use challenges::issues::vision::Vision;

pub(crate) use course::COURSE;
use evidence::facts;
use step_under_test::step_under_test;

use super::part;
use crate::gather::{Child, Effort, Item};
use crate::random::Random;
use crate::step_under_test::EVERY;
use crate::table::{self, Measured, Rows};

/// What a check does with the attempt's step among the solution's others.
type Check = fn(&dyn Vision, &mut Random) -> Result<(), String>;

/// Every check, by step.
const CHECKS: &table::Steps<Check> = &[
    ("D.23", sizes::CHECKS),
    ("D.24", pixels::CHECKS),
    ("D.25", rows::CHECKS),
    ("D.26", labels::CHECKS),
    ("D.27", batches::CHECKS),
];

/// Every check's name, in the order of the steps.
fn names() -> Vec<String> {
    table::checks(CHECKS)
}

/// Measures something.
type Measure = fn(&mut Child, &dyn Vision);

/// What is measured.
const MEASURED: [Measured<Measure>; 3] = [
    Measured {
        name: "watch/images",
        seconds: 60,
        numbers: &["issues.images.all", "issues.images.same", "issues.images.largest"],
        fresh: true,
        quick: true,
        run: measured::images,
    },
    Measured {
        name: "watch/batches",
        seconds: 60,
        numbers: &["issues.mixed.all", "issues.mixed.same", "issues.mixed.slots", "issues.mixed.features"],
        fresh: true,
        quick: true,
        run: measured::batches,
    },
    Measured {
        name: "watch/completions",
        seconds: 60,
        numbers: &["issues.completions.all", "issues.completions.same", "issues.completions.images"],
        fresh: true,
        quick: true,
        run: measured::completions,
    },
];

/// Everything that there is to do, in order.
fn items(_: &Effort) -> Vec<Item> {
    part::items(names(), &guards::NAMES, MEASURED.iter().map(Measured::item))
}

/// Does one item.
fn work(child: &mut Child, attempt: &dyn Vision, name: &str) {
    let seed = child.request.effort.seed;
    let watched = step_under_test(EVERY, attempt);
    let attempt = &watched;
    let guard = |guard: &str| guards::run(guard, attempt, seed);
    let number = |child: &mut Child| table::measured(&MEASURED, name).map(|run| run(child, attempt));
    part::work(child, name, || check(name, attempt, seed), guard, number);
}

/// Runs one check by its name; the other steps are the solution's. Says how often the attempt's step asked that one.
fn check(name: &str, attempt: &dyn Vision, seed: u64) -> Result<u64, String> {
    let (step, _, run) = table::check(CHECKS, name)?;
    let under_test = step_under_test(step, attempt);
    run(&under_test, &mut Random::named(seed, name))?;
    Ok(under_test.asked.load(std::sync::atomic::Ordering::Relaxed))
}
