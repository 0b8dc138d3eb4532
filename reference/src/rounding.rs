//! `round` and `mul_add` where the C library has them wrong.
//!
//! Rust compiles `f32::round`, `f64::round` and `f32::mul_add` to an instruction where it may count on one, and else to a
//! call of the C library: `roundf`, `round`, `fmaf`. `x86_64-pc-windows-gnu` links those that MinGW-w64 has for msvcrt, and
//! in its version 14 they are not the functions of the standard:
//!
//! ```text
//! roundf(0.49999997)                             1, and 0 is right: 1 - x is rounded to a half, which looks like a tie
//! fmaf(0.771248, 0.08357374, 0.03244483)         9.690092e-2, and 9.690091e-2 is right
//! ```
//!
//! Of 100,000 sums a b + 0.03244483 with a in [-1, 1) and b in [0, 0.1), 27,106 were wrong (on Wine 10, an AMD EPYC).
//!
//! What is defined to the bit must not depend on them, and neither must what a reader writes. So programs for
//! `x86_64-pc-windows-gnu` bring functions of these names along, which the linker finds before the library's. On every
//! other system the tests below compare them with what is there.
//!
//! Sources: C23, 7.12.9.6 (`round`) and 7.12.13.1 (`fma`); Boldo and Melquiond, "Emulation of FMA and correctly rounded
//! sums: proved algorithms using rounding to odd" (2008).

#![cfg_attr(not(all(windows, target_env = "gnu")), cfg(test))]

/// The nearest whole number, halves away from 0.
macro_rules! rounded {
    ($x:expr) => {{
        let whole = $x.trunc();
        let fraction = $x - whole; // exact; NaN of an infinity
        if fraction.abs() >= 0.5 { whole + fraction.signum() } else { whole }
    }};
}

/// a b + c, rounded once: the product is exact in f64, and the sum is rounded to odd there, which a second rounding
/// cannot tell from the sum itself.
fn fused(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let of_c = sum - product;
    let lost = (product - (sum - of_c)) + (c - of_c); // what the rounding of the sum left out, exactly
    let bits = sum.to_bits();
    if lost == 0.0 || !sum.is_finite() || bits & 1 == 1 {
        return sum as f32;
    }
    let is_further_out = (lost > 0.0) == (sum > 0.0);
    f64::from_bits(if is_further_out { bits + 1 } else { bits - 1 }) as f32
}

#[cfg(all(windows, target_env = "gnu"))]
#[allow(unsafe_code)] // a name that the linker knows has to be the only one
mod exported {
    #[unsafe(no_mangle)]
    extern "C" fn roundf(x: f32) -> f32 {
        rounded!(x)
    }

    #[unsafe(no_mangle)]
    extern "C" fn round(x: f64) -> f64 {
        rounded!(x)
    }

    #[unsafe(no_mangle)]
    extern "C" fn fmaf(a: f32, b: f32, c: f32) -> f32 {
        super::fused(a, b, c)
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    /// Floats of every exponent, those around halves, and what is no number.
    fn floats() -> Vec<f32> {
        let near = |x: f32| [x, x.next_up(), x.next_down(), -x];
        let mut all: Vec<f32> =
            [0.0, 0.5, 1.0, 1.5, 2.5, 126.5, 8_388_607.5, 16_777_216.0, f32::MAX, f32::INFINITY]
                .into_iter()
                .flat_map(near)
                .chain([f32::NAN, f32::MIN_POSITIVE, f32::from_bits(1), 0.499_999_97])
                .collect();
        let mut bits = 1_u32;
        for _ in 0..200 {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            all.push(f32::from_bits(bits));
            all.push(f32::from_bits(bits % (1 << 25) + (0x3f << 24))); // near 1
        }
        all
    }

    fn assert_same(own: f32, want: f32, of: &[f32]) {
        assert!(
            own.to_bits() == want.to_bits() || (own.is_nan() && want.is_nan()),
            "{of:?}: {own:e}, {want:e}"
        );
    }

    #[test]
    fn rounding_is_that_of_the_standard() {
        for (x, whole) in [(0.499_999_97_f32, 0.0), (0.5, 1.0), (2.5, 3.0), (-0.5, -1.0)] {
            assert_same(rounded!(x), whole, &[x]);
        }
        assert_eq!(rounded!(0.499_999_999_999_999_94_f64).to_bits(), 0);
        for x in floats() {
            assert_same(rounded!(x), black_box(x).round(), &[x]);
        }
    }

    #[test]
    fn a_fused_sum_is_rounded_once() {
        let all = floats();
        for a in &all {
            for (b, c) in all.iter().zip(all.iter().rev()).step_by(3) {
                let (own, want) = (fused(*a, *b, *c), black_box(*a).mul_add(*b, *c));
                assert!(
                    own.to_bits() == want.to_bits() || (own.is_nan() && want.is_nan()),
                    "{a:e} {b:e} {c:e}"
                );
            }
        }
    }
}
