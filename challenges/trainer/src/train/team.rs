//! A run on several ranks: a thread each, with its share of the cores.

use std::num::NonZero;
use std::sync::{Arc, Mutex};

use challenges::fsdp::{Rank, Room, Solution, Team};
use kernels::Cpu;
use kernels::comm::{Comm, CommError};
use kernels::threads::{DEFAULT_LIMIT, launch};
use reference::graph::interpret::Values;
use reference::graph::ranks::Mesh;
use reference::llama::Spec;

use super::save::Saved;
use super::worker::Worker;
use super::{Desk, Plan, Run, machine};
use crate::output::Failure;

/// Every rank's part of a run; the exit code. The first rank has the desk.
///
/// Fails with what went wrong on the rank where it did; what that one then told the others is not said.
pub fn run(
    plan: &Plan<'_>,
    mesh: &Mesh,
    spec: &Spec,
    state: &Values<f32>,
    start: &Saved,
    desk: Desk,
) -> Result<u8, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = (cores / mesh.ranks()).max(1);
    let evaluated_at = desk.metrics.evaluated_at();
    let desk = Mutex::new(Some(desk));
    let outcomes = launch(mesh.ranks(), DEFAULT_LIMIT, |comm| {
        let world: Arc<dyn Comm> = comm;
        let desk = if world.rank() == 0 { desk.lock().ok().and_then(|mut desk| desk.take()) } else { None };
        let cpu = Cpu::with_threads(threads);
        let room = Room { activation_bytes: usize::MAX, prefetch_bytes: usize::MAX, ..Room::default() };
        let team = Team { world: Arc::clone(&world), mesh, pipeline: None, room };
        let (recipe, model) = (plan.config.recipe(), plan.model);
        let rank = Rank::new(machine(&cpu), team, &Solution, model, spec.clone(), &recipe, state);
        let made = rank.map_err(Failure::usage).and_then(|rank| {
            let worker = Worker::Rank(Box::new(rank));
            Run { evaluated_at, ..Run::new(plan, worker, start.clone(), desk) }.all()
        });
        made.inspect_err(|failure| world.abort(&failure.to_string()))
    });
    let codes: Vec<Result<u8, Failure>> = outcomes.into_iter().map(one).collect();
    let is_told = |failure: &Failure| failure.to_string().contains(" aborted: ");
    let own = codes.iter().position(|code| code.as_ref().is_err_and(|failure| !is_told(failure)));
    let first = own.or(codes.iter().position(Result::is_err)).unwrap_or(0);
    codes.into_iter().nth(first).unwrap_or(Ok(0))
}

/// A rank's exit code, or what it failed with.
fn one(outcome: Result<Result<u8, Failure>, CommError>) -> Result<u8, Failure> {
    outcome.map_err(Failure::bug)?
}
