//! Cross entropy with a label.
//!
//! ```text
//! v = (1 - e) w_y (L - z_y) + e / V sum_j w_j (L - z_j)        L = ln sum_j e^z_j,  p_j = e^(z_j - L),  W = sum_j w_j
//! dv/dz_j = (1 - e) w_y (p_j - [j = y]) + e / V (W p_j - w_j)
//! u = z_loss L^2
//! du/dz_j = 2 z_loss L p_j
//! ```
//!
//! y is the label, e the label smoothing, w the weights of the classes (1 if there are none). A row with the ignored
//! label has v = u = 0 and no weight. In the mean a row of v weighs as much as its class, a row of u weighs 1.
//!
//! Source: torch's `cross_entropy`; Chowdhery et al., "`PaLM`" (2022), section 5, for u.

use super::functions::{at_label, each_row, log_softmax_of, log_sum_exp, one_a_row};
use super::log_probabilities::kept;
use super::{Error, Exact, IGNORED, Reduction, Rows, Value, check};
use crate::graph::{Dtype, Tensor};
use crate::oracles::LOSSES;

/// The settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropy {
    /// The label of a row that does not count.
    pub ignore_index: i32,
    /// e: what share of the label is spread over all entries of the vocabulary.
    pub label_smoothing: f64,
    /// What the square of L counts.
    pub z_loss: f64,
}

/// -100 is ignored; no smoothing, no z-loss.
impl Default for CrossEntropy {
    fn default() -> Self {
        Self { ignore_index: IGNORED, label_smoothing: 0.0, z_loss: 0.0 }
    }
}

impl CrossEntropy {
    /// Whether the settings make sense.
    pub fn check(&self) -> Result<(), Error> {
        check::share("label_smoothing", self.label_smoothing)?;
        check::not_negative("z_loss", self.z_loss)
    }

    /// v, of `logits` (N, V) and `labels` (N); `class_weight` (V).
    ///
    /// Fails where a setting makes no sense, a shape is another, a weight is not finite, or a label is neither ignored
    /// nor in 0..V.
    pub fn exact(
        &self,
        logits: &[f64],
        vocab: usize,
        labels: &[i32],
        class_weight: Option<&[f64]>,
    ) -> Result<Exact, Error> {
        LOSSES.count();
        let labels = self.accept(logits, vocab, labels)?;
        let ones = vec![1.0; vocab];
        let w = class_weight.unwrap_or(&ones);
        check::finite("class_weight", w, vocab)?;
        Ok(each_row(labels.len(), |i| match labels[i] {
            Some(label) => self.row(&logits[i * vocab..][..vocab], label, w),
            None => (0.0, 0.0, vec![0.0; vocab]),
        }))
    }

    /// One row that counts.
    fn row(&self, z: &[f64], y: usize, w: &[f64]) -> (f64, f64, Vec<f64>) {
        let (hard, soft) = ((1.0 - self.label_smoothing) * w[y], self.label_smoothing / z.len() as f64);
        let log_p = log_softmax_of(z);
        let spread = log_p.iter().zip(w).map(|(log_p, w)| -w * log_p).sum::<f64>();
        let value = -hard * log_p[y] + if soft == 0.0 { 0.0 } else { soft * spread };
        let all = w.iter().sum::<f64>();
        let hit = |j: usize| if j == y { 1.0 } else { 0.0 };
        let slope = |j: usize| hard * (log_p[j].exp() - hit(j)) + soft * (all * log_p[j].exp() - w[j]);
        (value, w[y], (0..z.len()).map(slope).collect())
    }

    /// u, of the same.
    ///
    /// Fails likewise.
    pub fn exact_z(&self, logits: &[f64], vocab: usize, labels: &[i32]) -> Result<Exact, Error> {
        LOSSES.count();
        let labels = self.accept(logits, vocab, labels)?;
        Ok(each_row(labels.len(), |i| {
            let z = &logits[i * vocab..][..vocab];
            let lse = log_sum_exp(z);
            let slope = |z: &f64| 2.0 * self.z_loss * lse * (z - lse).exp();
            match labels[i] {
                Some(_) => (self.z_loss * lse * lse, 1.0, z.iter().map(slope).collect()),
                None => (0.0, 0.0, vec![0.0; vocab]),
            }
        }))
    }

    fn accept(&self, logits: &[f64], vocab: usize, labels: &[i32]) -> Result<Vec<Option<usize>>, Error> {
        self.check()?;
        let rows = check::rows("logits", logits, vocab)?;
        check::length("labels", labels, rows)?;
        check::labels(labels, vocab, self.ignore_index)
    }

    /// The loss: v and u, each reduced.
    ///
    /// Fails as [`exact`](Self::exact) and [`Exact::reduce`] do.
    pub fn exact_loss(
        &self,
        logits: &[f64],
        vocab: usize,
        labels: &[i32],
        class_weight: Option<&[f64]>,
        reduction: Reduction,
    ) -> Result<Value, Error> {
        LOSSES.count();
        let value = self.exact(logits, vocab, labels, class_weight)?.reduce(reduction)?;
        let z = self.exact_z(logits, vocab, labels)?.reduce(reduction)?;
        let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a + b).collect();
        let both = Value { loss: sum(&value.loss, &z.loss), gradient: sum(&value.gradient, &z.gradient) };
        Ok(if self.z_loss == 0.0 { value } else { both })
    }

    /// v as a graph: `logits` (N, V) of any float, taken to f32 first; `labels` i32 (N); `class_weight` f32 (V).
    ///
    /// When it is computed, a label that is neither ignored nor in 0..V is an error that names the row.
    pub fn rows(&self, logits: &Tensor, labels: &Tensor, class_weight: Option<&Tensor>) -> Rows {
        LOSSES.count();
        let logits = logits.cast(Dtype::F32);
        let (ignored, label) = self.split(labels);
        let rows = || [labels.dim(0)];
        let lse = logits.logsumexp(1); // (N, 1)
        let nll = (&lse - &at_label(&logits, &label)).reshape(rows()); // (N,)
        let ones = nll.like(1.0);
        let weights = class_weight.map_or(ones, |w| w.detach().gather(&label));
        let mut value = &nll * &weights;
        if self.label_smoothing != 0.0 {
            let apart = &lse - &logits; // (N, V)
            let apart = class_weight.map_or(apart.clone(), |w| &apart * &w.detach());
            let spread = apart.mean(1).reshape(rows());
            value = &(&value * (1.0 - self.label_smoothing)) + &(&spread * self.label_smoothing);
        }
        let none = value.like(0.0);
        Rows { values: ignored.select(&none, &value), weights: ignored.select(&none, &weights) }
    }

    /// u as a graph, of the same.
    pub fn z_rows(&self, logits: &Tensor, labels: &Tensor) -> Rows {
        LOSSES.count();
        let lse = logits.cast(Dtype::F32).logsumexp(1).reshape([labels.dim(0)]);
        let (ignored, value) = (self.split(labels).0, &(&lse * &lse) * self.z_loss);
        Rows { values: ignored.select(&value.like(0.0), &value), weights: kept(labels, self.ignore_index) }
    }

    /// The loss as a graph: v and u, each reduced. f32 (), or (N) for [`Reduction::None`].
    pub fn loss(
        &self,
        logits: &Tensor,
        labels: &Tensor,
        class_weight: Option<&Tensor>,
        reduction: Reduction,
    ) -> Tensor {
        LOSSES.count();
        let value = self.rows(logits, labels, class_weight).reduce(reduction);
        if self.z_loss == 0.0 {
            return value;
        }
        &value + &self.z_rows(logits, labels).reduce(reduction)
    }

    /// Which rows are ignored, u8 (N), and their labels with 0 there.
    fn split(&self, labels: &Tensor) -> (Tensor, Tensor) {
        let labels = &one_a_row(labels);
        let ignored = labels.equal(&labels.like(f64::from(self.ignore_index)));
        let label = ignored.select(&labels.like(0.0), labels);
        (ignored, label)
    }
}
