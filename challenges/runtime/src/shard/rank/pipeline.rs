//! A rank's line of a schedule, operation by operation.
//!
//! ```text
//! D    dequantise the pieces of a chunk, to be read until they go out of the buffer
//! F    receive x, or take the tokens; the pieces forward, the loss; send y
//! R    compute again what the pieces' backward reads
//! B    receive the gradient of y; the gradients of the pieces' x; send that of the first
//! W    the gradients of what is trained
//! ```
//!
//! `RBW` and `BW` in one operation are one program a piece. Where there is no `D` at all, each piece is gathered and
//! dequantised when an operation comes to it, and freed after it. The loss and its gradient are one
//! program, run by the last stage's `F`: what lies between the two is a gradient as large as y, and no logits.
//!
//! Messages between two stages have a tag for each micro-batch, chunk and direction, so that they find each other in
//! whatever order the lines have them. A send waits for nobody; all of them are waited for at the end of the step.

use std::ops::Range;
use std::time::Instant;

use compiler::session::DeviceTensor;
use kernels::comm::{Collective, Comm, Destination, Ticket};
use kernels::tile::Element;
use reference::llama::Piece;
use reference::schedule::{Kind, Kinds, Operation, Shape};

use super::flight::Flight;
use super::trace::{Interval, Semaphore};
use super::work::Work;
use crate::shard::Error;
use crate::shard::tasks::Task;

/// The work of one rank of a pipeline in a step.
pub(super) struct Line<'l> {
    /// The operations, in order.
    pub operations: &'l [Operation],
    /// The pipeline.
    pub shape: Shape,
    /// The number of this rank in the pipeline.
    pub rank: usize,
    /// The ranks of the pipeline; `None` if it is alone.
    pub stages: Option<&'l dyn Comm>,
    /// Whether micro-batches are only read: then there is nothing but F.
    pub is_evaluation: bool,
    /// The number of chunks whose dequantised weights fit.
    pub buffered: usize,
    /// Dimensions and bytes of a micro-batch's x.
    pub stream: &'l dyn Fn(&Flight) -> (Vec<usize>, usize),
    /// The number of ranks that compute at a time; `None` if all do.
    pub slots: Option<&'l Semaphore>,
}

/// The direction of a message.
#[derive(Clone, Copy)]
enum Direction {
    Forward,
    Backward,
}

/// The pieces of a stage: as many layers as of the others, or one more.
pub(super) fn pieces_of(stage: usize, stages: usize, layers: usize) -> Range<usize> {
    let first = |stage: usize| stage * layers / stages + 1; // the embedding is piece 0
    let begin = if stage == 0 { 0 } else { first(stage) };
    let end = if stage + 1 == stages { layers + 2 } else { first(stage + 1) };
    begin..end
}

impl Line<'_> {
    /// Runs it on this rank's micro-batches: when each operation ran.
    pub fn run(&self, work: &mut Work<'_>, flights: &mut [Flight]) -> Result<Vec<Interval>, Error> {
        let mut sent = Vec::new();
        let mut intervals = Vec::with_capacity(self.operations.len());
        let mut buffer: Vec<usize> = Vec::new(); // chunks, the one that was dequantised longest ago first
        for operation in self.operations {
            if operation.has_micro_batch() {
                self.receive(work, &mut flights[operation.micro_batch], *operation)?;
            }
            let _permit = self.slots.map(Semaphore::acquire);
            let begin = Instant::now();
            if operation.kinds.contains(Kind::Dequantize) {
                self.dequantize(work, &mut buffer, operation.chunk)?;
            }
            if operation.has_micro_batch() {
                self.compute(work, &mut flights[operation.micro_batch], *operation, &mut sent)?;
            }
            intervals.push(Interval::since(begin));
        }
        for chunk in buffer {
            self.forget(work, chunk);
        }
        if let Some(stages) = self.stages {
            sent.into_iter().try_for_each(|ticket| stages.wait(ticket, (&mut [][..]).into()))?;
        }
        Ok(intervals)
    }

    /// Runs an operation on a micro-batch whose message has arrived.
    fn compute(
        &self,
        work: &mut Work<'_>,
        flight: &mut Flight,
        operation: Operation,
        sent: &mut Vec<Ticket>,
    ) -> Result<(), Error> {
        let Operation { kinds, chunk, .. } = operation;
        let has = |kind: Kind| kinds.contains(kind);
        if has(Kind::Forward) {
            self.forward(work, flight, operation, sent)?;
        }
        if has(Kind::Recompute) && !is_fused(kinds) {
            self.recompute(work, flight, chunk)?;
        }
        if has(Kind::Backward) {
            self.backward(work, flight, operation, sent)?;
        } else if has(Kind::Weight) {
            self.weight(work, flight, chunk)?;
        }
        Ok(())
    }

    /// Waits for what an operation reads of another rank: x before F, the gradient of y before B.
    fn receive(&self, work: &mut Work<'_>, flight: &mut Flight, operation: Operation) -> Result<(), Error> {
        let stage = self.stage(operation.chunk);
        if operation.kinds.contains(Kind::Forward) && stage > 0 && self.is_elsewhere(stage - 1) {
            let x = self.message(work, flight, operation, Direction::Forward)?;
            flight.xs.insert(self.pieces(work, operation.chunk).start, x);
        }
        if operation.kinds.contains(Kind::Backward) && self.is_elsewhere(stage + 1) {
            let gradient = self.message(work, flight, operation, Direction::Backward)?;
            work.pool.give(flight.gradient.replace(gradient));
        }
        Ok(())
    }

    fn stage(&self, chunk: usize) -> usize {
        self.shape.stage(self.rank, chunk)
    }

    fn pieces(&self, work: &Work<'_>, chunk: usize) -> Range<usize> {
        pieces_of(self.stage(chunk), self.shape.stages(), work.pieces.len() - 2)
    }

    fn dequantize(&self, work: &mut Work<'_>, buffer: &mut Vec<usize>, chunk: usize) -> Result<(), Error> {
        buffer.retain(|other| *other != chunk);
        while buffer.len() >= self.buffered.max(1) {
            self.forget(work, buffer.remove(0));
        }
        buffer.push(chunk);
        self.pieces(work, chunk).try_for_each(|piece| work.dequantize(piece))
    }

    fn forget(&self, work: &mut Work<'_>, chunk: usize) {
        for piece in self.pieces(work, chunk) {
            work.forget(piece);
        }
    }

    /// Whether what backward reads is computed again: then forward keeps nothing.
    fn is_recomputed(&self, chunk: usize) -> bool {
        let again =
            |operation: &Operation| operation.chunk == chunk && operation.kinds.contains(Kind::Recompute);
        self.operations.iter().any(again)
    }

    fn forward(
        &self,
        work: &mut Work<'_>,
        flight: &mut Flight,
        operation: Operation,
        sent: &mut Vec<Ticket>,
    ) -> Result<(), Error> {
        let (stage, pieces) = (self.stage(operation.chunk), self.pieces(work, operation.chunk));
        let task = if self.is_recomputed(operation.chunk) { Task::Forward } else { Task::Keep };
        for number in pieces.clone() {
            let piece = work.pieces[number].piece;
            if piece == Piece::Head && work.loss.is_some() {
                work.chunked_head(number, flight, self.is_evaluation)?;
                continue;
            }
            let task = match piece {
                _ if self.is_evaluation => Task::Evaluate,
                Piece::Head => Task::Backward,
                Piece::Embedding => Task::Forward,
                Piece::Layer(_) => work
                    .activations
                    .get(&number)
                    .map_or(task, |own| if own.is_kept { Task::Keep } else { Task::Forward }),
            };
            work.run(number, task, flight)?;
            if !self.is_evaluation && work.activations.get(&number).is_some_and(|own| own.is_on_host) {
                work.offload(number, flight)?;
            }
        }
        if self.is_elsewhere(stage + 1) {
            let y = flight.xs.remove(&pieces.end).expect("a stage that is not the last gives y");
            sent.push(self.send(work, &y, operation, Direction::Forward)?);
            work.pool.give([y]);
        }
        Ok(())
    }

    /// Whether there is such a stage, on another rank.
    fn is_elsewhere(&self, stage: usize) -> bool {
        stage < self.shape.stages() && self.shape.home(stage).0 != self.rank
    }

    /// The pieces of a chunk but the head, the last first.
    fn back(&self, work: &Work<'_>, chunk: usize) -> Vec<usize> {
        let pieces = self.pieces(work, chunk).rev();
        pieces.filter(|number| work.pieces[*number].piece != Piece::Head).collect()
    }

    fn recompute(&self, work: &mut Work<'_>, flight: &mut Flight, chunk: usize) -> Result<(), Error> {
        for number in self.back(work, chunk).into_iter().rev() {
            if work.pieces[number].piece != Piece::Embedding {
                work.run(number, Task::Recompute, flight)?;
            }
        }
        Ok(())
    }

    fn backward(
        &self,
        work: &mut Work<'_>,
        flight: &mut Flight,
        operation: Operation,
        sent: &mut Vec<Ticket>,
    ) -> Result<(), Error> {
        let (stage, kinds) = (self.stage(operation.chunk), operation.kinds);
        let has_weight = kinds.contains(Kind::Weight);
        for number in self.back(work, operation.chunk) {
            let is_layer = matches!(work.pieces[number].piece, Piece::Layer(_));
            work.reload(number, flight)?;
            let is_whole = is_fused(kinds) && !flight.kept.contains_key(&number);
            let task = match (is_layer, is_whole, has_weight) {
                (true, true, _) => Task::Backward,
                (true, false, true) => Task::BackwardKept,
                (true, false, false) => Task::InputGrad,
                (false, _, true) => Task::Backward, // of the embedding, if it is trained
                (false, _, false) => continue,
            };
            work.run(number, task, flight)?;
        }
        if stage > 0 && self.is_elsewhere(stage - 1) {
            let gradient = flight.gradient.take().expect("a stage before has something to train");
            sent.push(self.send(work, &gradient, operation, Direction::Backward)?);
            work.pool.give([gradient]);
        }
        if has_weight && stage == 0 {
            work.pool.give(flight.gradient.take());
        }
        Ok(())
    }

    fn weight(&self, work: &mut Work<'_>, flight: &mut Flight, chunk: usize) -> Result<(), Error> {
        for number in self.back(work, chunk) {
            let is_layer = matches!(work.pieces[number].piece, Piece::Layer(_));
            work.run(number, if is_layer { Task::WeightGrad } else { Task::Backward }, flight)?;
        }
        if self.stage(chunk) == 0 {
            work.pool.give(flight.gradient.take());
        }
        Ok(())
    }

    /// The stage at the other end of a message, and the message's tag.
    fn tag(&self, operation: Operation, direction: Direction, is_sent: bool) -> (usize, u32) {
        let own = self.stage(operation.chunk);
        let other = match (direction, is_sent) {
            (Direction::Forward, true) | (Direction::Backward, false) => own + 1,
            (Direction::Forward, false) | (Direction::Backward, true) => own - 1,
        };
        let hop = own.min(other) * 2 + usize::from(matches!(direction, Direction::Backward));
        let tag = operation.micro_batch * 2 * self.shape.stages() + hop;
        (self.shape.home(other).0, tag as u32)
    }

    fn send(
        &self,
        work: &Work<'_>,
        tensor: &DeviceTensor,
        operation: Operation,
        direction: Direction,
    ) -> Result<Ticket, Error> {
        let (to, tag) = self.tag(operation, direction, true);
        let mut bytes = vec![0; tensor.buffer.bytes()];
        let copied = work.session.device().download(&tensor.buffer, &mut bytes);
        copied.map_err(|source| Error::Device { input: "y".into(), source })?;
        let what = Collective::send(to, Element::U8, bytes.len()).with_tag(tag);
        let stages = self.stages.expect("a pipeline of several ranks");
        Ok(stages.start(&what, bytes[..].into(), Destination::Host { bytes: 0 })?)
    }

    fn message(
        &self,
        work: &mut Work<'_>,
        flight: &Flight,
        operation: Operation,
        direction: Direction,
    ) -> Result<DeviceTensor, Error> {
        let (from, tag) = self.tag(operation, direction, false);
        let (shape, element) = (self.stream)(flight);
        let mut bytes = vec![0; shape.iter().product::<usize>() * element];
        let what = Collective::receive(from, Element::U8, bytes.len()).with_tag(tag);
        let stages = self.stages.expect("a pipeline of several ranks");
        stages.run(&what, (&[][..]).into(), (&mut bytes[..]).into())?;
        let device = work.session.device();
        let mut tensor = work.pool.take(device, "x", shape, element)?;
        let copied = device.upload(&mut tensor.buffer, &bytes);
        copied.map_err(|source| Error::Device { input: "x".into(), source })?;
        Ok(tensor)
    }
}

/// Whether recomputation and both gradients are one operation.
fn is_fused(kinds: Kinds) -> bool {
    [Kind::Recompute, Kind::Backward, Kind::Weight].into_iter().all(|kind| kinds.contains(kind))
}

/// The operations of a rank on micro-batches that are only read: each of its chunks, in the order of the stages.
pub(super) fn read_only(shape: Shape, rank: usize, micro_batches: usize) -> Vec<Operation> {
    let mut chunks: Vec<usize> = (0..shape.chunks()).collect();
    chunks.sort_by_key(|chunk| shape.stage(rank, *chunk));
    let of = |micro_batch| chunks.iter().map(move |chunk| Operation::one(Kind::Forward, micro_batch, *chunk));
    (0..micro_batches).flat_map(of).collect()
}

/// The operations of a rank without a pipeline: each micro-batch forward, and then backward.
pub(super) fn one_by_one(micro_batches: usize) -> Vec<Operation> {
    let backward: Kinds = [Kind::Recompute, Kind::Backward, Kind::Weight].into_iter().collect();
    let both = |micro_batch: usize| {
        [Operation::one(Kind::Forward, micro_batch, 0), Operation { kinds: backward, micro_batch, chunk: 0 }]
    };
    (0..micro_batches).flat_map(both).collect()
}
