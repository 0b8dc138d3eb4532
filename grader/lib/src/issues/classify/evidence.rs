//! What the checks, guards and numbers say about the row *Sequence classification*.
//!
//! A pure function of what a report holds, so that `verify-report` can compute it again.

use super::super::part::Rests;
use crate::evidence::{Seen, met, unmeasured, unmet};
use crate::rubric::{Fact, Facts};
use crate::scorecard::Basis;

/// How far a loss may be from the truth in f64, as a part of it: the roundings of f32.
const LOSS: f64 = 1e-5;

/// The same of a tensor's gradient, by its norm.
const GRADIENT: f64 = 1e-4;

/// How far the losses of a run may be from those of the oracle's.
const TRAINING: f64 = 1e-4;

/// The share of held-out texts that have to be answered right after the training, where chance is a third. Of the
/// seeds 1 to 180 the worst leaves the solution with 93.8 %.
const ACCURACY: f64 = 0.9;

/// The steps that the row rests on: all of them.
const STEPS: [&str; 4] = ["D.15", "D.16", "D.17", "D.18"];

/// The facts of this part.
pub(super) fn facts(seen: &Seen<'_>) -> Facts {
    let fact = classification(seen);
    // a tiny model stands for a checkpoint, and the CPU for a card
    Facts::from([("Sequence classification", Fact { basis: Some(Basis::StandIn), ..fact })])
}

fn classification(seen: &Seen<'_>) -> Fact {
    let (steps, checks, guards) = (&STEPS, &super::names(), &super::guards::NAMES);
    Rests { steps, checks, guards }.judged(seen, numbers)
}

/// A gradient that is the oracle's, and a head that learns.
fn numbers(seen: &Seen<'_>) -> Fact {
    let number = |name: &str| {
        let name = format!("issues.classifier.{name}");
        seen.value(&name).ok_or_else(|| seen.why_not(&name))
    };
    let all = ["batches", "loss", "gradient", "training", "accuracy"].map(number);
    let [batches, loss, gradient, training, accuracy] = match all {
        [Ok(batches), Ok(loss), Ok(gradient), Ok(training), Ok(accuracy)] => {
            [batches, loss, gradient, training, accuracy]
        }
        [first, second, third, fourth, fifth] => {
            let missing = [first, second, third, fourth, fifth].into_iter().find_map(Result::err);
            return missing.unwrap_or_else(|| unmeasured("not run"));
        }
    };
    let evidence = format!(
        "{batches:.0} batches of three problems, padded on either side: loss {loss:.1e} from the oracle's (limit \
         {LOSS:.0e}), gradients of adapter and head {gradient:.1e} (limit {GRADIENT:.0e}); {} steps of training: losses \
         {training:.1e} from the oracle's (limit {TRAINING:.0e}), {:.1} % of held-out texts right (at least {:.0} %)",
        super::measured::STEPS,
        100.0 * accuracy,
        100.0 * ACCURACY,
    );
    let is_met =
        batches > 0.0 && loss <= LOSS && gradient <= GRADIENT && training <= TRAINING && accuracy >= ACCURACY;
    if is_met { met(&evidence) } else { unmet(&evidence) }
}
