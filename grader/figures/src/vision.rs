//! What a processor of images and texts makes: an image on its grid of patches, before and after it is resized, and a
//! batch with its masks and positions.

use super::Rect;
use super::plot::{Anchor, Ink, Plot, WIDTH};

const LEFT: f64 = 8.0;
const RIGHT: f64 = WIDTH - 8.0;

/// An image over the grid that would cut it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gridded {
    /// What it is, above it.
    pub heading: String,
    /// Rows and columns of pixels.
    pub size: [usize; 2],
    /// A patch's edge, in pixels.
    pub patch: usize,
    /// The number of each whole patch in the order in which the tower reads them, by its row and column; none, where the
    /// image is not cut.
    pub order: Vec<(usize, usize)>,
    /// The patches along an edge that become one token.
    pub merge: usize,
}

/// How high the larger image is drawn, and where images begin.
const HIGH: f64 = 170.0;
const TOP: f64 = 62.0;

/// Images side by side, at one scale: patches that are cut off at an edge are shaded.
pub fn grids(title: &str, images: &[Gridded]) -> String {
    let mut plot = Plot::new(title, &describe_grids(images));
    let most = |axis: usize| images.iter().map(|image| image.size[axis]).max().unwrap_or(1).max(1) as f64;
    let room = (RIGHT - LEFT) / images.len().max(1) as f64;
    let scale = (HIGH / most(0)).min((room - 24.0) / most(1));
    for (number, image) in images.iter().enumerate() {
        let left = LEFT + room * number as f64;
        let [rows, columns] = image.size;
        plot.text((left, TOP - 22.0), Anchor::Start, Ink::Text, &image.heading);
        let words = format!("{rows} \u{d7} {columns} pixels");
        plot.text((left, TOP - 8.0), Anchor::Start, Ink::Quiet, &words);
        gridded(&mut plot, image, (left, TOP), scale);
    }
    plot.finish(TOP + most(0) * scale + 10.0)
}

fn gridded(plot: &mut Plot, image: &Gridded, (left, top): (f64, f64), scale: f64) {
    let [rows, columns] = image.size.map(|size| size as f64 * scale);
    let patch = image.patch as f64 * scale;
    let whole = image.size.map(|size| (size / image.patch) as f64 * patch);
    plot.area((left, top), (left + columns, top + rows), Ink::Attempt, 0.1);
    if whole[0] < rows {
        plot.area((left, top + whole[0]), (left + columns, top + rows), Ink::Threshold, 0.35);
    }
    if whole[1] < columns {
        plot.area((left + whole[1], top), (left + columns, top + whole[0]), Ink::Threshold, 0.35);
    }
    for line in 0..=image.size[0] / image.patch {
        let (y, wide) = (top + line as f64 * patch, line % image.merge == 0 && !image.order.is_empty());
        plot.line((left, y), (left + columns, y), if wide { 2.0 } else { 1.0 }, ink(wide));
    }
    for line in 0..=image.size[1] / image.patch {
        let (x, wide) = (left + line as f64 * patch, line % image.merge == 0 && !image.order.is_empty());
        plot.line((x, top), (x, top + rows), if wide { 2.0 } else { 1.0 }, ink(wide));
    }
    for (number, (row, column)) in image.order.iter().enumerate() {
        let at = (left + (*column as f64 + 0.5) * patch, top + (*row as f64 + 0.5) * patch + 4.0);
        plot.text(at, Anchor::Middle, Ink::Id, &number.to_string());
    }
}

fn ink(wide: bool) -> Ink {
    if wide { Ink::Attempt } else { Ink::Grid }
}

fn describe_grids(images: &[Gridded]) -> String {
    let one = |image: &Gridded| {
        let [rows, columns] = image.size;
        let [down, across] = image.size.map(|size| size / image.patch);
        let rest = image.size.map(|size| size % image.patch);
        format!(
            "{}: {rows} by {columns} pixels, {down} by {across} whole patches of {} pixels, {} rows and {} columns of \
             pixels left over.",
            image.heading, image.patch, rest[0], rest[1]
        )
    };
    images.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// What a token of a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of the text.
    Text,
    /// Of an image, with the number of its feature.
    Image(usize),
    /// Padding.
    Padding,
}

/// A token of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// What stands in its cell.
    pub text: String,
    /// What it is.
    pub kind: Kind,
    /// Whether it has a label.
    pub labelled: bool,
    /// Its frame, row and column.
    pub places: [i32; 3],
}

const CELL: f64 = 21.0;
const ROW: f64 = 92.0;

/// A batch, row by row: each token in a cell, what is labelled underlined, and beneath it its three positions.
pub fn batch(title: &str, rows: &[Vec<Token>]) -> String {
    let mut plot = Plot::new(title, &describe_batch(rows));
    let legend = [(Kind::Text, "text"), (Kind::Image(1), "image"), (Kind::Padding, "padding")];
    let mut left = LEFT;
    for (kind, name) in legend {
        cell(&mut plot, Rect { x: left, y: 27.0, width: 12.0, height: 13.0 }, kind);
        plot.text((left + 17.0, 37.5), Anchor::Start, Ink::Quiet, name);
        left += 32.0 + 6.0 * name.len() as f64;
    }
    plot.line((left, 39.0), (left + 14.0, 39.0), 2.0, Ink::Threshold);
    plot.text((left + 19.0, 37.5), Anchor::Start, Ink::Quiet, "labelled");
    for (number, row) in rows.iter().enumerate() {
        let top = 54.0 + ROW * number as f64;
        for (line, name) in ["frame", "row", "column"].into_iter().enumerate() {
            plot.text((LEFT, top + 34.0 + 15.0 * line as f64), Anchor::Start, Ink::Quiet, name);
        }
        for (at, token) in row.iter().enumerate() {
            let x = LEFT + 52.0 + CELL * at as f64;
            cell(&mut plot, Rect { x, y: top, width: CELL - 2.0, height: 17.0 }, token.kind);
            let middle = x + CELL / 2.0 - 1.0;
            plot.text((middle, top + 12.5), Anchor::Middle, Ink::Id, &token.text);
            if token.labelled {
                plot.line((x, top + 19.0), (x + CELL - 2.0, top + 19.0), 2.0, Ink::Threshold);
            }
            for (line, place) in token.places.iter().enumerate() {
                let y = top + 34.0 + 15.0 * line as f64;
                plot.text((middle, y), Anchor::Middle, Ink::Id, &place.to_string());
            }
        }
    }
    plot.finish(54.0 + ROW * rows.len() as f64 - 14.0)
}

fn cell(plot: &mut Plot, at: Rect, kind: Kind) {
    match kind {
        Kind::Text => plot.frame(at, Ink::Grid, 0.0),
        Kind::Image(_) => plot.frame(at, Ink::Attempt, 0.2),
        Kind::Padding => plot.area((at.x, at.y), (at.x + at.width, at.y + at.height), Ink::Grid, 0.6),
    }
}

fn describe_batch(rows: &[Vec<Token>]) -> String {
    let count = |row: &[Token], is: fn(&Token) -> bool| row.iter().filter(|token| is(token)).count();
    let one = |(number, row): (usize, &Vec<Token>)| {
        format!(
            "Row {}: {} tokens of text, {} of images, {} of padding, {} labelled; the largest position is {}.",
            number + 1,
            count(row, |token| token.kind == Kind::Text),
            count(row, |token| matches!(token.kind, Kind::Image(_))),
            count(row, |token| token.kind == Kind::Padding),
            count(row, |token| token.labelled),
            row.iter().flat_map(|token| token.places).max().unwrap_or(0)
        )
    };
    rows.iter().enumerate().map(one).collect::<Vec<_>>().join(" ")
}
