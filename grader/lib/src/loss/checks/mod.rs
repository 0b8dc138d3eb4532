//! The correctness checks of E, a file a step: every step for itself, the others being the solution's.

mod all_rows;
mod backward;
mod forward;
mod log_sum_exp;
mod losses;
mod policy;
mod size;

pub(super) use all_rows::unequal;
pub(super) use forward::exact_in_half;
pub(super) use losses::{made_up, plain};

use super::case::Trial;
use super::step_under_test::step_under_test;
use crate::random::Random;
use crate::table::{self, Rows, Steps};

/// What a check does with the attempt's step among the solution's others.
type Check = fn(Trial<'_>, &mut Random) -> Result<(), String>;

/// Every check, by step.
const STEPS: &Steps<Check> = &[
    ("E.1", log_sum_exp::CHECKS),
    ("E.2", forward::CHECKS),
    ("E.3", backward::CHECKS),
    ("E.4", all_rows::CHECKS),
    ("E.5", policy::CHECKS),
    ("E.6", size::CHECKS),
];

/// Every check's name, in the order of the steps.
pub(super) fn names() -> Vec<String> {
    table::checks(STEPS)
}

/// Runs one check by its name. Says how often the attempt's step asked the solution.
pub(super) fn run(name: &str, Trial { attempt, device }: Trial<'_>, seed: u64) -> Result<u64, String> {
    let (step, _, run) = table::check(STEPS, name)?;
    let steps = step_under_test(step, attempt);
    run(Trial { attempt: &steps, device }, &mut Random::named(seed, name))?;
    Ok(steps.asked.into_inner())
}
