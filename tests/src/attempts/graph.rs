//! Attempts at challenge C that cheat, each in one way, some that slip, each in one step, and an honest twin.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use challenges::graph::Compile;
use compiler::compile::{Level, compile};
use compiler::front::capture::Capture;
use compiler::front::explain::Kind;
use compiler::ir::arena::{Arena, Life};
use compiler::ir::code::{Code, element};
use compiler::ir::sized::Sized;
use kernels::plan::Choice;
use kernels::tile::{Op as Tile, Value};
use reference::graph::interpret::Values;
use reference::graph::{Dtype, Error, Facts, Graph, Id, Known, Op, Tape, Type, Unary};

use super::Entry;
use super::honest::graph::Solution;

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

/// Every slip.
pub const SLIPS: [Entry; 12] = [
    Entry { name: "notes no lines", hand_in: |all| all.graph(captures(|capture, _| capture.lines.clear())) },
    Entry { name: "takes both zeros for one", hand_in: |all| all.graph(slips(Slip::OneZero)) },
    Entry { name: "takes two streams for one", hand_in: |all| all.graph(slips(Slip::OneStream)) },
    Entry { name: "merges collectives", hand_in: |all| all.graph(slips(Slip::OneCollective)) },
    Entry { name: "keeps nothing", hand_in: |all| all.graph(slips(Slip::KeepsNothing)) },
    Entry { name: "never rounds", hand_in: |all| all.graph(slips(Slip::NeverRounds)) },
    Entry { name: "rounds constants twice", hand_in: |all| all.graph(slips(Slip::ConstantsByF32)) },
    Entry { name: "rounds whole numbers twice", hand_in: |all| all.graph(slips(Slip::WholeByF32)) },
    Entry { name: "draws from the first stream", hand_in: |all| all.graph(slips(Slip::FirstStream)) },
    Entry { name: "lowers a collective", hand_in: |all| all.graph(slips(Slip::LowersCollective)) },
    Entry { name: "times one after the other", hand_in: |all| all.graph(slips(Slip::NoTurns)) },
    Entry { name: "forgets the facts", hand_in: |all| all.graph(slips(Slip::NoFacts)) },
];

/// Slips for graphs that a reader tries.
pub const TRIED: [Entry; 4] = [
    Entry { name: "loses a sign", hand_in: |all| all.graph(slips(Slip::LosesASign)) },
    Entry { name: "folds two signs into one", hand_in: |all| all.graph(slips(Slip::FoldsSigns)) },
    Entry { name: "panics at a root", hand_in: |all| all.graph(slips(Slip::Panics)) },
    Entry { name: "has a hole at a root", hand_in: |all| all.graph(slips(Slip::Hole)) },
];

/// What a reader may write in one step who does not mean to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slip {
    OneZero,
    OneStream,
    OneCollective,
    KeepsNothing,
    NeverRounds,
    ConstantsByF32,
    WholeByF32,
    FirstStream,
    LowersCollective,
    NoTurns,
    NoFacts,
    LosesASign,
    FoldsSigns,
    Panics,
    Hole,
    AsksWhereMeasured,
}

/// The solution, but for what happens to a capture, whether it compiles on the side, and a slip.
struct Cheat {
    spoil: fn(&mut Capture, &Values<f32>),
    secret: bool,
    buckets: Option<Vec<i64>>,
    slip: Option<Slip>,
}

const HONEST: Cheat = Cheat { spoil: |_, _| {}, secret: false, buckets: None, slip: None };

const fn slips(slip: Slip) -> Cheat {
    Cheat { slip: Some(slip), ..HONEST }
}

/// The solution with other buckets.
pub fn with_buckets(buckets: Vec<i64>) -> impl Compile {
    Cheat { buckets: Some(buckets), ..HONEST }
}

/// Asks the solution for graphs as large as those that are measured.
pub(super) fn asks() -> impl Compile {
    slips(Slip::AsksWhereMeasured)
}

const fn captures(spoil: fn(&mut Capture, &Values<f32>)) -> Cheat {
    Cheat { spoil, ..HONEST }
}

/// Honest, with what happens at every capture.
pub(super) fn with_captures(begin: fn(&mut Capture, &Values<f32>)) -> impl Compile {
    captures(begin)
}

/// Writes its own results at every capture.
pub(super) fn forging() -> impl Compile {
    captures(|_, _| super::forge::forge())
}

/// Ends the process at a program that only a guard has.
pub(super) fn leaving() -> impl Compile {
    captures(|capture, _| {
        if capture.graph.name == "baked" {
            std::process::exit(0);
        }
    })
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
        match self.slip {
            Some(Slip::OneZero) => Solution.prune(&with_one_zero(graph)?),
            Some(Slip::OneStream) => Solution.prune(&with_one_stream(graph)?),
            Some(Slip::OneCollective) => Solution.prune(&with_collectives_merged(&Solution.prune(graph)?)?),
            Some(Slip::FoldsSigns) => Solution.prune(&with_signs_folded(graph)?),
            Some(Slip::AsksWhereMeasured) if graph.nodes().len() > 200 => {
                challenges::graph::Solution.prune(graph)
            }
            _ => Solution.prune(graph),
        }
    }

    fn keep(&self, sized: &Sized<'_>, must: &BTreeSet<Id>) -> BTreeSet<Id> {
        if self.secret {
            let sizes: BTreeMap<_, _> = sized.sizes().clone();
            _ = compile(&Solution, sized.graph, &sizes, Level::O1.options());
        }
        if self.slip == Some(Slip::KeepsNothing) {
            return BTreeSet::new();
        }
        Solution.keep(sized, must)
    }

    fn place(&self, lives: &[Option<Life>]) -> Arena {
        Solution.place(lives)
    }

    fn lower(&self, op: &Op, from: Dtype, to: Dtype, inputs: &[Value], code: &mut Code) -> Option<Value> {
        let is_short = matches!(to, Dtype::F16 | Dtype::Bf16);
        let is = |slip: Slip, unary: Unary| self.slip == Some(slip) && *op == Op::Unary(unary);
        if is(Slip::LosesASign, Unary::Neg) {
            return Some(inputs[0]);
        }
        assert!(!is(Slip::Panics, Unary::Sqrt), "no root here");
        if is(Slip::Hole, Unary::Sqrt) {
            todo!("C.6: a root");
        }
        if let (Some(Slip::FirstStream), Op::RandomMask { probability, .. }) = (self.slip, op) {
            let first = Op::RandomMask { probability: *probability, stream: 0 };
            return Solution.lower(&first, from, to, inputs, code);
        }
        if self.slip == Some(Slip::LowersCollective) && matches!(op, Op::Collective { .. }) {
            return inputs.first().copied(); // as if each rank were alone
        }
        let by_f32 = if let (Some(Slip::ConstantsByF32), Op::Constant { value }) = (self.slip, op) {
            Some(Tile::Float(*value as f32))
        } else {
            let whole = self.slip == Some(Slip::WholeByF32) && *op == Op::Cast && !from.is_float();
            whole.then(|| Tile::ToFloat(inputs[0]))
        };
        if let Some(value) = by_f32.filter(|_| is_short) {
            let value = code.push(value);
            return Some(code.push(Tile::Round(element(to), value)));
        }
        let value = Solution.lower(op, from, to, inputs, code)?;
        let exact = if let Tile::Round(_, exact) = code.ops()[value] { exact } else { value };
        Some(if self.slip == Some(Slip::NeverRounds) { exact } else { value })
    }

    fn tune(&self, candidates: &[Choice], time: &mut dyn FnMut(Choice) -> Duration) -> Choice {
        if self.slip != Some(Slip::NoTurns) {
            return Solution.tune(candidates, time);
        }
        let mut fastest = |cut: &Choice| (0..4).map(|_| time(*cut)).min();
        candidates.iter().min_by_key(|cut| fastest(cut)).copied().unwrap_or_default()
    }

    fn flex(&self, program: &Graph, types: &[Type], known: &Known, slope: bool) -> Result<Graph, Error> {
        let nothing = Known::new();
        Solution.flex(program, types, if self.slip == Some(Slip::NoFacts) { &nothing } else { known }, slope)
    }
}

/// The same graph, in which -0 is 0.
fn with_one_zero(graph: &Graph) -> Result<Graph, Error> {
    let rewritten = graph.rewrite(|rewrite, id| {
        let node = rewrite.node(id);
        if !matches!(node.op, Op::Constant { value } if value == 0.0) {
            return rewrite.copy(id).map(Some);
        }
        rewrite.add(Op::Constant { value: 0.0 }, &[], Some(node.ty.clone()), &node.scope).map(Some)
    })?;
    Ok(rewritten.graph)
}

/// The same graph, in which all masks are of one stream.
fn with_one_stream(graph: &Graph) -> Result<Graph, Error> {
    let rewritten = graph.rewrite(|rewrite, id| {
        let node = rewrite.node(id);
        let Op::RandomMask { probability, .. } = node.op else { return rewrite.copy(id).map(Some) };
        let (one, inputs) = (Op::RandomMask { probability, stream: 1 }, rewrite.inputs(id)?);
        rewrite.add(one, &inputs, Some(node.ty.clone()), &node.scope).map(Some)
    })?;
    Ok(rewritten.graph)
}

/// The same graph, in which a collective is the one before it that looks alike.
fn with_collectives_merged(graph: &Graph) -> Result<Graph, Error> {
    let rewritten = graph.rewrite(|rewrite, id| {
        let (node, inputs) = (rewrite.node(id), rewrite.inputs(id)?);
        let alike = |other: &Id| {
            let other = rewrite.to().node(*other);
            other.op.is(&node.op) && other.inputs == inputs && other.ty == node.ty
        };
        let is_met = matches!(node.op, Op::Collective { .. });
        let twin = rewrite.to().ids().find(|other| is_met && alike(other));
        twin.map_or_else(|| rewrite.copy(id).map(Some), |twin| Ok(Some(twin)))
    })?;
    Ok(rewritten.graph)
}

/// The same graph, in which -(-x) is -x unless somebody wants the inner one.
fn with_signs_folded(graph: &Graph) -> Result<Graph, Error> {
    let mut to = Graph::new(&graph.name);
    graph.known().iter().for_each(|(symbol, facts)| to.know(symbol, *facts));
    let negates = |id: &Id| graph.node(*id).op == Op::Unary(Unary::Neg);
    let is_output = |id: &Id| graph.outputs().iter().any(|(_, one)| one == id);
    for id in graph.ids() {
        let node = graph.node(id);
        let folded = negates(&id) && negates(&node.inputs[0]) && !is_output(&node.inputs[0]);
        let inputs = if folded { &graph.node(node.inputs[0]).inputs } else { &node.inputs };
        to.add(node.op.clone(), inputs, Some(node.ty.clone()), &node.scope)?;
    }
    graph.outputs().iter().for_each(|(name, id)| to.output(name, *id));
    Ok(to)
}
