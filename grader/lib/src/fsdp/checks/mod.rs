//! The correctness checks of B, a file a step or two: every step for itself, the others being the solution's.
//!
//! What a step writes into graphs is run by [`interpret_ranks`](reference::graph::ranks::interpret_ranks) on every rank
//! with values of its own, so that a rank that asks nobody is seen.

mod gather;
mod place;
mod reduce;
mod room;
mod schedule;
mod tensor;

use challenges::fsdp::Fsdp;
use reference::graph::{Builder, Graph, Type};

pub(super) use gather::drawn_part;
pub(super) use place::{drawn_parameters, held_bytes};
pub(super) use reduce::left_out;
pub(super) use schedule::asked;

use super::step_under_test::{StepUnderTest, step_under_test};
use crate::compare::describe;
use crate::random::Random;
use crate::table::{self, Rows, Steps};

/// What a check does with the attempt's step among the solution's others.
type Check = fn(&StepUnderTest<'_>, &mut Random) -> Result<(), String>;

/// Every check, by step.
const STEPS: &Steps<Check> = &[
    ("B.1", place::CHECKS),
    ("B.2", gather::CHECKS),
    ("B.3", room::KEEP),
    ("B.4", reduce::CHECKS),
    ("B.5", room::PREFETCH),
    ("B.6", room::ACTIVATIONS),
    ("B.7", tensor::CHECKS),
    ("B.8", schedule::CHECKS),
];

/// Every check's name, in the order of the steps.
pub(super) fn names() -> Vec<String> {
    table::checks(STEPS)
}

/// Runs one check by its name. Says how often the attempt's step asked the solution.
pub(super) fn run(name: &str, attempt: &dyn Fsdp, seed: u64) -> Result<u64, String> {
    let (step, _, run) = table::check(STEPS, name)?;
    let steps = step_under_test(step, attempt);
    run(&steps, &mut Random::named(seed, name))?;
    Ok(steps.asked.into_inner())
}

/// The graph around a step: what the step returned is its only output, `name`, and of this type.
fn around_a_step(
    builder: Builder,
    name: &str,
    expected: &Type,
    cause: impl FnOnce(&Type) -> String,
) -> Result<Graph, String> {
    let graph = builder.finish().map_err(describe)?;
    if let [(_, id)] = graph.outputs() {
        let found = graph.ty(*id);
        if found == expected {
            return Ok(graph);
        }
        return Err(format!("expected {expected}, found {found}{}", cause(found)));
    }
    let own = graph.outputs().split_last().map_or(&[][..], |(_, own)| own);
    let names: Vec<String> = own.iter().map(|(own, _)| format!("`{own}`")).collect();
    Err(format!(
        "expected a step that returns its tensor and writes no output of its own, found {} beside `{name}`",
        names.join(", ")
    ))
}
