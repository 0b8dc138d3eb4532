//! The norm of a gradient, and the bound on it.
//!
//! ```text
//! norm   = sqrt(sum over every element of every tensor of g^2)
//! factor = min(1, max / (norm + 1e-6))
//! g      <- factor g
//! ```
//!
//! Source: Pascanu et al., "On the difficulty of training recurrent neural networks" (2013), algorithm 1; the 1e-6 is
//! that of torch's `clip_grad_norm_`.

use crate::graph::{Dtype, Tape, Tensor, Type};
use crate::oracles::NORMS;

/// The Euclidean norm of all tensors together, f32 ().
pub fn norm(tape: &Tape, gradients: &[Tensor]) -> Tensor {
    NORMS.count();
    let zero = tape.constant(0.0, &Type::scalar(Dtype::F32));
    let squares = gradients.iter().map(|g| g.cast(Dtype::F32)).map(|g| (&g * &g).total());
    squares.fold(zero, |sum, square| &sum + &square).sqrt()
}

/// What a gradient of this norm is multiplied with, so that it has at most the norm `max`.
pub fn clip_factor(norm: &Tensor, max: f64) -> Tensor {
    (&norm.like(max) / &(norm + 1e-6)).min(&norm.like(1.0))
}

/// All gradients, shortened together.
pub fn clip(gradients: &[Tensor], norm: &Tensor, max: f64) -> Vec<Tensor> {
    let factor = clip_factor(norm, max);
    gradients.iter().map(|gradient| gradient * &factor.cast(gradient.ty().dtype)).collect()
}
