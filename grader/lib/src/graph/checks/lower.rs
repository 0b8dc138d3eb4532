//! C.6: operations on single elements, as the machine's own.

use challenges::graph::Compile;
use compiler::compile::Level;
use compiler::ir::code::Code;
use kernels::tile::Op as Tile;
use reference::graph::interpret::Values;
use reference::graph::{Collective, Dtype, Graph, Group, Op, Reduce, Tape, Tensor, Unary};

use super::{Check, Rows, Trial, graph, values};
use crate::compare::{exact, right};

pub(super) const CHECKS: &Rows<Check> = &[
    ("functions", |trial| near(trial, functions)),
    ("arithmetic", |trial| equal(trial, arithmetic)),
    ("whole-numbers", |trial| equal(trial, whole_numbers)),
    ("relations", |trial| equal(trial, relations)),
    ("choices", |trial| equal(trial, choices)),
    ("casts", |trial| equal(trial, casts)),
    ("constants", |trial| equal(trial, constants)),
    ("random-masks", |trial| equal(trial, random_masks)),
    ("not-on-elements", |trial| lowers_none(trial.passes)),
    ("half-precision", |trial| near(trial, half_precision).and_then(|()| chains(trial))),
];

/// What a check computes of a tape and the inputs `a` and `b`.
type Write = fn(&Tape, [&Tensor; 2]) -> Vec<Tensor>;

fn functions(tape: &Tape, [a, _]: [&Tensor; 2]) -> Vec<Tensor> {
    let positive = &(a * a) + 0.5;
    Unary::NAMES.iter().map(|(unary, _)| tape.apply(Op::Unary(*unary), &[&positive], None)).collect()
}

fn arithmetic(_: &Tape, [a, b]: [&Tensor; 2]) -> Vec<Tensor> {
    vec![a + b, a - b, a * b, a / &(&(b * b) + 1.0), a.min(b), a.max(b), -a]
}

fn whole_numbers(tape: &Tape, _: [&Tensor; 2]) -> Vec<Tensor> {
    let (m, n) = (&whole(tape, "m") - 20.0, &whole(tape, "n") + 1.0);
    vec![&m + &n, &m - &n, &m * &n, &m / &n, m.min(&n), m.max(&n), -&m]
}

fn relations(tape: &Tape, [a, b]: [&Tensor; 2]) -> Vec<Tensor> {
    vec![a.less(b), a.equal(a), a.equal(b), whole(tape, "m").less(&whole(tape, "n"))]
}

fn choices(tape: &Tape, [a, b]: [&Tensor; 2]) -> Vec<Tensor> {
    vec![a.less(b).select(a, b), whole(tape, "m").less(&whole(tape, "n")).select(b, a)]
}

fn casts(tape: &Tape, [a, _]: [&Tensor; 2]) -> Vec<Tensor> {
    // beyond 24 bits, and a hair above the middle between two of bf16
    let drawn = whole(tape, "m");
    let far = &(&drawn * 131_072.0) + 16_842_753.0;
    let mut outputs = vec![far.cast(Dtype::Bf16), (-&far).cast(Dtype::Bf16), far.cast(Dtype::F32)];
    let m = &(&drawn * 9.0) - 60.0;
    outputs.extend([Dtype::U8, Dtype::F32, Dtype::F16, Dtype::Bf16].map(|to| m.cast(to)));
    let wide = a * 300.0;
    outputs.extend([Dtype::U8, Dtype::I32, Dtype::F16, Dtype::Bf16].map(|to| wide.cast(to)));
    outputs.extend(m.cast(Dtype::U8).cast(Dtype::I32).place().map(|_| m.cast(Dtype::U8).cast(Dtype::F16)));
    outputs
}

fn constants(tape: &Tape, _: [&Tensor; 2]) -> Vec<Tensor> {
    let mut outputs = Vec::new();
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        let x = float(tape, dtype.name(), dtype);
        let hair = 2.0_f64.powi(-40); // above the middle between two: rounded once, or twice
        let middles = [2.0_f64.powi(-11), 2.0_f64.powi(-8)].map(|half| 1.0 + half + hair);
        let values = [0.1, 1.0 / 3.0, 65519.9, -1e-8, middles[0], middles[1]];
        outputs.extend(values.map(|value| &x + &x.like(value)));
    }
    outputs.push(&whole(tape, "m") + -7.0);
    outputs
}

/// One mask read in two kernels that each draw it, others beside it, and those that nothing or everything passes.
fn random_masks(tape: &Tape, [a, b]: [&Tensor; 2]) -> Vec<Tensor> {
    let key = tape.input("key", Dtype::I32, [2]);
    let drawn = [(0.5, 1), (0.5, 2), (0.1, 1), (0.0, 1), (1.0, 1), (2.0_f64.powi(-40), u32::MAX)];
    let masks = drawn.map(|(probability, stream)| tape.random_mask(&key, a.shape(), probability, stream));
    let kept = a.dropout(&key, 0.5, 1);
    let rows = kept.reduce_max(1); // a buffer, so that what follows is a kernel of its own
    let later = &b.dropout(&key, 0.5, 1) + &rows.spread(a.shape());
    masks.into_iter().chain([kept, later]).collect()
}

/// What elements other than its own, or other ranks, have a part in is no operation on single elements.
fn not_on_elements() -> [Op; 4] {
    let group = Group::new("dp", 2);
    [
        Op::Collective { kind: Collective::AllReduce, group },
        Op::Matmul,
        Op::Reduce(Reduce::Sum, 0),
        Op::Gather,
    ]
}

fn lowers_none(attempt: &dyn Compile) -> Result<(), String> {
    for op in not_on_elements() {
        let mut code = Code::default();
        let inputs = [0.0, 1.0].map(|value| code.push(Tile::Float(value)));
        let inputs = if matches!(op, Op::Matmul | Op::Gather) { &inputs[..] } else { &inputs[..1] };
        if let Some(value) = attempt.lower(&op, Dtype::F32, Dtype::F32, inputs, &mut code) {
            return Err(format!("expected nothing for {}, found value {value} of its result", op.name()));
        }
    }
    Ok(())
}

fn half_precision(tape: &Tape, _: [&Tensor; 2]) -> Vec<Tensor> {
    let of = |dtype: Dtype| {
        let x = float(tape, dtype.name(), dtype);
        [&x + &x.exp(), &x * &x, x.sigmoid(), (&x * &x).sum(1), &x / &(&x * &x.exp())]
    };
    [Dtype::F16, Dtype::Bf16].into_iter().flat_map(of).collect()
}

fn float(tape: &Tape, name: &str, dtype: Dtype) -> Tensor {
    tape.input(name, dtype, [7, 9])
}

fn whole(tape: &Tape, name: &str) -> Tensor {
    float(tape, name, Dtype::I32)
}

/// A graph of what a check computes, with values for it.
fn made(trial: &mut Trial<'_>, write: Write) -> Result<(Graph, Values<f64>), String> {
    let made = graph(trial.case, |tape| {
        let [a, b] = ["a", "b"].map(|name| float(tape, name, Dtype::F32));
        for (i, output) in write(tape, [&a, &b]).iter().enumerate() {
            tape.output(&format!("{}.{i}", trial.case), output);
        }
    })?;
    let given = values(&made, &mut trial.random, 40);
    Ok((made, given))
}

const LEVELS: [Level; 2] = [Level::O1, Level::O2];

/// That results are those of the interpreter, to the bit.
fn equal(trial: &mut Trial<'_>, write: Write) -> Result<(), String> {
    let (made, given) = made(trial, write)?;
    LEVELS
        .into_iter()
        .try_for_each(|level| exact(trial.device, trial.passes, &made, &given, level.options()).map(drop))
}

/// That results are near the truth: the last bits of functions are the machine's own.
fn near(trial: &mut Trial<'_>, write: Write) -> Result<(), String> {
    let (made, given) = made(trial, write)?;
    LEVELS
        .into_iter()
        .try_for_each(|level| right(trial.device, trial.passes, &made, &given, level.options()).map(drop))
}

/// Arithmetic in short floats: each result is rounded, and so are the next ones.
fn chains(Trial { passes, device, random, .. }: &mut Trial<'_>) -> Result<(), String> {
    for dtype in [Dtype::F16, Dtype::Bf16] {
        let made = graph("chain", |tape| {
            let [x, y] = ["x", "y"].map(|name| tape.input(name, dtype, [7, 9]));
            let chain = &(&(&(&x * &y) + &x) * &y) - &(&x / &(&(&y * &y) + 1.0));
            tape.output("chain", &chain);
            tape.output("wide", &chain.cast(Dtype::F32));
        })?;
        let given = values(&made, random, 40);
        for level in LEVELS {
            exact(*device, *passes, &made, &given, level.options())?;
        }
    }
    Ok(())
}
