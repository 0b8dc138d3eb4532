//! The kernel texts of this room: those that no learner writes.

/// What every kernel text may include.
pub const PRELUDE: (&str, &str) = ("warpbook.cuh", include_str!("../../cu/warpbook.cuh"));

/// The three launches that the usual library dequantises NF4 with: what challenge A is timed against.
pub const BASELINE: &str = include_str!("../../cu/baseline.cu");

/// Contents for measurements, and a cold cache.
pub const FILL: &str = include_str!("../../cu/fill.cu");
