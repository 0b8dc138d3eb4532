//! What the checks, guards and numbers say about the row *GGUF vision support*.
//!
//! A pure function of what a report holds, so that `verify-report` can compute it again.

use super::super::part::Rests;
use crate::evidence::{Seen, met, unmeasured, unmet};
use crate::rubric::{Fact, Facts};

/// The steps that the row rests on: all of them.
const STEPS: [&str; 4] = ["D.19", "D.20", "D.21", "D.22"];

/// Files that are written: a text file and a projector file of two layouts, each with older and newer names.
const FILES: f64 = 8.0;

/// The facts of this part.
pub(super) fn facts(seen: &Seen<'_>) -> Facts {
    let (steps, checks, guards) = (&STEPS, &super::names(), &super::guards::NAMES);
    let fact = Rests { steps, checks, guards }.judged(seen, numbers);
    Facts::from([("GGUF vision support", fact)])
}

/// Files that a reader takes, with the tensors and keys that belong there.
fn numbers(seen: &Seen<'_>) -> Fact {
    let number = |name: &str| {
        let name = format!("issues.gguf.{name}");
        seen.value(&name).ok_or_else(|| seen.why_not(&name))
    };
    let all = ["files", "tensors", "equal", "keys"].map(number);
    let [files, tensors, equal, keys] = match all {
        [Ok(files), Ok(tensors), Ok(equal), Ok(keys)] => [files, tensors, equal, keys],
        all => return all.into_iter().find_map(Result::err).unwrap_or_else(|| unmeasured("not run")),
    };
    let evidence = format!(
        "{files:.0} of {FILES:.0} files of LLaVA's and Qwen2-VL's layouts written and read again: {equal:.0} of \
         {tensors:.0} tensors equal after dequantisation, the keys of {keys:.0} right"
    );
    let is_met = files >= FILES && keys >= FILES && tensors > 0.0 && equal >= tensors;
    if is_met { met(&evidence) } else { unmet(&evidence) }
}
