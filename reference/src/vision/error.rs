//! What can be wrong with an image, or with the images of a text.

use std::error;
use std::fmt;

use super::patches::Grid;
use super::size::{LARGEST_AREA, LARGEST_RATIO, LONGEST_EDGE, Size};

// ANCHOR: vision-errors
/// Why an image is not read by a vision tower, or a text not laid into a batch.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// An image has no pixels, or too many.
    Size {
        /// Its size.
        size: Size,
    },
    /// One edge of an image holds the other too often.
    Ratio {
        /// How often.
        ratio: f64,
    },
    /// A largest size that is given cannot be used.
    Limit {
        /// The only one that the model reads; `None` if it reads all above 0.
        only: Option<usize>,
        /// What is given.
        got: usize,
    },
    /// What an image would be resized to has no pixels, or too many.
    Resized {
        /// The size of the image.
        size: Size,
        /// What it would be resized to.
        to: Size,
    },
    /// An image is not made of whole groups of patches.
    Multiple {
        /// Its size.
        size: Size,
        /// What its edges are multiples of.
        factor: usize,
    },
    /// A text has more or fewer placeholders than images.
    Images {
        /// Its placeholders.
        placeholders: usize,
        /// Its images.
        images: usize,
    },
    /// The patches of an image cannot be merged.
    Grid {
        /// Its patches.
        grid: Grid,
        /// The patches along an edge that become one.
        merge: usize,
    },
}
// ANCHOR_END: vision-errors

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Size { size } => write!(
                f,
                "expected edges from 1 to {LONGEST_EDGE} pixels and an area of at most {LARGEST_AREA}, found {size}"
            ),
            Error::Ratio { ratio } => {
                write!(f, "expected a longer edge of at most {LARGEST_RATIO} shorter ones, found {ratio}")
            }
            Error::Limit { only: None, got } => write!(f, "largest size: expected at least 1, found {got}"),
            Error::Limit { only: Some(edge), got } => {
                write!(f, "largest size: expected {edge}, the only edge that the model reads, found {got}")
            }
            Error::Resized { size, to } => write!(
                f,
                "expected a size that resizes to an area from 1 to {LARGEST_AREA}, found {size}, which becomes {to}"
            ),
            Error::Multiple { size, factor } => {
                write!(f, "expected edges that are multiples of {factor}, found {size}")
            }
            Error::Images { placeholders, images } => {
                write!(f, "expected a placeholder for each of {images} images, found {placeholders}")
            }
            Error::Grid { grid, merge } => {
                write!(f, "expected rows and columns of patches that are multiples of {merge}, found {grid}")
            }
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.height, self.width)
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {} x {}", self.t, self.h, self.w)
    }
}

impl error::Error for Error {}
