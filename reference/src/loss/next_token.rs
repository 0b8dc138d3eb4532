//! The loss of a language model, in its simplest form.

use super::IGNORED;
use super::functions::{at_label, one_a_row};
use crate::graph::{Dim, Dtype, Tensor, Type};

/// The mean of `-ln softmax(logits)[label]` over the rows whose label is not -100; 0 if there is none. `logits` (N, V) of
/// any float, taken to f32 first; `labels` i32 (N). Gives f32 ().
///
/// When it is computed, a label that is neither -100 nor in 0..V is an error that names the row. Source: torch's
/// `cross_entropy`, but for the mean of nothing, which is NaN there.
pub fn cross_entropy(logits: &Tensor, labels: &Tensor) -> Tensor {
    let (logits, labels) = (logits.cast(Dtype::F32), &one_a_row(labels));
    let ignored = labels.equal(&labels.like(f64::from(IGNORED))); // (N,)
    let picked = at_label(&logits, &ignored.select(&labels.like(0.0), labels)); // (N, 1)
    let losses = (&logits.logsumexp(1) - &picked).reshape([labels.dim(0)]);
    let sum = ignored.select(&losses.like(0.0), &losses).total();
    let count = ignored.equal(&ignored.like(0.0)).cast(Dtype::F32).total();
    &sum / &count.max(&count.like(1.0))
}

/// [`cross_entropy`] of predicting each next token: `logits` (B, T, V), `labels` i32 (B, T) as they stand beside the
/// tokens. Position t is held against label t + 1, the last one against nothing.
pub fn causal(logits: &Tensor, labels: &Tensor) -> Tensor {
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
