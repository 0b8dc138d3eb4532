//! The numbers of an update that differ from step to step: the optimiser's rates, and the factor that the loss of a
//! model in f16 is multiplied by, so that its gradients are neither lost nor too large.
//!
//! The factor is as large as the gradients let it be: after 2,000 steps in a row whose gradient was finite it doubles;
//! a step whose gradient was not is left out, and it halves. Both are exact, as it is a power of two.
//!
//! Source: `torch.amp.GradScaler` of torch 2.11, its defaults, and Micikevicius et al., "Mixed Precision Training"
//! (2018), section 3.2. Unlike there the factor has a least value: what overflows under that overflows without a
//! factor.

use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype};
use reference::llama::train::{self, LOSS_SCALE, Recipe};
use reference::optim::AdamW;

/// Finite steps after which it doubles.
const GROWTH_INTERVAL: u64 = 2000;

/// Below it a run ends: 2^-14, the smallest normal number of f16.
pub const LEAST: f64 = 1.0 / 16384.0;

/// The factor, and how long it has been fitting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScale {
    /// The factor: a power of two.
    pub factor: f64,
    /// Finite steps since it changed last.
    pub finite_steps: u64,
}

impl Default for LossScale {
    fn default() -> Self {
        Self { factor: 65_536.0, finite_steps: 0 }
    }
}

impl LossScale {
    /// After a step, whose gradient was finite or was not.
    pub fn update(&mut self, is_finite: bool) {
        if !is_finite {
            *self = Self { factor: self.factor / 2.0, finite_steps: 0 };
            return;
        }
        self.finite_steps += 1;
        if self.finite_steps == GROWTH_INTERVAL {
            let doubled = 2.0 * self.factor;
            let factor = if (doubled as f32).is_finite() { doubled } else { self.factor };
            *self = Self { factor, finite_steps: 0 };
        }
    }

    /// Whether no smaller factor is tried.
    pub fn is_exhausted(&self) -> bool {
        self.factor < LEAST
    }
}

/// The numbers that an update reads and that differ from step to step: the optimiser's rates, and the factor of the
/// loss.
pub(crate) struct Updates {
    optimizer: AdamW,
    /// The factor of the loss; `None` unless the model computes in f16.
    pub scale: Option<LossScale>,
}

impl Updates {
    /// The updates of a recipe for a model that computes in `compute`.
    pub fn new(recipe: &Recipe, compute: Dtype) -> Self {
        let scale = train::is_scaled(compute).then(LossScale::default);
        Self { optimizer: recipe.optimizer, scale }
    }

    /// Resumes with a factor that was saved; a model that does not compute in f16 has none.
    pub fn resume(&mut self, scale: LossScale) {
        self.scale = self.scale.map(|_| scale);
    }

    /// The factor that gradients are multiplied by.
    pub fn factor(&self) -> f64 {
        self.scale.map_or(1.0, |scale| scale.factor)
    }

    /// The inputs of the update of step `step`, counted from 1, at a learning rate.
    pub fn rates(&self, step: u64, rate: f64) -> Values<f32> {
        let mut rates: Values<f32> = self.optimizer.rates(step, rate);
        rates.insert(LOSS_SCALE.to_owned(), Array::scalar(self.factor()));
        rates
    }

    /// Adjusts the factor after an update whose gradient had this norm.
    pub fn after(&mut self, norm: f64) {
        if let Some(scale) = &mut self.scale {
            scale.update(norm.is_finite());
        }
    }
}
