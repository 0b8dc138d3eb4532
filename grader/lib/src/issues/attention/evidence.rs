//! What the checks, guards and numbers say about the rows *Refactor attention* and *Flex attention*.
//!
//! A pure function of what a report holds, so that `verify-report` can compute it again.

use super::super::part::Rests;
use crate::evidence::{Seen, met, unmeasured, unmet};
use crate::rubric::{Fact, Facts};
use crate::scorecard::Basis;

/// The steps that each row rests on: all of them, and those that a mask and its choice need.
const INTERFACE: [&str; 6] = ["D.9", "D.10", "D.11", "D.12", "D.13", "D.14"];
const FLEX: [&str; 2] = ["D.9", "D.10"];

/// The facts of this part. A CPU stands for a card.
pub(super) fn facts(seen: &Seen<'_>) -> Facts {
    let on_a_cpu = |fact: Fact| Fact { basis: Some(Basis::StandIn), ..fact };
    Facts::from([
        ("Refactor attention", on_a_cpu(judged(seen, &INTERFACE, interface))),
        ("Flex attention", on_a_cpu(judged(seen, &FLEX, flex))),
    ])
}

fn judged(seen: &Seen<'_>, steps: &[&str], numbers: fn(&Seen<'_>) -> Fact) -> Fact {
    Rests { steps, checks: &super::names(), guards: &super::guards::NAMES }.judged(seen, numbers)
}

/// Every back end equal to the definition wherever it claims to be.
fn interface(seen: &Seen<'_>) -> Fact {
    let number = |name: &str| seen.value(name).ok_or_else(|| seen.why_not(name));
    let (same, all) = match (number("issues.attention.same"), number("issues.attention.all")) {
        (Ok(same), Ok(all)) => (same, all),
        (Err(fact), _) | (_, Err(fact)) => return fact,
    };
    let evidence = format!(
        "four back ends, {} features alone and in pairs: {same:.0} of {all:.0} results, gradients and L among them, \
         are those of the definition in f64{}",
        super::FEATURES,
        first_wrong(seen, "issues.attention.wrong_feature.")
    );
    if same >= all && all >= super::results() as f64 { met(&evidence) } else { unmet(&evidence) }
}

/// Masks given as programs, at lengths that come as they come.
fn flex(seen: &Seen<'_>) -> Fact {
    let number = |name: &str| {
        let name = format!("issues.attention.{name}");
        seen.value(&name).ok_or_else(|| seen.why_not(&name))
    };
    let all = ["lengths", "lengths_right", "compilations", "buckets"].map(number);
    let [lengths, right, compilations, buckets] = match all {
        [Ok(lengths), Ok(right), Ok(compilations), Ok(buckets)] => [lengths, right, compilations, buckets],
        missing => return missing.into_iter().find_map(Result::err).unwrap_or_else(|| unmeasured("not run")),
    };
    let evidence = format!(
        "causal, sliding-window and packed-document masks at {lengths:.0} lengths drawn: {right:.0} right, \
         {compilations:.0} compilations for {buckets:.0} buckets{}",
        first_wrong(seen, "issues.attention.wrong_length.")
    );
    let is_met = right >= lengths && lengths >= super::LENGTHS as f64 && compilations <= buckets;
    if is_met { met(&evidence) } else { unmet(&evidence) }
}

/// The first result that is wrong, which a number's name tells; nothing if there is none.
fn first_wrong(seen: &Seen<'_>, prefix: &str) -> String {
    let words = seen.measurements.keys().find_map(|name| name.strip_prefix(prefix));
    words.map_or(String::new(), |words| format!(". The first that is not: {words}"))
}
