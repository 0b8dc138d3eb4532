//! D.14: a logit of each head that takes its share of the softmax.

use challenges::issues::attention::{Attend, Part};
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dtype, interpret};

use super::merged::{narrow, near_all, rounded, rounded_once};
use super::{Check, Rows};
use crate::compare::describe;
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("small", |steps, random| right(steps, 1.0, Dtype::F32, random)),
    ("large", |steps, random| right(steps, 2000.0, Dtype::F32, random)),
    ("a-narrow-type", |steps, random| right(steps, 1.0, Dtype::Bf16, random)),
];

/// Sequences, heads, queries, numbers of a value.
const SHAPE: [usize; 4] = [2, 3, 4, 2];

/// Every fifth query sees nothing.
pub(super) fn right(steps: &dyn Attend, reach: f64, dtype: Dtype, random: &mut Random) -> Result<(), String> {
    let [_, heads, queries, width] = SHAPE;
    let mut drawn = |count: usize, reach: f64| -> Vec<f64> {
        (0..count).map(|_| f64::from(((2.0 * random.unit() - 1.0) * reach) as f32)).collect()
    };
    let rows: usize = SHAPE[..3].iter().product();
    let (mut output, mut lse, sinks) = (drawn(rows * width, 1.0), drawn(rows, reach), drawn(heads, reach));
    for row in (0..rows).step_by(5) {
        output[row * width..][..width].fill(0.0);
        lse[row] = f64::NEG_INFINITY;
    }
    let builder = Builder::new("sinks");
    let tape = builder.tape();
    let part = Part {
        output: tape.input("output", dtype, SHAPE),
        lse: tape.input("lse", Dtype::F32, SHAPE[..3].iter().copied()),
    };
    let got = steps.sink(&part, &tape.input("sinks", Dtype::F32, [heads]));
    if got.ty() != part.output.ty() {
        return Err(format!("expected the output's type {}, found {}", part.output.ty(), got.ty()));
    }
    tape.output("sunk", &got);
    drop((part, got));
    let given = [
        ("output", Array::floats(dtype, &SHAPE, output.iter().copied())),
        ("lse", Array::floats(Dtype::F32, &SHAPE[..3], lse.iter().copied())),
        ("sinks", Array::floats(Dtype::F32, &[heads], sinks.iter().copied())),
    ];
    let values: Values<f64> = given.into_iter().map(|(name, value)| (name.into(), value)).collect();
    let graph = builder.finish().map_err(describe)?;
    let output = rounded(&values["output"]);
    let share = |row: usize| {
        let (lse, sink) = (lse[row], sinks[row / queries % heads]);
        let top = lse.max(sink);
        (lse - top).exp() / ((lse - top).exp() + (sink - top).exp())
    };
    let want: Vec<f64> = output.iter().enumerate().map(|(i, x)| x * share(i / width)).collect();
    if dtype == Dtype::F32 {
        let found = interpret(&graph, &values).map_err(describe)?;
        return near_all("output", &found[0].wide(), &want, 1e-9);
    }
    let found = interpret(&graph, &narrow(&values)).map_err(describe)?;
    rounded_once("output", &found[0].wide(), &want)
}
