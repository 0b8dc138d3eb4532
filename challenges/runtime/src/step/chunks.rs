//! The loss of a micro-batch, a chunk of the logits at a time, from its hidden states.

use std::collections::BTreeMap;

use compiler::Compile;
use compiler::session::{Counters, DeviceTensor};
use kernels::{Buffer, Device};
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype, Tape, Tensor};
use reference::llama::Spec;
use reference::loss::{IGNORED, Reduction, Rows, kept, next_token_rows};

use super::microbatch::{Logged, Microbatch, device_error, put, upload};
use super::{Error, Scored};
use crate::loss::problem::row_dim;
use crate::loss::run::{Hidden, Job, Results, Runner, Size};
use crate::loss::{Chunked, Loss, Problem, Trains};

/// A loss in chunks.
#[derive(Clone, Copy)]
pub struct InChunks<'a> {
    /// The steps of challenge E.
    pub attempt: &'a dyn Chunked,
    /// The loss that they compute.
    pub causal: &'a Causal,
    /// How large chunks are.
    pub size: Size,
}

/// The loss of a language model, with what is logged of each token.
pub struct Causal {
    problem: Problem,
    total: Total,
}

/// The reduction of the losses of a micro-batch's tokens, before it is added to the step's loss. Either way that is
/// the sum over all tokens of the step divided by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Total {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
}

/// The loss of a language model over the tokens of a micro-batch.
///
/// # Errors
/// If the model has no vocabulary.
pub fn causal(spec: &Spec, total: Total) -> Result<Causal, Error> {
    let loss = Loss::new(
        "causal",
        spec.config.vocab,
        |tape, logits| {
            let rows = next_token_rows(logits, &labels(tape));
            vec![
                (LOSSES, rows.losses),
                (CORRECT, rows.correct.detach()), // so that nothing is computed to be multiplied by 0
                (ENTROPY, rows.entropy.detach()),
            ]
        },
        |tape| {
            let values = tape.input(LOSSES, Dtype::F32, [row_dim(tape)]);
            let weights = kept(&labels(tape), IGNORED);
            Rows { values, weights }.reduce(total.reduction())
        },
    );
    Ok(Causal { problem: problem(spec, loss.map_err(Error::Graph)?), total })
}

/// Another loss of a model's logits, such as one of [`sequences`](crate::loss::sequences).
pub fn of_loss(spec: &Spec, loss: Loss) -> Causal {
    Causal { problem: problem(spec, loss), total: Total::Sum }
}

fn problem(spec: &Spec, loss: Loss) -> Problem {
    Problem {
        loss,
        width: spec.config.hidden,
        vocab: spec.config.vocab,
        dtype: spec.compute,
        accumulate_dtype: Dtype::F32,
        bias: false,
        trains: Trains { hidden: true, weight: spec.has_trained_head(), bias: false },
    }
}

fn labels(tape: &Tape) -> Tensor {
    tape.input("labels", Dtype::I32, [row_dim(tape)])
}

impl Total {
    fn reduction(self) -> Reduction {
        match self {
            Self::Sum => Reduction::Sum,
            Self::Mean => Reduction::Mean,
        }
    }

    /// The share of a micro-batch with `counted` tokens in the loss of a step of `items` tokens.
    fn share(self, counted: usize, items: u64) -> f64 {
        match self {
            Self::Sum => 1.0 / items as f64,
            Self::Mean => counted as f64 / items as f64,
        }
    }
}

/// A usual number of tokens.
const USUAL: usize = 1024;

/// Whether one row at least fits into a chunk.
///
/// # Errors
/// If none does, and as [`Runner::size`].
pub fn check(passes: &dyn Compile, device: &dyn Device, loss: &InChunks<'_>) -> Result<(), Error> {
    let mut runner = Runner::new(device, passes, loss.attempt, &loss.causal.problem);
    runner.size(loss.size, USUAL).map(|_| ()).map_err(Error::Loss)
}

const LOSSES: &str = "losses";
const CORRECT: &str = "correct";
const ENTROPY: &str = "entropy";

/// The loss of micro-batches on a device: challenge E's runner, with the weight of the output layer and what else the
/// loss reads.
pub(crate) struct ChunkLoss<'a> {
    runner: Runner<'a>,
    attempt: &'a dyn Chunked,
    total: Total,
    size: Size,
    given: BTreeMap<String, DeviceTensor>,
    has_documents: bool,
    trained_weight: Option<[usize; 2]>, // its shape
}

/// The name of the output layer's weight among the inputs of a loss.
const WEIGHT: &str = "weight";

/// The result of a micro-batch.
pub(crate) struct Computed {
    /// The numbers that are logged of it.
    pub logged: Logged,
    /// The gradients.
    pub gradients: Gradients,
}

/// The gradients of a loss.
pub(crate) struct Gradients {
    /// With respect to the hidden states, in their memory.
    pub hidden: Buffer,
    /// With respect to the weight of the output layer, f32 (V, H), if that is trained.
    pub weight: Option<Buffer>,
}

impl Gradients {
    /// Takes the gradients out of results.
    fn of(results: &mut Results) -> Result<Self, Error> {
        let mut take = |name: &'static str| results.gradients.remove(name);
        let weight = take("weight.grad");
        Ok(Self { hidden: take("hidden.grad").ok_or(Error::Batch { name: "hidden.grad" })?, weight })
    }
}

impl<'a> ChunkLoss<'a> {
    /// The loss of a model's micro-batches; [`Self::set_weight`] has to follow.
    pub fn new(device: &'a dyn Device, passes: &'a dyn Compile, loss: &InChunks<'a>, spec: &Spec) -> Self {
        Self {
            runner: Runner::new(device, passes, loss.attempt, &loss.causal.problem),
            attempt: loss.attempt,
            total: loss.causal.total,
            size: loss.size,
            given: BTreeMap::new(),
            has_documents: spec.rows.documents,
            trained_weight: spec.has_trained_head().then_some([spec.config.vocab, spec.config.hidden]),
        }
    }

    /// The counters of the session that runs the chunks.
    pub fn counters(&mut self) -> &Counters {
        self.runner.session().counters()
    }

    /// The weight of the output layer, (V, H) in the type that the model computes in; `None` if it was taken.
    pub fn weight(&self) -> Option<&DeviceTensor> {
        self.given.get(WEIGHT)
    }

    /// Sets the weight of the output layer.
    pub fn set_weight(&mut self, weight: DeviceTensor) {
        self.given.insert(WEIGHT.to_owned(), weight);
    }

    /// Takes the weight of the output layer back.
    pub fn take_weight(&mut self) -> Option<DeviceTensor> {
        self.given.remove(WEIGHT)
    }

    /// The loss of a micro-batch in a step of `items` tokens, and its gradients times `factor`. `hidden` (N, H) has the
    /// batch's tokens first, row by row; rows after them are padding.
    pub fn compute(
        &mut self,
        device: &dyn Device,
        hidden: DeviceTensor,
        batch: &Microbatch,
        items: u64,
        factor: f64,
    ) -> Result<Computed, Error> {
        let counts = self.put_labels(device, batch, hidden.shape[0])?;
        let counted = counts.iter().filter(|counts| **counts).count();
        let share = self.total.share(counted, items);
        let mut results = self.run(hidden.buffer, &counts, factor * share)?;
        let gradients = Gradients::of(&mut results)?;
        let sum = |name: &str| results.values[name].iter().map(|value| f64::from(*value)).sum::<f64>();
        let logged = Logged {
            loss: results.loss.iter().map(|loss| f64::from(*loss) * share).sum(),
            counted: counted as f64,
            correct: sum(CORRECT),
            entropy: sum(ENTROPY),
        };
        Ok(Computed { logged, gradients })
    }

    /// The values of each row of a micro-batch.
    pub fn values(
        &mut self,
        device: &dyn Device,
        hidden: DeviceTensor,
        batch: &Microbatch,
    ) -> Result<BTreeMap<String, Vec<f32>>, Error> {
        let counts = self.put_labels(device, batch, hidden.shape[0])?;
        let job = Job {
            hidden: Hidden::Donated(hidden.buffer),
            given: &self.given,
            counts: &counts,
            upstream: None,
            size: self.size,
            so_far: BTreeMap::new(),
        };
        self.runner.values(job).map_err(Error::Loss)
    }

    /// The loss of a micro-batch and its gradients times `upstream`; `given` are the inputs of the loss besides the
    /// labels.
    pub fn losses(
        &mut self,
        device: &dyn Device,
        hidden: DeviceTensor,
        batch: &Microbatch,
        (given, upstream): (&Values<f32>, f64),
    ) -> Result<(Scored, Gradients), Error> {
        let counts = self.put_labels(device, batch, hidden.shape[0])?;
        given.iter().try_for_each(|(name, value)| put(device, &mut self.given, name, value))?;
        let mut results = self.run(hidden.buffer, &counts, upstream)?;
        let gradients = Gradients::of(&mut results)?;
        let loss = results.loss.iter().map(|loss| f64::from(*loss)).sum();
        Ok((Scored { loss, rows: results.values }, gradients))
    }

    /// Gradients of 0, in the memory of the hidden states, for a micro-batch that has no loss.
    pub fn nothing(&self, device: &dyn Device, hidden: DeviceTensor) -> Result<Gradients, Error> {
        let mut hidden = hidden.buffer;
        let zeros = vec![0; hidden.bytes()];
        device.upload(&mut hidden, &zeros).map_err(device_error)?;
        let weight = self.trained_weight.map(|shape| {
            let zeros =
                Array::<f32>::floats(Dtype::F32, &shape, std::iter::repeat_n(0.0, shape.iter().product()));
            upload(device, &zeros).map(|tensor| tensor.buffer)
        });
        Ok(Gradients { hidden, weight: weight.transpose()? })
    }

    fn run(&mut self, hidden: Buffer, counts: &[bool], upstream: f64) -> Result<Results, Error> {
        let job = Job {
            hidden: Hidden::Donated(hidden),
            given: &self.given,
            counts,
            upstream: Some(&[upstream as f32]),
            size: self.size,
            so_far: BTreeMap::new(),
        };
        self.runner.run(job).map_err(Error::Loss)
    }

    /// Uploads the label of each row; returns which of them count. Rows beyond those of the batch are padding.
    fn put_labels(
        &mut self,
        device: &dyn Device,
        batch: &Microbatch,
        rows: usize,
    ) -> Result<Vec<bool>, Error> {
        let mut labels = self.attempt.shift(&batch.targets(self.has_documents), batch.shape[1]);
        labels.resize(rows, IGNORED);
        let counts = labels.iter().map(|label| *label != IGNORED).collect();
        put(device, &mut self.given, "labels", &Array::integers(&[labels.len()], labels))?;
        Ok(counts)
    }
}
