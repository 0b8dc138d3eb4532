//! Our own schedule: R and D run in the time that a rank would wait for a gradient.
//!
//! Where weights are frozen and only adapters are trained W is short, and a zero-bubble schedule has little to fill
//! bubbles with. But there is other work that waits for nobody: R needs its own F alone, not the gradient, and D needs
//! nothing. So they become operations of their own, and every rank goes by one rule, whenever it is free:
//!
//! > Of what can begin first, do B before R before F before W.
//!
//! That is list scheduling (Graham, 1969), run on the times of the workload; what comes out is an order. Each kind goes
//! through the micro-batches in their order. A D is part of the next operation that reads, begun early: if the weights
//! are not there when a rank is free it may load them while that operation's message is under way.
//!
//! *Memory.* F runs at most as far ahead of B as in 1F1B, where rank `r` has at most `ranks - r` micro-batches between
//! them; or, if that is more, as many as the slowest stage does while a micro-batch goes down from the rank to the last
//! stage and its gradient comes back, and one more where messages take time. That is never more than in 1F1B if stages
//! are alike and messages take none. R and F only begin if the cap allows it, and F only if besides all that F keeps
//! there is room for one R: so the oldest micro-batch always goes on, and a cap that has room for one micro-batch of
//! each stage never deadlocks. When the cap is in the way W is what a rank can still do, and it makes room. Without a
//! cap all W are put off for as long as there is other work.
//!
//! *Reads.* If dequantised weights go after so many reads, an R that finds its gradient there already is one operation
//! with its B, and so one read. It would be followed by that B in any case.
//!
//! *Sends* have to be asynchronous: an order that was made for the earliest times may deadlock where a send waits.
//!
//! *How good it is.* For p ranks with equal stages, no latency and no cap, no schedule is shorter (`schedule/bound.rs`)
//! than
//!
//! ```text
//! (p - 1)(F + B) + m (F + R + B) + W        if the last rank's other W fit in (p - 1) B
//! ```
//!
//! which is reached if the last rank, once it has begun, never waits before its last B, and that B then goes up without
//! delay because every R is done before it. A cap under which k micro-batches may wait for their W when the last B has
//! run adds `(m - k) W`. 1F1B takes `(p - 1 + m)(F + R + B + W)`: there R is part of every stage's tail.
//! For 4 ranks, 8 micro-batches, F = R = B = 1, W = 0.1, an input of 1 unit, and 12 units that R makes and W reads:
//!
//! ```text
//!                            makespan   bubble    largest peak of a rank, in units
//! 1F1B                       34.1       27.27 %   16
//! ours, cap 16               30.8       19.48 %   16      1F1B's own cap
//! ours, cap 48               30.6       18.95 %   40      the cap of 1F1B without recomputation
//! ours, no cap               30.1       17.61 %   100
//! ```
//!
//! With F = R = B the rule reaches the bound, with and without a cap, for every p up to 8 and m up to 32 that was tried
//! (`equal_times_reach_the_bound`, `a_cap_costs_the_weights_that_it_does_not_let_wait`). With other times it does not
//! always, as no rule without search does: of 84 drawn workloads of at most 3 ranks and 3 micro-batches it is shortest
//! in 77, and at most 9.4 % above the shortest in the others (`no_generator_undercuts_the_search`).

use super::buffer::Buffered;
use super::generate::{Loads, make, one_chunk};
use super::memory::{given_back, taken};
use super::{Error, Kind, Operation, Schedule, Shape, Workload};

/// What a rank prefers of what can begin first.
const PREFERENCE: [Kind; 4] = [Kind::Backward, Kind::Recompute, Kind::Forward, Kind::Weight];
/// Times that are nearer than this part of them are the same: they are sums of the same numbers in another order.
const SAME: f64 = 1e-9;

/// The schedule that fills bubbles with R and D.
///
/// Fails where [`Workload::check`] does, if there are several chunks, and if the cap has no room for one micro-batch of
/// a stage.
pub fn filled(shape: Shape, workload: &Workload) -> Result<Schedule, Error> {
    workload.check(shape)?;
    one_chunk(shape)?;
    room_for_one(shape, workload)?;
    let ranks = (0..shape.ranks()).map(|_| Rank::new(workload)).collect();
    let mut world = World { shape, workload, ahead: ahead(shape, workload), ranks };
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

/// How many micro-batches each rank may have between F and B, as the top of this file says.
fn ahead(shape: Shape, workload: &Workload) -> Vec<usize> {
    let time = |kinds: &[Kind], stage: usize| -> f64 {
        let asked = kinds.iter().filter(|kind| workload.asks(**kind, stage));
        asked.map(|kind| workload.time(*kind, stage)).sum()
    };
    let slowest = (0..shape.stages()).map(|stage| time(&PREFERENCE, stage)).fold(0.0, f64::max);
    let spare = usize::from(workload.latency > 0.0);
    let mut trip = time(&[Kind::Recompute], shape.stages() - 1);
    let mut ahead = vec![0; shape.stages()];
    for stage in (0..shape.stages()).rev() {
        trip += time(&[Kind::Forward, Kind::Backward], stage);
        ahead[stage] =
            ((trip / slowest - SAME).ceil() as usize).saturating_add(spare).max(shape.ranks() - stage);
        trip += 2.0 * workload.latency;
    }
    ahead
}

/// Ranks on their way. Rank and stage are the same number.
struct World<'a> {
    shape: Shape,
    workload: &'a Workload,
    /// How many micro-batches each rank may have between F and B.
    ahead: Vec<usize>,
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
        let begins = PREFERENCE.map(|kind| self.begin(rank, kind).map(|begin| (kind, begin)));
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
                ahead < self.ahead[rank] && fits(own.held + costs.held.forward) && fits(kept)
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
