//! Communication between ranks: what every transport can do, whatever lies between the ranks.
//!
//! A *rank* is one of `world` workers that run the same program on their own part of the data. Whoever knows
//! `torch.distributed` finds here:
//!
//! ```text
//! torch.distributed                        here
//! init_process_group, get_rank             threads::world, threads::launch; Comm::rank, Comm::world
//! all_gather_into_tensor(async_op=True)    Comm::start(&Collective::all_gather(..), ..) -> Ticket
//! work.wait()                              Comm::wait(ticket, ..)
//! reduce_scatter_tensor, all_reduce        Collective::reduce_scatter, Collective::all_reduce
//! isend(tag), irecv(tag)                   Collective::send, Collective::receive, with_tag
//! new_group                                Comm::group
//! all_gather_object                        Comm::exchange
//! TORCH_DISTRIBUTED_DEBUG=DETAIL           always on: every mismatch is an error that names ranks and operations
//! ```
//!
//! **Sizes.** As in NCCL, `count` is the smaller side of an operation, in elements; W is the number of ranks.
//!
//! ```text
//!                  input     output
//! all-gather       count     W count    the inputs, side by side in rank order
//! reduce-scatter   W count   count      part `rank` of the sum of the inputs
//! all-reduce       count     count      the sum of the inputs
//! send             count     0
//! receive          0         count      what the sender's input was
//! ```
//!
//! **Sums** are taken in rank order, `((x0 + x1) + x2) + ..`, so they have the same bits on every rank and in every
//! run, and those of one rank that adds in this order. f32: each addition rounds. f16 and bf16: added in f32, rounded
//! once at the end. i32 and u8: whole numbers that wrap around. Ring and tree algorithms add each part in an order of
//! its own; they are faster between machines and give up exactly this.
//!
//! **Start and wait.** A started operation is in flight until its ticket is waited for. `start` waits for nobody: it
//! may be called long before the result is needed, which is what prefetching is. Tickets may be waited for in any
//! order. Every ticket has to be waited for, once: `wait` takes it away, and one that is dropped is an error.
//!
//! ```compile_fail,E0382
//! # fn twice(comm: &dyn kernels::comm::Comm, ticket: kernels::comm::Ticket) {
//! let _ = comm.wait(ticket, (&mut [][..]).into());
//! let _ = comm.wait(ticket, (&mut [][..]).into()); // value used after move
//! # }
//! ```
//!
//! **Order.** Ranks meet by count: the third collective that a rank starts in a group meets the third of every other
//! member; the third message from one rank to another under one tag meets the third receive there. Messages under
//! different tags, and collectives of different groups, pass each other freely. A send is done when its receive was
//! started, as with NCCL, so that what works over threads does not hang on a card.
//!
//! **One error is everyone's.** The first thing that goes wrong on any rank - a mismatch, a wrong size, a rank that
//! panicked or left, a message that did not come within the time limit, an abort - ends the communication of the whole
//! world: each later start and wait, on every rank and in every group, returns that same error. Nobody waits for a rank
//! that will not come, and all logs name the same cause.

mod error;
mod sequence;

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

pub use error::CommError;
pub use sequence::Sequence;

use crate::element::Element;

/// A rank's membership in a group of ranks: the whole world, or some of it.
///
/// Ranks are numbered from 0 inside their group; errors name them as the whole world numbers them.
pub trait Comm: Send + Sync {
    /// This rank's number in the group.
    fn rank(&self) -> usize;

    /// The members, in order, as the whole world numbers them.
    fn ranks(&self) -> &[usize];

    /// How many members there are.
    fn world(&self) -> usize {
        self.ranks().len()
    }

    /// Starts an operation; waits for no other rank. `output` is the memory that [`Self::wait`] is given later: a card
    /// writes there from now on, and the bytes of a host's are checked here, so that a wrong size is found at its line.
    ///
    /// # Errors
    /// If a size is wrong, if another rank has started something else in this place, if a rank that is needed is gone,
    /// or if communication has ended: see the module's head.
    fn start(&self, what: &Collective, input: Span<'_>, output: Destination) -> Result<Ticket, CommError>;

    /// Waits for a started operation and writes its result.
    ///
    /// # Errors
    /// As for [`Self::start`]; if a rank does not come within the time limit; if the ticket is another group's or
    /// another rank's.
    fn wait(&self, ticket: Ticket, output: SpanMut<'_>) -> Result<(), CommError>;

    /// Gives a text to every member and returns those of all, in rank order. It counts as one collective of the group,
    /// and waits for all members.
    ///
    /// # Errors
    /// As for [`Self::wait`].
    fn exchange(&self, text: &str) -> Result<Vec<String>, CommError>;

    /// A group of some members, which are numbered in the order given. Each of them calls this, with the same list;
    /// nobody waits. The groups of one list are told apart by how many times it was asked for.
    ///
    /// # Errors
    /// If a rank is no member or named twice, or this one is missing.
    fn group(&self, ranks: &[usize]) -> Result<Arc<dyn Comm>, CommError>;

    /// Ends the communication of the whole world with an error, and returns the error that it ended with: the first.
    fn fail(&self, error: CommError) -> CommError;

    /// Ends the communication of the whole world: every rank's calls return that this one aborted, and why.
    fn abort(&self, why: &str) {
        self.fail(CommError::Aborted { rank: self.ranks()[self.rank()], why: why.to_owned() });
    }

    /// Starts an operation and waits for it.
    ///
    /// # Errors
    /// As for [`Self::wait`].
    fn run(&self, what: &Collective, input: Span<'_>, output: SpanMut<'_>) -> Result<(), CommError> {
        let ticket = self.start(what, input, output.destination())?;
        self.wait(ticket, output)
    }

    /// Refuses ranks whose texts differ: what each is about to do, one operation a line. Only hashes are exchanged
    /// where they agree.
    ///
    /// # Errors
    /// On every rank, the first line that differs from the first member's, with both.
    fn agree(&self, text: &str) -> Result<(), CommError> {
        let hashes = self.exchange(&hash(text))?;
        if hashes.iter().all(|hash| *hash == hashes[0]) {
            return Ok(());
        }
        let texts = self.exchange(text)?;
        error::first_difference(self.ranks(), &texts).map_or(Ok(()), |error| Err(self.fail(error)))
    }
}

/// The first 64 bits of a text's SHA-256, in hexadecimal.
fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    format!("{:016x}", digest[..8].iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte)))
}

/// An operation between ranks, as every one of them states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Collective {
    /// What is done.
    pub kind: Kind,
    /// The type of the numbers.
    pub element: Element,
    /// Elements of the smaller side: see the module's head.
    pub count: usize,
    /// Which of several: collectives whose tags differ are a mismatch; messages meet under equal tags only.
    pub tag: u32,
}

/// What is done between ranks; peers are numbered in their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Everyone gets everyone's part.
    AllGather,
    /// Everyone gets a part of the sum.
    ReduceScatter,
    /// Everyone gets the sum.
    AllReduce,
    /// One rank gets this one's part.
    Send {
        /// Who.
        to: usize,
    },
    /// This rank gets another's part.
    Receive {
        /// Whose.
        from: usize,
    },
}

impl Collective {
    fn new(kind: Kind, element: Element, count: usize) -> Self {
        Self { kind, element, count, tag: 0 }
    }

    /// Each rank gives `count` elements.
    pub fn all_gather(element: Element, count: usize) -> Self {
        Self::new(Kind::AllGather, element, count)
    }

    /// Each rank gets `count` elements.
    pub fn reduce_scatter(element: Element, count: usize) -> Self {
        Self::new(Kind::ReduceScatter, element, count)
    }

    /// Each rank gives and gets `count` elements.
    pub fn all_reduce(element: Element, count: usize) -> Self {
        Self::new(Kind::AllReduce, element, count)
    }

    /// A message of `count` elements to a rank.
    pub fn send(to: usize, element: Element, count: usize) -> Self {
        Self::new(Kind::Send { to }, element, count)
    }

    /// A message of `count` elements from a rank.
    pub fn receive(from: usize, element: Element, count: usize) -> Self {
        Self::new(Kind::Receive { from }, element, count)
    }

    /// The same under another tag.
    #[must_use]
    pub fn with_tag(self, tag: u32) -> Self {
        Self { tag, ..self }
    }

    /// The other rank of a message; `None` if all ranks take part.
    pub fn peer(&self) -> Option<usize> {
        match self.kind {
            Kind::Send { to: peer } | Kind::Receive { from: peer } => Some(peer),
            Kind::AllGather | Kind::ReduceScatter | Kind::AllReduce => None,
        }
    }

    /// Bytes of `count` elements; `None` if they cannot be counted.
    fn bytes(&self) -> Option<usize> {
        self.count.checked_mul(self.element.bytes())
    }

    /// Bytes of a rank's input among `world` ranks; `None` if they cannot be counted.
    pub fn input_bytes(&self, world: usize) -> Option<usize> {
        match self.kind {
            Kind::AllGather | Kind::AllReduce | Kind::Send { .. } => self.bytes(),
            Kind::ReduceScatter => self.bytes()?.checked_mul(world),
            Kind::Receive { .. } => Some(0),
        }
    }

    /// Bytes of a rank's output among `world` ranks; `None` if they cannot be counted.
    pub fn output_bytes(&self, world: usize) -> Option<usize> {
        match self.kind {
            Kind::AllGather => self.bytes()?.checked_mul(world),
            Kind::AllReduce | Kind::ReduceScatter | Kind::Receive { .. } => self.bytes(),
            Kind::Send { .. } => Some(0),
        }
    }

    /// Bytes that a rank sends among `world` ranks, by algorithms that send the least: rings. `None` if they cannot be
    /// counted.
    pub fn sent_bytes(&self, world: usize) -> Option<usize> {
        let others = world.saturating_sub(1);
        match self.kind {
            Kind::AllGather | Kind::ReduceScatter => self.bytes()?.checked_mul(others),
            Kind::AllReduce => Some(self.bytes()?.checked_mul(2 * others)?.div_ceil(world.max(1))),
            Kind::Send { .. } => self.bytes(),
            Kind::Receive { .. } => Some(0),
        }
    }

    /// Refuses a peer that is no member, and memory of another size than the operation's.
    ///
    /// # Errors
    /// [`CommError::Peer`] or [`CommError::Size`], which name the rank and the operation.
    pub fn check(&self, comm: &dyn Comm, input: usize, output: usize) -> Result<(), CommError> {
        let (world, rank) = (comm.world(), comm.ranks()[comm.rank()]);
        if let Some(peer) = self.peer().filter(|peer| *peer >= world) {
            return Err(CommError::Peer { rank, operation: self.to_string(), peer, world });
        }
        let sides = [("input", self.input_bytes(world), input), ("output", self.output_bytes(world), output)];
        for (side, expected, found) in sides {
            if expected != Some(found) {
                let operation = self.describe(comm.ranks());
                return Err(CommError::Size { rank, operation, side, expected, found });
            }
        }
        Ok(())
    }

    /// As it prints, with the peer as the whole world numbers it.
    pub fn describe(&self, ranks: &[usize]) -> String {
        let named = |peer: usize| ranks.get(peer).copied().unwrap_or(peer);
        let kind = match self.kind {
            Kind::Send { to } => Kind::Send { to: named(to) },
            Kind::Receive { from } => Kind::Receive { from: named(from) },
            kind @ (Kind::AllGather | Kind::ReduceScatter | Kind::AllReduce) => kind,
        };
        Self { kind, ..*self }.to_string()
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, element, count, tag } = self;
        match kind {
            Kind::AllGather => write!(f, "all-gather of {count} {element}")?,
            Kind::ReduceScatter => write!(f, "reduce-scatter of {count} {element}")?,
            Kind::AllReduce => write!(f, "all-reduce of {count} {element}")?,
            Kind::Send { to } => write!(f, "send of {count} {element} to rank {to}")?,
            Kind::Receive { from } => write!(f, "receive of {count} {element} from rank {from}")?,
        }
        if *tag == 0 { Ok(()) } else { write!(f, ", tag {tag}") }
    }
}

/// Memory that an operation reads. A host's is copied by [`Comm::start`], and is the caller's again when that returns.
///
/// A card's memory would be a variant with an address: it then belongs to the operation until [`Comm::wait`] returns,
/// which the checks of a plan see to.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Span<'a> {
    /// Bytes of the host, however they are aligned.
    Host(&'a [u8]),
}

/// Memory that an operation writes.
#[derive(Debug)]
#[non_exhaustive]
pub enum SpanMut<'a> {
    /// Bytes of the host, however they are aligned. They are written by [`Comm::wait`].
    Host(&'a mut [u8]),
}

/// Where a result will lie: [`SpanMut::destination`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Destination {
    /// In memory of the host.
    Host {
        /// Its size.
        bytes: usize,
    },
}

impl Span<'_> {
    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Host(bytes) => bytes.len(),
        }
    }
}

impl SpanMut<'_> {
    /// What [`Comm::start`] is told of it.
    pub fn destination(&self) -> Destination {
        match self {
            Self::Host(bytes) => Destination::Host { bytes: bytes.len() },
        }
    }
}

impl Destination {
    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Host { bytes } => *bytes,
        }
    }
}

impl<'a> From<&'a [u8]> for Span<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Host(bytes)
    }
}

impl<'a> From<&'a mut [u8]> for SpanMut<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Self::Host(bytes)
    }
}

/// An operation in flight. Whoever drops it instead of waiting ends the communication of the whole world, so that no
/// other rank goes on with what this one never got.
#[must_use = "a started operation has to be waited for"]
pub struct Ticket {
    number: u64,
    issuer: Option<Arc<dyn Issuer>>, // none once it was waited for
}

/// A membership, as its tickets know it.
pub trait Issuer: Send + Sync {
    /// A ticket was dropped and nobody waited for it.
    fn never_waited(&self, ticket: u64);
}

impl Ticket {
    /// A ticket with a number of the issuer's own.
    pub fn new(number: u64, issuer: Arc<dyn Issuer>) -> Self {
        Self { number, issuer: Some(issuer) }
    }

    /// Its number, if it is this issuer's: it then counts as waited for. Else the ticket, as it was.
    ///
    /// # Errors
    /// The ticket, if it is another issuer's.
    pub fn redeem(mut self, issuer: &dyn Issuer) -> Result<u64, Self> {
        if !self.issuer.as_deref().is_some_and(|own| std::ptr::addr_eq(own, issuer)) {
            return Err(self);
        }
        self.issuer = None;
        Ok(self.number)
    }
}

impl Drop for Ticket {
    /// A thread that panics drops what it holds; the panic is the cause then, and is told by whoever catches it.
    fn drop(&mut self) {
        if let Some(issuer) = self.issuer.take().filter(|_| !std::thread::panicking()) {
            issuer.never_waited(self.number);
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({})", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_nccl() {
        let sizes = |what: Collective| [what.input_bytes(3), what.output_bytes(3)];
        assert_eq!(sizes(Collective::all_gather(Element::F32, 5)), [Some(20), Some(60)]);
        assert_eq!(sizes(Collective::reduce_scatter(Element::Bf16, 5)), [Some(30), Some(10)]);
        assert_eq!(sizes(Collective::all_reduce(Element::U8, 5)), [Some(5), Some(5)]);
        assert_eq!(sizes(Collective::send(1, Element::I32, 5)), [Some(20), Some(0)]);
        assert_eq!(sizes(Collective::receive(1, Element::I32, 5)), [Some(0), Some(20)]);
        assert_eq!(sizes(Collective::all_gather(Element::U8, usize::MAX / 2)), [Some(usize::MAX / 2), None]);
    }

    #[test]
    fn operations_print_as_errors_name_them() {
        let describe = |what: Collective| what.describe(&[4, 7]);
        assert_eq!(describe(Collective::all_gather(Element::F32, 5)), "all-gather of 5 f32");
        assert_eq!(
            describe(Collective::all_reduce(Element::F16, 1).with_tag(2)),
            "all-reduce of 1 f16, tag 2"
        );
        assert_eq!(describe(Collective::send(1, Element::U8, 0)), "send of 0 u8 to rank 7");
        assert_eq!(describe(Collective::receive(0, Element::U8, 3)), "receive of 3 u8 from rank 4");
    }

    #[test]
    fn a_hash_is_the_texts_own() {
        assert_eq!(hash("abc"), "ba7816bf8f01cfea"); // FIPS 180-2, appendix B.1
        assert_ne!(hash("all-reduce of 1 f32\n"), hash("all-reduce of 2 f32\n"));
    }
}
