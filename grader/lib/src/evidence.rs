//! Evidence: from what was seen to facts. The shared words; each challenge has its own facts.

use std::collections::BTreeMap;

use crate::rubric::Fact;
use crate::scorecard::{Check, Guard, Measurement, Truth};

/// Parameters of what is called a model of 1B: Llama 3.2 1B has 1.24 billion, `TinyLlama` 1.10.
pub(crate) const OF_1B: std::ops::Range<f64> = 0.95e9..1.5e9;

/// Everything that facts may rest on. All of it stands in a report, but for the reasons.
pub struct Seen<'a> {
    /// How each check ended.
    pub checks: &'a [Check],
    /// The guards that ran or should have.
    pub guards: &'a [Guard],
    /// Every number, by name.
    pub measurements: &'a BTreeMap<String, Measurement>,
    /// Why something was not measured; empty when a report is computed again.
    pub unmeasured: &'a BTreeMap<String, String>,
}

impl Seen<'_> {
    /// A measured number.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.measurements.get(name).map(|measurement| measurement.value)
    }

    /// The fact of something that was not measured, with the reason given for it or for a part of it.
    pub fn why_not(&self, name: &str) -> Fact {
        let reason = self.unmeasured.get(name).or_else(|| {
            let mut of_a_part = self.unmeasured.iter().filter(|(other, _)| related(name, other));
            of_a_part.next().map(|(_, reason)| reason)
        });
        unmeasured(reason.map_or("not run", String::as_str))
    }
}

/// Whether a reason filed under `other` explains the absence of `name`.
fn related(name: &str, other: &str) -> bool {
    other.starts_with(name)
        || (other.starts_with("bench/") && name.contains("speedup"))
        || (other == "watch/bytes" && name.contains("bytes"))
        || (other == "watch/instructions" && name.contains("instructions"))
}

/// A fact that holds.
pub(crate) fn met(evidence: &str) -> Fact {
    Fact { truth: Truth::Met, evidence: evidence.into(), basis: None }
}

/// A fact that does not hold.
pub(crate) fn unmet(evidence: &str) -> Fact {
    Fact { truth: Truth::Unmet, evidence: evidence.into(), basis: None }
}

/// A fact that could not be measured.
pub(crate) fn unmeasured(reason: &str) -> Fact {
    Fact { truth: Truth::Unmeasured, evidence: format!("not measured: {reason}"), basis: None }
}
