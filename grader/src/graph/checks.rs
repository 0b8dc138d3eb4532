//! The correctness checks of C: every step for itself, the others being the solution's.

use std::time::Duration;

use challenges::graph::compile::Level;
use challenges::graph::memory::{self, Life, room};
use challenges::graph::{Compile, Solution};
use kernels::plan::{Choice, Step};
use reference::grad;
use reference::graph::interpret::Values;
use reference::graph::programs::{self, Place};
use reference::graph::{
    Array, Attention, Builder, Dim, Dtype, Facts, Graph, Id, Known, Op, Tape, Tensor, Type, Unary, interpret,
};

use super::alone::Alone;
use super::capture;
use super::compare::{exact, narrowed, right, told, unequal};
use super::model::{Model, TINY};
use crate::random::Random;

/// What a step's checks are called.
const STEPS: [(&str, &[&str]); 8] = [
    ("C.1", &capture::NAMES),
    ("C.2", &["a-length", "a-batch", "by-eight", "one-size", "from-the-middle", "huge"]),
    (
        "C.3",
        &[
            "dead-gradients",
            "computed-twice",
            "does-nothing",
            "inputs-stay",
            "an-output-that-is-an-input",
            "the-same-results",
        ],
    ),
    (
        "C.4",
        &["softmax", "norm", "swiglu", "rotary", "low-rank-pair", "loss", "used-often", "the-same-results"],
    ),
    (
        "C.5",
        &[
            "nothing",
            "one-after-the-other",
            "all-at-once",
            "empty-buffers",
            "random-lives",
            "a-training-step",
        ],
    ),
    (
        "C.6",
        &[
            "functions",
            "arithmetic",
            "whole-numbers",
            "relations",
            "choices",
            "casts",
            "constants",
            "half-precision",
        ],
    ),
    ("C.7", &["the-fastest", "one-candidate", "a-slow-moment", "every-candidate-is-tried"]),
    (
        "C.8",
        &[
            "causal",
            "window",
            "softcap",
            "alibi",
            "documents",
            "relative-bias",
            "grouped-heads",
            "one-launch-each",
        ],
    ),
];

/// Every check's name, in the order of the steps.
pub(super) fn names() -> Vec<String> {
    let of_step = |(step, cases): &(&str, &[&str])| {
        cases.iter().map(|case| format!("{step}/{case}")).collect::<Vec<_>>()
    };
    STEPS.iter().flat_map(of_step).collect()
}

/// Runs one check by its name.
pub(super) fn run(name: &str, attempt: &dyn Compile, seed: u64) -> Result<u64, String> {
    let (step, case) = name.split_once('/').ok_or_else(|| format!("no check is called {name}"))?;
    let alone = Alone::new(step, attempt);
    let mut random = Random::named(seed, name);
    match step {
        "C.1" => capture::run(case, &alone),
        "C.2" => buckets(&alone, case),
        "C.3" => prune(&alone, case),
        "C.4" => keep(&alone, case, &mut random),
        "C.5" => place(&alone, case, &mut random, seed),
        "C.6" => lower(&alone, case, &mut random),
        "C.7" => tune(&alone, case),
        "C.8" => flex(&alone, case, &mut random),
        _ => Err(format!("no step is called {step}")),
    }?;
    Ok(alone.asked.into_inner())
}

/// A graph of a function over a tape.
fn graph(name: &str, write: impl FnOnce(&Tape)) -> Result<Graph, String> {
    let builder = Builder::new(name);
    write(builder.tape());
    builder.finish().map_err(told)
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

// --- C.2

fn buckets(attempt: &dyn Compile, case: &str) -> Result<(), String> {
    let facts = match case {
        "a-length" => Facts::range(1, 4096),
        "a-batch" => Facts::range(1, 1 << 16),
        "by-eight" => Facts::range(8, 4100).multiple_of(8),
        "one-size" => Facts::range(77, 77),
        "from-the-middle" => Facts::range(1000, 3001),
        _ => Facts::range(0, 1 << 40),
    };
    let buckets = attempt.buckets(facts);
    let first = |wrong: &dyn Fn(i64, i64) -> bool| buckets.windows(2).find(|pair| wrong(pair[0], pair[1]));
    let about = format!("of a symbol {facts}, the buckets {buckets:?}");
    if let Some(size) = buckets.iter().find(|size| !facts.hold(**size)) {
        return Err(format!("{about}: {size} is no value of the symbol"));
    }
    if let Some([a, b]) = first(&|a, b| a >= b) {
        return Err(format!("{about}: {b} does not come after {a}"));
    }
    let largest = facts.max / facts.multiple * facts.multiple;
    if buckets.last() != Some(&largest) {
        return Err(format!("{about}: the last one has to be {largest}, or the largest sizes have none"));
    }
    if let Some([a, b]) = first(&|a, b| a >= 8 * facts.multiple && b > 2 * (a + 1)) {
        return Err(format!("{about}: {} is padded to {b}, more than twice its size", a + 1));
    }
    let octaves = (facts.max as f64 / facts.min.max(1) as f64).log2();
    let most = 3.0 * octaves + 4.0;
    if buckets.len() as f64 > most {
        return Err(format!(
            "{about}: {} compilations for {octaves:.1} octaves, three each are plenty",
            buckets.len()
        ));
    }
    Ok(())
}

// --- C.3

fn prune(attempt: &dyn Compile, case: &str) -> Result<(), String> {
    let before = match case {
        "dead-gradients" => with_dead_gradients()?,
        "the-same-results" => return same_results(attempt),
        "computed-twice" => graph("twice", |tape| {
            let x = input(tape, "x", &[4, 6]);
            let (a, b) = (&x.exp() * &x.sigmoid(), &x.exp() * &x.sigmoid());
            tape.output("y", &(&a + &b));
            for (name, zero) in [("above", 0.0), ("below", -0.0)] {
                tape.output(name, &(&a / &a.like(zero))); // two zeros, which are equal, and not the same
            }
        })?,
        "does-nothing" => graph("idle", |tape| {
            let x = input(tape, "x", &[4, 6]);
            let same = tape.apply(Op::Reshape, &[&x], Some(x.ty().clone()));
            let same = tape.apply(Op::Cast, &[&same], Some(x.ty().clone()));
            let same = tape.apply(Op::Broadcast, &[&same], Some(x.ty().clone()));
            let same = same.transpose(&[0, 1]).slice(1, 0, 6).detach();
            tape.output("y", &tape.concat(&[&same], 0).exp());
        })?,
        "inputs-stay" => graph("unused", |tape| {
            let x = input(tape, "x", &[4]);
            _ = input(tape, "unused", &[5, 5]).exp();
            tape.output("y", &x.exp());
        })?,
        _ => graph("through", |tape| {
            let x = input(tape, "x", &[4]);
            tape.output("x2", &x.detach());
            tape.output("x3", &x);
            tape.output("y", &x.exp());
        })?,
    };
    let after = attempt.prune(&before).map_err(told)?;
    slim(&before, &after)?;
    let narrow = narrowed(&values(&before, &mut Random::named(1, case), 2));
    means_the_same(&before, &after, &narrow)
}

/// That two graphs have the same results, to the bit.
fn means_the_same(before: &Graph, after: &Graph, values: &Values<f32>) -> Result<(), String> {
    let (want, got) = (interpret(before, values), interpret(after, values));
    unequal(before, &want.map_err(told)?, &got.map_err(told)?).map_or(Ok(()), Err)
}

fn with_dead_gradients() -> Result<Graph, String> {
    let mut made = graph("frozen", |tape| {
        let x = input(tape, "x", &[8, 16]);
        let (w, a) = (input(tape, "frozen", &[16, 16]), input(tape, "trained", &[16, 16]));
        let y = &x.matmul(&w).sigmoid() + &x.matmul(&a);
        tape.output("loss", &(&y * &y).total());
    })?;
    let loss = made.outputs()[0].1;
    let inputs: Vec<Id> = made.inputs().map(|(_, id)| id).collect();
    let gradients = grad::differentiate(&mut made, loss, &inputs).map_err(told)?;
    made.output("grad.trained", gradients[2]);
    Ok(made)
}

/// That nothing is lost, and nothing superfluous left.
fn slim(before: &Graph, after: &Graph) -> Result<(), String> {
    after.check().map_err(told)?;
    let names = |graph: &Graph| graph.inputs().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    if names(before) != names(after) {
        return Err(format!("inputs are {:?}, they were {:?}", names(after), names(before)));
    }
    let outputs = |graph: &Graph| graph.outputs().iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    if outputs(before) != outputs(after) {
        return Err(format!("outputs are {:?}, they were {:?}", outputs(after), outputs(before)));
    }
    let needed = after.ancestors(after.outputs().iter().map(|(_, id)| *id));
    let is_input = |id: &Id| matches!(after.node(*id).op, Op::Input { .. });
    if let Some(dead) = after.ids().find(|id| !needed.contains(id) && !is_input(id)) {
        return Err(format!("no output needs {}", after.line(dead)));
    }
    let best = Solution.prune(before).map_err(told)?;
    if after.nodes().len() > best.nodes().len() {
        let (got, want) = (after.nodes().len(), best.nodes().len());
        let left = format!("{got} nodes are left of {}, {want} are enough", before.nodes().len());
        return Err(format!("{left}{}", superfluous(after)));
    }
    Ok(())
}

/// A node of a graph that is superfluous: another one computes the same, or it does nothing.
fn superfluous(graph: &Graph) -> String {
    let twin = graph.ids().find_map(|id| {
        let is_input = matches!(graph.node(id).op, Op::Input { .. });
        let other = (0..id.0).map(Id).find(|other| !is_input && graph.node(*other).is(graph.node(id)))?;
        Some(format!("; %{} is what %{} is:\n{}", id.0, other.0, graph.line(id)))
    });
    let idle = || {
        let id = graph.ids().find(|id| {
            let node = graph.node(*id);
            let idle =
                matches!(node.op, Op::Cast | Op::Reshape | Op::Broadcast | Op::Slice { .. } | Op::Detach);
            idle && *graph.ty(node.inputs[0]) == node.ty
        })?;
        Some(format!("; this one does nothing:\n{}", graph.line(id)))
    };
    twin.or_else(idle).unwrap_or_default()
}

/// That a whole training step means what it meant.
fn same_results(attempt: &dyn Compile) -> Result<(), String> {
    let model = Model::drawn(TINY, 1)?;
    let step = Model::step(model.spec.training_loss().map_err(told)?)?;
    let after = attempt.prune(&step).map_err(told)?;
    slim(&step, &after)?;
    let mut values = model.fixed(&step);
    values.append(&mut model.tokens(5, &mut Random::new(1)));
    means_the_same(&step, &after, &values)
}

// --- C.4

/// Patterns that have to be few launches, with how many.
fn pattern(case: &str) -> Result<(Graph, usize), String> {
    let rows = [24, 40];
    let x = |tape: &Tape| input(tape, "x", &rows);
    Ok(match case {
        "softmax" => (graph(case, |tape| tape.output("y", &(&x(tape) * 0.5).softmax(1)))?, 1),
        "norm" => (
            graph(case, |tape| {
                let (x, w) = (x(tape), input(tape, "w", &[40]));
                let root = (&(&x * &x).mean(1) + 1e-5).sqrt();
                tape.output("y", &(&(&x / &root) * &w));
            })?,
            1,
        ),
        "swiglu" => (
            graph(case, |tape| {
                let (gate, up) = (x(tape), input(tape, "up", &rows));
                tape.output("y", &(&(&gate * &gate.sigmoid()) * &up));
            })?,
            1,
        ),
        "rotary" => (
            graph(case, |tape| {
                let x = input(tape, "x", &[2, 3, 8, 16]);
                let [cos, sin] = ["cos", "sin"].map(|name| input(tape, name, &[8, 8]));
                let (left, right) = (x.slice(3, 0, 8), x.slice(3, 8, 16));
                let turned = [&(&left * &cos) - &(&right * &sin), &(&right * &cos) + &(&left * &sin)];
                tape.output("y", &tape.concat(&[&turned[0], &turned[1]], 3));
            })?,
            2,
        ),
        "low-rank-pair" => (
            graph(case, |tape| {
                let (x, w) = (x(tape), input(tape, "w", &[32, 40]));
                let (a, b) = (input(tape, "a", &[4, 40]), input(tape, "b", &[32, 4]));
                let low = &x.matmul(&a.t()).matmul(&b.t()) * 2.0;
                tape.output("y", &(&x.matmul(&w.t()) + &low));
            })?,
            3,
        ),
        "loss" => (
            graph(case, |tape| {
                let (logits, labels) = (x(tape), tape.input("labels", Dtype::I32, [24]));
                let each = reference::loss::cross_entropy(&logits, &labels);
                tape.output("y", &each);
            })?,
            4,
        ),
        _ => (
            graph(case, |tape| {
                let x = x(tape);
                tape.output("y", &(&x * 2.0)); // the loss, as it were: what it needs may be computed again
                let dear = (0..6).fold(x.clone(), |y, _| y.exp().sigmoid());
                for i in 0..6 {
                    tape.output(&format!("y{i}"), &(&dear.slice(1, i, i + 30 + i) + i as f64)); // no two of one shape
                }
            })?,
            8,
        ),
    })
}

fn keep(passes: &Alone<'_>, case: &str, random: &mut Random) -> Result<(), String> {
    let options = Level::O2.options();
    if case == "the-same-results" {
        return random_graphs(random, |graph, values| right(passes, graph, values, options).map(|_| ()));
    }
    let (graph, most) = pattern(case)?;
    let compiled = right(passes, &graph, &values(&graph, random, 40), options)?;
    let plan = compiled.plan();
    if plan.steps.len() > most {
        return Err(format!("{} launches, {most} are enough:\n{plan}", plan.steps.len()));
    }
    let work = |step: &Step| match step {
        Step::Pass { program, space, .. } => program.ops.len() * space.iter().product::<usize>(),
        _ => 0,
    };
    let done = |steps: &[Step]| steps.iter().map(work).sum::<usize>();
    let best = right(&Solution, &graph, &values(&graph, random, 40), options)?;
    let (got, want) = (done(&plan.steps), done(&best.plan().steps));
    if got > 2 * want {
        return Err(format!(
            "what is used often is computed again each time: {got} operations, {want} are enough\n{plan}"
        ));
    }
    Ok(())
}

/// Some small graphs of every kind of operation on single elements, sums and products.
fn random_graphs(
    random: &mut Random,
    check: impl Fn(&Graph, &Values<f64>) -> Result<(), String>,
) -> Result<(), String> {
    for _ in 0..24 {
        let made = graph("random", |tape| {
            let shape = [1 + random.below(5), 1 + random.below(7)];
            let mut known = vec![input(tape, "x", &shape), input(tape, "w", &shape)];
            for _ in 0..2 + random.below(12) {
                let [a, b] = [(); 2].map(|()| known[random.below(known.len())].clone());
                known.push(match random.below(9) {
                    0 => &a + &b,
                    1 => &a * &b,
                    2 => a.sigmoid(),
                    3 => a.tanh(),
                    4 => a.max(&b),
                    5 => (&a * &a).mean(1).spread(a.shape()),
                    6 => a.matmul(&b.t()).matmul(&b).tanh(),
                    7 => a.softmax(1),
                    _ => a.less(&b).select(&b, &a),
                });
            }
            for (i, tensor) in known.iter().rev().take(2).enumerate() {
                tape.output(&format!("y{i}"), tensor);
            }
        })?;
        check(&made, &values(&made, random, 2))?;
    }
    Ok(())
}

// --- C.5

fn place(attempt: &dyn Compile, case: &str, random: &mut Random, seed: u64) -> Result<(), String> {
    let life = |bytes, parts| Some(Life { bytes, parts });
    let (lives, slack): (Vec<Option<Life>>, f64) = match case {
        "nothing" => (vec![None, None], 1.0),
        "one-after-the-other" => ((0..50).map(|i| life(4096, i..=i + 1)).collect(), 1.0),
        "all-at-once" => ((0..50).map(|i| life(64 + 192 * i, 0..=9)).collect(), 1.0),
        "empty-buffers" => ((0..9).map(|i| life(if i % 2 == 0 { 0 } else { 128 }, 0..=i)).collect(), 1.0),
        "random-lives" => {
            let one = |random: &mut Random| {
                let start = random.below(400);
                life(1 + random.below(1 << 16), start..=start + random.below(60))
            };
            ((0..600).map(|i| if i % 17 == 0 { None } else { one(random) }).collect(), 1.35)
        }
        _ => (lives_of_a_step(seed)?, 1.1),
    };
    let arena = attempt.place(&lives);
    if let Some(fault) = memory::fault(&lives, &arena) {
        return Err(fault);
    }
    let floor = memory::floor(&lives);
    if arena.bytes as f64 > floor as f64 * slack {
        let separate: usize = lives.iter().flatten().map(room).sum();
        let alive = "bytes are alive at once, and it has";
        return Err(format!("{floor} {alive} {}; each for itself they take {separate}", arena.bytes));
    }
    Ok(())
}

fn lives_of_a_step(seed: u64) -> Result<Vec<Option<Life>>, String> {
    let model = Model::drawn(TINY, seed)?;
    let step = Model::step(model.spec.training_loss().map_err(told)?)?;
    let sizes = [("B".into(), 1), ("T".into(), 96)].into();
    let compiled = challenges::graph::compile::compile(&Solution, &step, &sizes, Level::O2.options(), None);
    Ok(compiled.map_err(told)?.lives)
}

// --- C.6

fn lower(passes: &Alone<'_>, case: &str, random: &mut Random) -> Result<(), String> {
    let halves = [Dtype::F16, Dtype::Bf16];
    let made = graph(case, |tape| {
        let float = |name: &str, dtype: Dtype| tape.input(name, dtype, [7, 9]);
        let [a, b] = ["a", "b"].map(|name| float(name, Dtype::F32));
        let whole = |name: &str| tape.input(name, Dtype::I32, [7, 9]);
        let mut outputs: Vec<Tensor> = Vec::new();
        match case {
            "functions" => {
                let positive = &(&a * &a) + 0.5;
                for (unary, _) in Unary::NAMES {
                    outputs.push(tape.apply(Op::Unary(unary), &[&positive], None));
                }
            }
            "arithmetic" => {
                outputs.extend([&a + &b, &a - &b, &a * &b, &a / &(&(&b * &b) + 1.0), a.min(&b), a.max(&b)]);
                outputs.push(-&a);
            }
            "whole-numbers" => {
                let (m, n) = (&whole("m") - 20.0, &whole("n") + 1.0);
                outputs.extend([&m + &n, &m - &n, &m * &n, &m / &n, m.min(&n), m.max(&n), -&m]);
            }
            "relations" => {
                outputs.extend([a.less(&b), a.equal(&a), a.equal(&b), whole("m").less(&whole("n"))]);
            }
            "choices" => {
                outputs.extend([a.less(&b).select(&a, &b), whole("m").less(&whole("n")).select(&b, &a)]);
            }
            "casts" => {
                // beyond 24 bits, and a hair above the middle between two of bf16
                let drawn = whole("m");
                let far = &(&drawn * 131_072.0) + 16_842_753.0;
                outputs.extend([far.cast(Dtype::Bf16), (-&far).cast(Dtype::Bf16), far.cast(Dtype::F32)]);
                let m = &(&drawn * 9.0) - 60.0;
                outputs.extend([Dtype::U8, Dtype::F32, Dtype::F16, Dtype::Bf16].map(|to| m.cast(to)));
                let wide = &a * 300.0;
                outputs.extend([Dtype::U8, Dtype::I32, Dtype::F16, Dtype::Bf16].map(|to| wide.cast(to)));
                outputs.extend(
                    m.cast(Dtype::U8).cast(Dtype::I32).place().map(|_| m.cast(Dtype::U8).cast(Dtype::F16)),
                );
            }
            "constants" => {
                for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
                    let x = float(dtype.name(), dtype);
                    let hair = 2.0_f64.powi(-40); // above the middle between two: rounded once, or twice
                    let middles = [2.0_f64.powi(-11), 2.0_f64.powi(-8)].map(|half| 1.0 + half + hair);
                    let values = [0.1, 1.0 / 3.0, 65519.9, -1e-8, middles[0], middles[1]];
                    outputs.extend(values.map(|value| &x + &x.like(value)));
                }
                outputs.push(&whole("m") + -7.0);
            }
            _ => {
                for dtype in halves {
                    let x = float(dtype.name(), dtype);
                    outputs.extend([
                        &x + &x.exp(),
                        &x * &x,
                        x.sigmoid(),
                        (&x * &x).sum(1),
                        &x / &(&x * &x.exp()),
                    ]);
                }
            }
        }
        for (i, output) in outputs.iter().enumerate() {
            tape.output(&format!("{case}.{i}"), output);
        }
    })?;
    let given = values(&made, random, 40);
    let functions = ["functions", "half-precision"].contains(&case); // whose last bits are the machine's own
    for options in [Level::O1, Level::O2].map(Level::options) {
        if functions {
            right(passes, &made, &given, options)?
        } else {
            exact(passes, &made, &given, options)?
        };
    }
    if case == "half-precision" { chains(passes, random) } else { Ok(()) }
}

/// Arithmetic in short floats: each result is rounded, and so are the next ones.
fn chains(passes: &Alone<'_>, random: &mut Random) -> Result<(), String> {
    for dtype in [Dtype::F16, Dtype::Bf16] {
        let made = graph("chain", |tape| {
            let [x, y] = ["x", "y"].map(|name| tape.input(name, dtype, [7, 9]));
            let chain = &(&(&(&x * &y) + &x) * &y) - &(&x / &(&(&y * &y) + 1.0));
            tape.output("chain", &chain);
            tape.output("wide", &chain.cast(Dtype::F32));
        })?;
        let given = values(&made, random, 40);
        for level in [Level::O1, Level::O2] {
            exact(passes, &made, &given, level.options())?;
        }
    }
    Ok(())
}

// --- C.7

fn tune(attempt: &dyn Compile, case: &str) -> Result<(), String> {
    let times = [("the-fastest", [9, 4, 7, 3, 8, 6]), ("a-slow-moment", [4, 5, 6, 7, 9, 8])];
    let all = Choice::ALL;
    let candidates = if case == "one-candidate" { &all[2..3] } else { &all[..] };
    let base = times.iter().find(|(name, _)| *name == case).map_or([6, 5, 4, 7, 8, 9], |(_, times)| *times);
    let place = |choice: Choice| all.iter().position(|one| *one == choice).unwrap_or(0);
    let mut calls = [0_u32; 6];
    let chosen = attempt.tune(candidates, &mut |choice| {
        let at = place(choice);
        calls[at] += 1;
        let slow = case == "a-slow-moment" && calls.iter().sum::<u32>() <= SLOW;
        Duration::from_micros(base[at] * 100 + if slow { 5000 } else { 0 })
    });
    let tried = |choice: &&Choice| calls[place(**choice)] > 0;
    if let Some(untried) = candidates.iter().find(|choice| !tried(choice)) {
        return Err(format!("{untried:?} was never run"));
    }
    let best = candidates.iter().min_by_key(|choice| base[place(**choice)]);
    if Some(&chosen) != best {
        return Err(format!(
            "chose {chosen:?}, the fastest is {:?}; they take {base:?} hundred microseconds{}",
            best.unwrap_or(&chosen),
            if case == "a-slow-moment" {
                ", but for the first five runs, when the machine was busy: whoever takes turns is hit but once"
            } else {
                ""
            }
        ));
    }
    if case == "every-candidate-is-tried" && calls.iter().any(|calls| *calls < 2) {
        return Err(format!("runs of each candidate: {calls:?}; one run is no measurement"));
    }
    Ok(())
}

/// Runs at the beginning that a busy machine holds up: as many as there are candidates.
const SLOW: u32 = 5;

// --- C.8

/// An attention with its programs, over (batch, heads, key heads, queries, keys, depth).
fn attention(case: &str) -> Result<(Attention, [usize; 6], Vec<Type>), String> {
    let sizes = match case {
        "grouped-heads" => [2, 6, 2, 33, 33, 8],
        "window" => [1, 2, 2, 150, 150, 8],
        _ => [2, 2, 2, 29, 29, 8],
    };
    let extras = match case {
        "documents" => vec![Type::new(Dtype::I32, [sizes[3]])],
        "relative-bias" => vec![Type::new(Dtype::F32, [21_usize])],
        _ => Vec::new(),
    };
    let mask = |body: &dyn Fn(&Place) -> Tensor| programs::mask(case, &extras, body).map(Some).map_err(told);
    let score =
        |body: &dyn Fn(&Place) -> Tensor| programs::score(case, &extras, body).map(Some).map_err(told);
    let (score, mask) = match case {
        "window" => {
            let local = |at: &Place| programs::and(&programs::causal(at), &programs::sliding_window(at, 20));
            (None, mask(&local)?)
        }
        "softcap" => (score(&|at| programs::softcap(&at.score, 1.5))?, mask(&programs::causal)?),
        "alibi" => (score(&|at| programs::alibi(at, &at.score, 2))?, mask(&programs::causal)?),
        "documents" => {
            (None, mask(&|at| programs::and(&programs::causal(at), &programs::document(at, &at.extras[0])))?)
        }
        "relative-bias" => {
            (score(&|at| programs::relative_bias(at, &at.score.tanh(), &at.extras[0], 10))?, None)
        }
        _ => (None, mask(&programs::causal)?),
    };
    Ok((Attention { scale: 0.35, score, mask }, sizes, extras))
}

fn flex(passes: &Alone<'_>, case: &str, random: &mut Random) -> Result<(), String> {
    let (attention, [batch, heads, groups, queries, keys, depth], extras) = attention(case)?;
    let mut made = graph(case, |tape| {
        let q = input(tape, "q", &[batch, heads, queries, depth]);
        let [k, v] = ["k", "v"].map(|name| input(tape, name, &[batch, groups, keys, depth]));
        let extra = |(i, ty): (usize, &Type)| tape.input(&format!("extra{i}"), ty.dtype, &ty.shape);
        let extras: Vec<Tensor> = extras.iter().enumerate().map(extra).collect();
        let attended = q.attend(attention, &k, &v, &extras.iter().collect::<Vec<_>>());
        tape.output("attended", &attended);
        tape.output("loss", &(&attended * &attended).total());
    })?;
    let loss = made.outputs()[1].1;
    let wrt: Vec<Id> = ["q", "k", "v"].iter().filter_map(|name| made.find_input(name)).collect();
    let gradients = grad::differentiate(&mut made, loss, &wrt).map_err(told)?;
    ["grad_q", "grad_k", "grad_v"].iter().zip(gradients).for_each(|(name, id)| made.output(*name, id));
    let compiled = right(passes, &made, &values(&made, random, 3), Level::O2.options())?;
    let steps = &compiled.plan().steps;
    let count = |is: fn(&Step) -> bool| steps.iter().filter(|step| is(step)).count();
    let forward = count(|step| matches!(step, Step::Attention { .. }));
    let backward = count(|step| matches!(step, Step::AttentionGrad(_)));
    if (forward, backward) != (1, 1) {
        return Err(format!(
            "{forward} launches of attention and {backward} of its gradients, one of each is needed:\n{}",
            compiled.plan()
        ));
    }
    if case == "one-launch-each" { keeps_facts(passes) } else { Ok(()) }
}

/// That a program over sizes that are symbols knows of them what the graph knew.
fn keeps_facts(passes: &Alone<'_>) -> Result<(), String> {
    let program = programs::mask("causal", &[], programs::causal).map_err(told)?;
    let types = [(); 3]
        .map(|()| Type::new(Dtype::F32, [Dim::fixed(1), Dim::fixed(2), Dim::symbol("T"), Dim::fixed(8)]));
    let known = Known::from([("T".into(), Facts::range(8, 512).multiple_of(8))]);
    let written = passes.flex(&program, &types, &known, false).map_err(told)?;
    if *written.known() == known {
        return Ok(());
    }
    Err(format!(
        "of T the program knows {:?}, the graph knows {:?}",
        written.known().get("T"),
        known.get("T")
    ))
}
