//! D.2: which tokens are the assistant's.

use std::ops::Range;
use std::time::{Duration, Instant};

use challenges::issues::chat::Steps;

use super::{Check, Rows, same};
use crate::random::Random;

#[expect(clippy::single_range_in_vec_init, reason = "a list of spans may hold one")]
pub(super) const CHECKS: &Rows<Check> = &[
    ("inside-and-outside", |steps, _| {
        one(steps, &[0..2, 2..5, 5..6, 6..9], &[2..6], &[false, true, true, false])
    }),
    ("across-a-border", |steps, _| {
        one(steps, &[0..3, 3..7, 7..9, 9..12], &[2..4, 8..9], &[true, true, true, false])
    }),
    ("tokens-without-text", |steps, _| {
        one(steps, &[0..0, 0..2, 1..1, 2..4, 3..3], &[0..4], &[false, true, false, true, false])
    }),
    ("empty-spans", |steps, _| one(steps, &[0..2, 2..4, 4..6], &[1..1, 3..3, 4..5], &[false, false, true])),
    ("nothing", |steps, _| {
        one(steps, &[], &[0..4], &[]).and_then(|()| one(steps, &[0..4, 4..5], &[], &[false, false]))
    }),
    ("drawn", |steps, random| (0..300).try_for_each(|_| drawn(steps, random))),
    ("many-of-both", |steps, _| many(steps)),
];

fn one(steps: &Steps, offsets: &[Range<usize>], spans: &[Range<usize>], want: &[bool]) -> Result<(), String> {
    let got = steps.chat().token_mask(offsets, spans);
    same(&format!("tokens at {offsets:?}, spans {spans:?}"), &got.as_slice(), &want)
}

/// Character by character.
fn drawn(steps: &Steps, random: &mut Random) -> Result<(), String> {
    let mut pieces = |most: usize| {
        let mut at = 0;
        let mut out = Vec::new();
        for _ in 0..random.below(7) {
            let start = at + random.below(most);
            at = start + random.below(4);
            out.push(start..at);
        }
        out
    };
    let (offsets, spans) = (pieces(2), pieces(3));
    let own = |at: usize| spans.iter().any(|span| span.contains(&at));
    let want: Vec<bool> = offsets.iter().map(|token| token.clone().any(own)).collect();
    one(steps, &offsets, &spans, &want)
}

/// A conversation of many turns: what looks at every span for every token does not come to an end.
fn many(steps: &Steps) -> Result<(), String> {
    let count = 200_000;
    let offsets: Vec<Range<usize>> = (0..count).map(|at| 3 * at..3 * at + 3).collect();
    let spans: Vec<Range<usize>> = (0..count / 2).map(|at| 6 * at..6 * at + 2).collect();
    let start = Instant::now();
    let got = steps.chat().token_mask(&offsets, &spans);
    let took = start.elapsed();
    if got.len() != count || got.iter().enumerate().any(|(at, own)| *own != (at % 2 == 0)) {
        return Err(
            "of 200,000 tokens every other one is the assistant's; the mask says something else".into()
        );
    }
    if took > Duration::from_secs(2) {
        return Err(format!(
            "200,000 tokens and 100,000 spans took {took:.1?}: the cost has to grow with their sum, not their product"
        ));
    }
    Ok(())
}
