//! Tool calling: each step's checks, the templates and formats of the project rendered and parsed by all steps together.

mod calls;
mod dialect;
mod evidence;
mod guards;
mod losses;
mod marker;
mod mask;
mod prompts;
mod schema;
mod special;
mod speed;
mod step_under_test;
mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use challenges::issues::chat::{Chat, Steps};

pub(super) use evidence::facts;

use crate::gather::{Child, Effort, Item};
use crate::random::Random;
use step_under_test::StepUnderTest;

/// Bytes that a child of this part may hold.
pub(crate) const MEMORY_LIMIT: usize = 2 << 30;

/// What a step's checks are called.
const STEPS: [(&str, &[&str]); 8] = [
    ("D.1", &text::CASES),
    ("D.2", &mask::CASES),
    ("D.3", &special::CASES),
    ("D.4", &schema::CASES),
    ("D.5", &marker::PLACES),
    ("D.6", &marker::WINNERS),
    ("D.7", &dialect::CASES),
    ("D.8", &losses::CASES),
];

/// Every check's name, in the order of the steps.
fn names() -> impl Iterator<Item = String> {
    STEPS.iter().flat_map(|(step, cases)| cases.iter().map(move |case| format!("{step}/{case}")))
}

/// What is measured, and the numbers that it gives.
const MEASURED: [(&str, &[&str]); 4] = [
    ("watch/prompts", &["issues.prompts.same", "issues.prompts.all"]),
    ("watch/calls", &["issues.calls.same", "issues.calls.all"]),
    ("bench/prompts", &["issues.prompts.time"]),
    ("bench/calls", &["issues.calls.rate"]),
];

/// Everything that there is to do, in order.
pub(super) fn items(_: &Effort) -> Vec<Item> {
    let checks = names().map(|name| Item::new(name, 20));
    let guards = guards::NAMES.iter().map(|name| Item::new(format!("guard/{name}"), 20));
    let rest = MEASURED.map(|(name, numbers)| Item::new(name, 60).measuring(numbers).fresh());
    checks.chain(guards).chain(rest).collect()
}

/// Does one item.
pub(super) fn work(child: &mut Child, attempt: &Arc<dyn Chat>, name: &str) {
    let (seed, source) = (child.request.effort.seed, child.request.source);
    let steps = || Steps::from(Arc::clone(attempt));
    match name.split_once('/') {
        Some(("guard", guard)) => child.guard(guard, || guards::run(guard, &steps(), seed)),
        Some(("watch", "prompts")) => prompts::watch(child, &steps()),
        Some(("watch", _)) => calls::watch(child, &steps()),
        Some(("bench", "prompts")) => speed::prompts(child, &steps()),
        Some(("bench", _)) => speed::calls(child, &steps()),
        _ => child.check(name, || check(name, attempt, seed).and_then(|asked| source.own_work(asked))),
    }
}

/// Runs one check by its name; the other steps are the solution's. Says how often the attempt's step asked that one.
fn check(name: &str, attempt: &Arc<dyn Chat>, seed: u64) -> Result<u64, String> {
    let (step, case) = name.split_once('/').ok_or_else(|| format!("no check is called {name}"))?;
    let asked = Arc::new(AtomicU64::new(0));
    let steps = Steps::new(StepUnderTest::new(step, attempt, &asked));
    let random = &mut Random::named(seed, name);
    match step {
        "D.1" => text::run(&steps, case, random),
        "D.2" => mask::run(&steps, case, random),
        "D.3" => special::run(&steps, case, random),
        "D.4" => schema::run(&steps, case),
        "D.5" => marker::place(&steps, case, random),
        "D.6" => marker::winner(&steps, case, random),
        "D.7" => dialect::run(&steps, case, random),
        "D.8" => losses::run(&steps, case, random),
        _ => Err(format!("no step is called {step}")),
    }?;
    Ok(asked.load(Relaxed))
}

/// That two answers to `what` are one.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, want: &T) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("{what}: got {got:?}, want {want:?}")) }
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
