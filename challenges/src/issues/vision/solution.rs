//! (D) `issues`, part `vision`: images in conversations, from pixels to a batch.

use std::ops::Range;

use challenges::issues::vision::{
    Batch, COLOURS, Cut, Error, Grid, Image, LARGEST_AREA, LARGEST_RATIO, LONGEST_EDGE, Normalization,
    Placeholders, Positions, Row, Rule, Sample, Side, Size, Vision,
};
use reference::loss::IGNORED;

/// The attempt.
pub struct Solution;

impl Vision for Solution {
    // ANCHOR: vision-step-23
    // why: a limit is what makes images fit, so it can be given; a tower with one learned position for each patch reads
    // one size, and a limit that it cannot keep is better refused than ignored.
    // step D.23: put the size that is given into the rule
    fn limited(&self, rule: Rule, given: Option<usize>) -> Result<Rule, Error> {
        let Some(got) = given else { return Ok(rule) };
        match rule {
            Rule::Crop { edge } if edge != got => Err(Error::Limit { only: Some(edge), got }),
            Rule::Crop { .. } => Ok(rule),
            _ if got == 0 => Err(Error::Limit { only: None, got }),
            Rule::Area { factor, least, .. } => Ok(Rule::Area { factor, least, most: got }),
            Rule::Longest { patch, .. } => Ok(Rule::Longest { edge: got, patch }),
        }
    }

    // why: both edges go through the same expression, so the aspect stays as near as whole patches allow. A float as
    // large as an edge can be saturates when it is made a number, so no product overflows before it is looked at.
    // step D.23: find the size that an image is resized to
    fn size(&self, rule: Rule, image: Size) -> Result<Size, Error> {
        let is_edge = |edge: usize| (1..=LONGEST_EDGE).contains(&edge);
        if !is_edge(image.height) || !is_edge(image.width) {
            return Err(Error::Size { size: image });
        }
        let (h, w) = (image.height as f64, image.width as f64);
        let (longer, shorter) = (h.max(w), h.min(w));
        let both = |edge: &dyn Fn(f64) -> f64| Size::new(edge(h) as usize, edge(w) as usize);
        let to = match rule {
            Rule::Area { .. } if longer / shorter > LARGEST_RATIO => {
                return Err(Error::Ratio { ratio: longer / shorter });
            }
            Rule::Area { factor, least, most } => {
                let (factor, least, most) = (factor as f64, least as f64, most as f64);
                let round = |edge: f64| (edge / factor).round_ties_even() * factor;
                let area = round(h) * round(w);
                if area > most {
                    let by = (h * w / most).sqrt();
                    both(&|edge| factor.max((edge / by / factor).floor() * factor))
                } else if area < least {
                    let by = (least / (h * w)).sqrt();
                    both(&|edge| (edge * by / factor).ceil() * factor)
                } else {
                    both(&round)
                }
            }
            Rule::Crop { edge } => {
                let edge = edge as f64;
                both(&|side| if side > shorter { edge * side / shorter } else { edge })
            }
            Rule::Longest { edge, patch } => {
                let (by, patch) = ((longer / edge as f64).max(1.0), patch as f64);
                both(&|side| ((side / by).floor() / patch).ceil() * patch)
            }
        };
        if is_edge(to.height) && is_edge(to.width) && to.height.saturating_mul(to.width) <= LARGEST_AREA {
            Ok(to)
        } else {
            Err(Error::Resized { size: image, to })
        }
    }
    // ANCHOR_END: vision-step-23

    // ANCHOR: vision-step-24
    // why: a kernel of two axes is a product of two of one, so each pass reads a handful of pixels, not a square of
    // them. Both passes are one function: along the rows a pixel's neighbours are 3 bytes apart, along the columns a
    // row's width.
    // step D.24: resample the image along its rows, then along its columns
    fn resized(&self, image: &Image, to: Size) -> Image {
        let Size { height, width } = image.size;
        let across = along(&image.pixels, [height, width, COLOURS], to.width);
        let down = along(&across, [1, height, to.width * COLOURS], to.height);
        Image::new(to, down)
    }

    // why: a tower merges the patches of a square, and takes those that follow each other for one. The loops are the
    // dimensions of (H/mp, W/mp, m, m, 3, T, p, p) in their order.
    // step D.24: cut the image into patches, those of a group together
    fn patches(&self, image: &Image, cut: Cut, by: &Normalization) -> Vec<f32> {
        let Cut { patch, merge, frames } = cut;
        let Size { height, width } = image.size;
        let table = floats(by);
        let mut all = Vec::with_capacity(height * width * COLOURS * frames);
        for group in 0..height / (patch * merge) * (width / (patch * merge)) {
            let groups = width / (patch * merge);
            let (top, left) = (group / groups * merge, group % groups * merge);
            for (row, column) in (0..merge * merge).map(|i| (top + i / merge, left + i % merge)) {
                for (colour, table) in table.iter().enumerate() {
                    let first = all.len();
                    for y in row * patch..(row + 1) * patch {
                        let pixels =
                            (column * patch..(column + 1) * patch).map(|x| (y * width + x) * COLOURS);
                        all.extend(pixels.map(|at| table[usize::from(image.pixels[at + colour])]));
                    }
                    let frame = first..all.len();
                    (1..frames).for_each(|_| all.extend_from_within(frame.clone()));
                }
            }
        }
        all
    }
    // ANCHOR_END: vision-step-24

    // ANCHOR: vision-step-25
    // why: tokens are replaced, not text: a placeholder is a token of its own, so nothing around it is encoded in
    // another way, and the mask of the assistant's tokens moves along.
    // step D.25: put an image's tokens where its placeholder is
    fn expanded(&self, sample: &Sample, by: &Placeholders) -> Result<Row, Error> {
        let placeholders = sample.ids.iter().filter(|id| **id == by.image()).count();
        if placeholders != sample.grids.len() {
            return Err(Error::Images { placeholders, images: sample.grids.len() });
        }
        let (mut row, mut images) = (Row::default(), sample.grids.iter().copied());
        for (&id, &trained) in sample.ids.iter().zip(&sample.trained) {
            let start = row.ids.len();
            match if id == by.image() { images.next() } else { None } {
                None => row.ids.push(id),
                Some(grid) => {
                    write_tokens(by, grid, &mut row.ids)?;
                    row.images.push((start..row.ids.len(), grid));
                }
            }
            row.trained.resize(row.ids.len(), trained);
        }
        Ok(row)
    }

    // why: an image is a square in a text: its tokens share where they begin, and a text after it goes on where the
    // longer edge ends, so a large image moves what follows by its edge and not by its area.
    // step D.25: count the positions of three axes
    fn positions(&self, row: &Row, by: &Placeholders) -> Positions {
        let mut axes = [const { Vec::new() }; 3];
        let (mut next, mut images) = (0, row.images.iter().peekable());
        while axes[0].len() < row.ids.len() {
            let token = axes[0].len();
            if let Placeholders::Qwen { merge, .. } = by
                && let Some((range, grid)) = images.next_if(|(range, _)| range.start == token)
            {
                let (h, w) = (grid.h / merge, grid.w / merge);
                for i in 0..range.len() {
                    let place = [i / (h * w), i % (h * w) / w, i % w];
                    axes.iter_mut().zip(place).for_each(|(axis, place)| axis.push(next + place as i32));
                }
                next += h.max(w) as i32;
            } else {
                for axis in &mut axes {
                    axis.push(next);
                }
                next += 1;
            }
        }
        let largest = axes.iter().flatten().max().map_or(0, |largest| largest + 1);
        Positions { axes, delta: largest - row.ids.len() as i32 }
    }
    // ANCHOR_END: vision-step-25

    // ANCHOR: vision-step-26
    // why: which tokens are the assistant's is known already, from the spans of the template. What is left to do is not
    // to ask for the tokens of an image, which nobody predicts.
    // step D.26: label the trained tokens that are no part of an image
    fn labels(&self, row: &Row) -> Vec<i32> {
        let label = |(id, trained): (&i32, &bool)| if *trained { *id } else { IGNORED };
        let mut labels: Vec<i32> = row.ids.iter().zip(&row.trained).map(label).collect();
        for (range, _) in &row.images {
            labels[range.clone()].fill(IGNORED);
        }
        labels
    }
    // ANCHOR_END: vision-step-26

    // ANCHOR: vision-step-27
    // why: one loop lays every list of a row, so that none is padded on another side. Features are numbered through the
    // batch in the order in which the tower gives them: a row without images numbers none.
    // step D.27: lay the rows side by side
    fn batch(&self, rows: &[Row], by: &Placeholders, pad: i32, side: Side) -> Batch {
        let length = rows.iter().map(|row| row.ids.len()).max().unwrap_or(0);
        let mut batch = Batch { shape: [rows.len(), length], ..Batch::default() };
        let mut axes = [const { Vec::new() }; 3];
        let mut features = 0;
        for row in rows {
            let lay = |to: &mut Vec<i32>, values: &[i32], filling: i32| {
                let room = std::iter::repeat_n(filling, length - values.len());
                match side {
                    Side::Left => to.extend(room.chain(values.iter().copied())),
                    Side::Right => to.extend(values.iter().copied().chain(room)),
                }
            };
            let mut slots = vec![0; row.ids.len()];
            for token in row.images.iter().flat_map(|(range, _)| range.clone()) {
                if row.ids[token] == by.image() {
                    features += 1;
                    slots[token] = features;
                }
            }
            let positions = self.positions(row, by);
            lay(&mut batch.ids, &row.ids, pad);
            lay(&mut batch.mask, &vec![1; row.ids.len()], 0);
            lay(&mut batch.labels, &self.labels(row), IGNORED);
            lay(&mut batch.slots, &slots, 0);
            axes.iter_mut().zip(&positions.axes).for_each(|(to, axis)| lay(to, axis, 0));
            batch.deltas.push(positions.delta);
            batch.grids.extend(row.images.iter().map(|(_, grid)| *grid));
        }
        batch.positions = axes.concat();
        batch
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

// why: weights of 16 bits and sums of 32 are what a processor multiplies eight at a time; rounding them once is what
// makes a bilinear or bicubic image of bytes the same on every machine.
// step D.24: weigh the pixels that each new one is made of
fn taps(before: usize, after: usize) -> (Taps, u32) {
    let scale = before as f64 / after as f64;
    let (wide, narrow) = (scale.max(1.0), 1.0 / scale.max(1.0));
    let exact: Vec<(usize, Vec<f64>)> = (0..after)
        .map(|i| {
            let centre = (i as f64 + 0.5) * scale;
            let first = (centre - 2.0 * wide + 0.5).max(0.0) as usize;
            let end = ((centre + 2.0 * wide + 0.5) as usize).min(before);
            let weights: Vec<f64> = (first..end).map(|j| keys((j as f64 - centre + 0.5) * narrow)).collect();
            let total: f64 = weights.iter().sum();
            (first, weights.into_iter().map(|weight| weight / total).collect())
        })
        .collect();
    let largest = exact.iter().flat_map(|(_, weights)| weights).copied().fold(0.0, f64::max);
    let scaled = |weight: f64, bits: u32| (weight * f64::from(1_u32 << bits)).round() as i32;
    let bits = (1..=22).rev().find(|bits| scaled(largest, *bits) < 1 << 15).unwrap_or(0);
    let whole = |(first, weights): (usize, Vec<f64>)| {
        (first..first + weights.len(), weights.into_iter().map(|weight| scaled(weight, bits)).collect())
    };
    (exact.into_iter().map(whole).collect(), bits)
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
    std::array::from_fn(|colour| {
        let [mean, std] = [by.mean, by.std].map(|of| of[colour] as f32 * 255.0);
        std::array::from_fn(|byte| (byte as f32 - mean) / std)
    })
}

// step D.25: write the tokens of an image
fn write_tokens(by: &Placeholders, grid: Grid, out: &mut Vec<i32>) -> Result<(), Error> {
    let Grid { t, h, w } = grid;
    let merge = if let Placeholders::Qwen { merge, .. } = *by { merge } else { 1 };
    if [t, h, w, merge].contains(&0) || h % merge != 0 || w % merge != 0 {
        return Err(Error::Grid { grid, merge });
    }
    let mut repeat = |id: i32, count: usize| out.extend(std::iter::repeat_n(id, count));
    match *by {
        Placeholders::Qwen { image, merge } => repeat(image, t * (h / merge) * (w / merge)),
        Placeholders::Llava { image, more } => repeat(image, h * w + more),
        Placeholders::Pixtral { image, row_end, end } => {
            for row in 1..=h {
                repeat(image, w);
                repeat(if row < h { row_end } else { end }, 1);
            }
        }
    }
    Ok(())
}
