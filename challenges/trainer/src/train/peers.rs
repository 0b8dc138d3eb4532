//! A run among the others: what several ranks agree about.
//!
//! Ranks make the same decisions in the same order, each from what all of them know. What one alone knows - a signal, a
//! file that could not be written, the lines of the metrics - is told to all before anything is decided by it.

use std::sync::Arc;

use kernels::comm::{Comm, CommError};

use crate::output::Failure;

/// The ranks of a run, as one of them sees them.
pub struct Peers {
    world: Option<Arc<dyn Comm>>, // none of a run on one rank
}

impl Peers {
    /// A run on one rank.
    pub fn alone() -> Self {
        Self { world: None }
    }

    /// One rank of several.
    pub fn of(world: Arc<dyn Comm>) -> Self {
        Self { world: Some(world) }
    }

    /// This rank's number.
    pub fn rank(&self) -> usize {
        self.world.as_ref().map_or(0, |world| world.rank())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.world.as_ref().map_or(1, |world| world.world())
    }

    /// Whether this is the rank that writes, draws and prints.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// Everyone's text, in rank order.
    pub fn exchange(&self, text: &str) -> Result<Vec<String>, Failure> {
        let Some(world) = &self.world else { return Ok(vec![text.to_owned()]) };
        world.exchange(text).map_err(Failure::bug)
    }

    /// Everyone's text, if all of them have one; else, on every rank, why the first that has none does not.
    pub fn agree(&self, own: Result<String, Failure>) -> Result<Vec<String>, Failure> {
        if self.world.is_none() {
            return own.map(|text| vec![text]);
        }
        let told = match own {
            Ok(text) => format!("{DONE}{text}"),
            Err(Failure::Usage(reason)) => format!("{USAGE}{reason}"),
            Err(Failure::Device(reason) | Failure::Fault(reason)) => format!("{FAULT}{reason}"),
        };
        let all = self.exchange(&told)?;
        let outcome = |(rank, text): (usize, &String)| {
            if let Some(text) = text.strip_prefix(DONE) {
                return Ok(text.to_owned());
            }
            let named = |reason: &str| format!("rank {rank}: {reason}");
            match text.strip_prefix(USAGE) {
                Some(reason) => Err(Failure::Usage(named(reason))),
                None => Err(Failure::Fault(named(text.strip_prefix(FAULT).unwrap_or_default()))),
            }
        };
        all.iter().enumerate().map(outcome).collect()
    }

    /// Ends the communication of all with this rank's failure; whether nothing had ended it before.
    pub fn end(&self, failure: &Failure) -> bool {
        let Some(world) = &self.world else { return true };
        let own = CommError::Aborted { rank: world.rank(), why: failure.to_string() };
        let first = world.fail(own);
        matches!(first, CommError::Aborted { rank, .. } if rank == world.rank())
    }
}

const DONE: char = '+';
const USAGE: char = '?';
const FAULT: char = '!';
