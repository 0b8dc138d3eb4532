//! Ranks as threads of one process: the transport that is always there.
//!
//! ```
//! use kernels::comm::{Collective, Comm, CommError};
//! use kernels::threads;
//! use kernels::tile::Element;
//!
//! let sums = threads::launch(4, threads::DEFAULT_LIMIT, |comm| -> Result<u8, CommError> {
//!     let (mine, mut sum) = ([comm.rank() as u8], [0]);
//!     comm.run(&Collective::all_reduce(Element::U8, 1), mine[..].into(), (&mut sum[..]).into())?;
//!     Ok(sum[0])
//! });
//! assert!(sums.into_iter().all(|sum| sum == Ok(Ok(0 + 1 + 2 + 3))));
//! ```
//!
//! ```text
//! mod      a rank's handle: the trait's calls, groups
//! launch   a thread for each rank; a panic is told to the others        (torchrun, mp.spawn)
//! meeting  where ranks meet: which operation of one is which of another's, who is missing, what has failed
//! sum      sums in rank order
//! spare    memory that is used again
//! ```
//!
//! `start` copies its input and returns; `wait` writes its output. No rank ever sees another's memory, so no `unsafe`
//! is needed, and an input may be overwritten as soon as `start` has returned. An operation costs one copy of the input
//! beside its result. Its work is done by the ranks that wait: each takes its own part of a reduce-scatter; an
//! all-reduce's sum is cut into as many pieces as there are ranks, each rank begins with its own piece, and a piece is
//! computed once, by whoever comes to it first. So nobody waits for a rank that has started an operation and is busy.
//!
//! *Time limit*: how long a `wait` waits for ranks that have not started the operation. A rank whose thread panics, and
//! one that leaves (drops its handle), is noticed at once by all that need it; the limit is for a rank that is stuck in
//! its own work. [`DEFAULT_LIMIT`] is what `init_process_group` has for NCCL.

mod launch;
mod meeting;
mod spare;
mod sum;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub use launch::launch;

use crate::comm::{Collective, Comm, CommError, Destination, Issuer, Span, SpanMut, Ticket};
use meeting::{Meeting, Member, What};

/// How long a rank waits for another: ten minutes.
pub const DEFAULT_LIMIT: Duration = Duration::from_mins(10);

/// A rank's handle on a group of ranks that are threads of this process. Dropping it leaves the group.
pub struct Threads {
    member: Arc<Member>,
}

/// A world of so many ranks: their handles in order, each to be moved to a thread.
pub fn world(ranks: usize, limit: Duration) -> Vec<Threads> {
    let meeting = Arc::new(Meeting::new(ranks, limit));
    (0..ranks).map(|rank| Threads { member: Arc::new(Member::of_world(&meeting, rank)) }).collect()
}

impl Threads {
    /// Refuses an operation that does not fit, on behalf of all.
    fn checked(&self, what: &Collective, input: usize, output: usize) -> Result<(), CommError> {
        what.check(self, input, output).map_err(|error| self.fail(error))
    }

    fn foreign(&self) -> CommError {
        CommError::ForeignTicket { rank: self.member.world_rank(), group: self.ranks().to_vec() }
    }
}

impl Comm for Threads {
    fn rank(&self) -> usize {
        self.member.rank
    }

    fn ranks(&self) -> &[usize] {
        &self.member.ranks
    }

    fn start(&self, what: &Collective, input: Span<'_>, output: Destination) -> Result<Ticket, CommError> {
        self.checked(what, input.bytes(), output.bytes())?;
        let Span::Host(input) = input;
        let ticket = self.member.start(What::Collective(*what), input)?;
        Ok(Ticket::new(ticket, Arc::clone(&self.member) as Arc<dyn Issuer>))
    }

    fn wait(&self, ticket: Ticket, output: SpanMut<'_>) -> Result<(), CommError> {
        let number = ticket.redeem(&*self.member).map_err(|_foreign| self.fail(self.foreign()))?;
        let SpanMut::Host(output) = output;
        let (what, parts) = self.member.meet(number)?;
        if let What::Collective(what) = what {
            self.checked(&what, what.input_bytes(self.world()).unwrap_or(0), output.len())?;
            parts.write(&what, self.rank(), output);
        }
        Ok(())
    }

    fn exchange(&self, text: &str) -> Result<Vec<String>, CommError> {
        let number = self.member.start(What::Exchange, text.as_bytes())?;
        let (_, parts) = self.member.meet(number)?;
        Ok(parts.inputs.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect())
    }

    fn group(&self, ranks: &[usize]) -> Result<Arc<dyn Comm>, CommError> {
        let member = self.member.group(ranks).map_err(|error| self.fail(error))?;
        Ok(Arc::new(Self { member: Arc::new(member) }))
    }

    fn fail(&self, error: CommError) -> CommError {
        self.member.fail(error)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.member.leave();
    }
}
