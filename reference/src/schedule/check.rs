//! Whether a schedule can be run.
//!
//! For every micro-batch and stage each of F, B, R (where the stage is recomputed) and W (where it is trained) is done
//! exactly once, on the rank that has the stage. Nothing is used before it is there:
//!
//! ```text
//! F of stage s    after    F of stage s - 1
//! R of stage s    after    F of stage s
//! B of stage s    after    F of stage s, R of stage s if it is recomputed, B of stage s + 1
//! W of stage s    after    B of stage s
//! F, R, B         while the chunk's weights are in the rank's buffer, if there is one: after a D that still lasts
//! ```
//!
//! On one rank that is the order of the line. Between ranks it is a message, and the order can only be wrong if ranks
//! wait for each other in a circle (`schedule/deadlock.rs`). A part of an operation counts as after the parts that
//! stand before it in the same operation. At last no rank may hold more than the cap (`schedule/memory.rs`).

use std::collections::BTreeMap;

use super::buffer::Buffered;
use super::deadlock::{Messages, Place, order};
use super::memory::peaks;
use super::{Error, Kind, Operation, Schedule, Sends, Shape, Site, Workload};

/// A schedule that can be run, with what was found on the way.
#[derive(Clone, Debug)]
pub struct Checked<'a> {
    pub(super) schedule: &'a Schedule,
    pub(super) workload: &'a Workload,
    pub(super) messages: Messages,
    /// All operations, each after what it waits for.
    pub(super) order: Vec<Place>,
    peaks: Vec<u64>,
}

impl Checked<'_> {
    /// The most units that each rank holds at once.
    pub fn peaks(&self) -> &[u64] {
        &self.peaks
    }

    /// Fails with the circle, if ranks that send like this wait for each other.
    pub fn check_sends(&self, sends: Sends) -> Result<(), Error> {
        order(self.schedule, &self.messages, sends).map(|_| ())
    }
}

/// Checks that a schedule does what the workload asks, and can be run.
///
/// Fails with the first thing that is wrong, in this order: the workload's numbers; what is not asked for or done
/// twice; what is missing; what is used too early; weights that are not dequantised; ranks that wait for each other;
/// memory.
pub fn check<'a>(schedule: &'a Schedule, workload: &'a Workload) -> Result<Checked<'a>, Error> {
    workload.check(schedule.shape())?;
    let parts = Parts::collect(schedule, workload)?;
    parts.all_there(schedule.shape(), workload)?;
    let messages = parts.messages(schedule, workload)?;
    weights_are_there(schedule, workload)?;
    let order = order(schedule, &messages, workload.sends)?;
    let peaks = peaks(schedule, workload)?;
    Ok(Checked { schedule, workload, messages, order, peaks })
}

/// What has to be done before a part of a stage's work: kinds and stages, for the same micro-batch.
pub(super) fn needs(
    shape: Shape,
    workload: &Workload,
    kind: Kind,
    stage: usize,
) -> impl Iterator<Item = (Kind, usize)> + use<> {
    let own = |kind| Some((kind, stage));
    let needs = match kind {
        Kind::Dequantize => [None; 3],
        Kind::Forward => [stage.checked_sub(1).map(|before| (Kind::Forward, before)), None, None],
        Kind::Recompute => [own(Kind::Forward), None, None],
        Kind::Backward => {
            let next = (stage + 1 < shape.stages()).then_some((Kind::Backward, stage + 1));
            [own(Kind::Forward), own(Kind::Recompute).filter(|_| workload.stage(stage).recomputed), next]
        }
        Kind::Weight => [own(Kind::Backward), None, None],
    };
    needs.into_iter().flatten()
}

/// Where each part of the work is done: kind, stage, micro-batch. D is not among them, it may be done at will.
struct Parts(BTreeMap<(Kind, usize, usize), Place>);

impl Parts {
    fn collect(schedule: &Schedule, workload: &Workload) -> Result<Self, Error> {
        let mut parts = Self(BTreeMap::new());
        for at in schedule.sites() {
            for kind in at.operation.kinds.iter() {
                parts.add(schedule, workload, at, kind)?;
            }
        }
        Ok(parts)
    }

    fn add(&mut self, schedule: &Schedule, workload: &Workload, at: Site, kind: Kind) -> Result<(), Error> {
        let stage = schedule.shape().stage(at.rank, at.operation.chunk);
        if !workload.asks(kind, stage) {
            return Err(Error::NotAsked { at, kind });
        }
        if kind == Kind::Dequantize {
            return Ok(());
        }
        match self.0.insert((kind, stage, at.operation.micro_batch), (at.rank, at.position)) {
            Some(first) => Err(Error::Twice { at, kind, first: schedule.site(first) }),
            None => Ok(()),
        }
    }

    /// Looks at one part more than there are, at most, however large the shape is.
    fn all_there(&self, shape: Shape, workload: &Workload) -> Result<(), Error> {
        for stage in 0..shape.stages() {
            let (rank, chunk) = shape.home(stage);
            for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Dequantize) {
                let asked = if workload.asks(kind, stage) { shape.micro_batches() } else { 0 };
                if let Some(i) = (0..asked).find(|i| !self.0.contains_key(&(kind, stage, *i))) {
                    return Err(Error::Missing { rank, operation: Operation::one(kind, i, chunk) });
                }
            }
        }
        Ok(())
    }

    /// What goes from rank to rank; fails where something is used too early on one rank.
    fn messages(&self, schedule: &Schedule, workload: &Workload) -> Result<Messages, Error> {
        let mut messages = Messages::default();
        for at in schedule.sites() {
            let (place, i) = ((at.rank, at.position), at.operation.micro_batch);
            let stage = schedule.shape().stage(at.rank, at.operation.chunk);
            for kind in at.operation.kinds.iter() {
                for (need, from) in needs(schedule.shape(), workload, kind, stage) {
                    let source = self.0[&(need, from, i)];
                    if source.0 != at.rank {
                        messages.add(kind, source, place);
                    } else if source.1 > at.position {
                        return Err(Error::TooEarly { at, needs: schedule.site(source) });
                    }
                }
            }
        }
        Ok(messages)
    }
}

fn weights_are_there(schedule: &Schedule, workload: &Workload) -> Result<(), Error> {
    let Some(buffer) = workload.buffer else { return Ok(()) };
    for rank in 0..schedule.shape().ranks() {
        let mut there = Buffered::new(buffer);
        for at in schedule.sites_of(rank) {
            let Operation { kinds, chunk, .. } = at.operation;
            if kinds.contains(Kind::Dequantize) {
                there.load(chunk);
            }
            if kinds.read_weights() && !there.read(chunk) {
                return Err(Error::NotDequantized { at });
            }
        }
    }
    Ok(())
}
