//! D.19: where sizes, rows and frequencies go.

use challenges::issues::gguf::Gguf;
use reference::issues::gguf::{rope_factors, rotary_rows};
use reference::llama::{Rope, Scaling};

use super::super::part::same;
use super::drawn::{llama3, one_of};
use super::{Check, Rows};

pub(super) const CHECKS: &Rows<Check> = &[
    ("sizes", |steps, _| {
        [&[5, 3][..], &[7], &[32, 3, 14, 15], &[2, 3, 2, 4, 5]].into_iter().try_for_each(|shape| {
            let want: Vec<usize> = shape.iter().copied().rev().collect();
            same(&format!("shape {shape:?}"), &steps.sizes(shape), &want)
        })
    }),
    ("one-head", |steps, _| rows(steps, 8, 1, &[0, 4, 1, 5, 2, 6, 3, 7])),
    ("several-heads", |steps, _| rows(steps, 12, 3, &[0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11])),
    ("heads-of-two", |steps, _| rows(steps, 6, 3, &[0, 1, 2, 3, 4, 5])),
    ("any-heads", |steps, random| {
        (0..50).try_for_each(|_| {
            let heads = 1 + random.below(9);
            let count = heads * 2 * (1 + random.below(40));
            rows(steps, count, heads, &rotary_rows(count, heads))
        })
    }),
    ("no-factors", |steps, _| {
        [Scaling::None, Scaling::Linear { factor: 4.0 }]
            .into_iter()
            .try_for_each(|scaling| factors(steps, &Rope { theta: 1e4, scaling }, 16))
    }),
    ("factors-of-llama-3", |steps, _| {
        let scaling = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 8192 };
        factors(steps, &Rope { theta: 500_000.0, scaling }, 128)
    }),
    ("any-factors", |steps, random| {
        (0..50).try_for_each(|_| {
            let rope = Rope { theta: one_of(&[1e4, 1e5, 5e5, 1e6], random), scaling: llama3(random) };
            factors(steps, &rope, 2 * (1 + random.below(70)))
        })
    }),
];

fn rows(steps: &dyn Gguf, rows: usize, heads: usize, want: &[usize]) -> Result<(), String> {
    let got = steps.rotary_rows(rows, heads);
    same(&format!("{rows} rows of {heads} heads"), &got.as_slice(), &want)
}

/// How far a factor may be from the reference's, as a part of it.
pub(super) const FACTOR: f32 = 1e-5;

fn factors(steps: &dyn Gguf, rope: &Rope, head_dim: usize) -> Result<(), String> {
    let (got, want) = (steps.rope_factors(rope, head_dim), rope_factors(rope, head_dim));
    let what = format!("{rope:?}, heads of {head_dim}");
    let (Some(got), Some(want)) = (&got, &want) else { return same(&what, &got, &want) };
    same(&format!("{what}: factors"), &got.len(), &want.len())?;
    let is_near = |(got, want): (&f32, &f32)| (got - want).abs() <= FACTOR * want; // not of a NaN
    match got.iter().zip(want).position(|pair| !is_near(pair)) {
        None => Ok(()),
        Some(i) => {
            Err(format!("{what}: factor {i}: got {}, want {} within {FACTOR:.0e} of it", got[i], want[i]))
        }
    }
}
