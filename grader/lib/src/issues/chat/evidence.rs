//! What the checks, guards and counts say about the row *Tool calling*.
//!
//! A pure function of what a report holds, so that `verify-report` can compute it again.

use super::super::part::Rests;
use crate::evidence::{Seen, met, unmet};
use crate::rubric::{Fact, Facts};

/// The steps that rendering and parsing rest on; D.8 looks at templates that are there already.
const STEPS: [&str; 7] = ["D.1", "D.2", "D.3", "D.4", "D.5", "D.6", "D.7"];

/// The facts of this part.
pub(super) fn facts(seen: &Seen<'_>) -> Facts {
    Facts::from([("Tool calling", tool_calling(seen))])
}

fn tool_calling(seen: &Seen<'_>) -> Fact {
    let (steps, checks, guards) = (&STEPS, &super::names(), &super::guards::NAMES);
    Rests { steps, checks, guards }.judged(seen, counts)
}

/// Texts that are equal to the byte, and calls that come back.
fn counts(seen: &Seen<'_>) -> Fact {
    let pair = |name: &str| {
        let (same, all) = (seen.value(&format!("{name}.same")), seen.value(&format!("{name}.all")));
        same.zip(all).ok_or_else(|| seen.why_not(&format!("{name}.same")))
    };
    let ((texts, of_texts), (calls, of_calls)) = match (pair("issues.prompts"), pair("issues.calls")) {
        (Err(fact), _) | (_, Err(fact)) => return fact,
        (Ok(prompts), Ok(calls)) => (prompts, calls),
    };
    let evidence = format!(
        "{texts:.0} of {of_texts:.0} prompts equal to the byte, {calls:.0} of {of_calls:.0} messages parsed back, whole and at every cut"
    );
    let all = texts >= of_texts && calls >= of_calls && of_texts > 0.0 && of_calls > 0.0;
    if all { met(&evidence) } else { unmet(&evidence) }
}
