//! The towers that images go through, with the projectors behind them, as graphs.

mod clip;
mod functions;
mod qwen;

pub use clip::Clip;
pub(super) use functions::Writer;
pub use functions::{erf, gelu};
pub use qwen::Qwen;

/// The most layers that make sense: what has more is a damaged file.
const MOST_LAYERS: usize = 1 << 12;
