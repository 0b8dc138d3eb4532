//! The learning rate as a function of the step.
//!
//! ```text
//! step < warmup:  step / max(1, warmup)
//! constant:       1
//! linear:         max(0, (steps - step) / max(1, steps - warmup))
//! cosine:         max(0, (1 + cos(2 pi cycles (step - warmup) / max(1, steps - warmup))) / 2)      cycles = 1/2
//! ```
//!
//! times the peak. Steps count from 0, the one whose update is about to be made: with a warm-up the first update is
//! of rate 0. Source: `get_constant_schedule_with_warmup`, `get_linear_schedule_with_warmup` and
//! `get_cosine_schedule_with_warmup` of the `transformers` library; Loshchilov and Hutter, "SGDR" (2017), for the
//! cosine.

use std::f64::consts::PI;

/// A schedule with its peak.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// The largest rate.
    pub peak: f64,
    /// Steps in which the rate rises linearly from 0 to the peak.
    pub warmup: u64,
    /// What comes then.
    pub shape: Shape,
}

/// What a rate does after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// It stays.
    Constant,
    /// It falls linearly to 0.
    Linear {
        /// The step at which it is 0.
        steps: u64,
    },
    /// It falls as a cosine.
    Cosine {
        /// The step at which `cycles` are over.
        steps: u64,
        /// Waves of the cosine; half a wave ends at 0.
        cycles: f64,
    },
}

impl Schedule {
    /// One rate for every step.
    pub fn constant(peak: f64) -> Self {
        Self { peak, warmup: 0, shape: Shape::Constant }
    }

    /// The rate of a step.
    pub fn rate(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.peak * (step as f64 / self.warmup as f64);
        }
        self.peak * self.shape.share(step, self.warmup)
    }
}

impl Shape {
    /// The rate of a step after the warm-up, as a share of the peak.
    fn share(self, step: u64, warmup: u64) -> f64 {
        let since = (step - warmup) as f64;
        let length = |steps: u64| steps.saturating_sub(warmup).max(1) as f64;
        match self {
            Shape::Constant => 1.0,
            Shape::Linear { steps } => steps.saturating_sub(step) as f64 / length(steps),
            Shape::Cosine { steps, cycles } => {
                let progress = since / length(steps);
                (0.5 * (1.0 + (PI * cycles * 2.0 * progress).cos())).max(0.0) // the library's order of operations
            }
        }
    }
}
