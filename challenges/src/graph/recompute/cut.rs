//! The fewest bytes to keep, as a minimum cut.
//!
//! Bytes flow from what cannot be computed again to what the backward part reads. A node is a pipe as wide as its bytes,
//! and a use by something cheap is a pipe of any width: who computes the user again needs the node. A cut through pipes of
//! nodes is a set of nodes that, once kept, give everything that is read; the least cut is as large as the largest flow
//! (Ford and Fulkerson, 1956). Of several least cuts it is the one nearest to the readers, which computes least again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use reference::graph::Id;

use super::{Halves, bytes};

/// Of the `cheap` nodes those that are computed again.
pub(super) fn cheap(halves: &Halves, cheap: &BTreeSet<Id>) -> BTreeSet<Id> {
    let mut pipes = pipes(halves, cheap);
    while pipes.fill() {}
    let behind = pipes.behind();
    cheap.iter().copied().filter(|id| behind.contains(&Vertex::Before(*id))).collect()
}

/// A place in the net: before and behind each node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Vertex {
    Source,
    Before(Id),
    Behind(Id),
    Sink,
}

use Vertex::{Before, Behind, Sink, Source};

/// What may still flow from one place to another.
#[derive(Default)]
struct Pipes {
    room: BTreeMap<Vertex, BTreeMap<Vertex, usize>>,
}

/// Room for everything there is.
const WIDE: usize = usize::MAX / 4;

fn pipes(halves: &Halves, cheap: &BTreeSet<Id>) -> Pipes {
    let (sized, mut pipes) = (halves.sized, Pipes::default());
    for id in halves.forward.iter().copied().filter(|id| !halves.given.contains(id)) {
        let is_view = sized.is_view(id); // kept is what it views
        pipes.lay(Before(id), Behind(id), if is_view { WIDE } else { bytes(sized, id).max(1) });
        if !cheap.contains(&id) {
            pipes.lay(Source, Before(id), WIDE);
        }
        if halves.read.contains(&id) {
            pipes.lay(Behind(id), Sink, WIDE);
        }
        let users = sized.users(id).iter().filter(|user| halves.forward.contains(user));
        let users = users.filter(|user| cheap.contains(user) && !halves.given.contains(user));
        users.for_each(|user| pipes.lay(Behind(id), Before(*user), WIDE));
    }
    pipes
}

impl Pipes {
    fn lay(&mut self, from: Vertex, to: Vertex, room: usize) {
        self.room.entry(from).or_default().insert(to, room);
        self.room.entry(to).or_default().entry(from).or_insert(0);
    }

    /// Lets as much as possible flow along a shortest way that has room; whether there was one.
    fn fill(&mut self) -> bool {
        let way = self.way();
        let room = way.iter().map(|(from, to)| self.room[from][to]).min().unwrap_or(0);
        for (from, to) in way {
            *self.room.entry(from).or_default().entry(to).or_default() -= room;
            *self.room.entry(to).or_default().entry(from).or_default() += room;
        }
        room > 0
    }

    /// A shortest way from the source to the sink that has room, backwards; nothing if there is none.
    fn way(&self) -> Vec<(Vertex, Vertex)> {
        let (mut came, mut open) = (BTreeMap::new(), VecDeque::from([Source]));
        while let Some(here) = open.pop_front() {
            for (to, _) in self.room.get(&here).into_iter().flatten().filter(|(_, room)| **room > 0) {
                if *to != Source && !came.contains_key(to) {
                    came.insert(*to, here);
                    open.push_back(*to);
                }
            }
        }
        let mut way = Vec::new();
        let mut here = Sink;
        while let Some(from) = came.get(&here) {
            way.push((*from, here));
            here = *from;
        }
        way
    }

    /// The places from which something could still flow to the sink.
    fn behind(&self) -> BTreeSet<Vertex> {
        let (mut found, mut open) = (BTreeSet::from([Sink]), vec![Sink]);
        while let Some(here) = open.pop() {
            for from in self.room.get(&here).into_iter().flatten().map(|(from, _)| *from) {
                if self.room[&from][&here] > 0 && found.insert(from) {
                    open.push(from);
                }
            }
        }
        found
    }
}
