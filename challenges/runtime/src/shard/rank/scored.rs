//! Micro-batches whose loss needs more than labels, on ranks: preferences and policies.
//!
//! Micro-batches are scored and learnt from in groups, of as many as ranks compute at the same time. A rank has the
//! results of the one that it computes; the caller exchanges them.

use reference::graph::interpret::Values;

use super::Rank;
use super::flight::{Flight, HeadLoss};
use super::pipeline::{one_by_one, read_only};
use crate::shard::Error;
use crate::step::{Microbatch, Rows, Scored, Whose};

impl Rank<'_> {
    /// Keeps what is trained as it is in `start`, for the reference model. Every rank calls this.
    ///
    /// # Errors
    /// If the device lacks the memory.
    pub fn keep_reference(&mut self, start: &Values<f32>) -> Result<(), Error> {
        let own = self.trained.iter().filter(|(name, _)| start.contains_key(name));
        let copies = own.map(|(name, ty)| Ok((name.clone(), self.shard_of(name, name, ty, start)?)));
        self.reference = copies.collect::<Result<_, Error>>()?;
        Ok(())
    }

    /// The number of tokens that a row may have.
    pub fn context(&self) -> usize {
        self.spec.config.positions
    }

    /// The micro-batch with the padding that its rows are computed in.
    ///
    /// # Errors
    /// If it is larger than the model allows.
    pub fn padded(&mut self, batch: &Microbatch) -> Result<Microbatch, Error> {
        let sizes = self.rounded(batch.shape)?;
        Ok(batch.padded(["B", "T"].map(|symbol| sizes[symbol] as usize)))
    }

    /// The values of each row of a group of [padded](Self::padded) micro-batches; `None` of those that other ranks
    /// compute.
    ///
    /// # Errors
    /// What the session says, or another rank.
    pub fn score(&mut self, batches: &[Microbatch], whose: Whose) -> Result<Vec<Option<Rows>>, Error> {
        if whose == Whose::Reference {
            self.exchange_reference();
        }
        let scored = self.read_group(batches, |_| HeadLoss::Values);
        if whose == Whose::Reference {
            self.exchange_reference();
        }
        let scored = self.tell(scored)?;
        Ok(scored.into_iter().map(|scored| scored.map(|scored| scored.rows)).collect())
    }

    /// Adds `share` of the loss of each of a group of [padded](Self::padded) micro-batches to the step. `given` are the
    /// inputs of the loss of those that this rank computes.
    ///
    /// # Errors
    /// What the session says, or another rank.
    pub fn learn(
        &mut self,
        batches: &[Microbatch],
        given: Vec<Option<Values<f32>>>,
        share: f64,
    ) -> Result<Vec<Option<Scored>>, Error> {
        let scored = self.learn_group(batches, given, share);
        self.tell(scored)
    }

    /// The losses of a group of [padded](Self::padded) micro-batches that are only read.
    ///
    /// # Errors
    /// What the session says, or another rank.
    pub fn judge(
        &mut self,
        batches: &[Microbatch],
        given: Vec<Option<Values<f32>>>,
    ) -> Result<Vec<Option<Scored>>, Error> {
        let mut given = given;
        let scored = self.read_group(batches, |number| objective(&mut given, number, 1.0));
        self.tell(scored)
    }

    /// Swaps what is trained with what it was at the start.
    fn exchange_reference(&mut self) {
        for (name, tensor) in &mut self.reference {
            let current = self.work.trained.get_mut(name).expect("what is kept is trained");
            std::mem::swap(current, tensor);
        }
    }

    fn read_group(
        &mut self,
        batches: &[Microbatch],
        loss: impl FnMut(usize) -> HeadLoss,
    ) -> Result<Vec<Option<Scored>>, Error> {
        let (own, mut flight) = self.own_flight(batches, loss)?;
        let operations = read_only(self.stages, self.place.at.stage, 1);
        self.run(&operations, self.stages, true, std::slice::from_mut(&mut flight))?;
        Ok(at(own, flight.scored, batches.len()))
    }

    fn learn_group(
        &mut self,
        batches: &[Microbatch],
        mut given: Vec<Option<Values<f32>>>,
        share: f64,
    ) -> Result<Vec<Option<Scored>>, Error> {
        self.work.factor = self.changes.factor() / self.place.at.sharing as f64; // each of them computes the loss
        let (own, mut flight) = self.own_flight(batches, |number| objective(&mut given, number, share))?;
        if self.stages.stages() == 1 && self.room.activation_bytes > 0 {
            self.choose_activations()?;
        }
        let flights = std::slice::from_mut(&mut flight);
        match self.schedule(1)? {
            Some(schedule) => {
                let operations = &schedule.ranks()[self.place.at.stage];
                self.run(operations, schedule.shape(), false, flights)?;
            }
            None => self.run(&one_by_one(1), self.stages, false, flights)?,
        }
        Ok(at(own, flight.scored, batches.len()))
    }

    /// Returns which micro-batch of a group of `count` this rank computes. It follows from the ranks alone, so that
    /// micro-batches of the same examples are always computed by the same rank.
    pub fn own_of_group(&self, count: usize) -> Option<usize> {
        Some(self.place.at.shard).filter(|number| *number < count)
    }

    /// This rank's micro-batch of a group, or one of padding, on its device; its number.
    fn own_flight(
        &mut self,
        batches: &[Microbatch],
        mut loss: impl FnMut(usize) -> HeadLoss,
    ) -> Result<(Option<usize>, Flight), Error> {
        let deal = self.deal(batches.iter())?;
        let [round] = &deal[..] else {
            return Err(Error::Group { found: batches.len(), most: self.layout.ranks() });
        };
        let own = self.own_of_group(batches.len());
        let mut flight = match own {
            Some(number) => self.flight(&batches[number], 1, [0; 2])?, // nothing is dropped
            None => self.flight(&Microbatch::padding(round.shape, &self.spec), 1, [0; 2])?,
        };
        flight.loss = own.map_or(HeadLoss::Nothing, &mut loss);
        Ok((own, flight))
    }
}

/// The loss of a micro-batch whose inputs are given, if they are: a rank that does not compute the loss has none.
fn objective(given: &mut [Option<Values<f32>>], number: usize, share: f64) -> HeadLoss {
    given[number].take().map_or(HeadLoss::Nothing, |given| HeadLoss::Objective(given, share))
}

/// The results of a group of which one is known.
fn at(own: Option<usize>, scored: Option<Scored>, count: usize) -> Vec<Option<Scored>> {
    let mut all: Vec<Option<Scored>> = (0..count).map(|_| None).collect();
    if let Some(number) = own {
        all[number] = scored;
    }
    all
}
