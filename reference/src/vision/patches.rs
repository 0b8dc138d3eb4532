//! Pixels as a vision tower reads them: as floats, and in the order of its patches.
//!
//! ```text
//! x[c]      = (byte - 255 mean[c]) / (255 std[c])                          in f32, the products rounded to f32 first
//! planes    (3, H, W)                                                      CLIP, LLaVA, Pixtral
//! patches   (H/mp, W/mp, m, m | 3, T, p, p)                                Qwen2-VL: patches that are merged follow each
//!                                                                          other; each holds the still image T times
//! ```
//!
//! Sources: `_fuse_mean_std_and_rescale_factor` and `center_crop` of the image processors, `patchify` of
//! `Qwen2VLImageProcessor` in the `transformers` library, 5.23.

pub use super::resample::COLOURS;
use super::resample::Image;
use super::{Error, Size};
use crate::oracles::IMAGES;

// ANCHOR: vision-patches
/// What is subtracted from each colour, and what it is divided by; of 1, not of 255.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalization {
    /// The mean of red, green and blue.
    pub mean: [f64; COLOURS],
    /// Their standard deviations, which are not 0.
    pub std: [f64; COLOURS],
}

/// How Qwen2-VL cuts an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// A patch's edge, in pixels.
    pub patch: usize,
    /// The patches along an edge that become one token.
    pub merge: usize,
    /// The frames of a patch: a still image is repeated.
    pub frames: usize,
}

/// The patches of an image: frames, rows and columns of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Groups of frames: 1 of an image.
    pub t: usize,
    /// Rows of patches.
    pub h: usize,
    /// Columns of patches.
    pub w: usize,
}
// ANCHOR_END: vision-patches

impl Normalization {
    /// Those of CLIP, which LLaVA, Qwen2-VL and Pixtral took along.
    pub const CLIP: Self =
        Self { mean: [0.48145466, 0.4578275, 0.40821073], std: [0.26862954, 0.26130258, 0.27577711] };

    /// A byte of a colour as a float.
    fn float(&self, byte: u8, colour: usize) -> f32 {
        let [mean, std] = [self.mean, self.std].map(|of| of[colour] as f32 * 255.0);
        (f32::from(byte) - mean) / std
    }
}

impl Grid {
    /// That of an image of so many rows and columns of patches.
    pub fn of_image(h: usize, w: usize) -> Self {
        Self { t: 1, h, w }
    }

    /// Patches.
    pub fn patches(self) -> usize {
        self.t.saturating_mul(self.h).saturating_mul(self.w)
    }
}

impl Image {
    /// The square of that edge in the middle, with black around the image where it is smaller.
    #[must_use]
    pub fn cropped(&self, edge: usize) -> Self {
        IMAGES.count();
        let Size { height, width } = self.size;
        let from = |side: usize| (side.max(edge) - edge) / 2; // of the image
        let to = |side: usize| (edge.max(side) - side) / 2; // of the square
        let mut pixels = vec![0; edge * edge * COLOURS];
        let across = width.min(edge) * COLOURS;
        for row in 0..height.min(edge) {
            let of = ((row + from(height)) * width + from(width)) * COLOURS;
            let at = ((row + to(height)) * edge + to(width)) * COLOURS;
            pixels[at..at + across].copy_from_slice(&self.pixels[of..of + across]);
        }
        Self::new(Size::new(edge, edge), pixels)
    }

    /// Its colours one after the other, (3, H, W).
    pub fn planes(&self, by: &Normalization) -> Vec<f32> {
        IMAGES.count();
        let plane =
            |colour| self.pixels.iter().skip(colour).step_by(COLOURS).map(move |x| by.float(*x, colour));
        (0..COLOURS).flat_map(plane).collect()
    }

    /// Its patches (N, 3 T p p), in the order in which they are merged, and their grid.
    ///
    /// Fails where an edge is no multiple of the patches that are merged.
    pub fn patches(&self, cut: Cut, by: &Normalization) -> Result<(Vec<f32>, Grid), Error> {
        IMAGES.count();
        let Cut { patch, merge, frames } = cut;
        let Size { height, width } = self.size;
        let factor = patch * merge;
        if factor == 0 || !height.is_multiple_of(factor) || !width.is_multiple_of(factor) {
            return Err(Error::Multiple { size: self.size, factor });
        }
        let grid = Grid::of_image(height / patch, width / patch);
        let mut all = Vec::with_capacity(grid.patches() * COLOURS * frames * patch * patch);
        for (row, column) in merged_order(grid, merge) {
            for colour in 0..COLOURS {
                for _ in 0..frames {
                    for y in 0..patch {
                        let first = ((row * patch + y) * width + column * patch) * COLOURS + colour;
                        let across = self.pixels[first..].iter().step_by(COLOURS).take(patch);
                        all.extend(across.map(|byte| by.float(*byte, colour)));
                    }
                }
            }
        }
        Ok((all, grid))
    }
}

/// Row and column of each patch of one frame: those that are merged follow each other.
pub fn merged_order(grid: Grid, merge: usize) -> impl Iterator<Item = (usize, usize)> {
    let blocks =
        (0..grid.h / merge).flat_map(move |row| (0..grid.w / merge).map(move |column| (row, column)));
    blocks.flat_map(move |(row, column)| {
        (0..merge * merge).map(move |i| (row * merge + i / merge, column * merge + i % merge))
    })
}
