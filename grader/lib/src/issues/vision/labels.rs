//! D.26: labels of the assistant's tokens, images left out.

use challenges::issues::vision::{Grid, Row, Vision};
use reference::loss::IGNORED;

use super::super::part::{likely, same};
use super::drawn::{IMAGE, PLACEHOLDERS};
use super::{Check, Rows, drawn};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("a-text", |steps, _| one(steps, &row(&[5, 6, 7, 8], &[0, 1, 0, 1], &[]), &[IGNORED, 6, IGNORED, 8])),
    ("an-image-in-the-question", |steps, _| {
        let row = row(&[5, IMAGE, IMAGE, 7, 8], &[0, 0, 0, 1, 1], &[(1, 3)]);
        one(steps, &row, &[IGNORED, IGNORED, IGNORED, 7, 8])
    }),
    // an assistant that draws
    ("an-image-in-the-answer", |steps, _| {
        let row = row(&[5, 6, IMAGE, IMAGE, 7], &[0, 1, 1, 1, 1], &[(2, 4)]);
        one(steps, &row, &[IGNORED, 6, IGNORED, IGNORED, 7])
    }),
    ("ends-of-rows-are-the-images", |steps, _| {
        let row = row(&[IMAGE, 3, IMAGE, 4, 3, 4], &[1; 6], &[(0, 4)]);
        one(steps, &row, &[IGNORED, IGNORED, IGNORED, IGNORED, 3, 4])
    }),
    ("all-and-nothing", |steps, _| {
        one(steps, &row(&[5, 6], &[1, 1], &[]), &[5, 6])?;
        one(steps, &row(&[5, 6], &[0, 0], &[]), &[IGNORED, IGNORED])?;
        one(steps, &row(&[], &[], &[]), &[])
    }),
    ("drawn", |steps, random| (0..200).try_for_each(|_| drawn(steps, random))),
];

fn row(ids: &[i32], trained: &[u8], images: &[(usize, usize)]) -> Row {
    let image = |(from, to): &(usize, usize)| (*from..*to, Grid::of_image(1, 1));
    Row {
        ids: ids.to_vec(),
        trained: trained.iter().map(|one| *one == 1).collect(),
        images: images.iter().map(image).collect(),
    }
}

fn one(steps: &dyn Vision, row: &Row, want: &[i32]) -> Result<(), String> {
    let got = steps.labels(row);
    likely(same(&format!("the labels of {row:?}"), &got.as_slice(), &want), || {
        let shifted = !want.is_empty() && got.len() == want.len() && got[..got.len() - 1] == want[1..];
        shifted.then_some("labels stand one token early; the shift is the loss's")
    })
}

fn drawn(steps: &dyn Vision, random: &mut Random) -> Result<(), String> {
    let by = PLACEHOLDERS[random.below(PLACEHOLDERS.len())];
    let row = drawn::sample(&by, 3, random).expanded(&by).map_err(|error| error.to_string())?;
    one(steps, &row, &row.labels())
}
