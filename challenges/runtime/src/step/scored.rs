//! The results of micro-batches whose loss needs more than labels: preferences and policies.

use std::collections::BTreeMap;

/// The values of each row of a micro-batch, by name: (B * T) of the padded batch, and 0 of a row that does not count.
pub type Rows = BTreeMap<String, Vec<f32>>;

/// What a micro-batch gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// Its loss, before it is made a part of its step's.
    pub loss: f64,
    /// What each row is by itself, (B * T) of the padded batch; 0 of one that does not count.
    pub rows: Rows,
}

/// Whose A and B a model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Those of the reference model.
    Reference,
    /// Those that are trained.
    Policy,
}
