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

use std::time::Duration;

use challenges::graph::Compile;
use challenges::loss::Chunked;

pub(crate) use evidence::{APART, facts};
pub(crate) use train::apart as series_apart;

use crate::gather::{Child, Effort, Item};

/// Bytes that a child of this challenge may hold: the weight of the published size in f32, and what is drawn for it.
pub(crate) const MEMORY_LIMIT: usize = 6 << 30;

/// Everything that there is to do, in order.
pub(crate) fn items(effort: &Effort) -> Vec<Item> {
    let item = |name: String, seconds| Item { name, limit: Duration::from_secs(seconds), fresh: false };
    let checks = checks::names().into_iter().map(|name| item(name, 30));
    let guards = guards::NAMES.iter().map(|name| item(format!("guard/{name}"), 30));
    let fresh = |name: &str, seconds| Item { fresh: true, ..item(name.into(), seconds) };
    let watched = [
        fresh("watch/bytes", 60),
        fresh("watch/training", 60),
        fresh("watch/compiler", 120),
        fresh("watch/stairs", 60),
        fresh("bench/sizes", 120),
    ];
    let published = (!effort.quick).then(|| fresh("watch/published", 180));
    checks.chain(guards).chain(watched).chain(published).collect()
}

/// Does one item. `own` is the attempt at C that belongs to this one, if there is one.
pub(crate) fn work(child: &mut Child, attempt: &dyn Chunked, own: Option<&dyn Compile>, name: &str) {
    let seed = child.request.effort.seed;
    match name.split_once('/') {
        Some(("guard", guard)) => child.guard(guard, || guards::run(guard, attempt, seed)),
        Some(("watch", "bytes")) => bytes::run(child, attempt),
        Some(("watch", "stairs")) => stairs::run(child, attempt),
        Some(("watch", "training")) => train::run(child, attempt),
        Some(("watch", "compiler")) => train::run_compiled_by(child, attempt, own),
        Some(("watch", _)) => published::run(child, attempt),
        Some(("bench", _)) => bench::run(child, attempt),
        _ => child.check(name, || checks::run(name, attempt, seed)),
    }
}
