//! The results of micro-batches whose loss needs more than labels: preferences and policies.

use std::collections::BTreeMap;

/// The values of each row of a micro-batch, by name: (B * T) of the padded batch, and 0 of a row that does not count.
pub type Rows = BTreeMap<String, Vec<f32>>;

/// The result of a micro-batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// The loss, before it is weighted for its step.
    pub loss: f64,
    /// The values of each row.
    pub rows: Rows,
}

/// The adapter that a model is run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The adapter at the start: the reference model.
    Reference,
    /// The adapter as it is trained now.
    Policy,
}
