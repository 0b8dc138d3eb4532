//! Where the ranks of a process meet.
//!
//! One lock guards who is where; data is copied and added outside it. An operation is a [`Slot`]: an entry for each
//! rank that takes part, complete when the last has started. Its [`Key`] says which start of one rank belongs to which
//! of another's: the n-th collective of the group, or the n-th message between two ranks under one tag. All that can go
//! wrong is seen by whoever makes it so, under the lock, and kept in `failed`; from then on every call returns it.

use std::collections::HashMap;
use std::collections::hash_map;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::spare::Spare;
use super::sum::sum;
use crate::comm::{Collective, CommError, Issuer, Kind};

/// Buffers that are kept for each rank: as many operations in flight find theirs again.
const SPARE_OF_RANK: usize = 8;

/// A world of ranks.
pub(super) struct Meeting {
    limit: Duration,
    state: Mutex<State>,
    changed: Condvar,
    spare: Arc<Spare>,
}

struct State {
    failed: Option<CommError>,
    handles: Vec<usize>,                      // of each rank, in all groups
    groups: Vec<Group>,                       // the world first
    asked: HashMap<(usize, Vec<usize>), u64>, // how many groups of one list a rank has made
}

struct Group {
    ranks: Arc<[usize]>,
    instance: u64, // among the groups of the same list
    members: Vec<Membership>,
    slots: HashMap<Key, Slot>, // not waited for by all yet
}

#[derive(Default)]
struct Membership {
    presence: Presence,
    started: HashMap<(Channel, usize), u64>, // operations, by channel and part in it
    tickets: HashMap<u64, (Key, What)>,      // in flight
    issued: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Presence {
    /// The rank has not asked for the group.
    #[default]
    Absent,
    Here,
    Left,
}

/// Operations that meet by count.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Channel {
    All,
    Pair { from: usize, to: usize, tag: u32 },
}

/// An operation of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    channel: Channel,
    number: u64, // from 1
}

/// What a rank starts.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum What {
    Collective(Collective),
    Exchange,
}

struct Slot {
    entries: Vec<Option<Entry>>, // by part: the rank, or 0 for a sender and 1 for a receiver
    complete: Option<Arc<Parts>>,
    waited: usize,
}

struct Entry {
    what: What,
    input: Vec<u8>,
}

/// The inputs of a complete operation.
pub(super) struct Parts {
    /// By part.
    pub(super) inputs: Vec<Vec<u8>>,
    pieces: Vec<OnceLock<Vec<u8>>>, // of an all-reduce's sum
    spare: Arc<Spare>,
}

/// A rank's place in a group.
pub(super) struct Member {
    meeting: Arc<Meeting>,
    group: usize,
    /// The number in the group.
    pub(super) rank: usize,
    /// The members, as the world numbers them.
    pub(super) ranks: Arc<[usize]>,
}

impl Meeting {
    pub(super) fn new(ranks: usize, limit: Duration) -> Self {
        let mut all = Group::new((0..ranks).collect(), 1);
        all.members.iter_mut().for_each(|member| member.presence = Presence::Here);
        let (handles, groups, asked) = (vec![1; ranks], vec![all], HashMap::new());
        let state = Mutex::new(State { failed: None, handles, groups, asked });
        let spare = Arc::new(Spare::new(SPARE_OF_RANK * ranks));
        Self { limit, state, changed: Condvar::new(), spare }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the first error, tells everyone, and returns it.
    fn fail(&self, state: &mut State, error: CommError) -> CommError {
        let first = state.failed.get_or_insert(error).clone();
        state.groups.iter_mut().for_each(|group| group.slots.clear());
        self.changed.notify_all();
        first
    }
}

impl Member {
    pub(super) fn of_world(meeting: &Arc<Meeting>, rank: usize) -> Self {
        let ranks = Arc::clone(&meeting.lock().groups[0].ranks);
        Self { meeting: Arc::clone(meeting), group: 0, rank, ranks }
    }

    /// The rank's number in the world.
    pub(super) fn world_rank(&self) -> usize {
        self.ranks[self.rank]
    }

    pub(super) fn fail(&self, error: CommError) -> CommError {
        self.meeting.fail(&mut self.meeting.lock(), error)
    }

    /// Puts a rank's part of an operation where the others meet it, and returns the ticket's number.
    pub(super) fn start(&self, what: What, input: &[u8]) -> Result<u64, CommError> {
        let spare = &self.meeting.spare;
        let mut copy = spare.take(input.len());
        copy.extend_from_slice(input); // before the lock is taken
        let mut state = self.meeting.lock();
        state.check()?;
        let entered = state.groups[self.group].enter(self.rank, Entry { what, input: copy }, spare);
        let (ticket, key) = entered.map_err(|error| self.meeting.fail(&mut state, error))?;
        if state.groups[self.group].is_complete(&key) {
            self.meeting.changed.notify_all();
        } else if let Some(error) = state.stranded_at(self.group, &key) {
            return Err(self.meeting.fail(&mut state, error));
        }
        Ok(ticket)
    }

    /// Waits until all parts of a ticket's operation are there.
    pub(super) fn meet(&self, ticket: u64) -> Result<(What, Arc<Parts>), CommError> {
        let (begin, limit) = (Instant::now(), self.meeting.limit);
        let mut state = self.meeting.lock();
        loop {
            state.check()?;
            let group = &mut state.groups[self.group];
            if let Some(met) = group.take(self.rank, ticket) {
                return Ok(met);
            }
            let Some(rest) = limit.checked_sub(begin.elapsed()).filter(|rest| !rest.is_zero()) else {
                let late = group.timeout(self.rank, ticket, limit);
                return Err(self.meeting.fail(&mut state, late));
            };
            let waited = self.meeting.changed.wait_timeout(state, rest);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// This rank's place in a group of some members.
    pub(super) fn group(&self, ranks: &[usize]) -> Result<Member, CommError> {
        let is_group = |(at, rank): (usize, &usize)| *rank < self.ranks.len() && !ranks[..at].contains(rank);
        let own = ranks.iter().position(|rank| *rank == self.rank);
        let (true, Some(rank)) = (ranks.iter().enumerate().all(is_group), own) else {
            let expected = format!("{} and others below {}, each once", self.rank, self.ranks.len());
            return Err(CommError::Group { rank: self.world_rank(), ranks: ranks.to_vec(), expected });
        };
        let ranks: Vec<usize> = ranks.iter().map(|rank| self.ranks[*rank]).collect();
        let mut state = self.meeting.lock();
        state.check()?;
        let group = state.join(&ranks, rank);
        Ok(Self { meeting: Arc::clone(&self.meeting), group, rank, ranks: ranks.into() })
    }

    /// The handle is gone: whoever needs this rank in the group is told.
    pub(super) fn leave(&self) {
        let mut state = self.meeting.lock();
        state.handles[self.world_rank()] -= 1;
        let panicked = std::thread::panicking();
        if panicked && state.handles[self.world_rank()] > 0 {
            return; // whoever has the rank's other handle knows why
        }
        let error = if panicked {
            Some(CommError::Panicked { rank: self.world_rank(), message: String::new() })
        } else {
            state.left(self.group, self.rank).or_else(|| state.stranded())
        };
        if let Some(error) = error {
            self.meeting.fail(&mut state, error);
        }
    }
}

impl Issuer for Member {
    fn never_waited(&self, ticket: u64) {
        let mut state = self.meeting.lock();
        let group = &state.groups[self.group];
        if let Some((key, what)) = group.members[self.rank].tickets.get(&ticket) {
            let operation = group.describe(key, what);
            let error = CommError::NeverWaited { rank: self.world_rank(), operation };
            self.meeting.fail(&mut state, error);
        }
    }
}

impl State {
    fn check(&self) -> Result<(), CommError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// The group that a rank means by a list of the world's ranks: its first one of that list, its second, ...
    fn join(&mut self, ranks: &[usize], rank: usize) -> usize {
        let asked = self.asked.entry((ranks[rank], ranks.to_vec())).or_default();
        *asked += 1;
        let instance = *asked;
        let known = |group: &Group| group.instance == instance && group.ranks[..] == *ranks;
        let group = self.groups.iter().skip(1).position(known).map(|at| at + 1);
        let group = group.unwrap_or_else(|| {
            self.groups.push(Group::new(ranks.into(), instance));
            self.groups.len() - 1
        });
        self.groups[group].members[rank].presence = Presence::Here;
        self.handles[ranks[rank]] += 1;
        group
    }

    /// A rank is in a group no more. An error if it still has tickets there.
    fn left(&mut self, group: usize, rank: usize) -> Option<CommError> {
        let group = &mut self.groups[group];
        group.members[rank].presence = Presence::Left;
        let (key, what) = group.members[rank].tickets.values().min_by_key(|(key, _)| key.number)?;
        let operation = group.describe(key, what);
        Some(CommError::NeverWaited { rank: group.ranks[rank], operation })
    }

    /// An operation that somebody started and that a rank which is gone will never start.
    fn stranded(&self) -> Option<CommError> {
        let all = self.groups.iter().enumerate();
        let mut open = all.flat_map(|(at, group)| group.slots.keys().map(move |key| (at, key)));
        open.find_map(|(group, key)| self.stranded_at(group, key))
    }

    fn stranded_at(&self, group: usize, key: &Key) -> Option<CommError> {
        let group = &self.groups[group];
        let is_gone = |rank: &usize| match group.members[*rank].presence {
            Presence::Absent | Presence::Here => self.handles[group.ranks[*rank]] == 0,
            Presence::Left => true,
        };
        let gone = group.missing(key).into_iter().find(is_gone)?;
        let (by, entry) = group.slots[key].first()?;
        let started_by = group.ranks[key.channel.rank(by)];
        let operation = group.describe(key, &entry.what);
        Some(CommError::Left { rank: group.ranks[gone], operation, started_by })
    }
}

impl Group {
    fn new(ranks: Arc<[usize]>, instance: u64) -> Self {
        let members = ranks.iter().map(|_| Membership::default()).collect();
        Self { ranks, instance, members, slots: HashMap::new() }
    }

    /// Adds a rank's entry to the slot that it belongs to.
    fn enter(&mut self, rank: usize, entry: Entry, spare: &Arc<Spare>) -> Result<(u64, Key), CommError> {
        let (channel, part) = Channel::of(&entry.what, rank);
        let member = &mut self.members[rank];
        let number = member.started.entry((channel, part)).or_default();
        *number += 1;
        let key = Key { channel, number: *number };
        member.issued += 1;
        let ticket = member.issued;
        member.tickets.insert(ticket, (key, entry.what));
        let parts = channel.parts(self.ranks.len());
        let slot = self.slots.entry(key).or_insert_with(|| Slot::new(parts));
        if let Some((first, there)) = slot.first().filter(|(_, there)| !there.what.meets(&entry.what)) {
            let what = there.what;
            return Err(self.mismatch(&key, (first, what), (part, entry.what)));
        }
        slot.entries[part] = Some(entry);
        slot.complete_if_full(spare);
        Ok((ticket, key))
    }

    fn is_complete(&self, key: &Key) -> bool {
        self.slots.get(key).is_some_and(|slot| slot.complete.is_some())
    }

    /// A ticket's operation with its parts, if all are there; its slot goes when everyone has taken it.
    fn take(&mut self, rank: usize, ticket: u64) -> Option<(What, Arc<Parts>)> {
        let (key, what) = *self.members[rank].tickets.get(&ticket)?;
        let hash_map::Entry::Occupied(mut slot) = self.slots.entry(key) else { return None };
        let parts = slot.get().complete.clone()?;
        self.members[rank].tickets.remove(&ticket);
        slot.get_mut().waited += 1;
        if slot.get().waited == slot.get().entries.len() {
            slot.remove();
        }
        Some((what, parts))
    }

    /// The ranks that have not started an operation.
    fn missing(&self, key: &Key) -> Vec<usize> {
        let Some(slot) = self.slots.get(key).filter(|slot| slot.complete.is_none()) else { return vec![] };
        let missing = slot.entries.iter().enumerate().filter(|(_, entry)| entry.is_none());
        missing.map(|(part, _)| key.channel.rank(part)).collect()
    }

    fn timeout(&self, rank: usize, ticket: u64, limit: Duration) -> CommError {
        let rank_name = self.ranks[rank];
        let Some((key, what)) = self.members[rank].tickets.get(&ticket) else {
            return CommError::ForeignTicket { rank: rank_name, group: self.ranks.to_vec() };
        };
        let missing = self.missing(key).into_iter().map(|rank| self.ranks[rank]).collect();
        CommError::Timeout { rank: rank_name, operation: self.describe(key, what), missing, limit }
    }

    fn mismatch(&self, key: &Key, first: (usize, What), second: (usize, What)) -> CommError {
        let named =
            |(part, what): (usize, What)| (self.ranks[key.channel.rank(part)], what.describe(&self.ranks));
        CommError::Mismatch { first: named(first), second: named(second), place: self.place(key) }
    }

    /// An operation with its place.
    fn describe(&self, key: &Key, what: &What) -> String {
        format!("{} ({})", what.describe(&self.ranks), self.place(key))
    }

    fn place(&self, key: &Key) -> String {
        let number = key.number;
        match key.channel {
            Channel::All => format!("operation {number} of ranks {:?}", self.ranks),
            Channel::Pair { from, to, tag } => {
                format!("message {number} from rank {} to {}, tag {tag}", self.ranks[from], self.ranks[to])
            }
        }
    }
}

impl Channel {
    /// The channel of an operation, and the rank's part in it.
    fn of(what: &What, rank: usize) -> (Self, usize) {
        let What::Collective(Collective { kind, tag, .. }) = *what else { return (Self::All, rank) };
        match kind {
            Kind::Send { to } => (Self::Pair { from: rank, to, tag }, 0),
            Kind::Receive { from } => (Self::Pair { from, to: rank, tag }, 1),
            Kind::AllGather | Kind::ReduceScatter | Kind::AllReduce => (Self::All, rank),
        }
    }

    fn parts(self, world: usize) -> usize {
        match self {
            Self::All => world,
            Self::Pair { .. } => 2,
        }
    }

    /// Whose part it is.
    fn rank(self, part: usize) -> usize {
        match self {
            Self::All => part,
            Self::Pair { from, to, .. } => [from, to][part],
        }
    }
}

impl What {
    /// Whether two ranks mean the same operation.
    fn meets(&self, other: &What) -> bool {
        match (self, other) {
            (Self::Collective(a), Self::Collective(b)) if a.peer().is_some() && b.peer().is_some() => {
                (a.element, a.count) == (b.element, b.count)
            }
            (a, b) => a == b,
        }
    }

    fn describe(&self, ranks: &[usize]) -> String {
        match self {
            Self::Collective(what) => what.describe(ranks),
            Self::Exchange => "exchange of texts".to_owned(),
        }
    }
}

impl Slot {
    fn new(parts: usize) -> Self {
        Self { entries: (0..parts).map(|_| None).collect(), complete: None, waited: 0 }
    }

    /// The first part that is there, with its number.
    fn first(&self) -> Option<(usize, &Entry)> {
        self.entries.iter().enumerate().find_map(|(part, entry)| Some((part, entry.as_ref()?)))
    }

    fn complete_if_full(&mut self, spare: &Arc<Spare>) {
        if self.entries.iter().all(Option::is_some) {
            let inputs: Vec<Vec<u8>> =
                self.entries.iter_mut().flatten().map(|entry| std::mem::take(&mut entry.input)).collect();
            let pieces = inputs.iter().map(|_| OnceLock::new()).collect();
            self.complete = Some(Arc::new(Parts { inputs, pieces, spare: Arc::clone(spare) }));
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        let pieces = self.pieces.iter_mut().filter_map(OnceLock::take);
        self.inputs.drain(..).chain(pieces).for_each(|buffer| self.spare.put(buffer));
    }
}

impl Parts {
    /// Writes a rank's result of an operation whose sizes were checked.
    pub(super) fn write(&self, what: &Collective, rank: usize, output: &mut [u8]) {
        match what.kind {
            Kind::AllGather => self.gather(output),
            Kind::ReduceScatter => {
                let own = rank * output.len()..(rank + 1) * output.len();
                sum(what.element, &self.stretch(&own), output);
            }
            Kind::AllReduce => self.all_reduce(what, rank, output),
            Kind::Send { .. } => {}
            Kind::Receive { .. } => output.copy_from_slice(&self.inputs[0]),
        }
    }

    fn gather(&self, mut output: &mut [u8]) {
        for input in &self.inputs {
            let (to, rest) = output.split_at_mut(input.len());
            to.copy_from_slice(input);
            output = rest;
        }
    }

    /// The sum, piece by piece, beginning with this rank's own; those that others have computed are copied.
    fn all_reduce(&self, what: &Collective, rank: usize, output: &mut [u8]) {
        let (piece, end) = (what.count.div_ceil(self.pieces.len()) * what.element.bytes(), output.len());
        let range = |number: usize| (number * piece).min(end)..((number + 1) * piece).min(end);
        for number in (rank..self.pieces.len()).chain(0..rank) {
            let range = range(number);
            let sums = self.pieces[number].get_or_init(|| {
                let mut sums = self.spare.take(range.len());
                sums.resize(range.len(), 0);
                sum(what.element, &self.stretch(&range), &mut sums);
                sums
            });
            output[range].copy_from_slice(sums);
        }
    }

    /// The same bytes of every input.
    fn stretch(&self, range: &Range<usize>) -> Vec<&[u8]> {
        self.inputs.iter().map(|input| &input[range.clone()]).collect()
    }
}
