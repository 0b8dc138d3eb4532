//! Functions of numbers and rows that lose nothing where the formula would, as f64 and as graphs.

use super::Exact;
use crate::graph::{Dim, Tensor};
use crate::oracles::LOSSES;

/// ln of the sum of e^x. The largest is taken out first, so that nothing overflows; where all are minus infinity, so is
/// the result; a NaN or plus infinity makes it NaN, as in [`Tensor::logsumexp`].
pub(super) fn log_sum_exp(x: &[f64]) -> f64 {
    let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let shift = if largest == f64::NEG_INFINITY { 0.0 } else { largest };
    x.iter().map(|x| (x - shift).exp()).sum::<f64>().ln() + shift
}

/// x - ln of the sum of e^x.
pub(super) fn log_softmax_of(x: &[f64]) -> Vec<f64> {
    let lse = log_sum_exp(x);
    x.iter().map(|x| x - lse).collect()
}

/// x - ln of the sum of e^x, along the last of two dimensions.
pub fn log_softmax(x: &Tensor) -> Tensor {
    LOSSES.count();
    x - &x.logsumexp(1)
}

/// ln(e^a + e^b)
pub(super) fn log_add_exp_of(a: f64, b: f64) -> f64 {
    let (small, large) = if a < b { (a, b) } else { (b, a) };
    large + (small - large).exp().ln_1p()
}

/// ln(e^a + e^b). The larger is taken out as a constant: at a = b the gradient is one half for each, not a tie.
pub fn log_add_exp(a: &Tensor, b: &Tensor) -> Tensor {
    LOSSES.count();
    let shift = a.max(b).detach();
    &(&(a - &shift).exp() + &(b - &shift).exp()).log() + &shift
}

/// 1 / (1 + e^-x)
pub(super) fn sigmoid_of(x: f64) -> f64 {
    if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }
}

/// ln(1 / (1 + e^-x)); its derivative is 1 / (1 + e^x).
pub(super) fn log_sigmoid_of(x: f64) -> f64 {
    if x < 0.0 { x - x.exp().ln_1p() } else { -(-x).exp().ln_1p() }
}

/// ln(1 / (1 + e^-x)) = -ln(e^0 + e^-x)
pub fn log_sigmoid(x: &Tensor) -> Tensor {
    LOSSES.count();
    -&log_add_exp(&x.like(0.0), &-x)
}

/// ln(1 - e^x) of x < 0; its derivative is -e^x / (1 - e^x).
pub(super) fn log_one_minus_exp_of(x: f64) -> f64 {
    (-x.exp_m1()).ln()
}

/// ln(1 - e^x) of x < 0, by 1 - e^x = -2 t / (1 - t) with t = tanh(x / 2): near 0 nothing cancels.
pub(super) fn log_one_minus_exp(x: &Tensor) -> Tensor {
    let t = (x * 0.5).tanh();
    (&(&t * -2.0) / &(&t.like(1.0) - &t)).log()
}

/// Each row's element at its label: (N, V), (N,) to (N, 1). No index of an element of `logits` is formed, which with
/// many rows would not fit in an i32.
pub(super) fn at_label(logits: &Tensor, labels: &Tensor) -> Tensor {
    let [rows, vocab] = [logits.dim(0), logits.dim(1)];
    let tape = logits.tape();
    let column = tape.iota(std::slice::from_ref(&vocab), 0).gather(labels); // the label itself, or an error
    let here = tape.iota(logits.shape(), 1).equal(&column.reshape([rows, Dim::fixed(1)]));
    here.select(logits, &logits.like(0.0)).sum(1)
}

/// Labels as one for each row: (N,), or (N, 1) to it. Of more in a row, an error.
pub(super) fn one_a_row(labels: &Tensor) -> Tensor {
    if labels.ty().rank() == 1 { labels.clone() } else { labels.reshape([labels.dim(0)]) }
}

/// One row after the other: `row` gives its value, its weight and its part of the gradient.
pub(super) fn each_row(rows: usize, mut row: impl FnMut(usize) -> (f64, f64, Vec<f64>)) -> Exact {
    let mut all = Exact { values: Vec::new(), weights: Vec::new(), gradient: Vec::new() };
    for i in 0..rows {
        let (value, weight, gradient) = row(i);
        all.values.push(value);
        all.weights.push(weight);
        all.gradient.extend(gradient);
    }
    all
}
