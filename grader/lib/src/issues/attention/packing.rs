//! D.11: documents end to end.

use challenges::issues::attention::{Attend, Packing};

use super::super::part::same;
use super::{Check, Rows};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("one-row", |steps, _| right(steps, &[1, 1, 1, 2, 2, 3], 6)),
    ("padding-after", |steps, _| right(steps, &[1, 1, 0, 0, 1, 1, 1, 0], 4)),
    ("padding-before", |steps, _| right(steps, &[0, 0, 1, 1, 0, 1, 1, 1], 4)),
    ("padding-between", |steps, _| right(steps, &[1, 1, 0, 2, 2, 0, 0, 3, 0, -1, 4], 11)),
    ("the-same-number-in-another-row", |steps, _| right(steps, &[7, 7, 7, 7, 7, 7], 3)),
    ("nothing-but-padding", |steps, _| {
        right(steps, &[0, 0, -3, 0], 2)?;
        right(steps, &[], 5)
    }),
    ("rows-of-one", |steps, _| right(steps, &[1, 1, 0, 2], 1)),
    ("drawn", |steps, random| {
        (0..64).try_for_each(|_| {
            let (row, rows) = (1 + random.below(9), 1 + random.below(4));
            right(steps, &drawn(random, row, rows), row)
        })
    }),
];

/// Rows of documents, with padding before, between and after them.
pub(super) fn drawn(random: &mut Random, row: usize, rows: usize) -> Vec<i32> {
    let mut all = Vec::new();
    for _ in 0..rows {
        let (mut document, mut is_padding) = (1 + random.below(3) as i32, random.below(2) > 0);
        for _ in 0..row {
            if random.below(3) == 0 {
                is_padding = random.below(3) == 0;
                document += 1; // not the number before, after padding either
            }
            all.push(if is_padding { -(random.below(2) as i32) } else { document });
        }
    }
    all
}

pub(super) fn right(steps: &dyn Attend, documents: &[i32], row: usize) -> Result<(), String> {
    let what = format!("documents {documents:?} in rows of {row}");
    same(&what, &steps.pack(documents, row), &packing(documents, row))
}

/// Row by row, stretch by stretch.
fn packing(documents: &[i32], row: usize) -> Packing {
    let mut packing = Packing { starts: vec![0], ..Packing::default() };
    for (number, tokens) in documents.chunks(row).enumerate() {
        let mut at = 0;
        while at < tokens.len() {
            let length = tokens[at..].iter().take_while(|document| **document == tokens[at]).count();
            if tokens[at] > 0 {
                let document = packing.starts.len() as i32;
                packing.tokens.extend((at..at + length).map(|token| (number * row + token) as i32));
                packing.documents.extend(std::iter::repeat_n(document, length));
                packing.starts.push(packing.tokens.len() as i32);
            }
            at += length;
        }
    }
    packing
}
