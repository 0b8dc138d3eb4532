//! Challenge C in the grader: what is tried, what is measured, and what that says about each published line.

mod alone;
mod begun;
mod bench;
mod capture;
mod checks;
mod compare;
mod evidence;
mod guards;
mod lengths;
mod losses;
pub(crate) mod model;
mod part_a;
mod shown;

use std::time::Duration;

use challenges::graph::Compile;
use challenges::nf4::Nf4;

pub(crate) use compare::{difference, narrowed, sizes, told};
pub(crate) use evidence::facts;
pub(crate) use part_a::look as dequantizer_in_a_graph;

use crate::gather::{Child, Effort, Item};

/// Bytes that a child of this challenge may hold: the timed step operation by operation, twice.
pub(crate) const MEMORY_LIMIT: usize = 3 << 30;

/// Everything that there is to do, in order.
pub(crate) fn items(effort: &Effort) -> Vec<Item> {
    let item = |name: String, seconds| Item { name, limit: Duration::from_secs(seconds), fresh: false };
    let checks = checks::names().into_iter().map(|name| item(name, 30));
    let guards = guards::NAMES.iter().map(|name| item(format!("guard/{name}"), 30));
    let seconds = if effort.model.is_some() { 3600 } else { 120 };
    let lengths = Item { fresh: true, ..item("watch/lengths".into(), seconds) };
    let bench = item("bench/step".into(), if effort.quick { 30 } else { 90 });
    checks.chain(guards).chain([lengths, bench]).collect()
}

/// The first check that an attempt does not pass, for a challenge that would use it.
pub(crate) fn wrong(attempt: &dyn Compile, seed: u64) -> Option<String> {
    let passes =
        |name: &String| matches!(crate::gather::caught(|| checks::run(name, attempt, seed)), Ok(Ok(0)));
    checks::names().into_iter().find(|name| !passes(name))
}

/// Does one item. `own` is the attempt at A that belongs to this one, if there is one.
pub(crate) fn work(child: &mut Child, attempt: &dyn Compile, own: Option<&dyn Nf4>, name: &str) {
    let (seed, source) = (child.request.effort.seed, child.request.source);
    match name.split_once('/') {
        Some(("guard", guard)) => child.guard(guard, || guards::run(guard, attempt, seed)),
        Some(("watch", _)) => lengths::run(child, attempt, own),
        Some(("bench", _)) => bench::run(child, attempt),
        _ => child.check(name, || checks::run(name, attempt, seed).and_then(|asked| source.own_work(asked))),
    }
}
