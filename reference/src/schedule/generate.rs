//! Schedules that are known, for a shape and a workload.
//!
//! | schedule | chunks | R and D | W | source |
//! |---|---|---|---|---|
//! | [`gpipe`] | any | within F and B | within B | Huang et al., arXiv 1811.06965, figure 2 |
//! | [`one_f_one_b`] | 1 | within F and B | within B | Narayanan et al., arXiv 2104.04473, section 2.2.1 |
//! | [`interleaved`] | 2 or more, looped | within F and B | within B | the same, section 2.2.2 |
//! | [`zero_bubble`] | 1 | within F and B | apart, put off | Qi et al., arXiv 2401.10241 (ZB-H1) |
//! | [`listed`](super::listed()) | 1 | apart, as a rule prefers them | apart | `schedule/list.rs` |
//!
//! What is done within another operation is a letter of it, such as R and W of `RBW0`: it runs when the operation runs,
//! so not before the operation's message is there.

use super::buffer::Buffered;
use super::{Error, Kind, Operation, Placement, Schedule, Shape, Workload};
use crate::oracles;

/// Makes a schedule for a shape and a workload.
pub type Generator = fn(Shape, &Workload) -> Result<Schedule, Error>;

/// Every generator that needs no rule, with its name.
pub const GENERATORS: [(&str, Generator); 4] =
    [("gpipe", gpipe), ("1f1b", one_f_one_b), ("interleaved", interleaved), ("zb-h1", zero_bubble)];

/// All forwards, then all backwards from the last micro-batch to the first.
///
/// Fails where [`Workload::check`] does.
pub fn gpipe(shape: Shape, workload: &Workload) -> Result<Schedule, Error> {
    oracles::GENERATORS.count();
    workload.check(shape)?;
    let line = |rank| {
        let mut line = Line::new(shape, workload, rank);
        for chunk in 0..shape.chunks() {
            (0..shape.micro_batches()).for_each(|i| line.forward(i, chunk));
        }
        for chunk in (0..shape.chunks()).rev() {
            (0..shape.micro_batches()).rev().for_each(|i| line.whole_backward(i, chunk));
        }
        line.operations
    };
    make(shape, workload, Loads::Within, line)
}

/// Each rank runs as many forwards as there are ranks after it, then a forward and a backward in turn, then the
/// backwards that are left: rank `r` holds at most `ranks - r` micro-batches.
///
/// Fails where [`Workload::check`] does, and if there are several chunks.
pub fn one_f_one_b(shape: Shape, workload: &Workload) -> Result<Schedule, Error> {
    oracles::GENERATORS.count();
    workload.check(shape)?;
    one_chunk(shape)?;
    let line = |rank| {
        let mut line = Line::new(shape, workload, rank);
        let ahead = (shape.ranks() - 1 - rank).min(shape.micro_batches());
        line.alternate(ahead, shape.micro_batches(), Line::forward, Line::whole_backward, |_, i| (i, 0));
        line.operations
    };
    make(shape, workload, Loads::Within, line)
}

/// 1F1B over several chunks a rank: micro-batches go through in groups of as many as there are ranks, each group
/// through one chunk after the other.
///
/// Fails where [`Workload::check`] does, and if there are fewer than two chunks, another placement than looped, or
/// micro-batches that do not fill the groups.
pub fn interleaved(shape: Shape, workload: &Workload) -> Result<Schedule, Error> {
    oracles::GENERATORS.count();
    workload.check(shape)?;
    if shape.chunks() < 2 || shape.placement() != Placement::Looped {
        let found = format!("{} with placement {}", shape.chunks(), shape.placement().word());
        return Err(Error::setting("chunks", found, "at least 2 with placement looped"));
    }
    if shape.micro_batches() % shape.ranks() != 0 {
        let expected = format!("a multiple of {} ranks", shape.ranks());
        return Err(Error::setting("micro_batches", shape.micro_batches(), expected));
    }
    let line = |rank| {
        let mut line = Line::new(shape, workload, rank);
        let all = shape.micro_batches() * shape.chunks();
        let ahead = 2 * (shape.ranks() - 1 - rank) + (shape.chunks() - 1) * shape.ranks();
        let pass = |way, i| in_groups(shape, way, i);
        line.alternate(ahead.min(all), all, Line::forward, Line::whole_backward, pass);
        line.operations
    };
    make(shape, workload, Loads::Within, line)
}

/// ZB-H1: 1F1B with W apart, of which rank `r` puts off `r`, so that it holds as many micro-batches as the first rank,
/// which has all its forwards ahead and puts off none.
///
/// Fails where [`Workload::check`] does, and if there are several chunks.
pub fn zero_bubble(shape: Shape, workload: &Workload) -> Result<Schedule, Error> {
    oracles::GENERATORS.count();
    workload.check(shape)?;
    one_chunk(shape)?;
    let line = |rank| {
        let mut line = Line::new(shape, workload, rank);
        let ahead = (shape.ranks() - 1 - rank).min(shape.micro_batches());
        let backward = |line: &mut Line<'_>, i: usize, chunk: usize| {
            line.backward(i, chunk);
            i.checked_sub(rank).into_iter().for_each(|late| line.weight(late, chunk));
        };
        line.alternate(ahead, shape.micro_batches(), Line::forward, backward, |_, i| (i, 0));
        (shape.micro_batches().saturating_sub(rank)..shape.micro_batches()).for_each(|i| line.weight(i, 0));
        line.operations
    };
    make(shape, workload, Loads::Within, line)
}

pub(super) fn one_chunk(shape: Shape) -> Result<(), Error> {
    match shape.chunks() {
        1 => Ok(()),
        chunks => Err(Error::setting("chunks", chunks, "1")),
    }
}

/// Which way micro-batches go.
#[derive(Clone, Copy)]
enum Way {
    Down,
    Up,
}

/// The micro-batch and chunk of a rank's i-th forward or backward, in groups of as many micro-batches as ranks.
fn in_groups(shape: Shape, way: Way, i: usize) -> (usize, usize) {
    let (group, within) = (i / (shape.ranks() * shape.chunks()), i % (shape.ranks() * shape.chunks()));
    let chunk = match way {
        Way::Down => within / shape.ranks(),
        Way::Up => shape.chunks() - 1 - within / shape.ranks(),
    };
    (group * shape.ranks() + within % shape.ranks(), chunk)
}

/// The operations of one rank, as they are added.
struct Line<'a> {
    shape: Shape,
    workload: &'a Workload,
    rank: usize,
    operations: Vec<Operation>,
}

impl<'a> Line<'a> {
    fn new(shape: Shape, workload: &'a Workload, rank: usize) -> Self {
        Self { shape, workload, rank, operations: Vec::new() }
    }

    fn forward(&mut self, micro_batch: usize, chunk: usize) {
        self.push(&[Kind::Forward], micro_batch, chunk);
    }

    /// R and B, where the stage is recomputed.
    fn backward(&mut self, micro_batch: usize, chunk: usize) {
        self.push(&[Kind::Recompute, Kind::Backward], micro_batch, chunk);
    }

    fn whole_backward(&mut self, micro_batch: usize, chunk: usize) {
        self.push(&[Kind::Recompute, Kind::Backward, Kind::Weight], micro_batch, chunk);
    }

    fn weight(&mut self, micro_batch: usize, chunk: usize) {
        self.push(&[Kind::Weight], micro_batch, chunk);
    }

    /// Adds those of some parts that the workload asks for, as one operation.
    fn push(&mut self, kinds: &[Kind], micro_batch: usize, chunk: usize) {
        let stage = self.shape.stage(self.rank, chunk);
        let asked = kinds.iter().copied().filter(|kind| self.workload.asks(*kind, stage));
        let operation = Operation { kinds: asked.collect(), micro_batch, chunk };
        self.operations.extend(Some(operation).filter(|operation| !operation.kinds.is_empty()));
    }

    /// So many forwards ahead, then forwards and backwards in turn, then the backwards that are left, `all` of each.
    fn alternate(
        &mut self,
        ahead: usize,
        all: usize,
        forward: impl Fn(&mut Self, usize, usize),
        backward: impl Fn(&mut Self, usize, usize),
        pass: impl Fn(Way, usize) -> (usize, usize),
    ) {
        for i in 0..all + ahead {
            if i < all {
                let (micro_batch, chunk) = pass(Way::Down, i);
                forward(self, micro_batch, chunk);
            }
            if let Some(back) = i.checked_sub(ahead) {
                let (micro_batch, chunk) = pass(Way::Up, back);
                backward(self, micro_batch, chunk);
            }
        }
    }
}

/// Where the D of an operation stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Loads {
    /// It is the operation's first part.
    Within,
    /// It is an operation of its own, and so need not wait for the messages of the one that it is for.
    Apart,
}

/// The lines of all ranks, with a D wherever weights are read that are not there.
pub(super) fn make(
    shape: Shape,
    workload: &Workload,
    loads: Loads,
    mut line: impl FnMut(usize) -> Vec<Operation>,
) -> Result<Schedule, Error> {
    let lines = (0..shape.ranks()).map(|rank| dequantized(line(rank), workload, loads)).collect();
    Schedule::new(shape, lines)
}

fn dequantized(line: Vec<Operation>, workload: &Workload, loads: Loads) -> Vec<Operation> {
    let Some(buffer) = workload.buffer else { return line };
    let mut there = Buffered::new(buffer);
    let mut out = Vec::with_capacity(line.len());
    for mut operation in line {
        if operation.kinds.read_weights() && !there.holds(operation.chunk) {
            there.load(operation.chunk);
            match loads {
                Loads::Within => operation.kinds = operation.kinds.with(Kind::Dequantize),
                Loads::Apart => out.push(Operation::dequantize(operation.chunk)),
            }
        }
        if operation.kinds.read_weights() {
            there.read(operation.chunk);
        }
        out.push(operation);
    }
    out
}
