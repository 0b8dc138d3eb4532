//! D.15: where rows are answered from.

use challenges::issues::classify::Classify;
use reference::issues::classify::last_tokens;

use super::super::part::same;
use super::{Check, Rows};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("right", |steps, _| one(steps, &[5, 6, 7, 0, 0, 8, 9, 0, 0, 0], 5, Some(0), &[2, 1])),
    ("left", |steps, _| one(steps, &[0, 0, 5, 6, 7, 0, 0, 0, 8, 9], 5, Some(0), &[4, 4])),
    ("no-padding", |steps, _| one(steps, &[5, 6, 7, 8, 9, 4], 3, Some(0), &[2, 2])),
    ("one-token", |steps, _| {
        one(steps, &[5, 0, 0, 0, 5, 0, 0, 0, 5], 3, Some(0), &[0, 1, 2])
            .and_then(|()| one(steps, &[5, 0, 6], 1, Some(0), &[0, 0, 0]))
    }),
    // a model whose token of padding is that of the end, within a conversation
    ("padding-within-the-text", |steps, _| one(steps, &[5, 2, 6, 2, 2, 2, 2, 5, 2, 6], 5, Some(2), &[2, 4])),
    ("padding-on-both-sides", |steps, _| one(steps, &[0, 0, 5, 0, 0, 0, 0, 5, 6, 0], 5, Some(0), &[2, 3])),
    ("nothing-but-padding", |steps, _| one(steps, &[0, 0, 0, 5, 0, 0], 3, Some(0), &[0, 0])),
    ("no-token-of-padding", |steps, _| {
        one(steps, &[0, 5, 0, 0, 0, 0], 3, None, &[2, 2])
            .and_then(|()| one(steps, &[0, 5, 0, 0, 0, 0], 3, Some(-1), &[2, 2]))
    }),
    ("no-rows", |steps, _| one(steps, &[], 4, Some(0), &[])),
    ("drawn", |steps, random| (0..300).try_for_each(|_| drawn(steps, random))),
];

fn one(
    steps: &dyn Classify,
    ids: &[i32],
    length: usize,
    pad: Option<i32>,
    want: &[usize],
) -> Result<(), String> {
    let got = steps.last_tokens(ids, length, pad);
    same(&format!("ids {ids:?} in rows of {length}, padding {pad:?}"), &got.as_slice(), &want)
}

/// Few different tokens, so that the token of padding is often among them.
fn drawn(steps: &dyn Classify, random: &mut Random) -> Result<(), String> {
    let (rows, length, vocab) = (random.below(5), 1 + random.below(7), 1 + random.below(4));
    let ids: Vec<i32> = (0..rows * length).map(|_| random.below(vocab) as i32).collect();
    let pad = (random.below(5) > 0).then(|| random.below(4) as i32);
    one(steps, &ids, length, pad, &last_tokens(&ids, length, pad))
}
