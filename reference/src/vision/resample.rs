//! An image of another size: antialiased bicubic resampling of bytes, to the bit of torchvision's.
//!
//! ```text
//! out[i] = clamp((sum_j q[i,j] in[j] + 2^(P-1)) >> P, 0, 255)               along the rows, then along the columns
//! q[i,j] = round(w[i,j] 2^P)                                                 half away from 0, an i16
//! w[i,j] = k((j - c + 1/2) / s) / sum_j k((j - c + 1/2) / s)                 c = (i + 1/2) in / out, s = max(in / out, 1)
//! k(x)   = 3/2 |x|^3 - 5/2 |x|^2 + 1                                         |x| < 1      (a = -1/2)
//!        = -1/2 |x|^3 + 5/2 |x|^2 - 4 |x| + 2                                |x| < 2
//! ```
//!
//! j runs over the pixels whose middle is within 2 s of c. P is the largest number of bits, up to 22, with which the
//! largest weight of an axis still fits in an i16. The image between the two passes is made of bytes, too: it is
//! rounded twice, and an axis that keeps its size is copied.
//!
//! Sources: `_upsample_bicubic2d_aa` of torch 2.15 for u8, on which `torchvision.transforms.v2.functional.resize` with
//! `antialias` stands; Keys, "Cubic Convolution Interpolation for Digital Image Processing" (1981).

use std::ops::Range;

use super::Size;
use crate::oracles::IMAGES;

// ANCHOR: vision-image
/// An image: red, green and blue of each pixel, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its size.
    pub size: Size,
    /// (H, W, 3).
    pub pixels: Vec<u8>,
}

/// Colours of a pixel.
pub const COLOURS: usize = 3;
// ANCHOR_END: vision-image

impl Image {
    /// An image of so many pixels.
    ///
    /// # Panics
    /// If there are not 3 bytes for each.
    pub fn new(size: Size, pixels: Vec<u8>) -> Self {
        assert!(pixels.len() == size.area() * COLOURS, "{} bytes for {size:?}", pixels.len());
        Self { size, pixels }
    }

    /// The image in another size.
    ///
    /// # Panics
    /// If an edge of either size is 0.
    #[must_use]
    pub fn resized(&self, to: Size) -> Self {
        IMAGES.count();
        self.along_rows(to.width).along_columns(to.height)
    }

    /// Each row with so many pixels.
    fn along_rows(&self, width: usize) -> Self {
        let Size { height, width: before } = self.size;
        if before == width {
            return self.clone();
        }
        let taps = Taps::new(before, width);
        let mut pixels = Vec::with_capacity(height * width * COLOURS);
        for row in self.pixels.chunks(before * COLOURS) {
            for of_pixel in &taps.of {
                pixels.extend((0..COLOURS).map(|colour| taps.sum(of_pixel, |j| row[j * COLOURS + colour])));
            }
        }
        Self::new(Size { height, width }, pixels)
    }

    /// Each column with so many pixels.
    fn along_columns(&self, height: usize) -> Self {
        let Size { height: before, width } = self.size;
        if before == height {
            return self.clone();
        }
        let (taps, row) = (Taps::new(before, height), width * COLOURS);
        let mut pixels = Vec::with_capacity(height * row);
        for of_row in &taps.of {
            pixels.extend((0..row).map(|at| taps.sum(of_row, |j| self.pixels[j * row + at])));
        }
        Self::new(Size { height, width }, pixels)
    }
}

/// What each pixel along an axis is made of.
struct Taps {
    of: Vec<(Range<usize>, Vec<i32>)>,
    bits: u32,
}

impl Taps {
    fn new(before: usize, after: usize) -> Self {
        let weights: Vec<(Range<usize>, Vec<f64>)> = (0..after).map(|i| weights(i, before, after)).collect();
        let largest = weights.iter().flat_map(|(_, weights)| weights).fold(0.0_f64, |most, w| most.max(*w));
        let fits = |bits: &u32| (0.5 + largest * f64::from(1 << (bits + 1))) as i64 >= 1 << 15;
        let bits = (0..22).find(fits).unwrap_or(22);
        let whole = |weight: &f64| (weight * f64::from(1 << bits)).round() as i32;
        let of = weights.into_iter().map(|(range, weights)| (range, weights.iter().map(whole).collect()));
        Self { of: of.collect(), bits }
    }

    fn sum(&self, (range, weights): &(Range<usize>, Vec<i32>), pixel: impl Fn(usize) -> u8) -> u8 {
        let products = range.clone().zip(weights).map(|(j, weight)| weight * i32::from(pixel(j)));
        let sum = (1_i32 << self.bits >> 1) + products.sum::<i32>();
        (sum >> self.bits).clamp(0, 255) as u8
    }
}

/// Which pixels the pixel `i` is made of, and how much of each.
fn weights(i: usize, before: usize, after: usize) -> (Range<usize>, Vec<f64>) {
    let scale = before as f64 / after as f64;
    let wide = scale.max(1.0);
    let (centre, reach) = (scale * (i as f64 + 0.5), 2.0 * wide);
    let first = ((centre - reach + 0.5) as i64).max(0) as usize;
    let end = ((centre + reach + 0.5) as usize).min(before);
    let narrow = 1.0 / wide;
    let weight = |j: usize| kernel((j as f64 - centre + 0.5) * narrow);
    let weights: Vec<f64> = (first..end).map(weight).collect();
    let total: f64 = weights.iter().sum();
    (first..end, weights.iter().map(|weight| weight / total).collect())
}

/// Keys' cubic with a = -1/2.
fn kernel(x: f64) -> f64 {
    const A: f64 = -0.5;
    let x = x.abs();
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((x - 5.0) * x + 8.0) * x * A - 4.0 * A
    } else {
        0.0
    }
}
