//! One step of an attempt among the solution's others, so that a step is judged for itself.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use challenges::graph::capture::Capture;
use challenges::graph::emit::Code;
use challenges::graph::memory::{Arena, Life};
use challenges::graph::sized::Sized;
use challenges::graph::{Compile, Solution, solution_calls};
use kernels::plan::Choice;
use kernels::tile::Value;
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype, Error, Facts, Graph, Id, Known, Op, Tape, Type};

use crate::calls::{call, few};

/// The attempt's step of that name; all others are the solution's.
pub(super) struct Alone<'a> {
    step: &'a str,
    attempt: &'a dyn Compile,
    /// Calls to the solution that the attempt's own step made.
    pub asked: AtomicU64,
}

impl<'a> Alone<'a> {
    pub fn new(step: &'a str, attempt: &'a dyn Compile) -> Self {
        Self { step, attempt, asked: AtomicU64::new(0) }
    }

    /// The step's own writer; where calls are shown, what it is called with is told.
    fn of<T>(&self, step: &str, told: impl FnOnce() -> String, run: impl FnOnce(&dyn Compile) -> T) -> T {
        if self.step != step {
            return run(&Solution);
        }
        call(told);
        let before = solution_calls();
        let answer = run(self.attempt);
        self.asked.fetch_add(solution_calls() - before, Relaxed);
        answer
    }
}

impl Compile for Alone<'_> {
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
