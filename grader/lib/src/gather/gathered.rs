//! Results of one attempt at one course.

use std::collections::BTreeMap;

use crate::scorecard::{Check, Guard, Measurement};

/// Everything seen of one attempt at one course.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Outcomes in the order of the items.
    pub checks: Vec<Check>,
    /// What the guards saw.
    pub guards: Vec<Guard>,
    /// Numbers by name.
    pub measurements: BTreeMap<String, Measurement>,
    /// What could not be measured, and why.
    pub unmeasured: BTreeMap<String, String>,
    /// The texts of items by the items' names.
    pub texts: BTreeMap<String, String>,
    /// What the attempt printed, where its calls are shown.
    pub printed: String,
}

impl Gathered {
    /// A guard that looks at several places is one guard: it tripped if it tripped anywhere, and ran if it tripped
    /// or ran everywhere.
    pub(super) fn add(&mut self, guard: Guard) {
        match self.guards.iter_mut().find(|known| known.name == guard.name) {
            None => self.guards.push(guard),
            Some(known) => {
                let is_worse =
                    (guard.tripped && !known.tripped) || (!guard.ran && known.ran && !known.tripped);
                if is_worse {
                    known.detail = guard.detail;
                }
                known.tripped |= guard.tripped;
                known.ran = known.tripped || (known.ran && guard.ran);
            }
        }
    }
}
