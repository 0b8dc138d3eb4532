//! What goes from rank to rank, and whether ranks ever wait for each other in a circle.
//!
//! What happens is a set of events: an operation runs, a message is handed over. Some wait for others, depending on how
//! ranks send; a schedule can be run if and only if the events can be put in an order in which each comes after all
//! that it waits for, which is found as Kahn (1962) does, and otherwise there is a circle.
//!
//! ```text
//! asynchronous   an operation waits for the one before it on its rank and for its messages; a message for its sender
//! paired         between two operations of a rank lie the messages that the first sends and the second receives;
//!                each waits for the first, and the second waits for all of them
//! blocking       the same, but each of these messages also waits for the one before it: sends first, F before B
//! ```
//!
//! With the latter two a message is one event in the lines of both of its ranks: it is handed over when both are there.
//! So 1F1B deadlocks with blocking sends, for in its steady state a rank sends F to its neighbour while the neighbour
//! sends it B, and neither receives; paired it runs, which is why Megatron-LM has `send_forward_recv_backward`.

use std::collections::BTreeMap;

use super::{Error, Kind, Schedule, Sends, Site};

/// A rank, and a position in its line.
pub(super) type Place = (usize, usize);

/// All results that one rank sends another.
#[derive(Clone, Debug, Default)]
pub(super) struct Messages {
    /// From the operation that sends to the one that receives, with the part that needs it.
    all: Vec<(Kind, Place, Place)>,
    arriving: BTreeMap<Place, Vec<usize>>,
    leaving: BTreeMap<Place, Vec<usize>>,
}

impl Messages {
    /// A message; those of one operation are added F before B.
    pub(super) fn add(&mut self, kind: Kind, from: Place, to: Place) {
        self.arriving.entry(to).or_default().push(self.all.len());
        self.leaving.entry(from).or_default().push(self.all.len());
        self.all.push((kind, from, to));
    }

    /// The operations whose results an operation receives.
    pub(super) fn sources(&self, to: Place) -> impl Iterator<Item = Place> {
        self.arriving.get(&to).into_iter().flatten().map(|message| self.all[*message].1)
    }

    /// What lies between an operation of a rank and the one before it: sends of that, receives of this.
    fn between(&self, (rank, position): Place) -> Vec<usize> {
        let sends = position.checked_sub(1).and_then(|before| self.leaving.get(&(rank, before)));
        let mut sends = sends.cloned().unwrap_or_default();
        sends.sort_by_key(|message| self.all[*message].0);
        sends.extend(self.arriving.get(&(rank, position)).into_iter().flatten());
        sends
    }
}

/// All operations in an order in which each comes after what it waits for.
///
/// Fails with a circle, if there is one.
pub(super) fn order(schedule: &Schedule, messages: &Messages, sends: Sends) -> Result<Vec<Place>, Error> {
    let events = Events::new(schedule, messages, sends);
    let (order, waiting) = events.sorted();
    match waiting.iter().position(|count| *count > 0) {
        Some(first) => {
            Err(Error::Deadlock { sends, cycle: events.cycle(first, &waiting, schedule, messages) })
        }
        None => Ok(order.into_iter().filter_map(|event| events.places.get(event).copied()).collect()),
    }
}

/// Events and what waits for what: operations, rank after rank, then messages.
struct Events {
    places: Vec<Place>,
    /// For each event those that wait for it.
    next: Vec<Vec<usize>>,
}

impl Events {
    fn new(schedule: &Schedule, messages: &Messages, sends: Sends) -> Self {
        let places: Vec<Place> = schedule.sites().map(|at| (at.rank, at.position)).collect();
        let mut events = Self { next: vec![Vec::new(); places.len() + messages.all.len()], places };
        let mut first = 0;
        for (rank, line) in schedule.ranks().iter().enumerate() {
            events.line(rank, first, line.len(), messages, sends);
            first += line.len();
        }
        events
    }

    /// The events of a rank, whose operations are numbered from `first`.
    fn line(&mut self, rank: usize, first: usize, operations: usize, messages: &Messages, sends: Sends) {
        for position in 0..=operations {
            let mut before: Vec<usize> =
                position.checked_sub(1).map(|before| first + before).into_iter().collect();
            let operation = before.first().copied();
            for message in messages.between((rank, position)) {
                let message = self.places.len() + message;
                match sends {
                    Sends::Asynchronous => continue,
                    Sends::Paired => self.after(message, &operation),
                    Sends::Blocking => self.after(message, before.last()),
                }
                before.push(message);
            }
            if position < operations {
                self.after(first + position, &before);
                self.deliver(first + position, messages, sends);
            }
        }
    }

    /// With asynchronous sends only the receiver waits for a message.
    fn deliver(&mut self, operation: usize, messages: &Messages, sends: Sends) {
        if sends != Sends::Asynchronous {
            return;
        }
        let place = self.places[operation];
        let of = |map: &BTreeMap<Place, Vec<usize>>| map.get(&place).cloned().unwrap_or_default();
        for message in of(&messages.arriving) {
            self.next[self.places.len() + message].push(operation);
        }
        for message in of(&messages.leaving) {
            self.next[operation].push(self.places.len() + message);
        }
    }

    fn after<'a>(&mut self, event: usize, before: impl IntoIterator<Item = &'a usize>) {
        before.into_iter().for_each(|earlier| self.next[*earlier].push(event));
    }

    /// The events in order as far as that goes, and for each of how many it still waits.
    fn sorted(&self) -> (Vec<usize>, Vec<usize>) {
        let mut waiting = vec![0; self.next.len()];
        self.next.iter().flatten().for_each(|event| waiting[*event] += 1);
        let mut order: Vec<usize> = (0..waiting.len()).filter(|event| waiting[*event] == 0).collect();
        let mut at = 0;
        while let Some(&event) = order.get(at) {
            at += 1;
            for &later in &self.next[event] {
                waiting[later] -= 1;
                if waiting[later] == 0 {
                    order.push(later);
                }
            }
        }
        (order, waiting)
    }

    /// From an event that never happens, back along what it waits for, until an event comes again.
    fn cycle(&self, first: usize, waiting: &[usize], schedule: &Schedule, messages: &Messages) -> Vec<Site> {
        let mut cause = vec![None; waiting.len()];
        for (event, later) in self.next.iter().enumerate().filter(|(event, _)| waiting[*event] > 0) {
            for later in later {
                cause[*later] = Some(event);
            }
        }
        let mut walk = vec![first];
        let mut seen = vec![None; waiting.len()]; // where in the walk
        loop {
            let last = walk[walk.len() - 1];
            seen[last] = Some(walk.len() - 1);
            let Some(event) = cause[last] else { unreachable!("what never happens waits for such") };
            if let Some(start) = seen[event] {
                return self.between_ranks(&walk[start..], schedule, messages);
            }
            walk.push(event);
        }
    }

    /// Of a circle the operations at which ranks wait for another; a message stands for its sender.
    fn between_ranks(&self, circle: &[usize], schedule: &Schedule, messages: &Messages) -> Vec<Site> {
        let place = |event: &usize| match self.places.get(*event) {
            Some(place) => *place,
            None => messages.all[*event - self.places.len()].1,
        };
        let mut places: Vec<Place> = circle.iter().map(place).collect();
        places.dedup();
        if places.len() > 1 && places.first() == places.last() {
            places.pop();
        }
        let rank = |i: usize| places[i % places.len()].0;
        let last = places.len() - 1;
        let on_one_rank = (0..=last).all(|i| rank(i) == rank(i + 1));
        let at_an_end = |i: usize| on_one_rank || rank(i) != rank(i + last) || rank(i) != rank(i + 1);
        (0..=last).filter(|i| at_an_end(*i)).map(|i| schedule.site(places[i])).collect()
    }
}
