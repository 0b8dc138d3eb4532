//! The correctness checks of C, a file a step: every step for itself, the others being the solution's.

mod buckets;
mod capture;
mod flex;
mod keep;
mod lower;
mod place;
mod prune;
mod tune;

use challenges::graph::Compile;
use kernels::Device;
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dtype, Graph, Id, Tape, Tensor};

use super::step_under_test::{StepUnderTest, step_under_test};
use crate::compare::describe;
use crate::random::Random;
use crate::table::{self, Rows, Steps};

/// One check under way.
struct Trial<'a> {
    /// The attempt's step among the solution's others.
    passes: &'a StepUnderTest<'a>,
    /// What plans run on.
    device: &'a dyn Device,
    /// The check's own name, after which its graphs are called.
    case: &'static str,
    /// Random numbers of this seed and this check.
    random: Random,
    seed: u64,
}

/// What a check does.
type Check = fn(&mut Trial<'_>) -> Result<(), String>;

/// Every check, by step.
const STEPS: &Steps<Check> = &[
    ("C.1", capture::CHECKS),
    ("C.2", buckets::CHECKS),
    ("C.3", prune::CHECKS),
    ("C.4", keep::CHECKS),
    ("C.5", place::CHECKS),
    ("C.6", lower::CHECKS),
    ("C.7", tune::CHECKS),
    ("C.8", flex::CHECKS),
];

/// Every check's name, in the order of the steps.
pub(super) fn names() -> Vec<String> {
    table::checks(STEPS)
}

/// Runs one check by its name. Says how often the attempt's step asked the solution.
pub(super) fn run(name: &str, attempt: &dyn Compile, device: &dyn Device, seed: u64) -> Result<u64, String> {
    let (step, case, run) = table::check(STEPS, name)?;
    let passes = step_under_test(step, attempt);
    run(&mut Trial { passes: &passes, device, case, random: Random::named(seed, name), seed })?;
    Ok(passes.asked.into_inner())
}

/// A graph of a function over a tape.
fn graph(name: &str, write: impl FnOnce(&Tape)) -> Result<Graph, String> {
    let builder = Builder::new(name);
    write(builder.tape());
    builder.finish().map_err(describe)
}

/// Floats around 0 for every input of fixed sizes; whole numbers below `below`.
fn values(graph: &Graph, random: &mut Random, below: usize) -> Values<f64> {
    let value = |(name, id): (&str, Id)| {
        let ty = graph.ty(id);
        let shape: Vec<usize> = ty.shape.iter().filter_map(|dim| Some(dim.as_fixed()? as usize)).collect();
        let count: usize = shape.iter().product();
        let array = match ty.dtype {
            Dtype::I32 => Array::integers(&shape, (0..count).map(|_| random.below(below) as i32).collect()),
            Dtype::U8 => Array::bytes(&shape, (0..count).map(|_| random.below(below) as u8).collect()),
            dtype => {
                let narrow = (0..count).map(|_| f64::from((4.0 * random.unit() - 2.0) as f32));
                Array::<f32>::floats(dtype, &shape, narrow).widened()
            }
        };
        (name.to_owned(), array)
    };
    graph.inputs().map(value).collect()
}

/// A row of `f32[rows, cols]` inputs.
fn input(tape: &Tape, name: &str, shape: &[usize]) -> Tensor {
    tape.input(name, Dtype::F32, shape.iter().copied())
}
