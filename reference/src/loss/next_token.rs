//! The loss of a language model, in its simplest form.

use super::IGNORED;
use super::functions::{at_label, one_a_row};
use crate::graph::{Dim, Dtype, Tensor, Type};
use crate::oracles::LOSSES;

/// The mean of `-ln softmax(logits)[label]` over the rows whose label is not -100; 0 if there is none. `logits` (N, V)
/// of any float, taken to f32 first; `labels` i32 (N). Gives f32 ().
///
/// When it is computed, a label that is neither -100 nor in 0..V is an error that names the row. Source: torch's
/// `cross_entropy`, but for the mean of nothing, which is NaN there.
pub fn cross_entropy(logits: &Tensor, labels: &Tensor) -> Tensor {
    LOSSES.count();
    let Rows { losses, counts, .. } = rows(logits, labels);
    let count = counts.total();
    &losses.total() / &count.max(&count.like(1.0))
}

/// What each row of logits is worth beside its label.
struct Rows {
    /// `-ln softmax(logits)[label]`, 0 where the label is -100; f32 (N).
    losses: Tensor,
    /// 1 where the label counts and 0 where it is -100; f32 (N).
    counts: Tensor,
    /// The logits in f32, (N, V).
    logits: Tensor,
    /// The logit of the label, (N, 1).
    picked: Tensor,
    /// The log-sum-exp of the logits, (N, 1).
    lse: Tensor,
}

fn rows(logits: &Tensor, labels: &Tensor) -> Rows {
    let (logits, labels) = (logits.cast(Dtype::F32), &one_a_row(labels));
    let ignored = labels.equal(&labels.like(f64::from(IGNORED))); // (N,)
    let picked = at_label(&logits, &ignored.select(&labels.like(0.0), labels));
    let lse = logits.logsumexp(1);
    let losses = (&lse - &picked).reshape([labels.dim(0)]);
    let losses = ignored.select(&losses.like(0.0), &losses);
    let counts = ignored.equal(&ignored.like(0.0)).cast(Dtype::F32);
    Rows { losses, counts, logits, picked, lse }
}

/// What is logged of a micro-batch, each f32 ().
pub struct Statistics {
    /// The sum of the losses of the tokens that count, divided by the tokens that count in the whole step.
    pub loss: Tensor,
    /// How many count.
    pub counted: Tensor,
    /// How many of those have the largest logit of their position. Where several logits are equal and largest, the
    /// label is one of them or it is not: the first is not preferred, as `argmax` does.
    pub correct: Tensor,
    /// The entropies of the distributions that predict them, in nats, added up.
    pub entropy: Tensor,
}

/// What each row of logits f32 (N, V) gives beside its label i32 (N): f32 (N) each, 0 where the label is -100. See
/// [`Statistics`].
pub struct NextTokenRows {
    /// `-ln softmax(logits)[label]`.
    pub losses: Tensor,
    /// 1 where no logit is larger than the label's.
    pub correct: Tensor,
    /// The entropy of softmax(logits), in nats.
    pub entropy: Tensor,
}

/// [`causal_statistics`] before anything is added up: of rows that are cut anywhere, with the label of each.
pub fn next_token_rows(logits: &Tensor, labels: &Tensor) -> NextTokenRows {
    LOSSES.count();
    rows(logits, labels).statistics()
}

impl Rows {
    fn statistics(self) -> NextTokenRows {
        let flat = |tensor: &Tensor| tensor.reshape([self.counts.dim(0)]);
        let largest = flat(&self.logits.reduce_max(1));
        let correct = flat(&self.picked).less(&largest).select(&self.counts.like(0.0), &self.counts);
        let weighted = &(&self.logits - &self.lse).exp() * &self.logits; // p z, summed over V: the mean logit
        let entropy = &flat(&(&self.lse - &weighted.sum(1))) * &self.counts;
        NextTokenRows { losses: self.losses, correct, entropy }
    }
}

/// [`causal`] as a part of a step of several micro-batches: `items` f32 () is the number of tokens that count in all of
/// them. Source of what is logged: the `trl` library's `SFTTrainer`.
pub fn causal_statistics(logits: &Tensor, labels: &Tensor, items: &Tensor) -> Statistics {
    LOSSES.count();
    let [batch, length, vocab] = [0, 1, 2].map(|dim| logits.dim(dim));
    let all = &batch * &length;
    let flat = |tensor: &Tensor| tensor.reshape([all.clone()]);
    let rows = rows(&logits.reshape([all.clone(), vocab]), &flat(&next(labels)));
    let counted = rows.counts.total();
    let each = rows.statistics();
    Statistics {
        loss: &each.losses.total() / items,
        counted,
        correct: each.correct.total(),
        entropy: each.entropy.total(),
    }
}

/// [`cross_entropy`] of predicting each next token: `logits` (B, T, V), `labels` i32 (B, T) as they stand beside the
/// tokens. Position t is held against label t + 1, the last one against nothing.
pub fn causal(logits: &Tensor, labels: &Tensor) -> Tensor {
    LOSSES.count();
    let [batch, length, vocab] = [0, 1, 2].map(|dim| logits.dim(dim));
    let rows = &batch * &length;
    cross_entropy(&logits.reshape([rows.clone(), vocab]), &next(labels).reshape([rows]))
}

/// The labels of rows that hold several documents: -100 for the first token of each, which no token of it predicts, and
/// for padding. `labels` and `documents` i32 (B, T); tokens of one document stand side by side and have one number,
/// from 1 on, and a smaller number is padding. Source: `position_ids == 0` in the `trl` library's packing collator.
pub fn within_documents(labels: &Tensor, documents: &Tensor) -> Tensor {
    let length = documents.dim(1);
    let none = documents.tape().constant(0.0, &Type::new(Dtype::I32, [documents.dim(0), Dim::fixed(1)]));
    let before = documents.tape().concat(&[&none, &documents.slice(1, 0, &length - &Dim::fixed(1))], 1);
    let counts = documents.equal(&before).min(&documents.like(0.0).less(documents));
    counts.select(labels, &labels.like(f64::from(IGNORED)))
}

/// The label of each following position; -100 at the end.
fn next(labels: &Tensor) -> Tensor {
    let length = labels.dim(1);
    let end = Type::new(Dtype::I32, [labels.dim(0), Dim::fixed(1)]);
    let none = labels.tape().constant(f64::from(IGNORED), &end);
    labels.tape().concat(&[&labels.slice(1, Dim::fixed(1), length), &none], 1)
}
