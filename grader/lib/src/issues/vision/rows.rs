//! D.25: placeholders as the tokens of their images, and where tokens stand.

use challenges::issues::vision::{Error, Grid, Placeholders, Positions, Row, Sample, Vision};

use super::super::part::{likely, same};
use super::drawn::{END, IMAGE, PLACEHOLDERS, ROW_END};
use super::{Check, Rows, drawn};

pub(super) const CHECKS: &Rows<Check> = &[
    ("qwen", |steps, _| {
        expanded(steps, &QWEN, &[1, IMAGE, 2], &[Grid::of_image(4, 6)], &[1, 90, 90, 90, 90, 90, 90, 2])
    }),
    ("llava", |steps, _| {
        let by = Placeholders::Llava { image: IMAGE, more: 1 };
        expanded(steps, &by, &[IMAGE, 5], &[Grid::of_image(2, 2)], &[90, 90, 90, 90, 90, 5])
    }),
    ("pixtral", |steps, _| {
        let by = PLACEHOLDERS[4];
        let want = [1, 90, 90, 90, ROW_END, 90, 90, 90, END, 2];
        expanded(steps, &by, &[1, IMAGE, 2], &[Grid::of_image(2, 3)], &want)?;
        expanded(steps, &by, &[IMAGE], &[Grid::of_image(1, 1)], &[90, END])
    }),
    ("several-images", |steps, _| {
        let grids = [Grid::of_image(2, 2), Grid::of_image(2, 6)];
        expanded(steps, &QWEN, &[IMAGE, IMAGE, 7], &grids, &[90, 90, 90, 90, 7])
    }),
    ("no-image", |steps, _| expanded(steps, &QWEN, &[5, 6], &[], &[5, 6])),
    ("no-token", |steps, _| expanded(steps, &QWEN, &[], &[], &[])),
    ("what-was-trained", |steps, _| {
        let sample = Sample {
            ids: vec![1, IMAGE, 2, IMAGE],
            trained: vec![true, false, false, true],
            grids: vec![Grid::of_image(2, 4), Grid::of_image(4, 4)],
        };
        let want = Row {
            ids: vec![1, 90, 90, 2, 90, 90, 90, 90],
            trained: vec![true, false, false, false, true, true, true, true],
            images: vec![(1..3, sample.grids[0]), (4..8, sample.grids[1])],
        };
        same(&format!("{sample:?}"), &steps.expanded(&sample, &QWEN), &Ok(want))
    }),
    ("as-many-images-as-placeholders", |steps, _| {
        let grid = Grid::of_image(2, 2);
        for (ids, grids) in [
            (vec![IMAGE, IMAGE], vec![grid]),
            (vec![1], vec![grid]),
            (vec![IMAGE], vec![]),
            (vec![IMAGE], vec![Grid::of_image(3, 3), grid]),
        ] {
            let placeholders = ids.iter().filter(|id| **id == IMAGE).count();
            let want = Error::Images { placeholders, images: grids.len() };
            refused(steps, &QWEN, ids, grids, want)?;
        }
        Ok(())
    }),
    ("grids-that-do-not-merge", |steps, _| {
        for grid in
            [Grid::of_image(2, 3), Grid::of_image(3, 2), Grid::of_image(0, 2), Grid { t: 0, h: 2, w: 2 }]
        {
            refused(steps, &QWEN, vec![IMAGE], vec![grid], Error::Grid { grid, merge: 2 })?;
        }
        let grid = Grid::of_image(0, 2);
        PLACEHOLDERS[2..]
            .iter()
            .try_for_each(|by| refused(steps, by, vec![IMAGE], vec![grid], Error::Grid { grid, merge: 1 }))
    }),
    ("rows-drawn", |steps, random| {
        (0..200).try_for_each(|_| {
            let by = drawn::placeholders(random);
            let sample = drawn::sample(&by, 3, random);
            same(&format!("{sample:?} by {by:?}"), &steps.expanded(&sample, &by), &sample.expanded(&by))
        })
    }),
    ("positions-of-a-text", |steps, _| positions(steps, &QWEN, &[5, 6, 7], &[], [&[0, 1, 2]; 3], 0)),
    // 2 rows of 3
    ("positions-of-an-image", |steps, _| {
        let want: [&[i32]; 3] =
            [&[0, 1, 1, 1, 1, 1, 1, 4, 5], &[0, 1, 1, 1, 2, 2, 2, 4, 5], &[0, 1, 2, 3, 1, 2, 3, 4, 5]];
        positions(steps, &QWEN, &[8, IMAGE, 8, 8], &[Grid::of_image(4, 6)], want, -3)
    }),
    ("positions-after-a-tall-image", |steps, _| {
        let want: [&[i32]; 3] = [&[0, 0, 0, 3], &[0, 1, 2, 3], &[0, 0, 0, 3]];
        positions(steps, &QWEN, &[IMAGE, 8], &[Grid::of_image(6, 2)], want, 0)
    }),
    ("images-beside-each-other", |steps, _| {
        let want: [&[i32]; 3] = [&[0, 0, 2, 2], &[0, 0, 2, 3], &[0, 1, 2, 2]];
        positions(steps, &QWEN, &[IMAGE, IMAGE], &[Grid::of_image(2, 4), Grid::of_image(4, 2)], want, 0)
    }),
    ("positions-of-other-models", |steps, _| {
        let counted: Vec<i32> = (0..7).collect();
        PLACEHOLDERS[2..3].iter().try_for_each(|by| {
            positions(steps, by, &[1, IMAGE, 2, 3], &[Grid::of_image(2, 2)], [&counted; 3], 0)
        })
    }),
    ("positions-of-nothing", |steps, _| positions(steps, &QWEN, &[], &[], [&[]; 3], 0)),
    ("positions-drawn", |steps, random| {
        (0..200).try_for_each(|_| {
            let by = drawn::placeholders(random);
            let row = drawn::sample(&by, 3, random).expanded(&by).map_err(|error| error.to_string())?;
            let (got, want) = (steps.positions(&row, &by), row.positions(&by));
            let what = format!("{} tokens, images {:?}, {by:?}", row.ids.len(), row.images);
            let axes = ["frames", "rows", "columns"].into_iter().zip(got.axes.iter().zip(&want.axes));
            let lists = axes.map(|(axis, (got, want))| same(&format!("the {axis} of {what}"), got, want));
            let delta = same(&format!("the delta of {what}"), &got.delta, &want.delta);
            likely(lists.collect::<Result<(), _>>().and(delta), || goes_on_late(&got, &want))
        })
    }),
];

const QWEN: Placeholders = PLACEHOLDERS[0];

fn sample(ids: &[i32], grids: &[Grid]) -> Sample {
    Sample { ids: ids.to_vec(), trained: vec![false; ids.len()], grids: grids.to_vec() }
}

fn expanded(
    steps: &dyn Vision,
    by: &Placeholders,
    ids: &[i32],
    grids: &[Grid],
    want: &[i32],
) -> Result<(), String> {
    let got = steps.expanded(&sample(ids, grids), by).map(|row| row.ids);
    same(&format!("{ids:?} with {grids:?} by {by:?}"), &got, &Ok(want.to_vec()))
}

fn refused(
    steps: &dyn Vision,
    by: &Placeholders,
    ids: Vec<i32>,
    grids: Vec<Grid>,
    want: Error,
) -> Result<(), String> {
    let sample = Sample { trained: vec![false; ids.len()], ids, grids };
    same(&format!("{sample:?} by {by:?}"), &steps.expanded(&sample, by), &Err(want))
}

fn positions(
    steps: &dyn Vision,
    by: &Placeholders,
    ids: &[i32],
    grids: &[Grid],
    want: [&[i32]; 3],
    delta: i32,
) -> Result<(), String> {
    let row = sample(ids, grids).expanded(by).map_err(|error| error.to_string())?;
    let want = Positions { axes: want.map(<[i32]>::to_vec), delta };
    let got = steps.positions(&row, by);
    likely(same(&format!("the positions of {row:?}"), &got, &want), || goes_on_late(&got, &want))
}

fn goes_on_late(got: &Positions, want: &Positions) -> Option<&'static str> {
    (got.delta == 0 && want.delta < 0)
        .then_some("a text goes on behind the tokens of an image, and not behind its longer edge")
}
