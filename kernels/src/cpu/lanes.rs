//! The operations of a tile program on lanes of memory: plain loops, compiled once for each vector unit.
//!
//! A loop says what a lane does; the compiler makes vector instructions of it. Nothing is contracted or reordered by
//! that, so every unit gives equal bits: sums are taken in [`PARTIAL`] interleaved parts whatever the unit's width. The
//! functions are polynomials without a branch; each names its source and its largest error, which a test measures.

#![allow(unsafe_code)] // vector code: a function compiled for a unit may only be called where there is one
#![allow(clippy::inline_always)] // a body becomes vector code only inside the function compiled for a unit

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::Vector;
use crate::philox;
use crate::tile::{Binary, Compare, Element, Unary};

/// What an operation reads: a value of each lane, or one for all.
#[derive(Clone, Copy)]
pub(super) enum Operand<'a, T> {
    Lanes(&'a [T]),
    Splat(T),
}

impl<T> Operand<'_, T> {
    /// The first lanes only.
    pub fn first(self, lanes: usize) -> Self {
        match self {
            Operand::Lanes(all) => Operand::Lanes(&all[..lanes]),
            Operand::Splat(one) => Operand::Splat(one),
        }
    }
}

/// Interleaved parts of a sum: element i is added to part i mod 16, and the parts in a tree.
pub(super) const PARTIAL: usize = 16;

/// Compiles a function for each vector unit, under its own name with the unit in front.
macro_rules! per_unit {
    ($(#[$doc:meta])* $name:ident, $body:ident ( $($arg:ident : $type:ty),* )) => {
        $(#[$doc])*
        pub(super) fn $name(unit: Vector, $($arg: $type),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,f16c")]
                fn avx512($($arg: $type),*) { $body($($arg),*) }
                #[target_feature(enable = "avx2,f16c")]
                fn avx2($($arg: $type),*) { $body($($arg),*) }
                match unit {
                    // SAFETY: the unit is one that `Vector::available` found.
                    Vector::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    Vector::Avx2 => return unsafe { avx2($($arg),*) },
                    _ => {}
                }
            }
            _ = unit;
            $body($($arg),*)
        }
    };
}

per_unit!(
    /// `to[i] = f(a[i])`
    unary, unary_lanes(unary: Unary, a: Operand<'_, f32>, to: &mut [f32])
);
per_unit!(
    /// `to[i] = f(a[i], b[i])`
    binary, binary_lanes(binary: Binary, a: Operand<'_, f32>, b: Operand<'_, f32>, to: &mut [f32])
);
per_unit!(
    /// `to[i] = f(a[i], b[i])` of whole numbers; a division by 0 gives 0, and is the caller's to find.
    binary_whole, whole_lanes(binary: Binary, a: Operand<'_, i32>, b: Operand<'_, i32>, to: &mut [i32])
);
per_unit!(
    /// `to[i] = f(a[i], b[i])`, 1 or 0
    compare, compare_lanes(compare: Compare, a: Operand<'_, f32>, b: Operand<'_, f32>, to: &mut [i32])
);
per_unit!(
    /// `to[i] = f(a[i], b[i])`, 1 or 0
    compare_whole, compare_whole_lanes(compare: Compare, a: Operand<'_, i32>, b: Operand<'_, i32>, to: &mut [i32])
);
per_unit!(
    /// `to[i] = c[i] != 0 ? a[i] : b[i]`
    select, select_lanes(c: Operand<'_, i32>, a: Operand<'_, f32>, b: Operand<'_, f32>, to: &mut [f32])
);
per_unit!(
    /// `to[i] = c[i] != 0 ? a[i] : b[i]`
    select_whole, select_lanes(c: Operand<'_, i32>, a: Operand<'_, i32>, b: Operand<'_, i32>, to: &mut [i32])
);
per_unit!(
    /// `to[i] = a[i]` rounded to f16 or bf16
    round, round_lanes(element: Element, a: Operand<'_, f32>, to: &mut [f32])
);
per_unit!(
    /// `to[i] = a[i]`
    to_float, to_float_lanes(a: Operand<'_, i32>, to: &mut [f32])
);
per_unit!(
    /// `to[i] = a[i]` towards zero
    to_whole, to_whole_lanes(a: Operand<'_, f32>, to: &mut [i32])
);
per_unit!(
    /// `to[i]` = whether the first word of Philox at (index[i], stream, 0, 0) is below the threshold, 1 or 0
    random_mask, random_lanes(
        key: [Operand<'_, i32>; 2], index: Operand<'_, i32>, stream: u32, threshold: u64, to: &mut [i32]
    )
);
per_unit!(
    /// Adds the lanes to the parts of a sum.
    sum, sum_lanes(a: Operand<'_, f32>, lanes: usize, parts: &mut [f32; PARTIAL])
);
per_unit!(
    /// Takes the lanes into the parts of a maximum.
    max, max_lanes(a: Operand<'_, f32>, lanes: usize, parts: &mut [f32; PARTIAL])
);

per_unit!(
    /// `row[i] = e^(row[i] - base)`, added to the parts of a sum
    exp_and_sum, exp_and_sum_lanes(row: &mut [f32], base: f32, parts: &mut [f32; PARTIAL])
);
per_unit!(
    /// `to[i] *= factor`
    stretch, stretch_lanes(to: &mut [f32], factor: f32)
);
per_unit!(
    /// `to[i] = p[i] * (to[i] - delta)`
    slope, slope_lanes(p: &[f32], delta: f32, to: &mut [f32])
);
per_unit!(
    /// -inf where bit i % 16 of word i / 16 is 0
    forbid, forbid_lanes(allowed: &[u16], to: &mut [f32])
);
per_unit!(
    /// `to[i] += a[i]`
    add, add_lanes(a: &[f32], to: &mut [f32])
);
per_unit!(
    /// Adds `a[i] * b[i]` to the parts of a sum.
    dot, dot_lanes(a: &[f32], b: &[f32], parts: &mut [f32; PARTIAL])
);
per_unit!(
    /// `to[i] = first + i`
    count, count_lanes(first: i32, to: &mut [i32])
);
per_unit!(
    /// Floats of memory as f32.
    widen_bf16, widen_bf16_lanes(from: &[bf16], to: &mut [f32])
);
per_unit!(
    /// f32 rounded to memory's type.
    narrow_bf16, narrow_bf16_lanes(from: &[f32], to: &mut [bf16])
);

#[inline(always)]
fn exp_and_sum_lanes(row: &mut [f32], base: f32, parts: &mut [f32; PARTIAL]) {
    let (whole, rest) = row.as_chunks_mut::<PARTIAL>();
    let mut sums = *parts; // in registers
    for chunk in whole {
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *x = exp(*x - base);
            *sum += *x;
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *x = exp(*x - base);
        *sum += *x;
    }
    *parts = sums;
}

#[inline(always)]
fn add_lanes(a: &[f32], to: &mut [f32]) {
    to.iter_mut().zip(a).for_each(|(to, a)| *to += a);
}

#[inline(always)]
fn stretch_lanes(to: &mut [f32], factor: f32) {
    for to in to {
        *to *= factor;
    }
}

#[inline(always)]
fn count_lanes(first: i32, to: &mut [i32]) {
    to.iter_mut().zip(0..).for_each(|(to, i)| *to = first.wrapping_add(i));
}

#[inline(always)]
fn forbid_lanes(allowed: &[u16], to: &mut [f32]) {
    let (whole, rest) = to.as_chunks_mut::<16>();
    let words = allowed.iter().copied();
    let mut rest = [rest].into_iter().zip(words.clone().skip(whole.len()));
    for (chunk, word) in whole.iter_mut().zip(words) {
        for (i, x) in chunk.iter_mut().enumerate() {
            *x = if (word >> i) & 1 == 1 { *x } else { f32::NEG_INFINITY };
        }
    }
    if let Some((rest, word)) = rest.next() {
        for (i, x) in rest.iter_mut().enumerate() {
            *x = if (word >> i) & 1 == 1 { *x } else { f32::NEG_INFINITY };
        }
    }
}

#[inline(always)]
fn slope_lanes(p: &[f32], delta: f32, to: &mut [f32]) {
    to.iter_mut().zip(p).for_each(|(to, p)| *to = p * (*to - delta));
}

#[inline(always)]
fn dot_lanes(a: &[f32], b: &[f32], parts: &mut [f32; PARTIAL]) {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<PARTIAL>(), b.as_chunks::<PARTIAL>());
    let mut sums = *parts; // in registers
    for (a, b) in a.iter().zip(b) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    sums.iter_mut().zip(a_rest.iter().zip(b_rest)).for_each(|(sum, (a, b))| *sum += a * b);
    *parts = sums;
}

#[inline(always)]
fn one<A: Copy, T>(a: Operand<'_, A>, to: &mut [T], f: impl Fn(A) -> T) {
    match a {
        Operand::Lanes(a) => to.iter_mut().zip(a).for_each(|(to, a)| *to = f(*a)),
        Operand::Splat(a) => to.iter_mut().for_each(|to| *to = f(a)),
    }
}

#[inline(always)]
fn two<A: Copy, B: Copy, T>(a: Operand<'_, A>, b: Operand<'_, B>, to: &mut [T], f: impl Fn(A, B) -> T) {
    match (a, b) {
        (Operand::Lanes(a), Operand::Lanes(b)) => {
            to.iter_mut().zip(a).zip(b).for_each(|((to, a), b)| *to = f(*a, *b));
        }
        (Operand::Lanes(a), Operand::Splat(b)) => to.iter_mut().zip(a).for_each(|(to, a)| *to = f(*a, b)),
        (Operand::Splat(a), Operand::Lanes(b)) => to.iter_mut().zip(b).for_each(|(to, b)| *to = f(a, *b)),
        (Operand::Splat(a), Operand::Splat(b)) => to.iter_mut().for_each(|to| *to = f(a, b)),
    }
}

#[inline(always)]
fn unary_lanes(unary: Unary, a: Operand<'_, f32>, to: &mut [f32]) {
    match unary {
        Unary::Neg => one(a, to, |x| -x),
        Unary::Exp => one(a, to, exp),
        Unary::Log => one(a, to, log),
        Unary::Sqrt => one(a, to, f32::sqrt),
        Unary::Tanh => one(a, to, tanh),
        Unary::Sigmoid => one(a, to, |x| 1.0 / (1.0 + exp(-x))),
        Unary::Sin => one(a, to, f32::sin),
        Unary::Cos => one(a, to, f32::cos),
    }
}

#[inline(always)]
fn binary_lanes(binary: Binary, a: Operand<'_, f32>, b: Operand<'_, f32>, to: &mut [f32]) {
    match binary {
        Binary::Add => two(a, b, to, |a, b| a + b),
        Binary::Sub => two(a, b, to, |a, b| a - b),
        Binary::Mul => two(a, b, to, |a, b| a * b),
        Binary::Div => two(a, b, to, |a, b| a / b),
        Binary::Min => two(a, b, to, |a, b| {
            if a.is_nan() || b.is_nan() {
                a + b
            } else if b < a {
                b
            } else {
                a
            }
        }),
        Binary::Max => two(a, b, to, larger),
    }
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() {
        a + b
    } else if a < b {
        b
    } else {
        a
    }
}

#[inline(always)]
fn whole_lanes(binary: Binary, a: Operand<'_, i32>, b: Operand<'_, i32>, to: &mut [i32]) {
    match binary {
        Binary::Add => two(a, b, to, i32::wrapping_add),
        Binary::Sub => two(a, b, to, i32::wrapping_sub),
        Binary::Mul => two(a, b, to, i32::wrapping_mul),
        Binary::Div => two(a, b, to, divide),
        Binary::Min => two(a, b, to, |a: i32, b| a.min(b)),
        Binary::Max => two(a, b, to, |a: i32, b| a.max(b)),
    }
}

/// Rounded down.
#[inline(always)]
fn divide(a: i32, b: i32) -> i32 {
    if b == 0 {
        return 0;
    }
    a.wrapping_div(b) - i32::from(a.wrapping_rem(b) != 0 && (a < 0) != (b < 0))
}

#[inline(always)]
#[allow(clippy::float_cmp)] // equality is the operation
fn compare_lanes(compare: Compare, a: Operand<'_, f32>, b: Operand<'_, f32>, to: &mut [i32]) {
    match compare {
        Compare::Less => two(a, b, to, |a, b| i32::from(a < b)),
        Compare::Equal => two(a, b, to, |a, b| i32::from(a == b)),
    }
}

#[inline(always)]
fn compare_whole_lanes(compare: Compare, a: Operand<'_, i32>, b: Operand<'_, i32>, to: &mut [i32]) {
    match compare {
        Compare::Less => two(a, b, to, |a, b| i32::from(a < b)),
        Compare::Equal => two(a, b, to, |a, b| i32::from(a == b)),
    }
}

#[inline(always)]
fn select_lanes<T: Copy>(c: Operand<'_, i32>, a: Operand<'_, T>, b: Operand<'_, T>, to: &mut [T]) {
    match c {
        Operand::Splat(c) => one(if c != 0 { a } else { b }, to, |x| x),
        Operand::Lanes(c) => match (a, b) {
            (Operand::Lanes(a), Operand::Lanes(b)) => {
                let both = a.iter().zip(b);
                to.iter_mut()
                    .zip(c)
                    .zip(both)
                    .for_each(|((to, c), (a, b))| *to = if *c != 0 { *a } else { *b });
            }
            (Operand::Lanes(a), Operand::Splat(b)) => {
                to.iter_mut().zip(c).zip(a).for_each(|((to, c), a)| *to = if *c != 0 { *a } else { b });
            }
            (Operand::Splat(a), Operand::Lanes(b)) => {
                to.iter_mut().zip(c).zip(b).for_each(|((to, c), b)| *to = if *c != 0 { a } else { *b });
            }
            (Operand::Splat(a), Operand::Splat(b)) => {
                to.iter_mut().zip(c).for_each(|(to, c)| *to = if *c != 0 { a } else { b });
            }
        },
    }
}

#[inline(always)]
fn random_lanes(
    key: [Operand<'_, i32>; 2],
    index: Operand<'_, i32>,
    stream: u32,
    threshold: u64,
    to: &mut [i32],
) {
    let draw = |key: [i32; 2], index: i32| {
        let word = philox::first_word(index as u32, stream, key.map(|word| word as u32));
        i32::from(u64::from(word) < threshold)
    };
    if let [Operand::Splat(a), Operand::Splat(b)] = key {
        return one(index, to, |index| draw([a, b], index));
    }
    let at = |from: Operand<'_, i32>, i: usize| match from {
        Operand::Lanes(all) => all[i],
        Operand::Splat(one) => one,
    };
    let lanes = to.iter_mut().enumerate();
    lanes.for_each(|(i, to)| *to = draw(key.map(|word| at(word, i)), at(index, i)));
}

#[inline(always)]
fn round_lanes(element: Element, a: Operand<'_, f32>, to: &mut [f32]) {
    match element {
        Element::F16 => one(a, to, |x| f16::from_f32(x).to_f32()),
        _ => one(a, to, |x| f32::from_bits(nearest_bf16(x))),
    }
}

#[inline(always)]
fn to_float_lanes(a: Operand<'_, i32>, to: &mut [f32]) {
    one(a, to, |a| a as f32);
}

#[inline(always)]
fn to_whole_lanes(a: Operand<'_, f32>, to: &mut [i32]) {
    one(a, to, |a| a as i32);
}

#[inline(always)]
fn sum_lanes(a: Operand<'_, f32>, lanes: usize, parts: &mut [f32; PARTIAL]) {
    fold(a, lanes, parts, |sum, x| sum + x);
}

#[inline(always)]
fn max_lanes(a: Operand<'_, f32>, lanes: usize, parts: &mut [f32; PARTIAL]) {
    fold(a, lanes, parts, larger);
}

#[inline(always)]
fn fold(a: Operand<'_, f32>, lanes: usize, parts: &mut [f32; PARTIAL], f: impl Fn(f32, f32) -> f32) {
    let a = match a {
        Operand::Lanes(a) => a,
        Operand::Splat(a) => return (0..lanes).for_each(|i| parts[i % PARTIAL] = f(parts[i % PARTIAL], a)),
    };
    let (whole, rest) = a.as_chunks::<PARTIAL>();
    let mut sums = *parts; // in registers
    for chunk in whole {
        sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum = f(*sum, *x));
    }
    sums.iter_mut().zip(rest).for_each(|(sum, x)| *sum = f(*sum, *x));
    *parts = sums;
}

/// The parts in a tree.
pub(super) fn joined(mut parts: [f32; PARTIAL], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = PARTIAL / 2;
    while width > 0 {
        for i in 0..width {
            parts[i] = f(parts[i], parts[i + width]);
        }
        width /= 2;
    }
    parts[0]
}

/// The larger of two, NaN if one is: what joins the parts of a maximum.
pub(super) fn larger_of(a: f32, b: f32) -> f32 {
    larger(a, b)
}

/// e^x: the remainder of x by ln 2 in two parts, a polynomial of degree 7, and the power of two in two factors, so that
/// subnormal results and the last ones below infinity come out. At most 1.1 ulp off.
///
/// Source: Moshier, Cephes library, `expf` (coefficients).
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12582912.0; // 1.5 * 2^23: adding it leaves a whole number in the low bits
    let vanishes = x < -104.0; // apart, since a product that underflows takes a hundred times as long
    let clamped = if x > 89.0 {
        89.0
    } else if vanishes {
        0.0
    } else {
        x
    };
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = clamped - n * 0.693_359_4 - n * -2.121_944_4e-4;
    let p = ((((1.987_569_1e-4 * r + 1.398_2e-3) * r + 8.333_452e-3) * r + 4.166_579_6e-2) * r
        + 0.166_666_65)
        * r
        + 0.5;
    let e = p * (r * r) + r + 1.0;
    let n = shifted.to_bits() as i32 - ROUND.to_bits() as i32;
    let half = n >> 1;
    let power = |n: i32| f32::from_bits(((n + 127) << 23) as u32);
    let scaled = e * power(half) * power(n - half);
    if x.is_nan() {
        x
    } else if vanishes {
        0.0
    } else {
        scaled
    }
}

/// ln x: the exponent apart, a polynomial of degree 8 around 1. At most 1.2 ulp off, but near 1, where the error is
/// below 1e-7.
///
/// Source: Moshier, Cephes library, `logf` (coefficients).
#[inline(always)]
pub(super) fn log(x: f32) -> f32 {
    const SUBNORMAL: f32 = 8388608.0; // 2^23
    let small = x < f32::MIN_POSITIVE;
    let scaled = if small { x * SUBNORMAL } else { x };
    let bits = scaled.to_bits() as i32;
    let exponent = ((bits >> 23) & 255) - 126 - if small { 23 } else { 0 };
    let mantissa = f32::from_bits(((bits & 0x007f_ffff) | 0x3f00_0000) as u32); // 0.5 to 1
    let low = mantissa < std::f32::consts::FRAC_1_SQRT_2;
    let e = exponent as f32 - if low { 1.0 } else { 0.0 };
    let m = if low { mantissa + mantissa - 1.0 } else { mantissa - 1.0 };
    let z = m * m;
    let p = ((((((((7.037_683_6e-2 * m - 0.115_146_1) * m + 0.116_769_98) * m - 0.124_201_41) * m
        + 0.142_493_23)
        * m
        - 0.166_680_57)
        * m
        + 0.200_007_14)
        * m
        - 0.249_999_94)
        * m
        + 0.333_333_3)
        * m
        * z;
    let y = p + e * -2.121_944_4e-4 - 0.5 * z;
    let normal = m + y + e * 0.693_359_4;
    if x > 0.0 && x < f32::INFINITY {
        normal
    } else if x == 0.0 {
        f32::NEG_INFINITY
    } else if x > 0.0 {
        x
    } else {
        f32::NAN
    }
}

/// tanh x: a polynomial below 0.625, else 1 - 2 / (e^2x + 1). At most 1.5 ulp off.
///
/// Source: Moshier, Cephes library, `tanhf` (coefficients).
#[inline(always)]
fn tanh(x: f32) -> f32 {
    let z = x * x;
    let p = ((((-5.704_988_5e-3 * z + 2.063_908_8e-2) * z - 5.373_971_5e-2) * z + 0.133_314_42) * z
        - 0.333_332_8)
        * z
        * x
        + x;
    let magnitude = 1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0);
    let large = if x < 0.0 { -magnitude } else { magnitude };
    if x.abs() < 0.625 { p } else { large }
}

/// Floats of memory as f32.
pub(super) fn widen_f16(from: &[f16], to: &mut [f32]) {
    from.convert_to_f32_slice(to);
}

#[inline(always)]
fn widen_bf16_lanes(from: &[bf16], to: &mut [f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = f32::from_bits(u32::from(from.to_bits()) << 16));
}

/// The nearest bf16 in the upper half of a word, ties to even; a NaN stays one and becomes quiet. Without a branch, and
/// bit for bit `bf16::from_f32`.
#[inline(always)]
fn nearest_bf16(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    let quiet = bits | 0x0040_0000;
    (if bits & 0x7fff_ffff > 0x7f80_0000 { quiet } else { rounded }) & 0xffff_0000
}

#[inline(always)]
fn narrow_bf16_lanes(from: &[f32], to: &mut [bf16]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = bf16::from_bits((nearest_bf16(*from) >> 16) as u16));
}

/// f32 rounded to memory's type.
pub(super) fn narrow_f16(from: &[f32], to: &mut [f16]) {
    to.convert_from_f32_slice(from);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every pattern of the upper half with those of the lower half that rounding tells apart, in every unit.
    #[test]
    fn bf16_is_rounded_as_its_library_rounds_it() {
        let lower = [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff];
        let all = (0..=0xffff_u32).flat_map(|upper| lower.map(|lower| f32::from_bits(upper << 16 | lower)));
        let all: Vec<f32> = all.collect();
        let want: Vec<u16> = all.iter().map(|x| bf16::from_f32(*x).to_bits()).collect();
        for unit in Vector::available() {
            let mut narrow = vec![bf16::ZERO; all.len()];
            narrow_bf16(unit, &all, &mut narrow);
            assert!(narrow.iter().map(|x| x.to_bits()).eq(want.iter().copied()), "{unit}");
            let mut rounded = vec![0.0; all.len()];
            round(unit, Element::Bf16, Operand::Lanes(&all), &mut rounded);
            assert!(
                rounded.iter().map(|x| x.to_bits()).eq(want.iter().map(|x| u32::from(*x) << 16)),
                "{unit}"
            );
            let mut wide = vec![0.0; all.len()];
            widen_bf16(unit, &narrow, &mut wide);
            assert!(wide.iter().map(|x| x.to_bits()).eq(rounded.iter().map(|x| x.to_bits())), "{unit}");
        }
    }
}
