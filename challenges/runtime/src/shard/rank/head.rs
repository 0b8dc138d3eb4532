//! The head of a rank whose loss is computed in chunks: never more logits than a chunk has are on its device.

use std::time::Instant;

use compiler::session::DeviceTensor;
use reference::graph::Op;

use super::flight::{Flight, HeadLoss};
use super::trace::EventKind;
use super::work::Work;
use crate::shard::Error;
use crate::shard::tasks::{DENSE, HIDDEN, Task, WEIGHT};
use crate::step::chunks::{ChunkLoss, Computed, Gradients};
use crate::step::{Evaluated, Scored};

/// The gradient of what the output layer is given.
const HIDDEN_GRAD: &str = "hidden.grad";
/// The gradient of the weight of the output layer.
const WEIGHT_GRAD: &str = "weight.grad";

impl Work<'_> {
    /// Computes what a micro-batch asks of the head and, unless it is only read, the gradient of the head's x and the
    /// sums of gradients.
    pub fn chunked_head(
        &mut self,
        number: usize,
        flight: &mut Flight,
        is_evaluation: bool,
    ) -> Result<(), Error> {
        self.run(number, Task::States, flight)?;
        let begin = Instant::now();
        let hidden = kept(flight, number, HIDDEN);
        let shape = hidden.shape.clone();
        let lender = self.lend_weight(number, flight)?;
        let gradients = self.gradients(hidden, flight, is_evaluation);
        let weight_shape = self.take_weight_back(number, lender);
        let gradients = gradients?;
        self.trace.record(number, EventKind::Backward, begin);
        let Some(Gradients { hidden, weight }) = gradients else {
            return self.release(number, Task::Evaluate, flight);
        };
        let gradient = DeviceTensor { shape, buffer: hidden };
        if is_evaluation {
            self.pool.give([gradient]);
            return self.release(number, Task::Evaluate, flight);
        }
        let kept = flight.kept.entry(number).or_default();
        kept.insert(HIDDEN_GRAD.to_owned(), gradient);
        if let Some(buffer) = weight {
            kept.insert(WEIGHT_GRAD.to_owned(), DeviceTensor { shape: weight_shape, buffer });
            self.run(number, Task::OutputGrad, flight)?;
            flight.kept.entry(number).or_default().remove(WEIGHT_GRAD); // as large as the weight: not for the pool
        }
        self.run(number, Task::StatesGrad, flight)
    }

    /// Computes the results of a micro-batch from its hidden states; the gradients, if it has a loss.
    fn gradients(
        &mut self,
        hidden: DeviceTensor,
        flight: &mut Flight,
        is_evaluation: bool,
    ) -> Result<Option<Gradients>, Error> {
        let loss = self.loss.as_mut().expect("a loss in chunks");
        let (device, batch) = (self.session.device(), &flight.batch);
        match &flight.loss {
            HeadLoss::Tokens(items) => {
                let Computed { logged, gradients } =
                    loss.compute(device, hidden, batch, *items, self.factor)?;
                flight.result = Evaluated { logged, logits: Vec::new() };
                Ok(Some(gradients))
            }
            HeadLoss::Values => {
                let rows = loss.values(device, hidden, batch)?;
                flight.scored = Some(Scored { loss: 0.0, rows });
                Ok(None)
            }
            HeadLoss::Objective(given, share) => {
                let (scored, gradients) = loss.losses(device, hidden, batch, (given, self.factor * share))?;
                flight.scored = Some(scored);
                Ok(Some(gradients))
            }
            HeadLoss::Nothing if is_evaluation => Ok(None),
            HeadLoss::Nothing => Ok(Some(loss.nothing(device, hidden)?)),
        }
    }

    /// Gives the loss the weight of the output layer: the part itself where it is stored as it is computed with, else a
    /// tensor that is written for it.
    fn lend_weight(&mut self, number: usize, flight: &mut Flight) -> Result<Lender, Error> {
        let piece = self.pieces[number].piece;
        let graph = &self.pieces[number].chunked.as_ref().expect("the head has them").weight;
        let output = &graph.node(graph.outputs()[0].1).op;
        let part = if let Op::Input { name } = output { Some(name.clone()) } else { None };
        let lender = match part {
            None => Lender::Nobody,
            Some(name) if self.dense.contains_key(&number) => Lender::Dense(format!("{DENSE}{name}")),
            Some(name) if self.whole.contains_key(&name) => Lender::Whole(name),
            Some(name) => Lender::Weights(piece.own_name(&name)),
        };
        let weight = match &lender {
            Lender::Nobody => {
                self.run(number, Task::OutputWeight, flight)?;
                Some(kept(flight, number, WEIGHT))
            }
            Lender::Dense(name) => self.dense.get_mut(&number).and_then(|parts| parts.remove(name)),
            Lender::Whole(name) => self.whole.remove(name),
            Lender::Weights(name) => self.weights.take(name),
        };
        let weight = weight.expect("the weight of the output layer is a part of the head");
        self.loss.as_mut().expect("a loss in chunks").set_weight(weight);
        Ok(lender)
    }

    /// Takes the weight back from the loss; its shape.
    fn take_weight_back(&mut self, number: usize, lender: Lender) -> Vec<usize> {
        let weight = self.loss.as_mut().and_then(ChunkLoss::take_weight).expect("it was lent");
        let shape = weight.shape.clone();
        match lender {
            Lender::Nobody => {}
            Lender::Dense(name) => _ = self.dense.entry(number).or_default().insert(name, weight),
            Lender::Whole(name) => _ = self.whole.insert(name, weight),
            Lender::Weights(name) => self.weights.put_back(&name, weight),
        }
        shape
    }
}

/// Where the weight of the output layer comes from, and goes back to.
enum Lender {
    /// It was written for the loss alone.
    Nobody,
    /// The dequantised parts of the head.
    Dense(String),
    /// The gathered parts.
    Whole(String),
    /// The rank's own weights.
    Weights(String),
}

/// Takes what a task has written.
fn kept(flight: &mut Flight, number: usize, name: &str) -> DeviceTensor {
    let kept = flight.kept.get_mut(&number).and_then(|kept| kept.remove(name));
    kept.expect("the task before has written it")
}
