//! Losses of which answer is preferred.
//!
//! ```text
//! DPO     x = beta ((c - rc) - (r - rr))                                     v = -(1 - e) lnσ(x) - e lnσ(-x)
//! SimPO   x = beta (c - r) - gamma                                           v = -(1 - e) lnσ(x) - e lnσ(-x)
//! ORPO    x = (c - r) - (ln(1 - e^c) - ln(1 - e^r))                          v = -beta lnσ(x)
//! KTO     x = beta (p - rp - z) if desirable, beta (z - (p - rp)) if not     v = w (1 - σ(x))
//!
//! dlnσ(x)/dx = σ(-x)        dσ(x)/dx = σ(x) σ(-x)        d ln(1 - e^c)/dc = -e^c / (1 - e^c)
//! ```
//!
//! c and r are the log-probabilities of the chosen and the rejected answer, p of any answer; rc, rr, rp the same of
//! the frozen reference model; summed over the tokens for DPO and KTO, their mean for `SimPO` and ORPO
//! ([`super::Pool`]). What ORPO adds for the chosen answers, the mean of -ln p over tokens, is [`Orpo::exact_tokens`],
//! whose mask says which: of the answer, as here by default, or of prompt and answer, as in TRL. Every pair, and every
//! answer of KTO, weighs 1.
//!
//! Source: Rafailov et al., "Direct Preference Optimization" (2023), equation 7, with the smoothing e of Mitchell, "A
//! note on DPO with noisy preferences" (2023); Meng et al., "`SimPO`" (2024), equation 6; Hong et al., "ORPO" (2024),
//! equations 4 to 7; Ethayarajh et al., "KTO" (2024), equation 8; for the prompts of ORPO's plain loss the
//! `ORPOTrainer` of the library TRL 1.16 (`trl.experimental.orpo`).

use super::functions::{
    each_row, log_one_minus_exp, log_one_minus_exp_of, log_sigmoid, log_sigmoid_of, sigmoid_of,
};
use super::{Error, Exact, Rows, check};
use crate::graph::{Dim, Tensor};
use crate::oracles::LOSSES;

/// Numbers of pairs of answers, (P) each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared<T> {
    /// Of the answers that are preferred.
    pub chosen: T,
    /// Of the others.
    pub rejected: T,
}

impl<'a> Compared<&'a [f64]> {
    /// Of a batch whose first half is chosen and whose second half is rejected.
    ///
    /// Fails where their number is odd, or 0.
    pub fn halves(answers: &'a [f64]) -> Result<Self, Error> {
        check::rows("answers", answers, 2)?;
        let (chosen, rejected) = answers.split_at(answers.len() / 2);
        Ok(Self { chosen, rejected })
    }

    fn pairs(&self) -> Result<usize, Error> {
        let pairs = check::rows("chosen", self.chosen, 1)?;
        check::length("rejected", self.rejected, pairs)?;
        Ok(pairs)
    }
}

impl Compared<Tensor> {
    /// Of a batch of 2 * `pairs`, whose first half is chosen and whose second half is rejected.
    pub fn halves_of(answers: &Tensor, pairs: impl Into<Dim>) -> Self {
        let pairs = pairs.into();
        let chosen = answers.slice(0, 0, &pairs);
        Self { chosen, rejected: answers.slice(0, &pairs, answers.dim(0)) }
    }

    fn apart(&self) -> Tensor {
        &self.chosen - &self.rejected
    }
}

impl Exact {
    /// The gradient of pairs, (P, 2), as that of a batch whose first half is chosen and whose second half is rejected.
    pub fn as_halves(gradient: &[f64]) -> Vec<f64> {
        let side = |side: usize| gradient.iter().skip(side).step_by(2).copied();
        side(0).chain(side(1)).collect()
    }
}

/// -(1 - e) lnσ(x) - e lnσ(-x), and its derivative.
fn smoothed(x: f64, e: f64) -> (f64, f64) {
    let value = if e == 0.0 { 0.0 } else { e * log_sigmoid_of(-x) };
    (-(1.0 - e) * log_sigmoid_of(x) - value, e * sigmoid_of(x) - (1.0 - e) * sigmoid_of(-x))
}

fn smoothed_rows(x: &Tensor, e: f64) -> Rows {
    let value = -&(&log_sigmoid(x) * (1.0 - e));
    Rows::even(if e == 0.0 { value } else { &value - &(&log_sigmoid(&-x) * e) })
}

/// Direct preference optimisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dpo {
    /// How dear it is to leave the reference model.
    pub beta: f64,
    /// e: the share of pairs that are the wrong way round. TRL 1.16 has no such term in its `sigmoid` loss, and
    /// another one in its `robust`.
    pub label_smoothing: f64,
}

impl Dpo {
    /// v, of sums of log-probabilities; gradient (P, 2).
    ///
    /// Fails where a setting makes no sense, a length is another, or the reference is not finite.
    pub fn exact(&self, policy: Compared<&[f64]>, reference: Compared<&[f64]>) -> Result<Exact, Error> {
        LOSSES.count();
        check::positive("beta", self.beta)?;
        check::share("label_smoothing", self.label_smoothing)?;
        let pairs = policy.pairs()?;
        check::finite("reference chosen", reference.chosen, pairs)?;
        check::finite("reference rejected", reference.rejected, pairs)?;
        Ok(each_row(pairs, |i| {
            let [of_policy, of_reference] = [policy, reference].map(|of| of.chosen[i] - of.rejected[i]);
            let (value, slope) = smoothed(self.beta * (of_policy - of_reference), self.label_smoothing);
            (value, 1.0, vec![slope * self.beta, -slope * self.beta])
        }))
    }

    /// v as a graph, f32 (P) each.
    pub fn rows(&self, policy: &Compared<Tensor>, reference: &Compared<Tensor>) -> Rows {
        LOSSES.count();
        let apart = &policy.apart() - &reference.apart().detach();
        smoothed_rows(&(&apart * self.beta), self.label_smoothing)
    }
}

/// Simple preference optimisation: no reference model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimPo {
    /// What the difference of the means is multiplied with.
    pub beta: f64,
    /// The margin by which the chosen answer has to win.
    pub gamma: f64,
    /// e: the share of pairs that are the wrong way round.
    pub label_smoothing: f64,
}

impl SimPo {
    /// v, of means of log-probabilities; gradient (P, 2).
    ///
    /// Fails where a setting makes no sense, or a length is another.
    pub fn exact(&self, policy: Compared<&[f64]>) -> Result<Exact, Error> {
        LOSSES.count();
        check::positive("beta", self.beta)?;
        check::setting("gamma", self.gamma, self.gamma.is_finite(), "a finite number")?;
        check::share("label_smoothing", self.label_smoothing)?;
        Ok(each_row(policy.pairs()?, |i| {
            let x = self.beta * (policy.chosen[i] - policy.rejected[i]) - self.gamma;
            let (value, slope) = smoothed(x, self.label_smoothing);
            (value, 1.0, vec![slope * self.beta, -slope * self.beta])
        }))
    }

    /// v as a graph, f32 (P) each.
    pub fn rows(&self, policy: &Compared<Tensor>) -> Rows {
        LOSSES.count();
        smoothed_rows(&(&(&policy.apart() * self.beta) - self.gamma), self.label_smoothing)
    }
}

/// Odds ratio preference optimisation: no reference model, and the plain loss of the chosen answers beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Orpo {
    /// What the odds count beside the plain loss; lambda in the paper.
    pub beta: f64,
}

impl Orpo {
    /// v, of means of log-probabilities, which are below 0; gradient (P, 2).
    ///
    /// Fails where the setting makes no sense, or a length is another.
    pub fn exact(&self, policy: Compared<&[f64]>) -> Result<Exact, Error> {
        LOSSES.count();
        check::not_negative("beta", self.beta)?;
        Ok(each_row(policy.pairs()?, |i| {
            let (c, r) = (policy.chosen[i], policy.rejected[i]);
            let x = (c - r) - (log_one_minus_exp_of(c) - log_one_minus_exp_of(r));
            let slope = -self.beta * sigmoid_of(-x);
            // dx/dc = 1 + e^c / (1 - e^c) = 1 / (1 - e^c)
            (-self.beta * log_sigmoid_of(x), 1.0, vec![-slope / c.exp_m1(), slope / r.exp_m1()])
        }))
    }

    /// The plain loss beside it: v = -m x, weight m, of the log-probabilities of tokens of the chosen texts and
    /// their mask, as long: 1 for each token of an answer, and of its prompt if prompts are to be learnt too.
    ///
    /// Fails where a length is another, or the mask is not finite.
    pub fn exact_tokens(self, tokens: &[f64], mask: &[f64]) -> Result<Exact, Error> {
        LOSSES.count();
        let rows = check::rows("tokens", tokens, 1)?;
        check::finite("mask", mask, rows)?;
        let value = |i: usize| if mask[i] == 0.0 { 0.0 } else { -mask[i] * tokens[i] };
        Ok(each_row(rows, |i| (value(i), mask[i], vec![-mask[i]])))
    }

    /// v as a graph, f32 (P) each.
    pub fn rows(&self, policy: &Compared<Tensor>) -> Rows {
        LOSSES.count();
        let [of_chosen, of_rejected] = [&policy.chosen, &policy.rejected].map(log_one_minus_exp);
        let x = &policy.apart() - &(&of_chosen - &of_rejected);
        Rows::even(&log_sigmoid(&x) * -self.beta)
    }

    /// The plain loss beside it as a graph, of f32 of one shape.
    pub fn token_rows(self, tokens: &Tensor, mask: &Tensor) -> Rows {
        LOSSES.count();
        let mask = mask.detach();
        let kept = mask.equal(&mask.like(0.0)).select(&tokens.like(0.0), tokens);
        Rows { values: -&(&kept * &mask), weights: mask }
    }
}

/// What KTO is given of each answer, (S) each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged<T> {
    /// p
    pub policy: T,
    /// rp
    pub reference: T,
    /// 1 of a desirable answer, 0 of another.
    pub desirable: T,
}

/// Kahneman-Tversky optimisation: answers that are good or bad by themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kto {
    /// How dear it is to leave the reference model.
    pub beta: f64,
    /// w of a desirable answer.
    pub desirable_weight: f64,
    /// w of another.
    pub undesirable_weight: f64,
}

/// z: the mean of the policy's sums of log-probabilities less the reference's, of answers that belong to other
/// questions; 0 if that is negative. A constant of the loss.
///
/// Fails where there is none, or not as many of the reference.
pub fn kto_baseline(policy: &[f64], reference: &[f64]) -> Result<f64, Error> {
    LOSSES.count();
    let answers = check::rows("policy", policy, 1)?;
    check::length("reference", reference, answers)?;
    let apart = policy.iter().zip(reference).map(|(policy, reference)| policy - reference);
    let mean = apart.sum::<f64>() / answers as f64;
    Ok(if mean < 0.0 { 0.0 } else { mean })
}

impl Kto {
    /// v, of sums of log-probabilities and of z, the [`kto_baseline`]; gradient (S).
    ///
    /// Fails where a setting makes no sense, a length is another, or the reference, what is desirable or z is not
    /// finite.
    pub fn exact(&self, given: Judged<&[f64]>, z: f64) -> Result<Exact, Error> {
        LOSSES.count();
        check::positive("beta", self.beta)?;
        check::not_negative("desirable_weight", self.desirable_weight)?;
        check::not_negative("undesirable_weight", self.undesirable_weight)?;
        check::setting("z", z, z.is_finite(), "a finite number")?;
        let answers = check::rows("policy", given.policy, 1)?;
        check::finite("reference", given.reference, answers)?;
        check::finite("desirable", given.desirable, answers)?;
        Ok(each_row(answers, |i| {
            let good = given.desirable[i] != 0.0;
            let (w, sign) = if good { (self.desirable_weight, 1.0) } else { (self.undesirable_weight, -1.0) };
            let x = sign * self.beta * (given.policy[i] - given.reference[i] - z);
            (w * sigmoid_of(-x), 1.0, vec![-w * sigmoid_of(x) * sigmoid_of(-x) * sign * self.beta])
        }))
    }

    /// v as a graph, f32 (S) each; `z` f32 ().
    pub fn rows(&self, given: &Judged<Tensor>, z: &Tensor) -> Rows {
        LOSSES.count();
        let desirable = given.desirable.detach();
        let bad = desirable.equal(&desirable.like(0.0));
        let either = |good: f64, not: f64| bad.select(&desirable.like(not), &desirable.like(good));
        let apart = &(&given.policy - &given.reference.detach()) - &z.detach();
        let x = &apart * &either(self.beta, -self.beta);
        Rows::even(&(-&x).sigmoid() * &either(self.desirable_weight, self.undesirable_weight))
    }
}
