//! The towers that images go through, with the projectors behind them, as graphs.

mod clip;
mod functions;
mod qwen;

pub use clip::Clip;
pub(super) use functions::Writer;
pub use functions::{erf, gelu};
pub use qwen::Qwen;

use super::patches::{COLOURS, Cut, Grid};

/// The most layers that make sense: what has more is a damaged file.
const MOST_LAYERS: usize = 1 << 12;

/// A tower and its projector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tower {
    /// Qwen2-VL's.
    Qwen(Qwen),
    /// CLIP's, with LLaVA's projector.
    Clip(Clip),
}

impl Tower {
    /// Every weight that is read, with its dimensions.
    pub fn weights(&self) -> Vec<(String, Vec<usize>)> {
        match self {
            Tower::Qwen(tower) => tower.weights(),
            Tower::Clip(tower) => tower.weights(),
        }
    }

    /// Floats of an image's pixels.
    pub(super) fn pixels(&self, grid: Grid) -> usize {
        match self {
            Tower::Qwen(Qwen { cut: Cut { patch, frames, .. }, .. }) => {
                grid.patches().saturating_mul(COLOURS * frames * patch * patch)
            }
            Tower::Clip(tower) => COLOURS * tower.edge * tower.edge,
        }
    }
}
