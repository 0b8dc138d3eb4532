//! The fair tolerance: how far a compiled result may be from what a graph means.
//!
//! Three results: the truth in f64, the naive one in f32 with the roundings of the graph's own types, the compiled one.
//! The compiled one may be as far from the truth as the naive one three times, and a hundred-thousandth of the largest
//! element further: sums are taken in another order, and functions have other last bits. A product rounded to f16 is
//! off by some 50 times that, to bf16 by some 400 times. Whole numbers have to be equal.

pub mod ties;

use std::fmt;

use reference::graph::{Array, Dtype, Graph, Id};

/// Of the largest element, or of 0.1 if that is larger: where terms of the size of 1 cancel.
pub const SLACK: f64 = 1e-5;

/// What one more rounding of a number around 1 costs in the shortest float on the way to a result. Sums in another
/// order can fall on the other side of a tie there, and terms of the size of 1 cancel afterwards; where all is f32,
/// nothing is allowed for it.
pub fn rounding(graph: &Graph, result: Id) -> f64 {
    let of = |id: Id| match graph.ty(id).dtype {
        Dtype::F16 => 2.0_f64.powi(-11),
        Dtype::Bf16 => 2.0_f64.powi(-8),
        Dtype::F32 | Dtype::U8 | Dtype::I32 => 0.0,
    };
    graph.ancestors([result]).into_iter().map(of).fold(0.0, f64::max)
}

/// How a result is not what it has to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// Another type, or another shape.
    Type {
        /// What came.
        got: (Dtype, Vec<usize>),
        /// What has to come.
        want: (Dtype, Vec<usize>),
    },
    /// Other bits, where they have to be equal.
    Bits {
        /// The first such element, counted row-major.
        element: usize,
        /// What came.
        got: f64,
        /// What has to come.
        want: f64,
    },
    /// Further from the truth than is fair.
    Value {
        /// The first such element, counted row-major.
        element: usize,
        /// What came.
        got: f64,
        /// The naive result.
        naive: f64,
        /// The truth.
        truth: f64,
        /// How far from the truth it may be.
        allowed: f64,
    },
}

/// Where a result is further from the truth than the naive one, a rounding and a slack allow.
pub fn difference(
    got: &Array<f32>,
    naive: &Array<f32>,
    truth: &Array<f64>,
    rounding: f64,
) -> Option<Difference> {
    if (got.dtype, &got.shape) != (naive.dtype, &naive.shape) || !naive.dtype.is_float() {
        return other_bits(naive, got);
    }
    let (got, naive, truth) = (got.wide(), naive.wide(), truth.wide());
    let slack = slack(&truth, rounding);
    (0..got.len()).find_map(|element| {
        let (got, naive, truth) = (got[element], naive[element], truth[element]);
        let alike = (got.is_nan() && naive.is_nan()) || got.total_cmp(&naive).is_eq();
        let off = 3.0 * (naive - truth).abs();
        let allowed = if off.is_finite() { off + slack } else { slack }; // what overflowed there excuses nothing else
        let near = (got - truth).abs() <= allowed || (off.is_infinite() && (got - naive).abs() <= slack);
        let is_true = got.total_cmp(&truth).is_eq(); // infinite, where the plain result is not a number
        (!alike && !near && !is_true).then_some(Difference::Value { element, got, naive, truth, allowed })
    })
}

/// How far apart two results of such numbers may be, whatever the naive ones are.
fn slack<'a>(truth: impl IntoIterator<Item = &'a f64>, rounding: f64) -> f64 {
    let largest = truth.into_iter().filter(|x| x.is_finite()).fold(0.0_f64, |max, x| max.max(x.abs()));
    SLACK * largest.max(0.1) + rounding * largest.max(1.0)
}

/// The first element whose bits are others; any NaN is as good as another.
pub fn other_bits(want: &Array<f32>, got: &Array<f32>) -> Option<Difference> {
    if (got.dtype, &got.shape) != (want.dtype, &want.shape) {
        let [got, want] = [got, want].map(|array| (array.dtype, array.shape.clone()));
        return Some(Difference::Type { got, want });
    }
    let (want, got) = (want.wide(), got.wide());
    let differs = |i: &usize| {
        let (want, got) = (want[*i], got[*i]);
        want.to_bits() != got.to_bits() && !(want.is_nan() && got.is_nan())
    };
    let element = (0..want.len()).find(differs)?;
    Some(Difference::Bits { element, got: got[element], want: want[element] })
}

impl Difference {
    /// The element, counted row-major; `None` if all of it is of another type.
    pub fn element(&self) -> Option<usize> {
        match self {
            Self::Type { .. } => None,
            Self::Bits { element, .. } | Self::Value { element, .. } => Some(*element),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type { got, want } => write!(f, "got {got:?}, want {want:?}"),
            Self::Bits { element, got, want } => {
                write!(f, "element {element}: got {got:?}, want {want:?}, to the bit")
            }
            Self::Value { element, got, naive, truth, .. } => {
                write!(
                    f,
                    "element {element}: got {got:e}, want {naive:e} (plain f32), the truth is {truth:e}"
                )
            }
        }
    }
}

/// The distance between neighbouring values of a type of floats around a number; `None` of whole numbers, and where the
/// number is not finite.
pub fn ulp(dtype: Dtype, around: f64) -> Option<f64> {
    let (bits, least) = match dtype {
        Dtype::F32 => (23, -126),
        Dtype::F16 => (10, -14),
        Dtype::Bf16 => (7, -126),
        Dtype::U8 | Dtype::I32 => return None,
    };
    let exponent = ((around.abs().to_bits() >> 52) as i32 - 1023).max(least);
    around.is_finite().then(|| 2.0_f64.powi(exponent - bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_plain_result_overflows_only_it_and_the_truth_are_right() {
        let of = |x: f64| Array::floats(Dtype::F32, &[2], [x, 1.0]);
        let right = |got: f64, naive: f64, truth: f64| {
            let truth = Array::<f64>::floats(Dtype::F32, &[2], [truth, 1.0]);
            difference(&of(got), &of(naive), &truth, 0.0).is_none()
        };
        let inf = f64::INFINITY;
        assert!(right(inf, inf, 3e38) && right(3e38, inf, 3e38) && right(inf, inf, inf));
        assert!(!right(1e30, inf, 3e38) && !right(-inf, inf, 3e38) && !right(f64::NAN, inf, 3e38));
        assert!(!right(3e38, inf, inf) && !right(0.0, inf, inf));
        assert!(right(7.0, 7.0, inf) && !right(9.0, 7.0, inf));
        assert!(right(-inf, f64::NAN, -inf) && !right(inf, f64::NAN, -inf) && !right(1.0, f64::NAN, -inf));
        assert!(!right(f64::NAN, -inf, -inf) && right(f64::NAN, f64::NAN, -inf));
    }

    #[test]
    fn a_unit_in_the_last_place_is_the_distance_to_the_next_value() {
        for x in [1.0_f32, 1.5, 0.1, 3e38, 1e-38, 1e-45] {
            let next = f32::from_bits(x.to_bits() + 1);
            let ulp = ulp(Dtype::F32, f64::from(x)).expect("finite");
            let apart = f64::from(next) - f64::from(x);
            assert!(next.is_infinite() || apart.total_cmp(&ulp).is_eq(), "{x}");
        }
        assert_eq!(ulp(Dtype::F16, 1.0), Some(2.0_f64.powi(-10)));
        assert_eq!(ulp(Dtype::F16, 0.0), Some(2.0_f64.powi(-24)));
        assert_eq!((ulp(Dtype::I32, 1.0), ulp(Dtype::F32, f64::NAN)), (None, None));
    }
}
