//! The steps of challenge C, of which one is under test.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use challenges::graph::{Compile, Solution, solution_calls};
use compiler::front::capture::Capture;
use compiler::ir::arena::{Arena, Life};
use compiler::ir::code::Code;
use compiler::ir::sized::Sized;
use kernels::plan::Choice;
use kernels::tile::Value;
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype, Error, Facts, Graph, Id, Known, Op, Tape, Type};

use crate::calls::few;

/// The attempt's step of that name; all others are the solution's.
pub(super) type StepUnderTest<'a> = crate::step_under_test::StepUnderTest<'a, dyn Compile + 'a>;

/// Nothing of it has run yet.
pub(super) fn step_under_test<'a>(step: &'a str, attempt: &'a dyn Compile) -> StepUnderTest<'a> {
    StepUnderTest { step, attempt, solution: &Solution, solution_calls, asked: AtomicU64::new(0) }
}

impl Compile for StepUnderTest<'_> {
    fn capture(&self, name: &str, program: &dyn Fn(&Tape), examples: &Values<f32>) -> Result<Capture, Error> {
        self.of(
            "C.1",
            || format!("capture: {name}, examples {}", named(examples)),
            |step| step.capture(name, program, examples),
        )
    }

    fn buckets(&self, facts: Facts) -> Vec<i64> {
        self.of("C.2", || format!("buckets: {facts}"), |step| step.buckets(facts))
    }

    fn prune(&self, graph: &Graph) -> Result<Graph, Error> {
        self.of("C.3", || format!("prune:\n{graph}"), |step| step.prune(graph))
    }

    fn keep(&self, sized: &Sized<'_>, must: &BTreeSet<Id>) -> BTreeSet<Id> {
        self.of("C.4", || format!("keep: must {must:?} of\n{}", sized.graph), |step| step.keep(sized, must))
    }

    fn place(&self, lives: &[Option<Life>]) -> Arena {
        self.of("C.5", || format!("place: {}", few(lives)), |step| step.place(lives))
    }

    fn lower(&self, op: &Op, from: Dtype, to: Dtype, inputs: &[Value], code: &mut Code) -> Option<Value> {
        self.of(
            "C.6",
            || format!("lower: {op:?} from {from:?} to {to:?}, inputs {inputs:?}"),
            |step| step.lower(op, from, to, inputs, code),
        )
    }

    fn tune(&self, candidates: &[Choice], time: &mut dyn FnMut(Choice) -> Duration) -> Choice {
        self.of("C.7", || format!("tune: {}", few(candidates)), |step| step.tune(candidates, time))
    }

    fn flex(&self, program: &Graph, types: &[Type], known: &Known, slope: bool) -> Result<Graph, Error> {
        self.of(
            "C.8",
            || format!("flex: slope {slope}, types {types:?}, known {known:?}\n{program}"),
            |step| step.flex(program, types, known, slope),
        )
    }
}

/// Values by their names, types and shapes.
fn named(values: &Values<f32>) -> String {
    let one =
        |(name, Array { dtype, shape, .. }): (&String, &Array<f32>)| format!("{name} {dtype:?} {shape:?}");
    values.iter().map(one).collect::<Vec<_>>().join(", ")
}
