//! D.27: rows side by side.

use challenges::issues::vision::{Batch, Grid, Placeholders, Row, Sample, Side, Vision};
use reference::loss::IGNORED;

use super::super::part::same;
use super::drawn::{IMAGE, PLACEHOLDERS};
use super::{Check, Rows, drawn};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("padding-on-the-right", |steps, _| {
        let want = Batch {
            shape: [2, 3],
            ids: vec![90, 8, 7, 5, 0, 0],
            mask: vec![1, 1, 1, 1, 0, 0],
            labels: vec![IGNORED, 8, 7, 5, IGNORED, IGNORED],
            positions: [[0, 1, 2, 0, 0, 0]; 3].concat(),
            deltas: vec![0, 0],
            slots: vec![1, 0, 0, 0, 0, 0],
            grids: vec![Grid::of_image(2, 2)],
        };
        same("a text with an image and a shorter one", &steps.batch(&two()?, &QWEN, 0, Side::Right), &want)
    }),
    ("padding-on-the-left", |steps, _| {
        let want = Batch {
            shape: [2, 3],
            ids: vec![90, 8, 7, 6, 6, 5],
            mask: vec![1, 1, 1, 0, 0, 1],
            labels: vec![IGNORED, 8, 7, IGNORED, IGNORED, 5],
            positions: [[0, 1, 2, 0, 0, 0]; 3].concat(),
            deltas: vec![0, 0],
            slots: vec![1, 0, 0, 0, 0, 0],
            grids: vec![Grid::of_image(2, 2)],
        };
        same("a text with an image and a shorter one", &steps.batch(&two()?, &QWEN, 6, Side::Left), &want)
    }),
    ("texts-take-no-slot", |steps, _| {
        let rows = [row(&QWEN, &[5, 6], &[])?, row(&QWEN, &[7], &[])?];
        let batch = steps.batch(&rows, &QWEN, 0, Side::Right);
        same("the slots of texts", &batch.slots, &vec![0; 4])?;
        same("the grids of texts", &batch.grids, &Vec::new())
    }),
    ("slots-run-through-the-batch", |steps, _| {
        let grids = [Grid::of_image(2, 4), Grid::of_image(2, 2), Grid::of_image(4, 2)];
        let rows = [
            row(&QWEN, &[IMAGE], &grids[..1])?,
            row(&QWEN, &[5], &[])?,
            row(&QWEN, &[IMAGE, IMAGE, 1], &grids[1..])?,
        ];
        let batch = steps.batch(&rows, &QWEN, 0, Side::Right);
        same("slots of three rows", &batch.slots, &vec![1, 2, 0, 0, 0, 0, 0, 0, 3, 4, 5, 0])?;
        same("grids of three rows", &batch.grids, &grids.to_vec())
    }),
    ("ends-of-rows-have-no-feature", |steps, _| {
        let by = PLACEHOLDERS[4];
        let rows = [row(&by, &[IMAGE, 3, 4], &[Grid::of_image(2, 2)])?];
        same(
            "slots of Pixtral's rows",
            &steps.batch(&rows, &by, 0, Side::Right).slots,
            &vec![1, 2, 0, 3, 4, 0, 0, 0],
        )
    }),
    ("no-rows-and-empty-rows", |steps, _| {
        same("no rows", &steps.batch(&[], &QWEN, 0, Side::Left), &Batch::default())?;
        let rows = [Row::default(), Row::default()];
        let want = Batch { shape: [2, 0], deltas: vec![0, 0], ..Batch::default() };
        same("two empty rows", &steps.batch(&rows, &QWEN, 0, Side::Left), &want)?;
        let rows = [Row::default(), row(&QWEN, &[5], &[])?];
        let want = Batch::of(&rows, &QWEN, 9, Side::Left);
        same("an empty row and another", &steps.batch(&rows, &QWEN, 9, Side::Left), &want)
    }),
    ("drawn", |steps, random| (0..100).try_for_each(|_| drawn(steps, random))),
];

const QWEN: Placeholders = PLACEHOLDERS[0];

fn row(by: &Placeholders, ids: &[i32], grids: &[Grid]) -> Result<Row, String> {
    let sample = Sample { ids: ids.to_vec(), trained: vec![true; ids.len()], grids: grids.to_vec() };
    sample.expanded(by).map_err(|error| error.to_string())
}

fn two() -> Result<[Row; 2], String> {
    Ok([row(&QWEN, &[IMAGE, 8, 7], &[Grid::of_image(2, 2)])?, row(&QWEN, &[5], &[])?])
}

fn drawn(steps: &dyn Vision, random: &mut Random) -> Result<(), String> {
    let by = drawn::placeholders(random);
    let rows = (0..random.below(5)).map(|_| drawn::sample(&by, 2, random).expanded(&by));
    let rows: Vec<Row> = rows.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let (pad, side) = (random.below(40) as i32, [Side::Left, Side::Right][random.below(2)]);
    let (got, want) = (steps.batch(&rows, &by, pad, side), Batch::of(&rows, &by, pad, side));
    let what = format!("{} rows by {by:?}, {pad} on the {side:?}", rows.len());
    let shape = want.shape;
    same(&format!("{what}: shape"), &got.shape, &shape)?;
    let lists = [
        ("ids", &got.ids, &want.ids),
        ("mask", &got.mask, &want.mask),
        ("labels", &got.labels, &want.labels),
        ("positions", &got.positions, &want.positions),
        ("slots", &got.slots, &want.slots),
    ];
    lists
        .into_iter()
        .try_for_each(|(name, got, want)| row_by_row(&format!("{what}: {name}"), shape, got, want))?;
    same(&format!("{what}: deltas"), &got.deltas, &want.deltas)?;
    same(&format!("{what}: grids"), &got.grids, &want.grids)
}

/// The first row of (.., B, T) that differs, and no more of a large batch.
fn row_by_row(what: &str, [rows, length]: [usize; 2], got: &[i32], want: &[i32]) -> Result<(), String> {
    same(&format!("{what}: how many"), &got.len(), &want.len())?;
    let mut both = got.chunks(length.max(1)).zip(want.chunks(length.max(1))).enumerate();
    both.try_for_each(|(at, (got, want))| {
        let axis = ["", " on the axis of rows", " on the axis of columns"][at / rows];
        same(&format!("{what} of row {}{axis}", at % rows), &got, &want)
    })
}
