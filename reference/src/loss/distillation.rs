//! How far a student's distribution is from a teacher's.
//!
//! ```text
//! forward KL      v = sum_j t_j (ln t_j - ln s_j)                                dv/dz_j = s_j sum_k t_k - t_j
//! Jensen-Shannon  v = b sum_j t_j (ln t_j - ln m_j) + (1 - b) sum_j s_j (ln s_j - ln m_j)        m = b t + (1 - b) s
//!                 dv/dz_j = (1 - b) s_j (r_j - sum_k s_k r_k)                     r_j = ln s_j - ln m_j
//! ```
//!
//! s = softmax(z) is the student, t = softmax of the teacher's logits. A temperature divides both logits beforehand
//! ([`super::Head`]); the loss is not multiplied by its square.
//!
//! Source: Hinton et al., "Distilling the Knowledge in a Neural Network" (2015); Agarwal et al., "On-Policy
//! Distillation of Language Models" (2024), equation 1, for the generalised Jensen-Shannon divergence.

use super::functions::{each_row, log_add_exp, log_add_exp_of, log_softmax, log_softmax_of};
use super::{Error, Exact, Rows, check};
use crate::graph::{Dtype, Tensor};
use crate::oracles::LOSSES;

/// Which divergence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Divergence {
    /// KL(t || s).
    ForwardKl,
    /// b KL(t || m) + (1 - b) KL(s || m).
    JensenShannon {
        /// b, the teacher's share of m: above 0 and below 1.
        beta: f64,
    },
}

impl Divergence {
    /// Whether the setting makes sense.
    pub fn check(&self) -> Result<(), Error> {
        match *self {
            Divergence::ForwardKl => Ok(()),
            Divergence::JensenShannon { beta } => {
                check::setting("beta", beta, beta > 0.0 && beta < 1.0, "a number above 0 and below 1")
            }
        }
    }

    /// v, of the `student`'s and the `teacher`'s logits (N, V); a row counts where `mask` (N) is not 0.
    ///
    /// Fails where the setting makes no sense, a shape is another, or the mask is not finite.
    pub fn exact(
        &self,
        student: &[f64],
        teacher: &[f64],
        vocab: usize,
        mask: &[f64],
    ) -> Result<Exact, Error> {
        LOSSES.count();
        self.check()?;
        let rows = check::rows("student", student, vocab)?;
        check::length("teacher", teacher, student.len())?;
        check::finite("mask", mask, rows)?;
        Ok(each_row(rows, |i| {
            if mask[i] == 0.0 {
                return (0.0, 0.0, vec![0.0; vocab]);
            }
            let [s, t] = [student, teacher].map(|z| log_softmax_of(&z[i * vocab..][..vocab]));
            let (value, gradient) = self.row(&s, &t);
            (mask[i] * value, mask[i], gradient.into_iter().map(|g| mask[i] * g).collect())
        }))
    }

    /// One row, of ln s and ln t.
    fn row(&self, s: &[f64], t: &[f64]) -> (f64, Vec<f64>) {
        match *self {
            Divergence::ForwardKl => {
                let all = t.iter().map(|t| t.exp()).sum::<f64>();
                (kl(t, s), s.iter().zip(t).map(|(s, t)| s.exp() * all - t.exp()).collect())
            }
            Divergence::JensenShannon { beta } => {
                let m = s.iter().zip(t).map(|(s, t)| log_add_exp_of(t + beta.ln(), s + (-beta).ln_1p()));
                let m: Vec<f64> = m.collect();
                let (of_t, of_s) = (kl(t, &m), kl(s, &m));
                let slope = |(s, m): (&f64, &f64)| (1.0 - beta) * s.exp() * (s - m - of_s);
                (beta * of_t + (1.0 - beta) * of_s, s.iter().zip(&m).map(slope).collect())
            }
        }
    }

    /// v as a graph: logits (N, V) of any float, taken to f32 first; `mask` f32 (N). Gradients pass to the student
    /// alone.
    pub fn rows(&self, student: &Tensor, teacher: &Tensor, mask: &Tensor) -> Rows {
        LOSSES.count();
        let [s, t] = [student, &teacher.detach()].map(|z| log_softmax(&z.cast(Dtype::F32)));
        let value = match *self {
            Divergence::ForwardKl => kl_rows(&t, &s),
            Divergence::JensenShannon { beta } => {
                let m = log_add_exp(&(&t + beta.ln()), &(&s + (-beta).ln_1p()));
                &(&kl_rows(&t, &m) * beta) + &(&kl_rows(&s, &m) * (1.0 - beta))
            }
        };
        let (value, mask) = (value.reshape([student.dim(0)]), mask.detach());
        let none = mask.equal(&mask.like(0.0));
        Rows { values: none.select(&mask.like(0.0), &(&value * &mask)), weights: mask }
    }
}

/// KL of the distributions whose logarithms are p and q.
fn kl(p: &[f64], q: &[f64]) -> f64 {
    p.iter().zip(q).map(|(p, q)| p.exp() * (p - q)).sum()
}

/// The same of each row: (N, V) to (N, 1).
fn kl_rows(p: &Tensor, q: &Tensor) -> Tensor {
    (&p.exp() * &(p - q)).sum(1)
}
