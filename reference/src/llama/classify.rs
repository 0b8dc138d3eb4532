//! The loss of a classifier, and what is logged of its micro-batches.
//!
//! ```text
//! ids         a b c d . .      labels      -100 -100 -100    2 -100 -100      the class of the row
//!             e f g h i j                  -100 -100 -100 -100 -100    0
//! ```
//!
//! The head gives logits for every token, as the original's does; a label stands beside the token that its row, or its
//! document, is answered from ([`last_tokens`](crate::issues::classify::last_tokens)), and -100 beside all others. So
//! padding may be on any side, and rows may hold several documents.
//!
//! `labels` i32 (B, T) are classes of [`Problem::SingleLabel`]. Of the others any that is not ignored says that there is
//! an answer, and what it is held against are `targets` f32 (B, T, C), as many numbers as there are logits.

use super::{Classifier, Model};
use crate::graph::{Dtype, Tensor, Type};
use crate::issues::classify::{Problem, losses};
use crate::loss::{IGNORED, Statistics, next_token_rows};

/// The input f32 (B, T, C) that answers are held against, where they are no classes.
pub const TARGETS: &str = "targets";

/// Every token of a micro-batch that may be answered from.
struct Rows {
    /// C numbers for each, f32 (B * T, C).
    logits: Tensor,
    /// Classes i32 (B * T), or numbers f32 (B * T, C).
    targets: Tensor,
    /// 1 where a token is answered from, else 0: f32 (B * T).
    counts: Tensor,
    /// What an answer costs, 0 where none is given: f32 (B * T).
    losses: Tensor,
}

fn rows(model: &Model, classifier: &Classifier, logits: &Tensor) -> Rows {
    let [batch, length, classes] = [0, 1, 2].map(|dim| logits.dim(dim));
    let all = &batch * &length;
    let flat = |x: &Tensor| x.reshape([all.clone(), classes.clone()]);
    let labels = model.tokens("labels").reshape([all.clone()]);
    let ignored = labels.equal(&labels.like(f64::from(IGNORED)));
    let targets = match classifier.problem() {
        Problem::SingleLabel => ignored.select(&labels.like(0.0), &labels),
        Problem::MultiLabel | Problem::Regression => {
            flat(&model.input(TARGETS, &Type { dtype: Dtype::F32, shape: logits.shape().to_vec() }))
        }
    };
    let logits = flat(logits).cast(Dtype::F32);
    let losses = losses(classifier.problem(), &logits, &targets);
    let losses = ignored.select(&losses.like(0.0), &losses);
    let counts = ignored.equal(&ignored.like(0.0)).cast(Dtype::F32);
    Rows { logits, targets, counts, losses }
}

/// The mean loss of the tokens that are answered from; 0 if there is none. f32 ().
pub(super) fn mean(model: &Model, classifier: &Classifier, logits: &Tensor) -> Tensor {
    let rows = rows(model, classifier, logits);
    let count = rows.counts.total();
    &rows.losses.total() / &count.max(&count.like(1.0))
}

/// What is logged of a micro-batch of a step with so many texts: see [`Statistics`]. An answer is `correct` if it is the
/// class, or if all of its labels are right, more likely than not where the target is above a half; a number never is.
/// The `entropy` is that of the distribution over classes, and 0 of the other problems.
pub(super) fn statistics(
    model: &Model,
    classifier: &Classifier,
    logits: &Tensor,
    items: &Tensor,
) -> Statistics {
    let rows = rows(model, classifier, logits);
    let none = rows.counts.like(0.0);
    let [correct, entropy] = match classifier.problem() {
        Problem::SingleLabel => {
            let of = next_token_rows(&rows.logits, &rows.targets);
            [&of.correct * &rows.counts, &of.entropy * &rows.counts]
        }
        Problem::MultiLabel => [&all_right(&rows) * &rows.counts, none],
        Problem::Regression => [none.clone(), none],
    };
    Statistics {
        loss: &rows.losses.total() / items,
        counted: rows.counts.total(),
        correct: correct.total(),
        entropy: entropy.total(),
    }
}

/// 1 where every label of a row is on the side of its target, else 0: f32 (B * T).
fn all_right(rows: &Rows) -> Tensor {
    let is_yes = |x: &Tensor, middle: f64| x.like(middle).less(x);
    let right = is_yes(&rows.logits, 0.0).equal(&is_yes(&rows.targets, 0.5));
    let wrong = right.equal(&right.like(0.0)).cast(Dtype::F32).reduce_max(1).reshape([rows.counts.dim(0)]);
    &wrong.like(1.0) - &wrong
}
