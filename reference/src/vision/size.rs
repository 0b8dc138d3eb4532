//! The size that an image is given before it is cut into patches.
//!
//! ```text
//! area      multiples of the factor, patch x merge; an area between two limits               Qwen2-VL
//!           h' = round(h / f) f;  too large: h' = floor(h / b / f) f  with b = sqrt(h w / most)
//!                                 too small: h' = ceil(h b / f) f     with b = sqrt(least / (h w))
//! crop      the shorter edge as given, then a square of it from the middle                    CLIP, LLaVA
//!           long' = trunc(edge long / short)
//! longest   no edge above the given one, then filled up to whole patches                      Pixtral
//!           h' = ceil(floor(h / r) / p) p     with r = max(h, w) / edge, if it is above 1
//! ```
//!
//! All quotients are of f64, and `round` takes a half to the even neighbour, as Python's does: an image of 42 pixels is
//! one and a half factors of 28, and becomes two; one of 70 becomes two as well.
//!
//! Sources: `smart_resize` of `Qwen2VLImageProcessor`, `get_resize_output_image_size` of `image_transforms` and of
//! `PixtralImageProcessor` in the `transformers` library, 5.23; Wang et al., "Qwen2-VL" (2024), section 2.1.

use super::Error;
use crate::oracles::IMAGES;

// ANCHOR: vision-sizes
/// How images are sized for a vision tower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Multiples of a factor, and an area between two limits.
    Area {
        /// What both edges are multiples of: a patch's edge times the patches that are merged along it.
        factor: usize,
        /// The least area, in pixels.
        least: usize,
        /// The largest area, in pixels.
        most: usize,
    },
    /// The shorter edge, and then a square out of the middle: a tower whose positions are learned reads no other size.
    Crop {
        /// The edge.
        edge: usize,
    },
    /// A longest edge, and whole patches.
    Longest {
        /// The edge.
        edge: usize,
        /// A patch's edge.
        patch: usize,
    },
}

/// The size of an image, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

/// The longest edge of an image, in pixels: products of two are exact in f64.
pub const LONGEST_EDGE: usize = 1 << 24;

/// The largest area of an image, before it is resized and after, in pixels: 192 MiB as bytes.
pub const LARGEST_AREA: usize = 1 << 26;

/// How often the longer edge of an image may hold the shorter one, where a rule bounds the area.
pub const LARGEST_RATIO: f64 = 200.0;
// ANCHOR_END: vision-sizes

impl Size {
    /// A size of so many rows and columns.
    pub fn new(height: usize, width: usize) -> Self {
        Self { height, width }
    }

    /// Pixels.
    pub fn area(self) -> usize {
        self.height.saturating_mul(self.width)
    }

    /// The same, if an image may have it.
    ///
    /// Fails where an edge is 0 or longer than [`LONGEST_EDGE`], or the area is above [`LARGEST_AREA`].
    pub fn checked(self) -> Result<Self, Error> {
        let Self { height, width } = self;
        let edges = 1..=LONGEST_EDGE;
        if !edges.contains(&height) || !edges.contains(&width) || self.area() > LARGEST_AREA {
            return Err(Error::Size { size: self });
        }
        Ok(self)
    }
}

impl Rule {
    /// The same with the largest size that is given, if one is: the area of [`Rule::Area`] in pixels, the longest edge
    /// of [`Rule::Longest`] in pixels. Without one it stays as the model's config has it.
    ///
    /// Fails where the size is 0, or another than the only one that a [`Rule::Crop`] makes.
    pub fn at_most(self, given: Option<usize>) -> Result<Self, Error> {
        IMAGES.count();
        match (self, given) {
            (rule, None) => Ok(rule),
            (Rule::Area { .. } | Rule::Longest { .. }, Some(0)) => Err(Error::Limit { only: None, got: 0 }),
            (Rule::Area { factor, least, .. }, Some(most)) => Ok(Rule::Area { factor, least, most }),
            (Rule::Longest { patch, .. }, Some(edge)) => Ok(Rule::Longest { edge, patch }),
            (Rule::Crop { edge }, Some(given)) if edge == given => Ok(self),
            (Rule::Crop { edge }, Some(got)) => Err(Error::Limit { only: Some(edge), got }),
        }
    }

    /// The size that an image is resized to; of [`Rule::Crop`] before it is cropped.
    ///
    /// Fails where an edge of the image is 0 or above [`LONGEST_EDGE`]; where its edges differ by more than
    /// [`LARGEST_RATIO`] and the rule bounds the area; where nothing would be left of an edge; and where the result
    /// would be larger than [`LARGEST_AREA`].
    pub fn size(self, image: Size) -> Result<Size, Error> {
        IMAGES.count();
        let edges = [image.height, image.width];
        if edges.iter().any(|edge| !(1..=LONGEST_EDGE).contains(edge)) {
            return Err(Error::Size { size: image });
        }
        let [h, w] = edges.map(|edge| edge as f64);
        let sized = match self {
            Rule::Area { factor, least, most } => area([h, w], factor as f64, least as f64, most as f64)?,
            Rule::Crop { edge } => {
                let longer = (edge as f64 * h.max(w) / h.min(w)).trunc();
                if h < w { [edge as f64, longer] } else { [longer, edge as f64] }
            }
            Rule::Longest { edge, patch } => {
                let ratio = (h / edge as f64).max(w / edge as f64).max(1.0);
                [h, w].map(|side| ((side / ratio).floor() / patch as f64).ceil() * patch as f64)
            }
        };
        let [height, width] = sized.map(|side| side as usize); // saturates
        Size { height, width }
            .checked()
            .map_err(|_| Error::Resized { size: image, to: Size { height, width } })
    }
}

/// Multiples of the factor with an area from `least` to `most`.
fn area([h, w]: [f64; 2], factor: f64, least: f64, most: f64) -> Result<[f64; 2], Error> {
    let ratio = h.max(w) / h.min(w);
    if ratio > LARGEST_RATIO {
        return Err(Error::Ratio { ratio });
    }
    let rounded = [h, w].map(|side| (side / factor).round_ties_even() * factor);
    let area = rounded[0] * rounded[1];
    Ok(if area > most {
        let by = (h * w / most).sqrt();
        [h, w].map(|side| factor.max((side / by / factor).floor() * factor))
    } else if area < least {
        let by = (least / (h * w)).sqrt();
        [h, w].map(|side| (side * by / factor).ceil() * factor)
    } else {
        rounded
    })
}
