//! The loss of rows that are not trained on: forwards alone, without dropout.
//!
//! Batches are dealt out to the shards in turn, as micro-batches are; a round is over before the next one begins, so no
//! more than a batch is there at a time. No whole part stays from one batch to the next: what is trained may change
//! before the next evaluation.

use reference::schedule::{Kind, Operation};

use super::{Rank, common_shape};
use crate::fsdp::Error;
use crate::train::{Logged, Microbatch};

impl Rank<'_> {
    /// What is logged of batches that are only read, each with the number that its loss is divided by: the tokens of it
    /// that count. Every rank of the world calls this with the same batches, and gets what is logged of all of them.
    ///
    /// # Errors
    /// What the session says, or another rank.
    pub fn evaluate(&mut self, all: &[(Microbatch, u64)]) -> Result<Vec<Logged>, Error> {
        let ranks = self.layout.ranks();
        let chunks = 0..self.stages.chunks();
        let operations: Vec<Operation> =
            chunks.map(|chunk| Operation::one(Kind::Forward, 0, chunk)).collect();
        let mut logged = Vec::new();
        for round in all.chunks(ranks) {
            logged.push(self.round(round, &operations)?);
        }
        self.in_turn(&logged, all.len())
    }

    /// One batch a shard; what is logged of this one's.
    fn round(&mut self, round: &[(Microbatch, u64)], operations: &[Operation]) -> Result<Logged, Error> {
        let shape = common_shape(round.iter().map(|(batch, _)| batch));
        self.work.pool.fit([shape].into_iter());
        let (batch, items) = match round.get(self.place.at.shard) {
            Some((batch, items)) => (batch.padded(shape), *items),
            None => (Microbatch::padding(shape), 1),
        };
        let mut flights = [self.flight(&batch, items, [0; 2])?]; // nothing is dropped
        let (keeps, next) = self.work.suspend();
        let done = self.run(operations, self.stages, &mut flights);
        self.work.resume(keeps, next);
        done.map(|()| flights[0].logged)
    }
}
