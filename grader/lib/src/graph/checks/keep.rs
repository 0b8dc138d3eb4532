//! C.4: what is worth a buffer, seen by the launches of patterns.

use challenges::graph::Solution;
use compiler::compile::Level;
use kernels::plan::Step;
use reference::graph::{Dtype, Tape, Tensor};

use super::{Check, Rows, Trial, graph, input, values};
use crate::compare::right;

/// Patterns that have to be few launches, and how many.
pub(super) const CHECKS: &Rows<Check> = &[
    ("softmax", |trial| keep(trial, 1, |tape| tape.output("y", &(&x(tape) * 0.5).softmax(1)))),
    ("norm", |trial| keep(trial, 1, norm)),
    ("swiglu", |trial| keep(trial, 1, swiglu)),
    ("rotary", |trial| keep(trial, 2, rotary)),
    ("low-rank-pair", |trial| keep(trial, 3, low_rank_pair)),
    ("loss", |trial| keep(trial, 4, loss)),
    ("used-often", |trial| keep(trial, 8, used_often)),
    ("the-same-results", random_graphs),
];

/// Rows and columns of the patterns.
const SHAPE: [usize; 2] = [24, 40];

fn x(tape: &Tape) -> Tensor {
    input(tape, "x", &SHAPE)
}

fn norm(tape: &Tape) {
    let (x, w) = (x(tape), input(tape, "w", &[40]));
    let root = (&(&x * &x).mean(1) + 1e-5).sqrt();
    tape.output("y", &(&(&x / &root) * &w));
}

fn swiglu(tape: &Tape) {
    let (gate, up) = (x(tape), input(tape, "up", &SHAPE));
    tape.output("y", &(&(&gate * &gate.sigmoid()) * &up));
}

fn rotary(tape: &Tape) {
    let x = input(tape, "x", &[2, 3, 8, 16]);
    let [cos, sin] = ["cos", "sin"].map(|name| input(tape, name, &[8, 8]));
    let (left, right) = (x.slice(3, 0, 8), x.slice(3, 8, 16));
    let turned = [&(&left * &cos) - &(&right * &sin), &(&right * &cos) + &(&left * &sin)];
    tape.output("y", &tape.concat(&[&turned[0], &turned[1]], 3));
}

fn low_rank_pair(tape: &Tape) {
    let (x, w) = (x(tape), input(tape, "w", &[32, 40]));
    let (a, b) = (input(tape, "a", &[4, 40]), input(tape, "b", &[32, 4]));
    let low = &x.matmul(&a.t()).matmul(&b.t()) * 2.0;
    tape.output("y", &(&x.matmul(&w.t()) + &low));
}

fn loss(tape: &Tape) {
    let (logits, labels) = (x(tape), tape.input("labels", Dtype::I32, [24]));
    tape.output("y", &reference::loss::cross_entropy(&logits, &labels));
}

fn used_often(tape: &Tape) {
    let x = x(tape);
    tape.output("y", &(&x * 2.0)); // the loss, as it were: what it needs may be computed again
    let dear = (0..6).fold(x.clone(), |y, _| y.exp().sigmoid());
    for i in 0..6 {
        tape.output(&format!("y{i}"), &(&dear.slice(1, i, i + 30 + i) + i as f64)); // no two of one shape
    }
}

/// That a pattern is compiled to so few launches, and computes nothing often that is dear.
fn keep(trial: &mut Trial<'_>, most: usize, write: fn(&Tape)) -> Result<(), String> {
    let Trial { passes, device, case, random, .. } = trial;
    let (graph, options) = (graph(case, write)?, Level::O2.options());
    let compiled = right(*device, *passes, &graph, &values(&graph, random, 40), options)?;
    let plan = compiled.plan();
    if plan.steps.len() > most {
        return Err(format!("expected at most {most} launches, found {}:\n{plan}", plan.steps.len()));
    }
    let work = |step: &Step| match step {
        Step::Pass { program, space, .. } => program.ops.len() * space.iter().product::<usize>(),
        _ => 0,
    };
    let done = |steps: &[Step]| steps.iter().map(work).sum::<usize>();
    let best = right(*device, &Solution, &graph, &values(&graph, random, 40), options)?;
    let (got, want) = (done(&plan.steps), done(&best.plan().steps));
    if got > 2 * want {
        return Err(format!(
            "what is used often is computed again each time: expected {want} operations, found {got}\n{plan}"
        ));
    }
    Ok(())
}

/// Some small graphs of every kind of operation on single elements, sums and products.
fn random_graphs(Trial { passes, device, random, .. }: &mut Trial<'_>) -> Result<(), String> {
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
        right(*device, *passes, &made, &values(&made, random, 2), Level::O2.options())?;
    }
    Ok(())
}
