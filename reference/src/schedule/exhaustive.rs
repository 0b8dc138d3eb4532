//! The shortest schedule of a small workload, by looking at all of them.
//!
//! A schedule is made operation by operation: any that has all it needs may come next on its rank, and begins as soon
//! as it can. Every order of every rank is made in this way, with R and W apart (an operation that does several things
//! is never shorter than its parts one after the other: each part may still begin where it did, and ends no later). Two
//! orders of the same operations are the same state, of which only the times matter from there on, so a state is given
//! up if
//!
//! - a known schedule is no longer than what it can still lead to: for each operation that is left, the earliest begin
//!   that its rank and its needs allow, and the longest chain behind it; for each rank the sum of what is left; or
//! - the same operations were done before with no rank free later and no result that is still needed ready later; or
//! - the first stage does not take the micro-batches in their order: they are all alike, so they may be renamed.
//!
//! None of these ever gives up all of the shortest schedules. Micro-batches need not keep their order elsewhere.

use std::collections::HashMap;

use super::check::needs;
use super::memory::{given_back, taken};
use super::{Error, Kind, Operation, Schedule, Shape, Workload};
use crate::oracles::SHORTEST;

/// Times that differ by less are the same: sums of the same numbers in another order.
const SAME: f64 = 1e-9;

/// A shortest schedule.
#[derive(Clone, Debug)]
pub struct Shortest {
    /// The schedule.
    pub schedule: Schedule,
    /// Its makespan, in the workload's unit of time.
    pub makespan: f64,
    /// States that were looked at.
    pub states: usize,
}

/// Finds a shortest schedule under the workload's cap, with asynchronous sends; `None` if the cap allows none.
///
/// Fails where [`Workload::check`] does, if there are more than 64 operations or a buffer for dequantised weights (a D
/// may be done at will, so there is no end of orders), and if it takes more than `most` states.
pub fn shortest(shape: Shape, workload: &Workload, most: usize) -> Result<Option<Shortest>, Error> {
    SHORTEST.count();
    workload.check(shape)?;
    if workload.buffer.is_some() {
        return Err(Error::setting("buffer", "one", "none, for a search"));
    }
    let tasks = Tasks::new(shape, workload)?;
    let mut search =
        Search { tasks: &tasks, best: None, limit: f64::INFINITY, seen: HashMap::new(), states: 0, most };
    search.visit(&mut State::new(&tasks))?;
    let Some((makespan, lines)) = search.best else { return Ok(None) };
    Ok(Some(Shortest { schedule: Schedule::new(shape, lines)?, makespan, states: search.states }))
}

/// One operation, with what it needs and what comes behind it.
struct Task {
    rank: usize,
    operation: Operation,
    takes: f64,
    /// What has to be done before, with the time that the result is under way.
    needs: Vec<(usize, f64)>,
    /// The task that has to be done before although it needs nothing of it, because micro-batches may be renamed.
    follows: Option<usize>,
    /// The longest chain from its end to the end of the step.
    behind: f64,
    held: u64,
    freed: u64,
}

/// All operations, each after what it needs.
struct Tasks {
    all: Vec<Task>,
    ranks: usize,
    cap: u64,
}

impl Tasks {
    fn new(shape: Shape, workload: &Workload) -> Result<Self, Error> {
        let limit = |found| Error::setting("operations", found, "at most 64, for a search");
        let forwards = shape.stages().saturating_mul(shape.micro_batches());
        if forwards > 64 {
            return Err(limit(forwards));
        }
        let parts = parts(shape, workload);
        if parts.len() * shape.micro_batches() > 64 {
            return Err(limit(parts.len() * shape.micro_batches()));
        }
        let mut all = Vec::new();
        for i in 0..shape.micro_batches() {
            for &(kind, stage) in &parts {
                all.push(task(shape, workload, &parts, i, kind, stage));
            }
        }
        chains(&mut all);
        Ok(Self { all, ranks: shape.ranks(), cap: workload.cap.unwrap_or(u64::MAX) })
    }
}

/// The kinds and stages of one micro-batch, each after what it needs.
fn parts(shape: Shape, workload: &Workload) -> Vec<(Kind, usize)> {
    let down = (0..shape.stages()).map(|stage| (Kind::Forward, stage));
    let back = [Kind::Recompute, Kind::Backward, Kind::Weight];
    let up = (0..shape.stages()).rev().flat_map(|stage| back.map(|kind| (kind, stage)));
    down.chain(up).filter(|(kind, stage)| workload.asks(*kind, *stage)).collect()
}

fn task(
    shape: Shape,
    workload: &Workload,
    parts: &[(Kind, usize)],
    i: usize,
    kind: Kind,
    stage: usize,
) -> Task {
    let index =
        |part| i * parts.len() + parts.iter().position(|other| *other == part).expect("a part that is asked");
    let (rank, chunk) = shape.home(stage);
    let operation = Operation::one(kind, i, chunk);
    let needs = needs(shape, workload, kind, stage);
    Task {
        rank,
        operation,
        takes: workload.time(kind, stage),
        needs: needs.map(|part| (index(part), workload.hop(shape, part.1, stage))).collect(),
        follows: index((kind, stage))
            .checked_sub(parts.len())
            .filter(|_| (kind, stage) == (Kind::Forward, 0)),
        behind: 0.0,
        held: taken(workload, operation, stage),
        freed: given_back(workload, operation, stage),
    }
}

fn chains(all: &mut [Task]) {
    for i in (0..all.len()).rev() {
        let length = all[i].takes + all[i].behind;
        for (need, hop) in all[i].needs.clone() {
            all[need].behind = all[need].behind.max(length + hop);
        }
    }
}

/// What is done, and when.
struct State {
    done: u64,
    /// When each rank is free, what it holds, what it has done.
    free: Vec<f64>,
    held: Vec<u64>,
    lines: Vec<Vec<Operation>>,
    /// When each task that is done ended.
    ends: Vec<f64>,
}

impl State {
    fn new(tasks: &Tasks) -> Self {
        Self {
            done: 0,
            free: vec![0.0; tasks.ranks],
            held: vec![0; tasks.ranks],
            lines: vec![Vec::new(); tasks.ranks],
            ends: vec![0.0; tasks.all.len()],
        }
    }

    fn is_done(&self, task: usize) -> bool {
        self.done & 1 << task != 0
    }

    fn left<'a>(&self, tasks: &'a Tasks) -> impl Iterator<Item = (usize, &'a Task)> + use<'a> {
        let done = self.done;
        tasks.all.iter().enumerate().filter(move |(i, _)| done & 1 << i == 0)
    }

    /// When a task begins that comes next on its rank; `None` if it may not.
    fn begin(&self, tasks: &Tasks, task: &Task) -> Option<f64> {
        let before = task.needs.iter().map(|(need, _)| *need).chain(task.follows);
        let has_room = self.held[task.rank].saturating_add(task.held) <= tasks.cap;
        let arrivals = task.needs.iter().map(|(need, hop)| self.ends[*need] + hop);
        let begin = arrivals.fold(self.free[task.rank], f64::max);
        (has_room && before.into_iter().all(|before| self.is_done(before))).then_some(begin)
    }

    /// When no schedule that goes on from here can end before.
    fn bound(&self, tasks: &Tasks) -> f64 {
        let mut earliest = self.ends.clone(); // of the end of each task
        let mut ranks = vec![(f64::INFINITY, 0.0, f64::INFINITY); self.free.len()];
        let mut bound = self.free.iter().copied().fold(0.0, f64::max);
        for (i, task) in self.left(tasks) {
            let arrivals = task.needs.iter().map(|(need, hop)| earliest[*need] + hop);
            let begin = arrivals.fold(self.free[task.rank], f64::max);
            earliest[i] = begin + task.takes;
            bound = bound.max(earliest[i] + task.behind);
            let (first, work, behind) = &mut ranks[task.rank];
            (*first, *work, *behind) = (first.min(begin), *work + task.takes, behind.min(task.behind));
        }
        let of_ranks =
            ranks.iter().filter(|rank| rank.0.is_finite()).map(|(first, work, behind)| first + work + behind);
        of_ranks.fold(bound, f64::max)
    }

    /// The times that matter from here on: when ranks are free, and when results arrive that another rank still needs.
    fn times(&self, tasks: &Tasks) -> Vec<f64> {
        let mut needed = vec![false; self.ends.len()];
        for (_, task) in self.left(tasks) {
            let other = |need: &&(usize, f64)| self.is_done(need.0) && tasks.all[need.0].rank != task.rank;
            task.needs.iter().filter(other).for_each(|(need, _)| needed[*need] = true);
        }
        let ends = self.ends.iter().zip(needed).filter(|(_, needed)| *needed).map(|(end, _)| *end);
        self.free.iter().copied().chain(ends).collect()
    }
}

/// A search, and what it has found.
struct Search<'a> {
    tasks: &'a Tasks,
    best: Option<(f64, Vec<Vec<Operation>>)>,
    /// The makespan of the best.
    limit: f64,
    /// For each set of operations, the times at which it was done, of which none is better than another throughout.
    seen: HashMap<u64, Vec<Vec<f64>>>,
    states: usize,
    most: usize,
}

impl Search<'_> {
    fn visit(&mut self, state: &mut State) -> Result<(), Error> {
        if state.bound(self.tasks) >= self.limit - SAME || self.was_seen(state) {
            return Ok(());
        }
        self.states += 1;
        if self.states > self.most {
            return Err(Error::Unfinished { states: self.most });
        }
        if state.left(self.tasks).next().is_none() {
            self.limit = state.free.iter().copied().fold(0.0, f64::max);
            self.best = Some((self.limit, state.lines.clone()));
            return Ok(());
        }
        self.go_on(state)
    }

    /// The likeliest first: what begins first, then what has the longest chain behind it.
    fn go_on(&mut self, state: &mut State) -> Result<(), Error> {
        let tasks = self.tasks;
        let begins = state.left(tasks).filter_map(|(i, task)| Some((state.begin(tasks, task)?, i)));
        let mut begins: Vec<(f64, usize)> = begins.collect();
        begins.sort_by(|a, b| {
            let behind = |i: usize| tasks.all[i].behind;
            a.0.total_cmp(&b.0).then(behind(b.1).total_cmp(&behind(a.1)))
        });
        begins.into_iter().try_for_each(|(begin, i)| self.run(state, i, begin))
    }

    fn run(&mut self, state: &mut State, i: usize, begin: f64) -> Result<(), Error> {
        let task = &self.tasks.all[i];
        let rank = task.rank;
        let (free, held) = (state.free[rank], state.held[rank]);
        state.done |= 1 << i;
        state.ends[i] = begin + task.takes;
        state.free[rank] = state.ends[i];
        state.held[rank] = held + task.held - task.freed;
        state.lines[rank].push(task.operation);
        let outcome = self.visit(state);
        state.lines[rank].pop();
        (state.free[rank], state.held[rank], state.ends[i]) = (free, held, 0.0);
        state.done &= !(1 << i);
        outcome
    }

    /// Whether the same operations were done before, no later; if not, notes them down.
    fn was_seen(&mut self, state: &State) -> bool {
        let times = state.times(self.tasks);
        let seen = self.seen.entry(state.done).or_default();
        let no_later = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| *a <= b + SAME);
        if seen.iter().any(|other| no_later(other, &times)) {
            return true;
        }
        seen.retain(|other| !no_later(&times, other));
        seen.push(times);
        false
    }
}
