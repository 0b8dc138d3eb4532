//! Losses of how much further one answer of a pair has moved from the reference model than the other.
//!
//! ```text
//! d = (c - rc) - (r - rr)
//! sigmoid   v = -lnσ(beta d)                                                 dv/dd = -beta σ(-beta d)
//! robust    v = (-(1 - e) lnσ(beta d) + e lnσ(-beta d)) / (1 - 2 e)          dv/dd = -beta (σ(-beta d) (1 - e) + σ(beta d) e) / (1 - 2 e)
//! hinge     v = max(0, 1 - beta d)                                           dv/dd = -beta if beta d < 1, else 0
//! ipo       v = (d - 1 / (2 beta))^2                                         dv/dd = 2 (d - 1 / (2 beta))
//! ```
//!
//! c and r are the log-probabilities of the chosen and the rejected answer, rc and rr those of the reference model:
//! sums over tokens, for IPO their means. Sigmoid is [`Dpo`](super::Dpo) without smoothing.
//!
//! Source: Rafailov et al., "Direct Preference Optimization" (2023), equation 7; Chowdhury et al., "Provably Robust
//! DPO" (2024), equation 12; Zhao et al., "SLiC-HF" (2023), for the hinge; Azar et al., "A General Theoretical Paradigm
//! to Understand Learning from Human Preferences" (2023), equation 17, over means as the `DPOTrainer` of the library
//! TRL 1.16 has it.

use super::functions::{each_row, log_sigmoid, log_sigmoid_of, sigmoid_of};
use super::{Error, Exact, Rows, check};
use crate::graph::Tensor;
use crate::oracles::LOSSES;

/// What a pair's d costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairLoss {
    /// Which function.
    pub kind: PairKind,
    /// How strongly moving away from the reference model is penalised.
    pub beta: f64,
}

/// A function of a pair's d.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PairKind {
    /// Of a logistic regression.
    Sigmoid,
    /// The same without bias where this share of the pairs is the wrong way round: 0 to 1/2, and below it.
    Robust(f64),
    /// Nothing beyond a margin.
    Hinge,
    /// The square of what is missing to a margin.
    Ipo,
}

impl PairLoss {
    /// v of each d, (P); gradient (P).
    ///
    /// Fails where a setting makes no sense or there is no pair.
    pub fn exact(&self, apart: &[f64]) -> Result<Exact, Error> {
        LOSSES.count();
        check::positive("beta", self.beta)?;
        if let PairKind::Robust(e) = self.kind {
            let is_share = (0.0..0.5).contains(&e);
            check::setting("label_smoothing", e, is_share, "a number from 0 on and below 0.5")?;
        }
        let pairs = check::rows("apart", apart, 1)?;
        Ok(each_row(pairs, |i| {
            let (value, slope) = self.of(apart[i]);
            (value, 1.0, vec![slope])
        }))
    }

    /// v of one d, and its derivative.
    fn of(&self, d: f64) -> (f64, f64) {
        let beta = self.beta;
        let x = beta * d;
        match self.kind {
            PairKind::Sigmoid => (-log_sigmoid_of(x), -beta * sigmoid_of(-x)),
            PairKind::Robust(e) => {
                let value = e * log_sigmoid_of(-x) - (1.0 - e) * log_sigmoid_of(x);
                let slope = -beta * ((1.0 - e) * sigmoid_of(-x) + e * sigmoid_of(x));
                (value / (1.0 - 2.0 * e), slope / (1.0 - 2.0 * e))
            }
            PairKind::Hinge if x < 1.0 => (1.0 - x, -beta),
            PairKind::Hinge => (0.0, 0.0),
            PairKind::Ipo => {
                let missing = d - 1.0 / (2.0 * beta);
                (missing * missing, 2.0 * missing)
            }
        }
    }

    /// v of each d as a graph, f32 (P).
    pub fn rows(&self, apart: &Tensor) -> Rows {
        LOSSES.count();
        let x = &(apart * self.beta);
        Rows::even(match self.kind {
            PairKind::Sigmoid => -&log_sigmoid(x),
            PairKind::Robust(e) => {
                let both = &(&log_sigmoid(&-x) * e) - &(&log_sigmoid(x) * (1.0 - e));
                &both * (1.0 / (1.0 - 2.0 * e))
            }
            PairKind::Hinge => {
                let missing = -&(x - 1.0);
                missing.max(&missing.like(0.0))
            }
            PairKind::Ipo => {
                let missing = apart - 1.0 / (2.0 * self.beta);
                &missing * &missing
            }
        })
    }
}
