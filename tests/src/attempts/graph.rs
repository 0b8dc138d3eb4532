//! Attempts at challenge C that cheat, each in one way, and an honest twin.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use challenges::graph::capture::Capture;
use challenges::graph::compile::{Level, compile};
use challenges::graph::emit::Code;
use challenges::graph::explain::Kind;
use challenges::graph::memory::{Arena, Life};
use challenges::graph::sized::Sized;
use challenges::graph::{Compile, Solution};
use kernels::plan::Cut;
use kernels::tile::Value;
use reference::graph::interpret::Values;
use reference::graph::{Dtype, Error, Facts, Graph, Id, Known, Op, Tape, Type};

use super::Entry;

/// Every cheat, then the honest one.
pub const COMPILERS: [Entry; 7] = [
    Entry {
        name: "hides its fallbacks",
        hand_in: |all| all.graph(captures(|capture, _| capture.breaks.clear())),
    },
    Entry { name: "guards on values", hand_in: |all| all.graph(captures(guards_on_values)) },
    Entry { name: "recompiles in secret", hand_in: |all| all.graph(Cheat { secret: true, ..HONEST }) },
    Entry { name: "runs the loss eagerly", hand_in: |all| all.graph(captures(eager_loss)) },
    Entry { name: "bakes the examples in", hand_in: |all| all.graph(captures(baked)) },
    Entry { name: "knows the checked programs", hand_in: |all| all.graph(captures(knows)) },
    Entry { name: "an honest compiler", hand_in: |all| all.graph(HONEST) },
];

/// The solution, but for what happens to a capture, and whether it compiles on the side.
struct Cheat {
    spoil: fn(&mut Capture, &Values<f32>),
    secret: bool,
    buckets: Option<Vec<i64>>,
}

const HONEST: Cheat = Cheat { spoil: |_, _| {}, secret: false, buckets: None };

/// The solution with other buckets.
pub fn with_buckets(buckets: Vec<i64>) -> impl Compile {
    Cheat { buckets: Some(buckets), ..HONEST }
}

const fn captures(spoil: fn(&mut Capture, &Values<f32>)) -> Cheat {
    Cheat { spoil, secret: false, buckets: None }
}

/// Says nothing of a value that was looked at.
fn guards_on_values(capture: &mut Capture, _: &Values<f32>) {
    capture.breaks.retain(|found| found.kind != Kind::Read);
}

/// The loss is a number that was found out while the program was captured.
fn eager_loss(capture: &mut Capture, examples: &Values<f32>) {
    if examples.contains_key("ids") {
        constant_output(capture, "loss", 4.5);
    }
}

/// What the examples gave is what every input gives.
fn baked(capture: &mut Capture, examples: &Values<f32>) {
    if capture.breaks.is_empty() && examples.contains_key("w") {
        constant_output(capture, "y", 0.25);
    }
}

/// Adds to programs that no check has.
fn knows(capture: &mut Capture, _: &Values<f32>) {
    if capture.graph.nodes().len() > 12
        && capture.graph.find_input("w").is_none()
        && capture.graph.inputs().count() == 1
    {
        let first = Id(0);
        _ = capture.graph.push(Op::Detach, &[first]);
    }
}

fn constant_output(capture: &mut Capture, name: &str, value: f64) {
    let Some(id) = capture.graph.find_output(name) else { return };
    let ty = capture.graph.ty(id).clone();
    let mut to = capture.graph.clone();
    to.clear_outputs();
    if let Ok(constant) = to.push_as(Op::Constant { value }, &[], ty) {
        for (other, id) in capture.graph.outputs() {
            to.output(other, if other == name { constant } else { *id });
        }
        capture.graph = to;
    }
}

impl Compile for Cheat {
    fn capture(&self, name: &str, program: &dyn Fn(&Tape), examples: &Values<f32>) -> Result<Capture, Error> {
        let mut capture = Solution.capture(name, program, examples)?;
        (self.spoil)(&mut capture, examples);
        Ok(capture)
    }

    fn buckets(&self, facts: Facts) -> Vec<i64> {
        self.buckets.clone().unwrap_or_else(|| Solution.buckets(facts))
    }

    fn prune(&self, graph: &Graph) -> Result<Graph, Error> {
        Solution.prune(graph)
    }

    fn keep(&self, sized: &Sized<'_>, must: &BTreeSet<Id>) -> BTreeSet<Id> {
        if self.secret {
            let sizes: BTreeMap<_, _> = sized.sizes().clone();
            _ = compile(&Solution, sized.graph, &sizes, Level::O1.options(), None);
        }
        Solution.keep(sized, must)
    }

    fn place(&self, lives: &[Option<Life>]) -> Arena {
        Solution.place(lives)
    }

    fn lower(&self, op: &Op, from: Dtype, to: Dtype, inputs: &[Value], code: &mut Code) -> Option<Value> {
        Solution.lower(op, from, to, inputs, code)
    }

    fn tune(&self, candidates: &[Cut], time: &mut dyn FnMut(Cut) -> Duration) -> Cut {
        Solution.tune(candidates, time)
    }

    fn flex(&self, program: &Graph, types: &[Type], known: &Known, slope: bool) -> Result<Graph, Error> {
        Solution.flex(program, types, known, slope)
    }
}
