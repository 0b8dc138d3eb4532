//! What is drawn for checks and measurements: images, rules, texts with images in them.

use challenges::issues::vision::{Grid, Image, Placeholders, Rule, Sample, Size};

use crate::random::Random;

/// The token of Qwen's and of LLaVA's images, and of Pixtral's patches; no text has it.
pub(super) const IMAGE: i32 = 90;

/// The ends of Pixtral's rows, which a text may have.
pub(super) const ROW_END: i32 = 3;
/// The end of Pixtral's last row.
pub(super) const END: i32 = 4;

/// Placeholders of each kind.
pub(super) const PLACEHOLDERS: [Placeholders; 5] = [
    Placeholders::Qwen { image: IMAGE, merge: 2 },
    Placeholders::Qwen { image: IMAGE, merge: 1 },
    Placeholders::Llava { image: IMAGE, more: 0 },
    Placeholders::Llava { image: IMAGE, more: 1 },
    Placeholders::Pixtral { image: IMAGE, row_end: ROW_END, end: END },
];

/// An image of drawn bytes.
pub(super) fn image(size: Size, random: &mut Random) -> Image {
    Image::new(size, random.bytes(size.area() * 3))
}

/// A size with edges up to `most`.
pub(super) fn size(most: usize, random: &mut Random) -> Size {
    let mut edge = || 1 + if random.below(4) == 0 { random.below(4.min(most)) } else { random.below(most) };
    Size::new(edge(), edge())
}

/// A rule of any kind.
pub(super) fn rule(random: &mut Random) -> Rule {
    match random.below(4) {
        0 => Rule::Crop { edge: 1 + random.below(400) },
        1 => Rule::Longest { edge: 1 + random.below(600), patch: 1 + random.below(20) },
        _ => Rule::Area {
            factor: [28, 32, 1 + random.below(40)][random.below(3)],
            least: [1, 3136][random.below(2)],
            most: 3136 + random.below(400_000),
        },
    }
}

/// A grid that can be merged.
pub(super) fn grid(by: &Placeholders, random: &mut Random) -> Grid {
    let merge = if let Placeholders::Qwen { merge, .. } = *by { merge } else { 1 };
    Grid::of_image(merge * (1 + random.below(4)), merge * (1 + random.below(5)))
}

/// A text with up to `images` images, at its ends and beside each other among the rest.
pub(super) fn sample(by: &Placeholders, images: usize, random: &mut Random) -> Sample {
    let mut sample = Sample::default();
    let mut tokens = random.below(7);
    for _ in 0..random.below(images + 1) {
        sample.ids.extend((0..tokens).map(|_| random.below(30) as i32));
        sample.ids.push(IMAGE);
        sample.grids.push(grid(by, random));
        tokens = random.below(6);
    }
    sample.ids.extend((0..tokens).map(|_| random.below(30) as i32));
    sample.trained = sample.ids.iter().map(|_| random.below(2) == 1).collect();
    sample
}

/// One of the placeholders.
pub(super) fn placeholders(random: &mut Random) -> Placeholders {
    PLACEHOLDERS[random.below(PLACEHOLDERS.len())]
}
