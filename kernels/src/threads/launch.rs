//! A thread for each rank, as `torchrun` starts a process for each.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, ScopedJoinHandle};
use std::time::Duration;

use super::{Threads, world};
use crate::comm::{Comm, CommError};

/// Runs `work` on a thread for each of so many ranks, and returns what each made of it, in rank order.
///
/// A rank whose `work` panics ends the communication of all: it is [`CommError::Panicked`] here, and in the calls of
/// the other ranks. Every call of theirs ends within the time limit, so this returns as soon as the work between calls
/// does.
pub fn launch<T: Send>(
    ranks: usize,
    limit: Duration,
    work: impl Fn(Arc<Threads>) -> T + Sync,
) -> Vec<Result<T, CommError>> {
    std::thread::scope(|scope| {
        let started: Vec<Result<ScopedJoinHandle<'_, _>, CommError>> = world(ranks, limit)
            .into_iter()
            .map(|comm| {
                let (comm, work) = (Arc::new(comm), &work);
                let own = Arc::clone(&comm);
                let thread = Builder::new().name(format!("rank {}", comm.rank()));
                let spawned = thread.spawn_scoped(scope, move || guarded(&own, work));
                spawned.map_err(|error| no_thread(&comm, &error))
            })
            .collect();
        let ended = |thread: ScopedJoinHandle<'_, Result<T, CommError>>| match thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic), // of a value that panics when it is dropped
        };
        started.into_iter().map(|thread| thread.and_then(ended)).collect()
    })
}

/// A rank's work; its panic is everyone's error.
fn guarded<T>(comm: &Arc<Threads>, work: impl Fn(Arc<Threads>) -> T) -> Result<T, CommError> {
    let panicked = |panic: Box<dyn Any + Send>| {
        let own = CommError::Panicked { rank: comm.rank(), message: message(&*panic) };
        comm.fail(own.clone());
        own
    };
    catch_unwind(AssertUnwindSafe(|| work(Arc::clone(comm)))).map_err(panicked)
}

fn no_thread(comm: &Threads, error: &std::io::Error) -> CommError {
    comm.fail(CommError::Spawn { rank: comm.rank(), reason: error.to_string() })
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
