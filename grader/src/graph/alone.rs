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
use reference::graph::{Dtype, Error, Facts, Graph, Id, Known, Op, Tape, Type};

/// The attempt's step of that name; all others are the solution's.
pub(super) struct Alone<'a> {
    pub step: &'a str,
    pub attempt: &'a dyn Compile,
}

impl Alone<'_> {
    fn of(&self, step: &str) -> &dyn Compile {
        if self.step == step { self.attempt } else { &Solution }
    }
}

impl Compile for Alone<'_> {
    fn capture(&self, name: &str, program: &dyn Fn(&Tape), examples: &Values<f32>) -> Result<Capture, Error> {
        self.of("C.1").capture(name, program, examples)
    }

    fn buckets(&self, facts: Facts) -> Vec<i64> {
        self.of("C.2").buckets(facts)
    }

    fn prune(&self, graph: &Graph) -> Result<Graph, Error> {
        self.of("C.3").prune(graph)
    }

    fn keep(&self, sized: &Sized<'_>, must: &BTreeSet<Id>) -> BTreeSet<Id> {
        self.of("C.4").keep(sized, must)
    }

    fn place(&self, lives: &[Option<Life>]) -> Arena {
        self.of("C.5").place(lives)
    }

    fn lower(&self, op: &Op, from: Dtype, to: Dtype, inputs: &[Value], code: &mut Code) -> Option<Value> {
        self.of("C.6").lower(op, from, to, inputs, code)
    }

    fn tune(&self, candidates: &[Cut], time: &mut dyn FnMut(Cut) -> Duration) -> Cut {
        self.of("C.7").tune(candidates, time)
    }

    fn flex(&self, program: &Graph, types: &[Type], known: &Known, slope: bool) -> Result<Graph, Error> {
        self.of("C.8").flex(program, types, known, slope)
    }
}
