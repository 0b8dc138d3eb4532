//! AdamW.
//!
//! ```text
//! p <- p (1 - lr wd)
//! m <- b1 m + (1 - b1) g
//! v <- b2 v + (1 - b2) g^2
//! p <- p - lr / c1 * m / (sqrt v / sqrt c2 + eps)         c1 = 1 - b1^t, c2 = 1 - b2^t, t = 1, 2, ..
//! ```
//!
//! Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019), algorithm 2, in the order of
//! operations of torch's `AdamW`.

use crate::graph::interpret::Values;
use crate::graph::{Array, Dim, Dtype, Real, Tape, Tensor};

/// The settings that stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// b1: what is kept of the mean of the gradients.
    pub beta1: f64,
    /// b2: what is kept of the mean of their squares.
    pub beta2: f64,
    /// Added to the root, so that it is never 0.
    pub eps: f64,
    /// wd: what a parameter loses each step, as a share of the learning rate.
    pub weight_decay: f64,
}

/// The numbers that change: handles of three scalar inputs.
pub struct Rates {
    lr: Tensor,
    correction1: Tensor,
    correction2: Tensor,
}

/// A parameter and its moments after a step.
pub struct Updated {
    /// p
    pub parameter: Tensor,
    /// m
    pub first: Tensor,
    /// v
    pub second: Tensor,
}

/// torch's defaults.
impl Default for AdamW {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 }
    }
}

/// The names of the scalar inputs.
const NAMES: [&str; 3] = ["optim.lr", "optim.correction1", "optim.correction2"];

impl Rates {
    /// Declares the inputs, f32 ().
    pub fn new(tape: &Tape) -> Self {
        let [lr, correction1, correction2] = NAMES.map(|name| tape.input(name, Dtype::F32, [] as [Dim; 0]));
        Self { lr, correction1, correction2 }
    }
}

impl AdamW {
    /// The values of the scalar inputs at a step, counted from 1.
    pub fn rates<R: Real>(&self, step: u64, lr: f64) -> Values<R> {
        let correction = |beta: f64| 1.0 - beta.powf(step as f64);
        let numbers = [lr, correction(self.beta1), correction(self.beta2)];
        NAMES.iter().zip(numbers).map(|(name, number)| ((*name).to_owned(), Array::scalar(number))).collect()
    }

    /// One step of one parameter; all tensors have its shape.
    pub fn step(&self, rates: &Rates, p: &Tensor, g: &Tensor, m: &Tensor, v: &Tensor) -> Updated {
        let decayed = p * &(&rates.lr.like(1.0) - &(&rates.lr * self.weight_decay));
        let first = &(m * self.beta1) + &(g * (1.0 - self.beta1));
        let second = &(v * self.beta2) + &(&(g * g) * (1.0 - self.beta2));
        let root = &(&second.sqrt() / &rates.correction2.sqrt()) + self.eps;
        let parameter = &decayed - &(&(&rates.lr / &rates.correction1) * &(&first / &root));
        Updated { parameter, first, second }
    }
}
