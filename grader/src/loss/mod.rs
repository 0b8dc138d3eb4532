//! Challenge E in the grader: what is tried, what is measured, and what that says about each published line.

mod alone;
mod bench;
mod bytes;
mod case;
mod checks;
mod evidence;
mod guards;
mod published;
mod stairs;
mod train;

use challenges::graph::Compile;
use challenges::loss::Chunked;

pub(crate) use evidence::{APART, facts};
pub(crate) use train::apart as series_apart;

use crate::gather::{Child, Effort, Item};

/// Bytes that a child of this challenge may hold: the weight of the published size in f32, and what is drawn for it.
pub(crate) const MEMORY_LIMIT: usize = 6 << 30;

/// What is measured, how many seconds it may take, and the numbers that it gives.
const MEASURED: [(&str, u64, &[&str]); 6] = [
    ("watch/bytes", 60, &["loss.bytes.*", "loss.policy.bytes.*"]),
    ("watch/training", 60, &["loss.training", "loss.training.whole", "loss.training.chunked"]),
    ("watch/compiler", 120, &["loss.compiler", "loss.training.own"]),
    ("watch/stairs", 60, &["loss.stairs.*"]),
    ("bench/sizes", 120, &["loss.over_whole", "loss.timed.*", "loss.sizes.*"]),
    ("watch/published", 180, &["loss.published.*"]),
];

/// Everything that there is to do, in order.
pub(crate) fn items(effort: &Effort) -> Vec<Item> {
    let checks = checks::names().into_iter().map(|name| Item::new(name, 30));
    let guards = guards::NAMES.iter().map(|name| Item::new(format!("guard/{name}"), 30));
    let measured = MEASURED.iter().filter(|(name, ..)| !effort.quick || *name != "watch/published");
    let measured =
        measured.map(|(name, seconds, numbers)| Item::new(*name, *seconds).measuring(numbers).fresh());
    checks.chain(guards).chain(measured).collect()
}

/// Does one item. `own` is the attempt at C that belongs to this one, if there is one.
pub(crate) fn work(child: &mut Child, attempt: &dyn Chunked, own: Option<&dyn Compile>, name: &str) {
    let (seed, source) = (child.request.effort.seed, child.request.source);
    match name.split_once('/') {
        Some(("guard", guard)) => child.guard(guard, || guards::run(guard, attempt, seed)),
        Some(("watch", "bytes")) => bytes::run(child, attempt),
        Some(("watch", "stairs")) => stairs::run(child, attempt),
        Some(("watch", "training")) => train::run(child, attempt),
        Some(("watch", "compiler")) => train::run_compiled_by(child, attempt, own),
        Some(("watch", _)) => published::run(child, attempt),
        Some(("bench", _)) => bench::run(child, attempt),
        _ => child.check(name, || checks::run(name, attempt, seed).and_then(|asked| source.own_work(asked))),
    }
}
