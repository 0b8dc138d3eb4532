//! A sequence classifier beside its model: where a row is answered from, and what its answer costs.
//!
//! ```text
//! t = the last token of a row that is no padding        z (C) = score(hidden[t])
//! single label   v = ln sum_j e^z_j - z_y                      dv/dz_j = softmax(z)_j - [j = y]
//! multi-label    v = 1 / C sum_j (ln(1 + e^z_j) - y_j z_j)     dv/dz_j = (sigmoid(z_j) - y_j) / C
//! regression     v = 1 / C sum_j (z_j - y_j)^2                 dv/dz_j = 2 (z_j - y_j) / C
//! ```
//!
//! The loss of a batch is the mean of v over its rows. Each loss is here twice: as a plain function in f64 with its
//! derivative ([`exact`]), and as a graph ([`losses`]).
//!
//! Sources: `GenericForSequenceClassification` and `ForSequenceClassificationLoss` of the `transformers` library, 5.24;
//! torch's `CrossEntropyLoss`, `BCEWithLogitsLoss` and `MSELoss`.

use std::fmt;

use crate::graph::Tensor;
use crate::loss::{BinaryCrossEntropy, CrossEntropy, Error, Exact, Mse, Rows, next_token_rows};
use crate::oracles::CLASSIFIERS;

/// What a classifier answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Problem {
    /// One of its classes.
    SingleLabel,
    /// Any number of its classes.
    MultiLabel,
    /// A number for each of its outputs.
    Regression,
}

impl Problem {
    /// Every one, with its name in a `config.json`, under `problem_type`.
    pub const NAMES: [(Problem, &str); 3] = [
        (Problem::SingleLabel, "single_label_classification"),
        (Problem::MultiLabel, "multi_label_classification"),
        (Problem::Regression, "regression"),
    ];

    /// Its name in a `config.json`.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(problem, _)| *problem == self).map_or("", |(_, name)| name)
    }

    /// That of a name.
    pub fn called(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(problem, _)| *problem)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where each row of `ids` (B, T) is answered from: the index of its last token that is not `pad`, on whichever side
/// the padding is. A row of padding alone is answered from its first token; without a token of padding, every row from
/// its last.
///
/// The original refuses a batch of several rows without a token of padding; rows that are all as long as the batch
/// need none.
///
/// # Panics
/// If T is 0, or rows are not whole.
pub fn last_tokens(ids: &[i32], length: usize, pad: Option<i32>) -> Vec<usize> {
    CLASSIFIERS.count();
    assert!(length > 0 && ids.len().is_multiple_of(length), "{} ids in rows of {length}", ids.len());
    let last = |row: &[i32]| row.iter().rposition(|id| Some(*id) != pad).unwrap_or(0);
    ids.chunks(length).map(last).collect()
}

/// What rows are held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Targets<'t> {
    /// The class of each row, (N); -100 of one that does not count: of [`Problem::SingleLabel`].
    Classes(&'t [i32]),
    /// Numbers (N, C): 0 or 1, or a probability between, of [`Problem::MultiLabel`]; any of [`Problem::Regression`].
    Numbers(&'t [f64]),
}

/// v of each row of `logits` (N, C) and dv/dz (N, C).
///
/// Fails where a shape is another, a class is not in 0..C, a number is not finite, or the targets are of another
/// problem.
pub fn exact(problem: Problem, logits: &[f64], classes: usize, targets: Targets<'_>) -> Result<Exact, Error> {
    CLASSIFIERS.count();
    match (problem, targets) {
        (Problem::SingleLabel, Targets::Classes(labels)) => {
            CrossEntropy::default().exact(logits, classes, labels, None)
        }
        (Problem::MultiLabel, Targets::Numbers(targets)) => {
            Ok(over_outputs(BinaryCrossEntropy.exact(logits, targets, classes)?, classes))
        }
        (Problem::Regression, Targets::Numbers(targets)) => {
            Ok(over_outputs(Mse.exact(logits, targets, classes)?, classes))
        }
        (_, Targets::Classes(_)) => Err(Error::Empty { what: "targets" }),
        (_, Targets::Numbers(_)) => Err(Error::Empty { what: "labels" }),
    }
}

/// Each row's mean over its outputs, from its sum over them.
fn over_outputs(sums: Exact, classes: usize) -> Exact {
    let mean = |sums: Vec<f64>| sums.into_iter().map(|sum| sum / classes as f64).collect();
    Exact { values: mean(sums.values), weights: mean(sums.weights), gradient: mean(sums.gradient) }
}

/// The same as a graph: v, f32 (N), of `logits` (N, C) of any float, taken to f32 first. `targets` are i32 (N) of
/// [`Problem::SingleLabel`], where the v of -100 is 0, and f32 (N, C) of the others. Gradients pass to the logits
/// alone.
pub fn losses(problem: Problem, logits: &Tensor, targets: &Tensor) -> Tensor {
    CLASSIFIERS.count();
    let over_outputs = |rows: Rows| &rows.values / &rows.weights;
    match problem {
        Problem::SingleLabel => next_token_rows(logits, targets).losses,
        Problem::MultiLabel => over_outputs(BinaryCrossEntropy.rows(logits, targets)),
        Problem::Regression => over_outputs(Mse.rows(logits, targets)),
    }
}
