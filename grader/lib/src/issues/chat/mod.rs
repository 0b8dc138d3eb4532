//! Tool calling: each step's checks, the templates and formats of the project rendered and parsed by all steps
//! together.

mod calls;
mod course;
mod dialect;
mod evidence;
mod guards;
mod losses;
mod marker;
mod mask;
mod prompts;
mod python;
mod schema;
mod special;
mod speed;
mod step_under_test;
mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use challenges::issues::chat::{Chat, Steps};

pub(crate) use course::COURSE;
use evidence::facts;

use super::part;
use crate::gather::{Child, Effort, Item};
use crate::random::Random;
use crate::step_under_test::EVERY;
use crate::table::{self, Measured, Rows};
use step_under_test::StepUnderTest;

/// What a check does with the attempt's step among the solution's others.
type Check = fn(&Steps, &mut Random) -> Result<(), String>;

/// Every check, by step.
const CHECKS: &table::Steps<Check> = &[
    ("D.1", text::CHECKS),
    ("D.2", mask::CHECKS),
    ("D.3", special::CHECKS),
    ("D.4", schema::CHECKS),
    ("D.5", marker::PLACES),
    ("D.6", marker::WINNERS),
    ("D.7", dialect::CHECKS),
    ("D.8", losses::CHECKS),
];

/// Every check's name, in the order of the steps.
fn names() -> Vec<String> {
    table::checks(CHECKS)
}

/// Measures something.
type Measure = fn(&mut Child, &Steps);

/// What is measured.
const MEASURED: [Measured<Measure>; 4] = [
    Measured {
        name: "watch/prompts",
        seconds: 60,
        numbers: &["issues.prompts.same", "issues.prompts.all"],
        fresh: true,
        quick: true,
        run: prompts::watch,
    },
    Measured {
        name: "watch/calls",
        seconds: 60,
        numbers: &["issues.calls.same", "issues.calls.all"],
        fresh: true,
        quick: true,
        run: calls::watch,
    },
    Measured {
        name: "bench/prompts",
        seconds: 60,
        numbers: &["issues.prompts.time"],
        fresh: true,
        quick: true,
        run: speed::prompts,
    },
    Measured {
        name: "bench/calls",
        seconds: 60,
        numbers: &["issues.calls.rate"],
        fresh: true,
        quick: true,
        run: speed::calls,
    },
];

/// Everything that there is to do, in order.
fn items(_: &Effort) -> Vec<Item> {
    part::items(names(), &guards::NAMES, MEASURED.iter().map(Measured::item))
}

/// Does one item.
fn work(child: &mut Child, attempt: &Arc<dyn Chat>, name: &str) {
    let seed = child.request.effort.seed;
    let steps = || Steps::new(StepUnderTest::new(EVERY, attempt, &Arc::default()));
    let guard = |guard: &str| guards::run(guard, &steps(), seed);
    let number = |child: &mut Child| table::measured(&MEASURED, name).map(|run| run(child, &steps()));
    part::work(child, name, || check(name, attempt, seed), guard, number);
}

/// Runs one check by its name; the other steps are the solution's. Says how often the attempt's step asked that one.
fn check(name: &str, attempt: &Arc<dyn Chat>, seed: u64) -> Result<u64, String> {
    let (step, _, run) = table::check(CHECKS, name)?;
    let asked = Arc::new(AtomicU64::new(0));
    let steps = Steps::new(StepUnderTest::new(step, attempt, &asked));
    run(&steps, &mut Random::named(seed, name))?;
    Ok(asked.load(Relaxed))
}

/// That two texts are one; else where they part.
fn same_text(what: &str, got: &str, want: &str) -> Result<(), String> {
    if got == want {
        return Ok(());
    }
    let alike = got.chars().zip(want.chars()).take_while(|(got, want)| got == want).count();
    let around = |text: &str| {
        let from = alike.saturating_sub(24);
        let part: String = text.chars().skip(from).take(alike - from + 24).collect();
        format!("{}{part:?}", if from > 0 { ".." } else { "" })
    };
    let (got, want) = (around(got), around(want));
    Err(format!("{what}: from character {alike} on\n  got  {got}\n  want {want}"))
}
