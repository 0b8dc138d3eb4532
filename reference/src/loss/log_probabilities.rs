//! The log-probabilities of given tokens, and of sequences of them.
//!
//! ```text
//! token      x = z_y - ln sum_j e^z_j        dx/dz_j = [j = y] - p_j
//! sequence   sum: m_t x_t added up           mean: the same over sum m_t
//! ```

use super::functions::{at_label, each_row, log_softmax_of, one_a_row};
use super::{Error, Exact, IGNORED, Rows, check};
use crate::graph::{Dtype, Tensor};
use crate::oracles::{LOSSES, POOLS};

/// The log-probability of each row's label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogProbabilities {
    /// The label of a row that does not count: its value is 0, and so is its weight.
    pub ignore_index: i32,
}

/// -100 is ignored.
impl Default for LogProbabilities {
    fn default() -> Self {
        Self { ignore_index: IGNORED }
    }
}

/// 1 where a label counts and 0 where it is the ignored one, f32 (N).
pub fn kept(labels: &Tensor, ignore_index: i32) -> Tensor {
    let labels = &one_a_row(labels);
    let ignored = labels.equal(&labels.like(f64::from(ignore_index)));
    ignored.equal(&ignored.like(0.0)).cast(Dtype::F32)
}

impl LogProbabilities {
    /// x, of `logits` (N, V) and `labels` (N).
    ///
    /// Fails where a shape is another, or a label is neither ignored nor in 0..V.
    pub fn exact(&self, logits: &[f64], vocab: usize, labels: &[i32]) -> Result<Exact, Error> {
        LOSSES.count();
        let rows = check::rows("logits", logits, vocab)?;
        check::length("labels", labels, rows)?;
        let labels = check::labels(labels, vocab, self.ignore_index)?;
        Ok(each_row(rows, |i| {
            let Some(y) = labels[i] else { return (0.0, 0.0, vec![0.0; vocab]) };
            let log_p = log_softmax_of(&logits[i * vocab..][..vocab]);
            let mut gradient: Vec<f64> = log_p.iter().map(|log_p| -log_p.exp()).collect();
            gradient[y] += 1.0;
            (log_p[y], 1.0, gradient)
        }))
    }

    /// x as a graph: `logits` (N, V) of any float, taken to f32 first; `labels` i32 (N).
    ///
    /// When it is computed, a label that is neither ignored nor in 0..V is an error that names the row.
    pub fn rows(&self, logits: &Tensor, labels: &Tensor) -> Rows {
        LOSSES.count();
        let (logits, labels) = (logits.cast(Dtype::F32), &one_a_row(labels));
        let ignored = labels.equal(&labels.like(f64::from(self.ignore_index)));
        let picked = at_label(&logits, &ignored.select(&labels.like(0.0), labels));
        let value = (&picked - &logits.logsumexp(1)).reshape([labels.dim(0)]);
        let weights = kept(labels, self.ignore_index);
        Rows { values: ignored.select(&value.like(0.0), &value), weights }
    }
}

/// What a sequence makes of its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// Their sum.
    Sum,
    /// Their mean; 0 of none.
    Mean,
}

impl Pool {
    /// Of `tokens` (S, T) under `mask` (S, T): values and weights (S), gradient (S, T). A token whose mask is 0 may be
    /// anything. Every sequence weighs 1.
    ///
    /// Fails where a shape is another, or the mask is not finite.
    pub fn exact(self, tokens: &[f64], length: usize, mask: &[f64]) -> Result<Exact, Error> {
        POOLS.count();
        let rows = check::rows("tokens", tokens, length)?;
        check::finite("mask", mask, tokens.len())?;
        Ok(each_row(rows, |i| {
            let [x, m] = [tokens, mask].map(|all| &all[i * length..][..length]);
            let share = self.shares(m);
            let kept = x.iter().zip(&share).filter(|(_, share)| **share != 0.0);
            (kept.map(|(x, share)| x * share).sum(), 1.0, share.clone())
        }))
    }

    /// What each token of a sequence counts.
    fn shares(self, mask: &[f64]) -> Vec<f64> {
        let all = mask.iter().sum::<f64>();
        let factor = match self {
            Pool::Sum => 1.0,
            Pool::Mean if all == 0.0 => 0.0,
            Pool::Mean => 1.0 / all,
        };
        mask.iter().map(|m| m * factor).collect()
    }

    /// The same as a graph: f32 (S, T), (S, T) to (S).
    pub fn graph(self, tokens: &Tensor, mask: &Tensor) -> Tensor {
        POOLS.count();
        let mask = mask.detach();
        let none = mask.equal(&mask.like(0.0));
        let sum = (&none.select(&tokens.like(0.0), tokens) * &mask).sum(1);
        let pooled = match self {
            Pool::Sum => sum,
            Pool::Mean => &sum * &super::reduction::inverse(&mask.sum(1)),
        };
        pooled.reshape([tokens.dim(0)])
    }
}
