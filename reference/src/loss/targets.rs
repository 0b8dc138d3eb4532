//! Cross entropy with a distribution.
//!
//! ```text
//! v = sum_j w_j t_j (L - z_j)        t_j = (1 - e) q_j + e / V,  L = ln sum_j e^z_j,  p_j = e^(z_j - L)
//! dv/dz_j = p_j sum_k w_k t_k - w_j t_j
//! ```
//!
//! q is the row's target, e the label smoothing, w the weights of the classes (1 if there are none). Every row weighs
//! 1. Source: torch's `cross_entropy` with probabilities as its target.

use super::functions::{each_row, log_softmax, log_softmax_of};
use super::{Error, Exact, Rows, check};
use crate::graph::{Dtype, Tensor};
use crate::oracles::LOSSES;

/// The settings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Targets {
    /// e: what share of the target is spread over all entries of the vocabulary.
    pub label_smoothing: f64,
}

impl Targets {
    /// v, of `logits` (N, V) and `targets` (N, V); `class_weight` (V). That a target's entries add up to 1 is not
    /// asked.
    ///
    /// Fails where the setting makes no sense, a shape is another, or a target or a weight is not finite.
    pub fn exact(
        &self,
        logits: &[f64],
        vocab: usize,
        targets: &[f64],
        class_weight: Option<&[f64]>,
    ) -> Result<Exact, Error> {
        LOSSES.count();
        check::share("label_smoothing", self.label_smoothing)?;
        let rows = check::rows("logits", logits, vocab)?;
        check::finite("targets", targets, logits.len())?;
        let ones = vec![1.0; vocab];
        let w = class_weight.unwrap_or(&ones);
        check::finite("class_weight", w, vocab)?;
        Ok(each_row(rows, |i| self.row(&logits[i * vocab..][..vocab], &targets[i * vocab..][..vocab], w)))
    }

    fn row(self, z: &[f64], q: &[f64], w: &[f64]) -> (f64, f64, Vec<f64>) {
        let (hard, soft) = (1.0 - self.label_smoothing, self.label_smoothing / z.len() as f64);
        let t: Vec<f64> = q.iter().zip(w).map(|(q, w)| w * (hard * q + soft)).collect();
        let log_p = log_softmax_of(z);
        let all = t.iter().sum::<f64>();
        let pairs = || log_p.iter().zip(&t);
        let value = pairs().map(|(log_p, t)| -t * log_p).sum();
        (value, 1.0, pairs().map(|(log_p, t)| log_p.exp() * all - t).collect())
    }

    /// v as a graph: `logits` (N, V) of any float, taken to f32 first; `targets` f32 (N, V); `class_weight` f32 (V).
    /// Gradients pass to the logits alone.
    pub fn rows(&self, logits: &Tensor, targets: &Tensor, class_weight: Option<&Tensor>) -> Rows {
        LOSSES.count();
        let log_p = log_softmax(&logits.cast(Dtype::F32));
        let q = targets.cast(Dtype::F32).detach();
        let share = &q.like(self.label_smoothing) * &over(&q, 1);
        let t = if self.label_smoothing == 0.0 { q } else { &(&q * (1.0 - self.label_smoothing)) + &share };
        let t = class_weight.map_or(t.clone(), |w| &t * &w.detach());
        Rows::even((-&(&t * &log_p).sum(1)).reshape([logits.dim(0)]))
    }
}

/// 1 over the size of a dimension, which becomes 1.
fn over(x: &Tensor, dim: usize) -> Tensor {
    let count = x.like(1.0).sum(dim);
    &count.like(1.0) / &count
}
