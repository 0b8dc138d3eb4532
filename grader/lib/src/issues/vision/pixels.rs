//! D.24: an image in another size, and its patches.

use challenges::issues::vision::{Cut, Image, Normalization, Size, Vision};

use super::super::part::likely;
use super::{Check, Rows, drawn};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("smaller", |steps, random| resized(steps, [40, 30], [10, 10], random)),
    ("larger", |steps, random| resized(steps, [7, 9], [28, 56], random)),
    ("along-one-axis", |steps, random| {
        resized(steps, [12, 20], [12, 9], random)?;
        resized(steps, [12, 20], [31, 20], random)
    }),
    ("the-same-size", |steps, random| {
        let image = drawn::image(Size::new(9, 14), random);
        equal(&image, image.size, &steps.resized(&image, image.size), &image)
    }),
    ("one-pixel", |steps, random| {
        resized(steps, [1, 1], [5, 3], random)?;
        resized(steps, [20, 31], [1, 1], random)?;
        resized(steps, [1, 40], [28, 28], random)
    }),
    ("a-constant-image", |steps, _| {
        [0, 1, 128, 254, 255].into_iter().try_for_each(|byte| {
            let image = Image::new(Size::new(19, 23), vec![byte; 19 * 23 * 3]);
            let want = |to: Size| Image::new(to, vec![byte; to.area() * 3]);
            [Size::new(7, 8), Size::new(56, 28), Size::new(1, 100)]
                .into_iter()
                .try_for_each(|to| equal(&image, to, &steps.resized(&image, to), &want(to)))
        })
    }),
    // the kernel is below 0 on both sides of its middle: what it gives is cut to a byte
    ("black-beside-white", |steps, _| {
        let bytes = |at: usize| if at / 30 % 2 == 0 { 0 } else { 255 };
        let image = Image::new(Size::new(20, 20), (0..1200).map(bytes).collect());
        [Size::new(56, 56), Size::new(13, 29), Size::new(5, 90)]
            .into_iter()
            .try_for_each(|to| equal(&image, to, &steps.resized(&image, to), &image.resized(to)))
    }),
    ("far-smaller", |steps, random| resized(steps, [700, 3], [2, 3], random)),
    ("sizes-drawn", |steps, random| {
        (0..60).try_for_each(|_| {
            let (from, to) = (drawn::size(60, random), drawn::size(60, random));
            resized(steps, [from.height, from.width], [to.height, to.width], random)
        })
    }),
    ("patches-of-a-group", |steps, random| cut(steps, [4, 8], CUT, random)),
    ("patches-of-all-sizes", |steps, random| {
        cut(steps, [28, 56], Cut { patch: 14, merge: 2, frames: 2 }, random)?;
        cut(steps, [6, 9], Cut { patch: 3, merge: 1, frames: 1 }, random)?;
        cut(steps, [18, 9], Cut { patch: 1, merge: 3, frames: 3 }, random)
    }),
    ("patches-drawn", |steps, random| {
        (0..40).try_for_each(|_| {
            let of =
                Cut { patch: 1 + random.below(5), merge: 1 + random.below(3), frames: 1 + random.below(3) };
            let factor = of.patch * of.merge;
            cut(steps, [factor * (1 + random.below(4)), factor * (1 + random.below(4))], of, random)
        })
    }),
    ("other-means", |steps, random| {
        let by = Normalization { mean: [0.5; 3], std: [0.5, 0.25, 0.125] };
        floats(steps, &drawn::image(Size::new(8, 8), random), CUT, &by)
    }),
];

/// Four patches of two pixels to a group.
const CUT: Cut = Cut { patch: 2, merge: 2, frames: 2 };

pub(super) fn resized(
    steps: &dyn Vision,
    from: [usize; 2],
    to: [usize; 2],
    random: &mut Random,
) -> Result<(), String> {
    let image = drawn::image(Size::new(from[0], from[1]), random);
    let to = Size::new(to[0], to[1]);
    let got = steps.resized(&image, to);
    likely(equal(&image, to, &got, &image.resized(to)), || {
        // an axis that keeps its size is copied
        let down = image.resized(Size::new(to.height, image.size.width));
        (got == down.resized(to)).then_some("columns are resampled before rows")
    })
}

/// The first pixel that differs, by its place.
pub(super) fn equal(image: &Image, to: Size, got: &Image, want: &Image) -> Result<(), String> {
    let what = format!("{} to {to}", image.size);
    if got.size != want.size || got.pixels.len() != want.pixels.len() {
        return Err(format!("{what}: got {} with {} bytes", got.size, got.pixels.len()));
    }
    let Some(at) = (0..want.pixels.len()).find(|at| got.pixels[*at] != want.pixels[*at]) else {
        return Ok(());
    };
    let (row, column, colour) = (at / 3 / to.width, at / 3 % to.width, at % 3);
    let count = got.pixels.iter().zip(&want.pixels).filter(|(got, want)| got != want).count();
    Err(format!(
        "{what}: colour {colour} of row {row}, column {column}: got {}, want {}; {count} bytes of {} differ",
        got.pixels[at],
        want.pixels[at],
        want.pixels.len()
    ))
}

fn cut(steps: &dyn Vision, size: [usize; 2], cut: Cut, random: &mut Random) -> Result<(), String> {
    let image = drawn::image(Size::new(size[0], size[1]), random);
    floats(steps, &image, cut, &Normalization::CLIP)
}

fn floats(steps: &dyn Vision, image: &Image, cut: Cut, by: &Normalization) -> Result<(), String> {
    let (want, _) = image.patches(cut, by).map_err(|error| error.to_string())?;
    let got = steps.patches(image, cut, by);
    let what = format!("the patches {cut:?} of {}", image.size);
    if got.len() != want.len() {
        return Err(format!("{what}: got {} floats, want {}", got.len(), want.len()));
    }
    let Some(at) = (0..want.len()).find(|at| got[*at].to_bits() != want[*at].to_bits()) else {
        return Ok(());
    };
    let wide = 3 * cut.frames * cut.patch * cut.patch;
    let words =
        format!("{what}: float {} of patch {}: got {}, want {}", at % wide, at / wide, got[at], want[at]);
    likely(Err(words), || {
        if got.iter().zip(&want).all(|(got, want)| (got - want).abs() <= 1e-5) {
            return Some("another rounding: mean and std become f32, then their products with 255");
        }
        let in_reading_order =
            image.patches(Cut { merge: 1, ..cut }, by).is_ok_and(|(floats, _)| floats == got);
        in_reading_order.then_some("patches stand in reading order, and not group by group")
    })
}
