//! The fewest bytes to keep, as a minimum cut.
//!
//! Bytes flow from what cannot be computed again to what the backward part reads. A node is a pipe as wide as its
//! bytes, and a use by something cheap is a pipe of any width: who computes the user again needs the node. A cut
//! through pipes of nodes is a set of nodes that, once kept, give everything that is read; the least cut is as large as
//! the largest flow (Ford and Fulkerson, 1956). Of several least cuts it is the one nearest to the readers, which
//! computes least again.

use std::collections::{BTreeSet, VecDeque};

use reference::graph::Id;

use super::{ForwardBackward, bytes};

/// Of the `cheap` nodes those that are computed again.
pub(super) fn cheap(split: &ForwardBackward, cheap: &BTreeSet<Id>) -> BTreeSet<Id> {
    let mut net = net(split, cheap);
    while net.fill() {}
    let readers_side = net.readers_side();
    cheap.iter().copied().filter(|id| readers_side[before(*id)]).collect()
}

/// A place in the net, by its number: the source, the sink, and one before and one after each node.
type Vertex = usize;

const SOURCE: Vertex = 0;
const SINK: Vertex = 1;

fn before(id: Id) -> Vertex {
    2 + 2 * id.0 as usize
}

fn after(id: Id) -> Vertex {
    before(id) + 1
}

/// What may still flow from one place to another.
#[derive(Clone, Copy)]
struct Pipe {
    from: Vertex,
    to: Vertex,
    room: usize,
}

/// Pipes in pairs, there and back: the other one of pipe `i` is `i ^ 1`.
struct Net {
    pipes: Vec<Pipe>,
    from: Vec<Vec<usize>>,
}

/// Room for everything there is.
const WIDE: usize = usize::MAX / 4;

fn net(split: &ForwardBackward, cheap: &BTreeSet<Id>) -> Net {
    let sized = split.sized;
    let mut net = Net { pipes: Vec::new(), from: vec![Vec::new(); 2 + 2 * sized.graph.nodes().len()] };
    for id in split.forward.iter().copied().filter(|id| !split.given.contains(id)) {
        let is_view = sized.is_view(id); // kept is what it views
        net.lay(before(id), after(id), if is_view { WIDE } else { bytes(sized, id).max(1) });
        if !cheap.contains(&id) {
            net.lay(SOURCE, before(id), WIDE);
        }
        if split.read.contains(&id) {
            net.lay(after(id), SINK, WIDE);
        }
        let users = sized.users(id).iter().filter(|user| split.forward.contains(user));
        let users = users.filter(|user| cheap.contains(user) && !split.given.contains(user));
        users.for_each(|user| net.lay(after(id), before(*user), WIDE));
    }
    net
}

impl Net {
    fn lay(&mut self, from: Vertex, to: Vertex, room: usize) {
        self.from[from].push(self.pipes.len());
        self.from[to].push(self.pipes.len() + 1);
        self.pipes.extend([Pipe { from, to, room }, Pipe { from: to, to: from, room: 0 }]);
    }

    /// Lets as much as possible flow along a shortest way that has room; whether there was one.
    fn fill(&mut self) -> bool {
        let way = self.way();
        let room = way.iter().map(|pipe| self.pipes[*pipe].room).min().unwrap_or(0);
        for pipe in way {
            self.pipes[pipe].room -= room;
            self.pipes[pipe ^ 1].room += room;
        }
        room > 0
    }

    /// A shortest way from the source to the sink that has room, backwards; nothing if there is none.
    fn way(&self) -> Vec<usize> {
        let (mut came, mut open) = (vec![None; self.from.len()], VecDeque::from([SOURCE]));
        while let Some(here) = open.pop_front().filter(|_| came[SINK].is_none()) {
            for number in &self.from[here] {
                let pipe = self.pipes[*number];
                if pipe.room > 0 && pipe.to != SOURCE && came[pipe.to].is_none() {
                    came[pipe.to] = Some(*number);
                    open.push_back(pipe.to);
                }
            }
        }
        std::iter::successors(came[SINK], |pipe| came[self.pipes[*pipe].from]).collect()
    }

    /// Of each place whether something could still flow from it to the sink.
    fn readers_side(&self) -> Vec<bool> {
        let (mut found, mut open) = (vec![false; self.from.len()], vec![SINK]);
        found[SINK] = true;
        while let Some(here) = open.pop() {
            for number in &self.from[here] {
                let back = self.pipes[number ^ 1]; // which comes from there
                if back.room > 0 && !found[back.from] {
                    found[back.from] = true;
                    open.push(back.from);
                }
            }
        }
        found
    }
}
