//! A schedule by a rule: every rank, whenever it is free, does what it prefers of what can begin first.
//!
//! That is list scheduling (Graham, "Bounds on Multiprocessing Timing Anomalies", 1969), run on the times of the
//! workload; what comes out is an order. A [`Rule`] says what is preferred, and how far F may run ahead of B. Each kind
//! goes through the micro-batches in their order. A D is part of the next operation that reads, begun early: if the
//! weights are not there when a rank is free it may load them while that operation's message is under way.
//!
//! *Memory.* R and F only begin if the cap allows it, and F only if besides all that F keeps there is room for one R: so
//! the oldest micro-batch always goes on, and a cap that has room for one micro-batch of each stage never deadlocks,
//! whatever is preferred.
//!
//! *Reads.* If dequantised weights go after so many reads, an R that finds its gradient there already is one operation
//! with its B, and so one read.
//!
//! *Sends* have to be asynchronous: an order that was made for the earliest times may deadlock where a send waits.

use super::buffer::Buffered;
use super::generate::{Loads, make, one_chunk};
use super::memory::{given_back, taken};
use super::{Error, Kind, Operation, Schedule, Shape, Workload};

/// What each rank goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// F, B, R and W, from what is preferred most.
    pub preference: [Kind; 4],
    /// How many micro-batches each rank may have between F and B, at least 1.
    pub ahead: Vec<usize>,
}

impl Rule {
    fn check(&self, shape: Shape) -> Result<(), Error> {
        for kind in [Kind::Forward, Kind::Backward, Kind::Recompute, Kind::Weight] {
            if !self.preference.contains(&kind) {
                let found = format!("{:?}", self.preference);
                return Err(Error::setting("preference", found, "each of F, B, R and W once"));
            }
        }
        if self.ahead.len() != shape.ranks() || self.ahead.contains(&0) {
            let (found, expected) =
                (format!("{:?}", self.ahead), format!("{} numbers of at least 1", shape.ranks()));
            return Err(Error::setting("ahead", found, expected));
        }
        Ok(())
    }
}

/// Times that are nearer than this part of them are the same: they are sums of the same numbers in another order.
const SAME: f64 = 1e-9;

/// The schedule that comes of a rule.
///
/// Fails where [`Workload::check`] does, if there are several chunks, if the cap has no room for one micro-batch of a
/// stage, and if the rule leaves a kind out or lets a rank begin nothing.
pub fn listed(shape: Shape, workload: &Workload, rule: &Rule) -> Result<Schedule, Error> {
    workload.check(shape)?;
    one_chunk(shape)?;
    rule.check(shape)?;
    room_for_one(shape, workload)?;
    let ranks = (0..shape.ranks()).map(|_| Rank::new(workload)).collect();
    let mut world = World { shape, workload, rule, ranks };
    while let Some((rank, kind, begin)) = world.next() {
        world.run(rank, kind, begin);
    }
    make(shape, workload, Loads::Apart, |rank| std::mem::take(&mut world.ranks[rank].line))
}

fn room_for_one(shape: Shape, workload: &Workload) -> Result<(), Error> {
    let needed = (0..shape.stages()).map(|stage| workload.stage(stage).held_by_backward()).max();
    match (workload.cap, needed) {
        (Some(cap), Some(needed)) if cap < needed => Err(Error::setting(
            "cap",
            cap,
            format!("at least {needed} units, which one micro-batch of a stage needs"),
        )),
        _ => Ok(()),
    }
}

/// Ranks on their way. Rank and stage are the same number.
struct World<'a> {
    shape: Shape,
    workload: &'a Workload,
    rule: &'a Rule,
    ranks: Vec<Rank>,
}

/// What one rank has done.
struct Rank {
    /// When it is free.
    free: f64,
    /// When each F ended, and each B.
    forwards: Vec<f64>,
    backwards: Vec<f64>,
    /// How many R and W are done.
    recomputed: usize,
    weights: usize,
    held: u64,
    buffer: Option<Buffered>,
    line: Vec<Operation>,
}

impl Rank {
    fn new(workload: &Workload) -> Self {
        Self {
            free: 0.0,
            forwards: Vec::new(),
            backwards: Vec::new(),
            recomputed: 0,
            weights: 0,
            held: 0,
            buffer: workload.buffer.map(Buffered::new),
            line: Vec::new(),
        }
    }

    /// How many operations of a kind are done, which is the micro-batch of the next.
    fn done(&self, kind: Kind) -> usize {
        match kind {
            Kind::Dequantize => 0,
            Kind::Forward => self.forwards.len(),
            Kind::Recompute => self.recomputed,
            Kind::Backward => self.backwards.len(),
            Kind::Weight => self.weights,
        }
    }

    fn add(&mut self, operation: Operation, taken: u64, given_back: u64) {
        self.held += taken;
        self.held -= given_back;
        self.line.push(operation);
        if let Some(buffer) = self.buffer.as_mut().filter(|_| operation.kinds.read_weights()) {
            if !buffer.holds(0) {
                buffer.load(0);
            }
            buffer.read(0);
        }
    }
}

impl World<'_> {
    /// What begins first on any rank, and when; `None` if all is done.
    fn next(&self) -> Option<(usize, Kind, f64)> {
        let of_rank = |rank| self.next_of(rank).map(|(kind, begin)| (rank, kind, begin));
        (0..self.ranks.len()).filter_map(of_rank).min_by(|a, b| a.2.total_cmp(&b.2))
    }

    /// What a rank does next, and when it begins.
    fn next_of(&self, rank: usize) -> Option<(Kind, f64)> {
        let begins = self.rule.preference.map(|kind| self.begin(rank, kind).map(|begin| (kind, begin)));
        let first = begins.iter().flatten().map(|(_, begin)| *begin).min_by(f64::total_cmp)?;
        begins.into_iter().flatten().find(|(_, begin)| *begin <= first + SAME * first)
    }

    /// When a rank could begin its next operation of a kind, with the D that it needs; `None` if that is not known yet,
    /// not allowed, or there is none.
    fn begin(&self, rank: usize, kind: Kind) -> Option<f64> {
        let i = self.ranks[rank].done(kind);
        if i == self.shape.micro_batches() || !self.workload.asks(kind, rank) || !self.has_room(rank, kind) {
            return None;
        }
        let arrival = self.arrival(rank, kind, i)?;
        Some(self.ranks[rank].free.max(arrival - self.load(rank, kind)))
    }

    /// When what an operation needs is there; `None` if it is not done yet.
    fn arrival(&self, rank: usize, kind: Kind, i: usize) -> Option<f64> {
        let own = &self.ranks[rank];
        let before = |done: usize| (i < done).then_some(0.0);
        let from =
            |other: usize, ends: &[f64]| Some(ends.get(i)? + self.workload.hop(self.shape, other, rank));
        match kind {
            Kind::Dequantize => None,
            Kind::Forward if rank == 0 => Some(0.0),
            Kind::Forward => from(rank - 1, &self.ranks[rank - 1].forwards),
            Kind::Recompute => before(own.forwards.len()),
            Kind::Backward if self.workload.asks(Kind::Recompute, rank) && i >= own.recomputed => None,
            Kind::Backward if rank + 1 == self.shape.ranks() => before(own.forwards.len()),
            Kind::Backward => before(own.forwards.len()).and(from(rank + 1, &self.ranks[rank + 1].backwards)),
            Kind::Weight => before(own.backwards.len()),
        }
    }

    fn has_room(&self, rank: usize, kind: Kind) -> bool {
        let own = &self.ranks[rank];
        let costs = self.workload.stage(rank);
        let ahead = own.forwards.len() - own.backwards.len();
        let fits = |units| self.workload.cap.is_none_or(|cap| units <= cap);
        match kind {
            Kind::Forward => {
                let kept = ahead as u64 * costs.held.forward + costs.held_by_backward();
                ahead < self.rule.ahead[rank] && fits(own.held + costs.held.forward) && fits(kept)
            }
            Kind::Recompute => fits(own.held + costs.held.recompute),
            Kind::Dequantize | Kind::Backward | Kind::Weight => true,
        }
    }

    /// Time of the D that has to come before.
    fn load(&self, rank: usize, kind: Kind) -> f64 {
        let is_needed = |buffer: &Buffered| kind.reads_weights() && !buffer.holds(0);
        let needed = self.ranks[rank].buffer.as_ref().is_some_and(is_needed);
        if needed { self.workload.time(Kind::Dequantize, rank) } else { 0.0 }
    }

    fn run(&mut self, rank: usize, kind: Kind, begin: f64) {
        let mut operation = Operation::one(kind, self.ranks[rank].done(kind), 0);
        let start = begin + self.load(rank, kind);
        self.ranks[rank].free = start;
        self.finish(rank, kind);
        if kind == Kind::Recompute && self.reads_are_few() && self.has_gradient(rank, start) {
            operation.kinds = operation.kinds.with(Kind::Backward);
            self.finish(rank, Kind::Backward);
        }
        self.ranks[rank].add(
            operation,
            taken(self.workload, operation, rank),
            given_back(self.workload, operation, rank),
        );
    }

    /// A part of an operation ends.
    fn finish(&mut self, rank: usize, kind: Kind) {
        let own = &mut self.ranks[rank];
        own.free += self.workload.time(kind, rank);
        match kind {
            Kind::Dequantize => {}
            Kind::Forward => own.forwards.push(own.free),
            Kind::Recompute => own.recomputed += 1,
            Kind::Backward => own.backwards.push(own.free),
            Kind::Weight => own.weights += 1,
        }
    }

    fn reads_are_few(&self) -> bool {
        self.workload.buffer.is_some_and(|buffer| buffer.reads.is_some())
    }

    /// Whether the gradient of the micro-batch that was last computed again has come by then.
    fn has_gradient(&self, rank: usize, by: f64) -> bool {
        let own = &self.ranks[rank];
        let is_next = own.backwards.len() + 1 == own.recomputed;
        is_next
            && self.arrival(rank, Kind::Backward, own.backwards.len()).is_some_and(|arrival| arrival <= by)
    }
}
