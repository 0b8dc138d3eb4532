//! What was seen of a kernel says this about each published wording of A: as published, on a GPU.

use figures::number;

use super::watched::WATCHED_LEN;
use crate::evidence::Seen;
use crate::nf4::evidence::{Answer, in_a_graph, judged};
use crate::rubric::{Fact, Facts};
use crate::scorecard::Outcome;

/// Bytes of globals that a fused kernel may use beside its output: no room for an intermediate.
const WORKING_BYTES: f64 = 64.0 * 1024.0;

/// Bytes of the output of the weight that is looked at.
const OUTPUT_BYTES: f64 = WATCHED_LEN as f64 * 2.0;

/// Bytes of its codes.
const CODE_BYTES: f64 = WATCHED_LEN as f64 / 2.0;

/// The facts of A on a card, from what was seen.
pub(crate) fn facts(seen: &Seen<'_>) -> Facts {
    judged(&answer(seen), [single_kernel, inline_ptx, eviction, in_a_graph])
}

/// What was seen, and what that must hold.
fn answer<'a>(seen: &'a Seen<'a>) -> Answer<'a> {
    Answer {
        seen,
        steps: &["A.9", "A.10", "A.12"],
        required: super::checks::names(),
        guards: &super::guards::NAMES,
        timed: &super::bench::GUARDS,
    }
}

/// One launch, and no memory beside the output.
fn single_kernel(answer: &Answer<'_>) -> Fact {
    let seen = answer.seen;
    let Some(bytes) = seen.value("nf4.working_bytes") else { return seen.why_not("nf4.working_bytes") };
    let launches = seen.value("nf4.launches").unwrap_or(f64::MAX);
    let evidence = format!(
        "device memory beyond inputs and output: {}, the text's own constants included (limit {}; an f32 buffer for the scales takes {}); kernel launches per weight: {launches:.0} of exactly 1",
        number::bytes(bytes),
        number::bytes(WORKING_BYTES),
        number::bytes(WATCHED_LEN as f64 / 64.0 * 4.0)
    );
    answer.verdict(launches as u64 == 1 && bytes <= WORKING_BYTES, evidence)
}

/// Inline PTX was executed, at least once for each warp that the output needs, and its twin in plain C has the
/// same bits.
fn inline_ptx(answer: &Answer<'_>) -> Fact {
    let seen = answer.seen;
    let Some(executed) = seen.value("nf4.inline_ptx_executions") else {
        return seen.why_not("nf4.inline_ptx_executions");
    };
    let left = seen.value("nf4.plain_inline_ptx").unwrap_or(0.0);
    let twins: Vec<_> =
        seen.checks.iter().filter(|check| check.name.starts_with("A.12/without-inline-ptx")).collect();
    let twins_pass = !twins.is_empty() && twins.iter().all(|check| check.outcome == Outcome::Passed);
    let mut evidence =
        format!("blocks of inline PTX were executed {executed:.0} times for {WATCHED_LEN} elements");
    if executed > 0.0 && left > 0.0 {
        let more = format!(
            "; with INLINE_PTX 0 the text still holds {left:.0} of them, so nothing shows that both ways give the same bits"
        );
        evidence.push_str(&more);
    } else if executed > 0.0 && twins_pass {
        evidence.push_str("; without them the bits are the same");
    } else if executed > 0.0 {
        evidence.push_str(
            "; that the bits are the same without them is not shown: A.12/without-inline-ptx has not passed",
        );
    }
    let warps = WATCHED_LEN as f64 / (32.0 * 1024.0);
    answer.verdict(executed >= warps && left == 0.0 && twins_pass, evidence)
}

/// At least half of the output, or of the codes, moved with a hint to the caches.
fn eviction(answer: &Answer<'_>) -> Fact {
    let seen = answer.seen;
    let Some(stored) = seen.value("nf4.hinted_store_bytes") else {
        return seen.why_not("nf4.inline_ptx_executions");
    };
    let loaded = seen.value("nf4.hinted_load_bytes").unwrap_or(0.0);
    let evidence = format!(
        "stores with an eviction or streaming hint wrote {stored:.0} of {OUTPUT_BYTES:.0} bytes, loads with one read {loaded:.0} of {CODE_BYTES:.0}"
    );
    answer.verdict(stored >= OUTPUT_BYTES / 2.0 || loaded >= CODE_BYTES / 2.0, evidence)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::scorecard::{Check, Measurement, Truth};

    /// The fact on inline PTX where the twin in plain C had this outcome, if it was tried at all.
    fn fact(twin: Option<Outcome>) -> Truth {
        let check = |name: &str, outcome| Check {
            name: name.into(),
            outcome,
            detail: String::new(),
            replay: String::new(),
        };
        let mut checks =
            vec![check("A.9/prime-bf16", Outcome::Passed), check("A.12/prime-bf16", Outcome::Passed)];
        checks.extend(twin.map(|outcome| check("A.12/without-inline-ptx-bf16", outcome)));
        let count = |value| Measurement { value, unit: "count".into(), interval: None, samples: vec![] };
        let numbers = [("nf4.inline_ptx_executions", 1e6), ("nf4.plain_inline_ptx", 0.0)];
        let measurements = numbers.map(|(name, value)| (name.to_owned(), count(value))).into();
        let (guards, unmeasured) = (vec![], BTreeMap::new());
        let seen =
            Seen { checks: &checks, guards: &guards, measurements: &measurements, unmeasured: &unmeasured };
        inline_ptx(&answer(&seen)).truth
    }

    #[test]
    fn inline_ptx_counts_only_where_its_plain_twin_was_seen_to_give_the_same_bits() {
        assert_eq!(fact(Some(Outcome::Passed)), Truth::Met);
        assert_eq!(fact(Some(Outcome::NotMeasured)), Truth::Unmet);
        assert_eq!(fact(Some(Outcome::NotAttempted)), Truth::Unmet);
        assert_eq!(fact(None), Truth::Unmet);
    }
}
