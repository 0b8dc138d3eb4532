//! One step of an attempt among the solution's others, so that a step is judged for itself.

use std::collections::BTreeSet;
use std::time::Duration;

use challenges::graph::capture::Capture;
use challenges::graph::emit::Code;
use challenges::graph::memory::{Arena, Life};
use challenges::graph::sized::Sized;
use challenges::graph::{Compile, Solution};
use kernels::plan::Cut;
use kernels::tile::Value;
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype, Error, Facts, Graph, Id, Known, Op, Tape, Type};

use crate::calls::{call, few};

/// The attempt's step of that name; all others are the solution's.
pub(super) struct Alone<'a> {
    pub step: &'a str,
    pub attempt: &'a dyn Compile,
}

impl Alone<'_> {
    /// The step's own writer; where calls are shown, what it is called with is told.
    fn of(&self, step: &str, told: impl FnOnce() -> String) -> &dyn Compile {
        if self.step != step {
            return &Solution;
        }
        call(told);
        self.attempt
    }
}

impl Compile for Alone<'_> {
    fn capture(&self, name: &str, program: &dyn Fn(&Tape), examples: &Values<f32>) -> Result<Capture, Error> {
        self.of("C.1", || format!("capture: {name}, examples {}", named(examples)))
            .capture(name, program, examples)
    }

    fn buckets(&self, facts: Facts) -> Vec<i64> {
        self.of("C.2", || format!("buckets: {facts}")).buckets(facts)
    }

    fn prune(&self, graph: &Graph) -> Result<Graph, Error> {
        self.of("C.3", || format!("prune:\n{graph}")).prune(graph)
    }

    fn keep(&self, sized: &Sized<'_>, must: &BTreeSet<Id>) -> BTreeSet<Id> {
        self.of("C.4", || format!("keep: must {must:?} of\n{}", sized.graph)).keep(sized, must)
    }

    fn place(&self, lives: &[Option<Life>]) -> Arena {
        self.of("C.5", || format!("place: {}", few(lives))).place(lives)
    }

    fn lower(&self, op: &Op, from: Dtype, to: Dtype, inputs: &[Value], code: &mut Code) -> Option<Value> {
        self.of("C.6", || format!("lower: {op:?} from {from:?} to {to:?}, inputs {inputs:?}"))
            .lower(op, from, to, inputs, code)
    }

    fn tune(&self, candidates: &[Cut], time: &mut dyn FnMut(Cut) -> Duration) -> Cut {
        self.of("C.7", || format!("tune: {}", few(candidates))).tune(candidates, time)
    }

    fn flex(&self, program: &Graph, types: &[Type], known: &Known, slope: bool) -> Result<Graph, Error> {
        self.of("C.8", || format!("flex: slope {slope}, types {types:?}, known {known:?}\n{program}"))
            .flex(program, types, known, slope)
    }
}

/// Values by their names, types and shapes.
fn named(values: &Values<f32>) -> String {
    let one =
        |(name, Array { dtype, shape, .. }): (&String, &Array<f32>)| format!("{name} {dtype:?} {shape:?}");
    values.iter().map(one).collect::<Vec<_>>().join(", ")
}
