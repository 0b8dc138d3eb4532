//! D.13: the keys that are seen, in pieces.

use std::ops::Range;

use challenges::issues::attention::{Attend, Rules};

use super::super::part::same;
use super::{Check, Rows};
use crate::random::Random;

const CAUSAL: Rules = Rules { causal: true, window: None, prefix: None, documents: false };

pub(super) const CHECKS: &Rows<Check> = &[
    ("all-keys", |steps, _| right(steps, &(4095..4096, 4096, CAUSAL, 8, 256))),
    ("uneven", |steps, _| {
        right(steps, &(99..100, 100, CAUSAL, 7, 1))?;
        right(steps, &(99..100, 100, CAUSAL, 3, 30))
    }),
    ("few-keys", |steps, _| {
        right(steps, &(9..10, 10, CAUSAL, 8, 256))?;
        right(steps, &(0..1, 1, CAUSAL, 8, 1))
    }),
    ("a-window", |steps, _| {
        let of = |window| Rules { window: Some(window), ..CAUSAL };
        right(steps, &(999..1000, 1000, of(100), 4, 10))?;
        right(steps, &(990..1000, 1000, of(100), 4, 10))?;
        right(steps, &(999..1000, 1000, of(1), 4, 1))
    }),
    ("later-keys", |steps, _| {
        right(steps, &(10..12, 100, CAUSAL, 4, 1))?;
        right(steps, &(10..12, 100, Rules::default(), 4, 1))?;
        right(steps, &(10..12, 100, Rules { window: Some(5), ..Rules::default() }, 4, 1))
    }),
    ("a-prefix", |steps, _| {
        right(steps, &(10..12, 100, Rules { prefix: Some(40), ..CAUSAL }, 4, 1))?;
        right(steps, &(10..12, 30, Rules { prefix: Some(40), ..CAUSAL }, 4, 1))?;
        right(steps, &(10..12, 100, Rules { prefix: Some(40), window: Some(6), ..CAUSAL }, 4, 1))
    }),
    ("nothing", |steps, _| {
        right(steps, &(5..6, 10, Rules { window: Some(0), ..CAUSAL }, 4, 1))?;
        right(steps, &(5..5, 10, CAUSAL, 4, 1))?;
        right(steps, &(0..1, 0, CAUSAL, 4, 1))?;
        right(steps, &(50..52, 10, Rules { window: Some(5), ..CAUSAL }, 4, 1))
    }),
    ("drawn", |steps, random| (0..256).try_for_each(|_| right(steps, &drawn(random)))),
];

/// Queries, keys, rules, the most pieces, the fewest keys of one.
type Case = (Range<usize>, usize, Rules, usize, usize);

pub(super) fn drawn(random: &mut Random) -> Case {
    let (keys, from) = (random.below(60), random.below(60));
    let rules = Rules {
        causal: random.below(2) > 0,
        window: (random.below(2) > 0).then(|| random.below(30) as u32),
        prefix: (random.below(2) > 0).then(|| random.below(60) as u32),
        documents: false,
    };
    (from..from + random.below(6), keys, rules, 1 + random.below(6), 1 + random.below(9))
}

pub(super) fn right(steps: &dyn Attend, case: &Case) -> Result<(), String> {
    let (queries, keys, rules, most, least) = case.clone();
    let got = steps.pieces(queries.clone(), keys, &rules, most, least);
    let what =
        format!("queries {queries:?}, {keys} keys, {rules:?}, at most {most} pieces of at least {least}");
    same(&what, &got, &pieces(case))
}

/// From the first key that some query sees to the last, cut by dealing keys out.
fn pieces((queries, keys, rules, most, least): &Case) -> Vec<Range<usize>> {
    let sees = |query: usize, key: usize| {
        let before =
            !rules.causal || key <= query || rules.prefix.is_some_and(|prefix| key < prefix as usize);
        before && rules.window.is_none_or(|window| query.abs_diff(key) < window as usize)
    };
    let seen: Vec<usize> = (0..*keys).filter(|key| queries.clone().any(|query| sees(query, *key))).collect();
    let (Some(first), Some(last)) = (seen.first(), seen.last()) else { return Vec::new() };
    let all = last + 1 - first;
    let count = (1..=*most).rev().find(|count| all / count >= *least).unwrap_or(1);
    let mut lengths = vec![0; count];
    (0..all).for_each(|key| lengths[key % count] += 1);
    let mut from = *first;
    let piece = |length: usize| {
        from += length;
        from - length..from
    };
    lengths.into_iter().map(piece).collect()
}
