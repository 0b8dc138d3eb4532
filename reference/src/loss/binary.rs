//! Binary cross entropy: each output of a row is a question of its own, whose answer is yes with the probability
//! sigmoid(z).
//!
//! ```text
//! v = sum_j (ln(1 + e^z_j) - y_j z_j)        dv/dz_j = sigmoid(z_j) - y_j
//! ```
//!
//! y is 1 for yes and 0 for no, or a probability between. In the mean a row weighs its number of elements. Source:
//! torch's `binary_cross_entropy_with_logits`.

use super::functions::{each_row, log_add_exp, log_add_exp_of, sigmoid_of};
use super::{Error, Exact, Rows, check};
use crate::graph::{Dtype, Tensor};
use crate::oracles::LOSSES;

/// Binary cross entropy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BinaryCrossEntropy;

impl BinaryCrossEntropy {
    /// v, of `logits` and `targets` (N, C).
    ///
    /// Fails where a shape is another, or a target is not finite.
    pub fn exact(self, logits: &[f64], targets: &[f64], width: usize) -> Result<Exact, Error> {
        LOSSES.count();
        let rows = check::rows("logits", logits, width)?;
        check::finite("targets", targets, logits.len())?;
        Ok(each_row(rows, |i| {
            let of_row = (i * width..(i + 1) * width).map(|j| (logits[j], targets[j]));
            let value = of_row.clone().map(|(z, y)| log_add_exp_of(0.0, z) - y * z).sum();
            (value, width as f64, of_row.map(|(z, y)| sigmoid_of(z) - y).collect())
        }))
    }

    /// v as a graph: `logits` (N, C) of any float, taken to f32 first; `targets` f32 (N, C). Gradients pass to the
    /// logits alone.
    pub fn rows(self, logits: &Tensor, targets: &Tensor) -> Rows {
        LOSSES.count();
        let z = logits.cast(Dtype::F32);
        let cost = &log_add_exp(&z.like(0.0), &z) - &(&targets.cast(Dtype::F32).detach() * &z);
        let of = |x: &Tensor| x.sum(1).reshape([logits.dim(0)]);
        Rows { values: of(&cost), weights: of(&cost.like(1.0)) }
    }
}
