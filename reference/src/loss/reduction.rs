//! From the values of rows to a loss.
//!
//! ```text
//! none:  v_i             sum:  sum v_i             mean:  sum v_i / sum w_i             items:  sum v_i / n
//! ```
//!
//! The mean of nothing, where the weights add up to 0, is 0, and so is its gradient. Source: torch's `reduction`, where
//! the mean of nothing is NaN; the division by a given number is `num_items_in_batch` of the `transformers` library:
//! with n the sum of the weights over all the batches that share an update, their losses and gradients add up to those
//! of one large batch.

use super::{Error, check};
use crate::graph::Tensor;

/// How the values of the rows become the loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reduction {
    /// Not at all: a value for each row.
    None,
    /// Their sum.
    Sum,
    /// Their sum over the sum of their weights.
    Mean,
    /// Their sum over a given number, which must not be 0.
    Items(f64),
}

/// What a loss is in f64.
#[derive(Clone, Debug, PartialEq)]
pub struct Exact {
    /// v (N): each row's value; 0 of one that does not count.
    pub values: Vec<f64>,
    /// w (N): how much each row counts in the mean.
    pub weights: Vec<f64>,
    /// (N, W): the derivative of a row's value with respect to what the row is computed from.
    pub gradient: Vec<f64>,
}

/// A loss in f64 with its gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The number; for [`Reduction::None`], (N).
    pub loss: Vec<f64>,
    /// Of the loss; for [`Reduction::None`], of the sum of the rows. As long as [`Exact::gradient`].
    pub gradient: Vec<f64>,
}

/// What a loss is as a graph.
#[derive(Clone)]
#[must_use]
pub struct Rows {
    /// v, f32 (N): each row's value; 0 of one that does not count.
    pub values: Tensor,
    /// w, f32 (N): how much each row counts in the mean; no gradient passes.
    pub weights: Tensor,
}

impl Exact {
    /// The loss and its gradient.
    ///
    /// Fails where the number of items is 0 or not finite.
    pub fn reduce(&self, reduction: Reduction) -> Result<Value, Error> {
        let factor = reduction.factor(self.weights.iter().sum())?;
        let loss = match reduction {
            Reduction::None => self.values.clone(),
            _ => vec![self.values.iter().sum::<f64>() * factor],
        };
        Ok(Value { loss, gradient: self.pull_back(&vec![factor; self.values.len()]) })
    }

    /// The gradient of something else, given its derivative with respect to each value, (N).
    pub fn pull_back(&self, seed: &[f64]) -> Vec<f64> {
        let width = self.gradient.len() / seed.len().max(1);
        let rows = self.gradient.chunks(width.max(1)).zip(seed);
        rows.flat_map(|(row, seed)| row.iter().map(move |g| times(*seed, *g))).collect()
    }
}

/// seed * g, where a row without a seed has no gradient whatever its own.
fn times(seed: f64, g: f64) -> f64 {
    if seed == 0.0 { 0.0 } else { seed * g }
}

impl Reduction {
    /// What the sum of the values is multiplied with.
    fn factor(self, weights: f64) -> Result<f64, Error> {
        Ok(match self {
            Reduction::Mean if weights == 0.0 => 0.0,
            Reduction::Mean => 1.0 / weights,
            Reduction::None | Reduction::Sum => 1.0,
            Reduction::Items(items) => {
                check::setting(
                    "items",
                    items,
                    items != 0.0 && items.is_finite(),
                    "a finite number other than 0",
                )?;
                1.0 / items
            }
        })
    }
}

impl Rows {
    /// The loss: f32 (), or (N) for [`Reduction::None`].
    pub fn reduce(&self, reduction: Reduction) -> Tensor {
        match reduction {
            Reduction::None => self.values.clone(),
            Reduction::Sum => self.sum(),
            Reduction::Mean => &self.sum() * &inverse(&self.weight()),
            Reduction::Items(items) => &self.sum() / items,
        }
    }

    /// The sum of the values, f32 (): what chunks of rows add up.
    pub fn sum(&self) -> Tensor {
        self.values.total()
    }

    /// The sum of the weights, f32 (): what chunks of rows add up, and divide by at the end.
    pub fn weight(&self) -> Tensor {
        self.weights.total()
    }

    /// Rows that all count once.
    pub(super) fn even(values: Tensor) -> Self {
        let weights = values.like(1.0);
        Self { values, weights }
    }
}

/// 1 / x without a gradient, and 0 of 0.
pub(super) fn inverse(x: &Tensor) -> Tensor {
    let none = x.equal(&x.like(0.0));
    let safe = none.select(&x.like(1.0), x);
    none.select(&x.like(0.0), &(&x.like(1.0) / &safe)).detach()
}
