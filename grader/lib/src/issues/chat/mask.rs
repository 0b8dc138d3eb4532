//! D.2: which tokens are the assistant's.

use std::ops::Range;
use std::time::{Duration, Instant};

use challenges::issues::chat::Steps;

use super::super::part::same;
use super::{Check, Rows};
use crate::random::Random;

#[expect(clippy::single_range_in_vec_init, reason = "a list of spans may hold one")]
pub(super) const CHECKS: &Rows<Check> = &[
    ("inside-and-outside", |steps, _| {
        one(steps, &[0..2, 2..5, 5..6, 6..9], &[2..6], &[false, true, true, false])
    }),
    ("across-a-border", |steps, _| {
        let several = [0..1, 1..2, 1..2, 1..2, 2..4, 3..5, 4..6]; // tokens of one character
        one(steps, &[0..3, 3..7, 7..9, 9..12], &[2..4, 8..9], &[true, true, true, false])
            .and_then(|()| one(steps, &several, &[1..2], &[false, true, true, true, false, false, false]))
            .and_then(|()| one(steps, &several, &[3..4], &[false, false, false, false, true, true, false]))
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
    let (offsets, spans) = (tokens(random), spans(random));
    let own = |at: usize| spans.iter().any(|span| span.contains(&at));
    let want: Vec<bool> = offsets.iter().map(|token| token.clone().any(own)).collect();
    one(steps, &offsets, &spans, &want)
}

/// Tokens in order: they may skip a character or share some, and those without text lie anywhere.
fn tokens(random: &mut Random) -> Vec<Range<usize>> {
    let (mut start, mut end) = (0, 0);
    let each = (0..random.below(9)).map(|_| {
        if random.below(5) == 0 {
            let place = random.below(12);
            return place..place;
        }
        start = (start + random.below(3)).min(end + 1);
        end = end.max(start + 1 + random.below(3));
        start..end
    });
    each.collect()
}

/// Spans in order that do not overlap; some are empty.
fn spans(random: &mut Random) -> Vec<Range<usize>> {
    let mut end = 0;
    let each = (0..random.below(7)).map(|_| {
        let start = end + random.below(3);
        end = start + random.below(4);
        start..end
    });
    each.collect()
}

/// What a mask of many tokens and spans may take: a hundred times what one needs that passes over each once, and less
/// than a fifth of what one takes that looks at all pairs (two cores of an Intel Xeon with AVX-512).
const LIMIT: Duration = Duration::from_millis(300);

/// A conversation of many turns: what looks at every span for every token does not come to an end. In the second one
/// the assistant says nothing, over and over, at the very end.
fn many(steps: &Steps) -> Result<(), String> {
    let count = 100_000;
    let offsets: Vec<Range<usize>> = (0..count).map(|at| 3 * at..3 * at + 3).collect();
    let spans: Vec<Range<usize>> = (0..count / 2).map(|at| 6 * at..6 * at + 2).collect();
    in_time(steps, &offsets, &spans, "every other one", |at| at % 2 == 0)?;
    in_time(steps, &offsets, &vec![3 * count..3 * count; count / 2], "none", |_| false)
}

fn in_time(
    steps: &Steps,
    offsets: &[Range<usize>],
    spans: &[Range<usize>],
    which: &str,
    own: fn(usize) -> bool,
) -> Result<(), String> {
    let start = Instant::now();
    let got = steps.chat().token_mask(offsets, spans);
    let took = start.elapsed();
    if got.len() != offsets.len() || got.iter().enumerate().any(|(at, trained)| *trained != own(at)) {
        return Err(format!("of 100,000 tokens {which} is the assistant's; the mask says something else"));
    }
    if took > LIMIT {
        let empty = if spans.iter().all(Range::is_empty) { "empty spans behind them" } else { "spans" };
        return Err(format!(
            "100,000 tokens and 50,000 {empty} took {took:.1?}: the cost has to grow with their sum, not their product"
        ));
    }
    Ok(())
}
