//! D.12: attention to parts of the keys, merged, against attention to all of them.

use challenges::issues::attention::{Attend, Part};
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dtype, Real, Tensor, interpret};

use super::{Check, Rows};
use crate::compare::describe;
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("two-parts", |steps, random| right(steps, &Case::drawn(&[5, 7], 1.0, random))),
    ("one-part", |steps, random| right(steps, &Case::drawn(&[6], 1.0, random))),
    ("uneven-parts", |steps, random| right(steps, &Case::drawn(&[1, 20, 3, 2], 1.0, random))),
    ("large-scores", |steps, random| right(steps, &Case::drawn(&[4, 4, 4], 2000.0, random))),
    ("a-part-that-sees-nothing", |steps, random| right(steps, &Case::drawn(&[3, 0, 5], 1.0, random))),
    ("nothing-is-seen", |steps, random| {
        right(steps, &Case::drawn(&[0, 0], 1.0, random))?;
        right(steps, &Case::drawn(&[0], 1.0, random))
    }),
    ("a-narrow-type", |steps, random| {
        let case = Case::drawn(&[5, 7], 1.0, random);
        right(steps, &Case { dtype: Dtype::Bf16, ..case })
    }),
    ("drawn", |steps, random| {
        (0..12).try_for_each(|_| {
            let keys: Vec<usize> = (0..=random.below(5)).map(|_| random.below(4)).collect();
            right(steps, &Case::drawn(&keys, 1.0 + random.below(40) as f64, random))
        })
    }),
];

/// Sequences, heads, queries, numbers of a value.
const SHAPE: [usize; 4] = [2, 3, 2, 4];

/// Scores and values of the keys of each part. Every third query sees no key of the first part.
pub(super) struct Case {
    parts: Vec<Keys>,
    dtype: Dtype,
}

/// What the queries see of a part: of each a score and a value.
struct Keys(Vec<Vec<(f64, [f64; SHAPE[3]])>>);

fn queries() -> usize {
    SHAPE[..3].iter().product()
}

impl Case {
    pub fn drawn(keys: &[usize], reach: f64, random: &mut Random) -> Self {
        let part = |(number, keys): (usize, &usize)| {
            let of_query = |query: usize| {
                let blind = keys.min(&1) * usize::from(number == 0 && query % 3 == 0);
                let seen = if blind > 0 { 0 } else { *keys };
                let mut next = || 2.0 * random.unit() - 1.0;
                (0..seen).map(|_| (reach * next(), [(); SHAPE[3]].map(|()| next()))).collect()
            };
            Keys((0..queries()).map(of_query).collect())
        };
        Self { parts: keys.iter().enumerate().map(part).collect(), dtype: Dtype::F32 }
    }
}

impl Keys {
    /// The output and L of each query.
    fn attend(&self) -> (Vec<f64>, Vec<f64>) {
        let (mut output, mut lse) = (Vec::new(), Vec::new());
        for seen in &self.0 {
            let largest = seen.iter().fold(f64::NEG_INFINITY, |most, (score, _)| most.max(*score));
            let sum: f64 = seen.iter().map(|(score, _)| (score - largest).exp()).sum();
            lse.push(if seen.is_empty() { f64::NEG_INFINITY } else { largest + sum.ln() });
            output.extend((0..SHAPE[3]).map(|i| {
                seen.iter().map(|(score, value)| (score - largest).exp() / sum * value[i]).sum::<f64>()
            }));
        }
        (output, lse)
    }
}

/// Whether the merged result is that of all keys.
pub(super) fn right(steps: &dyn Attend, case: &Case) -> Result<(), String> {
    let builder = Builder::new("merged");
    let mut values: Values<f64> = Values::new();
    let mut parts = Vec::new();
    for (i, keys) in case.parts.iter().enumerate() {
        let (output, lse) = keys.attend();
        let mut input = |name: String, dtype, shape: &[usize], numbers: Vec<f64>| -> Tensor {
            values.insert(name.clone(), Array::floats(dtype, shape, numbers));
            builder.tape().input(&name, dtype, shape.iter().copied())
        };
        let output = input(format!("output{i}"), case.dtype, &SHAPE, output);
        let lse = input(format!("lse{i}"), Dtype::F32, &SHAPE[..3], lse);
        parts.push(Part { output, lse });
    }
    let merged = steps.merge(&parts);
    if merged.output.ty() != parts[0].output.ty() || merged.lse.ty() != parts[0].lse.ty() {
        let types = [&merged.output, &merged.lse].map(|tensor| tensor.ty().to_string());
        return Err(format!("expected the types of a part, found {types:?}"));
    }
    builder.tape().output("output", &merged.output);
    builder.tape().output("lse", &merged.lse);
    drop((parts, merged));
    let graph = builder.finish().map_err(describe)?;
    let all = |query: usize| case.parts.iter().flat_map(|part| part.0[query].iter().copied()).collect();
    let (output, lse) = Keys((0..queries()).map(all).collect()).attend();
    if case.dtype == Dtype::F32 {
        let found = interpret(&graph, &values).map_err(describe)?;
        near_all("output", &found[0].wide(), &output, 1e-9)?;
        return near_all("lse", &found[1].wide(), &lse, 1e-9);
    }
    let (output, values) = (merged_once(&values, case.parts.len()), narrow(&values));
    let found = interpret(&graph, &values).map_err(describe)?;
    rounded_once("output", &found[0].wide(), &output)?;
    near_all("lse", &found[1].wide(), &lse, 1e-5)
}

/// The output of parts whose outputs were rounded, by the definition and without another rounding.
fn merged_once(values: &Values<f64>, parts: usize) -> Vec<f64> {
    let of =
        |name: &str| (0..parts).map(|i| rounded(&values[&format!("{name}{i}")])).collect::<Vec<Vec<f64>>>();
    let (outputs, logs) = (of("output"), of("lse"));
    let one = |i: usize| {
        let row = i / SHAPE[3];
        let largest = logs.iter().fold(f64::NEG_INFINITY, |most, lse| most.max(lse[row]));
        let share = |part: usize| (logs[part][row] - largest).exp();
        let sum: f64 = (0..parts).map(share).sum();
        if largest.is_infinite() {
            0.0
        } else {
            (0..parts).map(|part| share(part) / sum * outputs[part][i]).sum()
        }
    };
    (0..outputs[0].len()).map(one).collect()
}

/// The numbers of a tensor as its type holds them.
pub(super) fn rounded(array: &Array<f64>) -> Vec<f64> {
    array.wide().iter().map(|x| f64::from(f32::nearest(*x, array.dtype))).collect()
}

/// Inputs in f32 and the types below it, where every operation rounds as its type says.
pub(super) fn narrow(values: &Values<f64>) -> Values<f32> {
    let one = |(name, array): (&String, &Array<f64>)| {
        (name.clone(), Array::floats(array.dtype, &array.shape, array.wide()))
    };
    values.iter().map(one).collect()
}

/// That numbers in bf16 are others, computed in f32 and rounded once.
pub(super) fn rounded_once(name: &str, got: &[f64], want: &[f64]) -> Result<(), String> {
    let half_a_step = |x: f64| x.abs() / 256.0 * 1.01 + 1e-5;
    let is_near = |i: usize| (got[i] - want[i]).abs() <= half_a_step(want[i]);
    match (0..want.len()).find(|i| !is_near(*i)) {
        Some(i) => Err(format!("{name}[{i}] in bf16: got {}, want {} rounded once", got[i], want[i])),
        None => Ok(()),
    }
}

/// That numbers are near others; what is infinite has to be so.
pub(super) fn near_all(name: &str, got: &[f64], want: &[f64], near: f64) -> Result<(), String> {
    let far = |i: &usize| {
        let (got, want) = (got[*i], want[*i]);
        let is_near =
            if want.is_infinite() { got.total_cmp(&want).is_eq() } else { (got - want).abs() <= near };
        !is_near
    };
    match (0..want.len()).find(far) {
        Some(i) => Err(format!("{name}[{i}]: got {}, want {}", got[i], want[i] + 0.0)), // -0 is told as 0
        None => Ok(()),
    }
}
