//! (E) `loss`: chunked backprop that never holds the logits.

use challenges::loss::problem::row_dim;
use challenges::loss::{Chunked, Cost, Loss, Problem, Sampled};
use reference::grad;
use reference::graph::{Builder, Dim, Dtype, Error, Graph, Id, Tape, Tensor, Type};
use reference::loss::{Average, Head, IGNORED, Level, LogProbabilities, Policy, kept};

/// The attempt.
pub struct Exercise;

impl Chunked for Exercise {
    // ANCHOR: loss-step-1
    // step E.1: keep the largest logit and the sum of exponentials, stretch by stretch
    fn log_sum_exp(&self, hidden: &Tensor, weight: &Tensor, stretch: usize) -> Tensor {
        todo!("E.1: keep the largest logit and the sum of exponentials, stretch by stretch")
    }
    // ANCHOR_END: loss-step-1

    // ANCHOR: loss-step-2
    // step E.2: cut the rows that count into chunks
    fn cut(&self, counts: &[bool], size: usize) -> Vec<Vec<usize>> {
        todo!("E.2: cut the rows that count into chunks")
    }

    // step E.2: write the values of a chunk's rows: the product, the upcast, the loss
    fn forward(&self, problem: &Problem) -> Result<Graph, Error> {
        todo!("E.2: write the values of a chunk's rows: the product, the upcast, the loss")
    }
    // ANCHOR_END: loss-step-2

    // ANCHOR: loss-step-3
    // step E.3: differentiate the values of a chunk, each times its seed; add up what all chunks share
    fn backward(&self, problem: &Problem) -> Result<Graph, Error> {
        todo!("E.3: differentiate the values of a chunk, each times its seed; add up what all chunks share")
    }
    // ANCHOR_END: loss-step-3

    // ANCHOR: loss-step-4
    // step E.4: differentiate the loss with respect to each row's values, given what is upstream
    fn seeds(&self, problem: &Problem) -> Result<Graph, Error> {
        todo!("E.4: differentiate the loss with respect to each row's values, given what is upstream")
    }

    // step E.4: give each position the label of the next one
    fn shift(&self, labels: &[i32], length: usize) -> Vec<i32> {
        todo!("E.4: give each position the label of the next one")
    }
    // ANCHOR_END: loss-step-4

    // ANCHOR: loss-step-5
    // step E.5: write the policy's loss: what each token gives, and what all tokens make
    fn policy(&self, policy: &Policy, sampled: &Sampled) -> Result<Loss, Error> {
        todo!("E.5: write the policy's loss: what each token gives, and what all tokens make")
    }
    // ANCHOR_END: loss-step-5

    // ANCHOR: loss-step-6
    // step E.6: find how many rows fit, and spread them evenly
    fn size(&self, costs: &[Cost], rows: usize, budget: usize) -> Option<usize> {
        todo!("E.6: find how many rows fit, and spread them evenly")
    }
    // ANCHOR_END: loss-step-6
}

/// What is known of the logits seen so far: f32 (N, 1) each.
struct Running {
    largest: Tensor,
    sum: Tensor, // of e^(z - largest)
}

// step E.1: the number itself, but 0 for minus infinity
fn finite(largest: &Tensor) -> Tensor {
    todo!("E.1: the number itself, but 0 for minus infinity")
}

/// The values of a chunk's rows, and what they are computed from.
struct Written {
    rows: Vec<(String, Tensor)>,
    hidden: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
}

// step E.2: the product in the problem's type, the upcast, and the rows of the loss
fn values(tape: &Tape, problem: &Problem) -> Written {
    todo!("E.2: the product in the problem's type, the upcast, and the rows of the loss")
}

impl Written {
    // step E.3: what is trained, by the names of the gradients
    fn trained(&self, problem: &Problem) -> Vec<(&'static str, Tensor)> {
        todo!("E.3: what is trained, by the names of the gradients")
    }
}

// step E.3: an input of that name in the type of the sums, and what is added to it in f32
fn add_up(problem: &Problem, name: &str, gradient: &Tensor) -> Tensor {
    todo!("E.3: an input of that name in the type of the sums, and what is added to it in f32")
}

/// The inputs of a policy's loss, of a chunk or of all rows.
struct Inputs<'a> {
    tape: &'a Tape,
    size: Dim,
    sampled: &'a Sampled,
    labels: Tensor,
    ignored: Tensor,
}

impl<'a> Inputs<'a> {
    fn new(tape: &'a Tape, size: Dim, sampled: &'a Sampled) -> Self {
        let labels = tape.input("labels", Dtype::I32, [size.clone()]);
        let ignored = labels.equal(&labels.like(f64::from(IGNORED)));
        Self { tape, size, sampled, labels, ignored }
    }

    /// A number for each row; 0 where there is no token of a completion.
    fn floats(&self, name: &str) -> Tensor {
        let given = self.tape.input(name, Dtype::F32, [self.size.clone()]);
        self.ignored.select(&given.like(0.0), &given)
    }

    fn given(&self, name: &str, is_given: bool) -> Option<Tensor> {
        is_given.then(|| self.floats(name))
    }

    // step E.5: of each token: how much likelier it is than when it was sampled, and what that gives
    fn losses(&self, policy: &Policy, log_p: &Tensor) -> Tensor {
        todo!("E.5: of each token: how much likelier it is than when it was sampled, and what that gives")
    }

    // step E.5: the same with one ratio for a sequence: the mean over its tokens, of logarithms
    fn losses_of_sequences(&self, policy: &Policy, log_p: &Tensor, mask: &Tensor) -> Tensor {
        todo!("E.5: the same with one ratio for a sequence: the mean over its tokens, of logarithms")
    }

    // step E.5: how far each token is from the reference: beta (e^d - d - 1) with d = reference - log_p
    fn distance(&self, policy: &Policy, log_p: &Tensor) -> Tensor {
        todo!("E.5: how far each token is from the reference: beta (e^d - d - 1) with d = reference - log_p")
    }
}

// step E.5: -min(ratio A, clipped ratio A) with ratio = e^apart
fn gain(policy: &Policy, apart: &Tensor, advantages: &Tensor) -> Tensor {
    todo!("E.5: -min(ratio A, clipped ratio A) with ratio = e^apart")
}

// step E.5: what each token counts in the loss: `mask` f32 (R, T), 1 for tokens that count
fn shares(average: Average, mask: &Tensor) -> Tensor {
    todo!("E.5: what each token counts in the loss: `mask` f32 (R, T), 1 for tokens that count")
}

// step E.5: what each token counts in its sequence's mean; 0 where there is none
fn shares_of_row(mask: &Tensor) -> Tensor {
    todo!("E.5: what each token counts in its sequence's mean; 0 where there is none")
}

// step E.5: a count to divide by
fn at_least_one(count: &Tensor) -> Tensor {
    todo!("E.5: a count to divide by")
}
