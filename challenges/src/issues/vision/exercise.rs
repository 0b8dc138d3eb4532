//! (D) `issues`, part `vision`: images in conversations, from pixels to a batch.

use std::ops::Range;

use challenges::issues::vision::{
    Batch, COLOURS, Cut, Error, Grid, Image, LARGEST_AREA, LARGEST_RATIO, LONGEST_EDGE, Normalization,
    Placeholders, Positions, Row, Rule, Sample, Side, Size, Vision,
};
use reference::loss::IGNORED;

/// The attempt.
pub struct Exercise;

impl Vision for Exercise {
    // ANCHOR: vision-step-23
    // step D.23: put the size that is given into the rule
    fn limited(&self, rule: Rule, given: Option<usize>) -> Result<Rule, Error> {
        todo!("D.23: put the size that is given into the rule")
    }

    // step D.23: find the size that an image is resized to
    fn size(&self, rule: Rule, image: Size) -> Result<Size, Error> {
        todo!("D.23: find the size that an image is resized to")
    }
    // ANCHOR_END: vision-step-23

    // ANCHOR: vision-step-24
    // step D.24: resample the image along its rows, then along its columns
    fn resized(&self, image: &Image, to: Size) -> Image {
        todo!("D.24: resample the image along its rows, then along its columns")
    }

    // step D.24: cut the image into patches, those of a group together
    fn patches(&self, image: &Image, cut: Cut, by: &Normalization) -> Vec<f32> {
        todo!("D.24: cut the image into patches, those of a group together")
    }
    // ANCHOR_END: vision-step-24

    // ANCHOR: vision-step-25
    // step D.25: put an image's tokens where its placeholder is
    fn expanded(&self, sample: &Sample, by: &Placeholders) -> Result<Row, Error> {
        todo!("D.25: put an image's tokens where its placeholder is")
    }

    // step D.25: count the positions of three axes
    fn positions(&self, row: &Row, by: &Placeholders) -> Positions {
        todo!("D.25: count the positions of three axes")
    }
    // ANCHOR_END: vision-step-25

    // ANCHOR: vision-step-26
    // step D.26: label the trained tokens that are no part of an image
    fn labels(&self, row: &Row) -> Vec<i32> {
        todo!("D.26: label the trained tokens that are no part of an image")
    }
    // ANCHOR_END: vision-step-26

    // ANCHOR: vision-step-27
    // step D.27: lay the rows side by side
    fn batch(&self, rows: &[Row], by: &Placeholders, pad: i32, side: Side) -> Batch {
        todo!("D.27: lay the rows side by side")
    }
    // ANCHOR_END: vision-step-27
}

/// The pixels (outer, before, inner) with another middle dimension.
fn along(pixels: &[u8], [outer, before, inner]: [usize; 3], after: usize) -> Vec<u8> {
    if before == after {
        return pixels.to_vec();
    }
    let (taps, bits) = taps(before, after);
    let mut out = Vec::with_capacity(outer * after * inner);
    let mut sums = vec![0_i32; inner];
    for plane in pixels.chunks(before * inner) {
        for (range, weights) in &taps {
            sums.fill(1 << bits >> 1);
            for (line, weight) in plane[range.start * inner..range.end * inner].chunks(inner).zip(weights) {
                sums.iter_mut().zip(line).for_each(|(sum, byte)| *sum += weight * i32::from(*byte));
            }
            out.extend(sums.iter().map(|sum| (sum >> bits).clamp(0, 255) as u8));
        }
    }
    out
}

/// Pixels along an axis, and how much of each.
type Taps = Vec<(Range<usize>, Vec<i32>)>;

// step D.24: weigh the pixels that each new one is made of
fn taps(before: usize, after: usize) -> (Taps, u32) {
    todo!("D.24: weigh the pixels that each new one is made of")
}

/// Keys' cubic with a = -1/2, of a distance in pixels.
fn keys(x: f64) -> f64 {
    match x.abs() {
        x if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
        x if x < 2.0 => ((2.5 - 0.5 * x) * x - 4.0) * x + 2.0,
        _ => 0.0,
    }
}

// step D.24: turn each byte of each colour into a float, once
fn floats(by: &Normalization) -> [[f32; 256]; COLOURS] {
    todo!("D.24: turn each byte of each colour into a float, once")
}

// step D.25: write the tokens of an image
fn write_tokens(by: &Placeholders, grid: Grid, out: &mut Vec<i32>) -> Result<(), Error> {
    todo!("D.25: write the tokens of an image")
}
