//! Micro-batches whose loss asks for more than labels: preferences and policies, by [`crate::loss::sequences`].
//!
//! ```text
//! score    ids, labels, A and B as they were at the start or are now    ->  what each row is by itself
//! learn    ids, labels, what the loss asks for                          ->  the same, the loss; the sums grow in place
//! judge    the same                                                     ->  the same, the loss
//! ```
//!
//! **The reference model** is the model with A and B as they were at the start, of which a copy stays on the device. It
//! reads each micro-batch when that is trained, by the program and in the padding that the trained model reads it with,
//! so that as long as nothing was learnt both have the same log-probabilities to the bit: rewards are 0 and not the
//! rounding of two shapes. Nothing of it has to be saved, and a run that goes on has the same numbers. The price is a
//! forward pass in each epoch; one pass over the data before training would save it from the second epoch on and have
//! other bits, for the batches would be others.

use std::collections::BTreeMap;

use compiler::session::{DeviceTensor, Session};
use reference::graph::interpret::Values;

use super::chunked::States;
use super::{Accumulate, Replica};
use crate::step::{Error, Microbatch, Rows, Scored, Whose, upload};

impl<'a> Replica<'a> {
    /// Keeps what is trained as it is in `start`, for the reference model.
    ///
    /// # Errors
    /// If the device lacks the memory.
    pub fn keep_reference(&mut self, start: &Values<f32>) -> Result<(), Error> {
        let device = self.session.device();
        let own = self.parameters.iter().filter_map(|(name, _)| Some((name, start.get(name)?)));
        let copies = own.map(|(name, value)| Ok((name.clone(), upload(device, value)?)));
        self.reference = copies.collect::<Result<_, Error>>()?;
        Ok(())
    }

    /// The batch with the padding that its rows are computed in.
    ///
    /// # Errors
    /// What the session says, and if the loss is not chunked.
    pub fn padded(&self, batch: &Microbatch) -> Result<Microbatch, Error> {
        match &self.accumulate {
            Accumulate::Chunked(states) => states.rounded(&self.session, batch),
            Accumulate::Whole(_) => Err(Error::Batch { name: "chunked loss" }),
        }
    }

    /// The values of each row of a [padded](Self::padded) batch.
    ///
    /// # Errors
    /// What the session says, and if the loss is not chunked.
    pub fn score(&mut self, batch: &Microbatch, whose: Whose) -> Result<Rows, Error> {
        let Ready { states, session, inputs } = self.ready(batch, whose)?;
        let hidden = states.forward(session, inputs, batch)?;
        states.loss_of_states().values(session.device(), hidden, batch)
    }

    /// Adds `share` of the loss of a [padded](Self::padded) batch to the step; `given` is what the loss asks for.
    ///
    /// # Errors
    /// What the session says, and if the loss is not chunked.
    pub fn learn(&mut self, batch: &Microbatch, given: &Values<f32>, share: f64) -> Result<Scored, Error> {
        let upstream = self.factor() * share;
        let Ready { states, session, inputs } = self.ready(batch, Whose::Policy)?;
        let hidden = states.forward(session, inputs.clone(), batch)?;
        let shape = hidden.shape.clone();
        let device = session.device();
        let (scored, gradients) = states.loss_of_states().losses(device, hidden, batch, (given, upstream))?;
        states.add_weight(session, gradients.weight)?;
        states.backward(session, inputs, batch, &DeviceTensor { shape, buffer: gradients.hidden })?;
        Ok(scored)
    }

    /// The loss of a [padded](Self::padded) batch that is only read.
    ///
    /// # Errors
    /// What the session says, and if the loss is not chunked.
    pub fn judge(&mut self, batch: &Microbatch, given: &Values<f32>) -> Result<Scored, Error> {
        let Ready { states, session, inputs } = self.ready(batch, Whose::Policy)?;
        let hidden = states.forward(session, inputs, batch)?;
        let device = session.device();
        states.loss_of_states().losses(device, hidden, batch, (given, 1.0)).map(|(scored, _)| scored)
    }

    /// Uploads a batch.
    fn ready(&mut self, batch: &Microbatch, whose: Whose) -> Result<Ready<'_, 'a>, Error> {
        self.fit(batch)?;
        self.put_batch(batch, 1, [0; 2])?; // nothing is dropped
        let Self { session, accumulate, batch, tables, reference, .. } = self;
        let Accumulate::Chunked(states) = accumulate else {
            return Err(Error::Batch { name: "chunked loss" });
        };
        let own = (whose == Whose::Reference).then_some(reference).into_iter().flatten();
        let all = batch.iter().chain(tables.iter()).chain(own.map(|(name, tensor)| (name, &*tensor)));
        let inputs = all.map(|(name, tensor)| (name.as_str(), tensor)).collect();
        Ok(Ready { states, session, inputs })
    }
}

/// The inputs of a run of a batch.
struct Ready<'e, 'a> {
    states: &'e mut States<'a>,
    session: &'e mut Session<'a>,
    inputs: BTreeMap<&'e str, &'e DeviceTensor>,
}
