//! What the checks, guards and numbers say about the rows *VLM data collator*, *VLM image resizing* and *VLM train on
//! completions only*.
//!
//! A pure function of what a report holds, so that `verify-report` can compute it again.

use super::super::part::Rests;
use crate::evidence::{Seen, met, unmet};
use crate::rubric::{Fact, Facts};

/// The facts of this part.
pub(super) fn facts(seen: &Seen<'_>) -> Facts {
    let checks = super::names();
    let guards = &super::guards::NAMES;
    let judged = |steps: &[&str], numbers: fn(&Seen<'_>) -> Fact| {
        Rests { steps, checks: &checks, guards }.judged(seen, numbers)
    };
    Facts::from([
        ("VLM data collator", judged(&["D.25", "D.27"], collated)),
        ("VLM image resizing", judged(&["D.23", "D.24"], resized)),
        ("VLM train on completions only", judged(&["D.25", "D.26"], completed)),
    ])
}

/// Numbers by their names, or why there are none.
fn all<const N: usize>(seen: &Seen<'_>, names: [&str; N]) -> Result<[f64; N], Fact> {
    let mut values = [0.0; N];
    for (value, name) in values.iter_mut().zip(names) {
        *value = seen.value(name).ok_or_else(|| seen.why_not(name))?;
    }
    Ok(values)
}

fn judge(is_met: bool, evidence: &str) -> Fact {
    if is_met { met(evidence) } else { unmet(evidence) }
}

fn resized(seen: &Seen<'_>) -> Fact {
    match all(seen, ["issues.images.all", "issues.images.same", "issues.images.largest"]) {
        Err(missing) => missing,
        Ok([all, same, largest]) => judge(
            all > 0.0 && same >= all,
            &format!(
                "{same:.0} of {all:.0} images by the rules of three models, with a largest size given or the model's own: \
                 sizes, or what is wrong, and every byte are the oracle's; the largest has {largest:.0} pixels"
            ),
        ),
    }
}

fn collated(seen: &Seen<'_>) -> Fact {
    let names = ["issues.mixed.all", "issues.mixed.same", "issues.mixed.slots", "issues.mixed.features"];
    match all(seen, names) {
        Err(missing) => missing,
        Ok([all, same, slots, features]) => judge(
            all > 0.0 && same >= all && slots.to_bits() == features.to_bits(),
            &format!(
                "{same:.0} of {all:.0} batches of texts with images and without, padded on either side: ids, masks, \
                 positions of three axes and labels are the oracle's; {slots:.0} slots for the {features:.0} features of \
                 images that are there"
            ),
        ),
    }
}

fn completed(seen: &Seen<'_>) -> Fact {
    let names = ["issues.completions.all", "issues.completions.same", "issues.completions.images"];
    match all(seen, names) {
        Err(missing) => missing,
        Ok([all, same, images]) => judge(
            all > 0.0 && same >= all && images > 0.0,
            &format!(
                "{same:.0} of {all:.0} conversations with {images:.0} images: what is labelled is the assistant's text, \
                 token for token, from the spans of the template by the mask of D.2"
            ),
        ),
    }
}
