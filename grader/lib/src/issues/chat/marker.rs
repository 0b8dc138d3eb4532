//! D.5 and D.6: markers in a text that may go on, and which of them wins.

use std::ops::Range;

use challenges::issues::chat::{Find, MarkerState, Match, Next, Steps};

use super::super::part::same;
use super::{Check, Rows, calls};
use crate::random::Random;

pub(super) const PLACES: &Rows<Check> = &[
    ("there", |steps, _| {
        one(steps, "ab<x>cd<x>", "<x>", Find::Found(2))
            .and_then(|()| one(steps, "<x>", "<x>", Find::Found(0)))
    }),
    ("nowhere", |steps, _| {
        one(steps, "abc", "<x>", Find::Pending(3)).and_then(|()| one(steps, "", "<x>", Find::Pending(0)))
    }),
    ("begun", |steps, _| {
        one(steps, "ab<x", "<x>", Find::Pending(2))
            .and_then(|()| one(steps, "ab<x ", "<x>", Find::Pending(5)))
    }),
    ("begun-twice", |steps, _| {
        one(steps, "aabaa", "aabaab", Find::Pending(0))
            .and_then(|()| one(steps, "<<<", "<<|", Find::Pending(1)))
    }),
    ("characters-of-several-bytes", |steps, _| {
        one(steps, "é｜", "｜x", Find::Pending(2)).and_then(|()| one(steps, "｜｜x", "｜x", Find::Found(3)))
    }),
    ("drawn", |steps, random| (0..1000).try_for_each(|_| drawn_place(steps, random))),
    ("own-calls", |steps, random| calls::all(steps, random)),
];

fn one(steps: &Steps, text: &str, marker: &str, want: Find) -> Result<(), String> {
    same(&format!("{marker:?} in {text:?}"), &steps.chat().find(text, marker), &want)
}

/// By the definition.
fn drawn_place(steps: &Steps, random: &mut Random) -> Result<(), String> {
    let mut text = |least: usize, most: usize| -> String {
        (0..least + random.below(most)).map(|_| ['a', 'b', 'é'][random.below(3)]).collect()
    };
    let (text, marker) = (text(0, 9), text(1, 4));
    let places = || (0..=text.len()).filter(|at| text.is_char_boundary(*at));
    let there = places().find(|at| text[*at..].starts_with(&marker));
    let begun = places().find(|at| marker.starts_with(&text[*at..]));
    let want = match there {
        Some(at) => Find::Found(at),
        None => Find::Pending(begun.unwrap_or(text.len())),
    };
    same(&format!("{marker:?} in {text:?}"), &steps.chat().find(&text, &marker), &want)
}

fn opens(field: &str, range: Range<usize>) -> MarkerState<'_> {
    MarkerState { field, opens: true, found: Match::At(range) }
}

fn closes(field: &str, range: Range<usize>) -> MarkerState<'_> {
    MarkerState { opens: false, ..opens(field, range) }
}

fn begun(field: &str, from: usize) -> MarkerState<'_> {
    MarkerState { field, opens: true, found: Match::Pending(from) }
}

fn never(field: &str) -> MarkerState<'_> {
    MarkerState { field, opens: true, found: Match::Never }
}

pub(super) const WINNERS: &Rows<Check> = &[
    ("the-first", |steps, _| {
        wins(steps, &[opens("b", 7..9), opens("a", 3..4), never("c")], 20, Next::Take(1))
    }),
    ("the-longest", |steps, _| {
        wins(steps, &[opens("a", 3..5), opens("b", 3..9), opens("c", 4..30)], 40, Next::Take(1))
    }),
    ("opens-before-closes", |steps, _| {
        wins(steps, &[closes("a", 3..5), opens("b", 3..5)], 20, Next::Take(1))
    }),
    ("by-name", |steps, _| wins(steps, &[opens("b", 3..5), opens("a", 3..5)], 20, Next::Take(1))),
    ("waits", |steps, _| {
        wins(steps, &[opens("a", 3..5), begun("b", 3)], 20, Next::Pending(3))
            .and_then(|()| wins(steps, &[opens("a", 3..5), begun("b", 2)], 20, Next::Pending(2)))
            .and_then(|()| wins(steps, &[opens("a", 3..5), begun("b", 4)], 20, Next::Take(0)))
    }),
    ("nothing-there", |steps, _| {
        wins(steps, &[begun("a", 9), begun("b", 7), never("c")], 12, Next::Pending(7))
            .and_then(|()| wins(steps, &[never("a")], 12, Next::Pending(12)))
            .and_then(|()| wins(steps, &[], 5, Next::Pending(5)))
    }),
    ("the-end", |steps, _| {
        wins(steps, &[never("a"), opens("b", 12..12)], usize::MAX, Next::Take(1))
            .and_then(|()| wins(steps, &[never("a")], usize::MAX, Next::Pending(usize::MAX)))
            .and_then(|()| wins(steps, &[opens("a", 3..5), begun("b", 2)], usize::MAX, Next::Pending(2)))
    }),
    ("drawn", |steps, random| (0..1000).try_for_each(|_| drawn_winner(steps, random))),
    ("own-calls", |steps, random| calls::all(steps, random)),
];

fn wins(steps: &Steps, markers: &[MarkerState], end: usize, want: Next) -> Result<(), String> {
    let what = format!("a text known up to {end} and {markers:?}");
    same(&what, &steps.chat().decide(markers, end), &want)
}

/// By the definition: of all pairs, none that is there goes before the winner, and none that may come can.
fn drawn_winner(steps: &Steps, random: &mut Random) -> Result<(), String> {
    let (length, has_ended) = (12, random.below(2) == 0);
    let end = if has_ended { usize::MAX } else { length };
    let names = ["a", "b", "c", "d", "e"];
    let markers: Vec<MarkerState> = (0..random.below(5))
        .map(|index| {
            let from = random.below(length + 1);
            let found = match random.below(4) {
                0 => Match::Never,
                1 => Match::Pending(from),
                _ => Match::At(from..(from + random.below(4)).min(length)),
            };
            MarkerState { field: names[index], opens: random.below(2) == 0, found }
        })
        .collect();
    let before = |one: &MarkerState, other: &MarkerState| match (&one.found, &other.found) {
        (Match::At(one_at), Match::At(other_at)) => {
            let ends = other_at.end.cmp(&one_at.end);
            let order = one_at.start.cmp(&other_at.start).then(ends);
            order.then(other.opens.cmp(&one.opens)).then(one.field.cmp(other.field)).is_lt()
        }
        _ => false,
    };
    let is_there = |marker: &&MarkerState| matches!(marker.found, Match::At(_));
    let first = markers.iter().filter(is_there).find(|one| !markers.iter().any(|other| before(other, one)));
    let may = markers.iter().filter_map(|marker| match marker.found {
        Match::Pending(from) => Some(from),
        _ => None,
    });
    let hold = may.min().unwrap_or(end).min(end);
    let taken = first.filter(|first| matches!(&first.found, Match::At(range) if range.start < hold));
    let index = taken.and_then(|taken| markers.iter().position(|marker| marker == taken));
    let want = index.map_or(Next::Pending(hold), Next::Take);
    same(&format!("a text known up to {end} and {markers:?}"), &steps.chat().decide(&markers, end), &want)
}
