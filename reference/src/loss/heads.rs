//! Losses of what is no logit: numbers held against numbers, and log-probabilities that are there already.
//!
//! ```text
//! squares               v = sum_j (x_j - t_j)^2        dv/dx_j = 2 (x_j - t_j)
//! negative likelihood   v = -w_y x_y                   dv/dx_j = -w_y [j = y]
//! ```
//!
//! In the mean a row of squares weighs its number of elements, and a row of likelihoods as much as its class. Source:
//! torch's `mse_loss` and `nll_loss`.

use super::functions::{at_label, each_row};
use super::{Error, Exact, IGNORED, Rows, check};
use crate::graph::{Dtype, Tensor};
use crate::oracles::LOSSES;

/// The squared difference.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mse;

impl Mse {
    /// v, of `outputs` and `targets` (N, D).
    ///
    /// Fails where a shape is another, or a target is not finite.
    pub fn exact(self, outputs: &[f64], targets: &[f64], width: usize) -> Result<Exact, Error> {
        LOSSES.count();
        let rows = check::rows("outputs", outputs, width)?;
        check::finite("targets", targets, outputs.len())?;
        Ok(each_row(rows, |i| {
            let apart = (i * width..(i + 1) * width).map(|j| outputs[j] - targets[j]);
            let squares = apart.clone().map(|d| d * d).sum();
            (squares, width as f64, apart.map(|d| 2.0 * d).collect())
        }))
    }

    /// v as a graph: `outputs` (N, D) of any float, taken to f32 first; `targets` f32 (N, D). Gradients pass to the
    /// outputs alone.
    pub fn rows(self, outputs: &Tensor, targets: &Tensor) -> Rows {
        LOSSES.count();
        let apart = &outputs.cast(Dtype::F32) - &targets.cast(Dtype::F32).detach();
        let of = |x: &Tensor| x.sum(1).reshape([outputs.dim(0)]);
        Rows { values: of(&(&apart * &apart)), weights: of(&apart.like(1.0)) }
    }
}

/// The negative log-likelihood.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nll {
    /// The label of a row that does not count.
    pub ignore_index: i32,
}

/// -100 is ignored.
impl Default for Nll {
    fn default() -> Self {
        Self { ignore_index: IGNORED }
    }
}

impl Nll {
    /// v, of `log_p` (N, V) and `labels` (N); `class_weight` (V).
    ///
    /// Fails where a shape is another, a weight is not finite, or a label is neither ignored nor in 0..V.
    pub fn exact(
        &self,
        log_p: &[f64],
        vocab: usize,
        labels: &[i32],
        class_weight: Option<&[f64]>,
    ) -> Result<Exact, Error> {
        LOSSES.count();
        let rows = check::rows("log_p", log_p, vocab)?;
        check::length("labels", labels, rows)?;
        let labels = check::labels(labels, vocab, self.ignore_index)?;
        let ones = vec![1.0; vocab];
        let w = class_weight.unwrap_or(&ones);
        check::finite("class_weight", w, vocab)?;
        Ok(each_row(rows, |i| {
            let mut gradient = vec![0.0; vocab];
            let Some(y) = labels[i] else { return (0.0, 0.0, gradient) };
            gradient[y] = -w[y];
            (-w[y] * log_p[i * vocab + y], w[y], gradient)
        }))
    }

    /// v as a graph: `log_p` (N, V) of any float, taken to f32 first; `labels` i32 (N); `class_weight` f32 (V).
    ///
    /// When it is computed, a label that is neither ignored nor in 0..V is an error that names the row.
    pub fn rows(&self, log_p: &Tensor, labels: &Tensor, class_weight: Option<&Tensor>) -> Rows {
        LOSSES.count();
        let ignored = labels.equal(&labels.like(f64::from(self.ignore_index)));
        let label = ignored.select(&labels.like(0.0), labels);
        let picked = at_label(&log_p.cast(Dtype::F32), &label).reshape([labels.dim(0)]);
        let none = picked.like(0.0);
        let weights = class_weight.map_or(picked.like(1.0), |w| w.detach().gather(&label));
        let value = -&(&picked * &weights);
        Rows { values: ignored.select(&none, &value), weights: ignored.select(&none, &weights) }
    }
}
