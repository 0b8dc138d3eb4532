//! Rotary position embedding: the angles.
//!
//! ```text
//! f[i]    = theta^(-2i / D)                 i in 0..D/2, then scaled
//! a[p, i] = p f[i]
//! ```
//!
//! Everything is in f32, in the order in which the `transformers` library computes it, and stays so where the rest of
//! the model is computed in f64: the angles are part of the model's definition.
//!
//! Sources: Su et al., "RoFormer" (2021), section 3.4; `modeling_rope_utils` of `transformers` for the scalings.

use std::f64::consts::PI;

use super::{Config, Rope, Scaling};
use crate::graph::interpret::Values;
use crate::graph::{Array, Dtype, Real};
use crate::oracles::FREQUENCIES;

/// The names of the two tables, cosines first.
pub const NAMES: [&str; 2] = ["rope.cos", "rope.sin"];

/// The D / 2 frequencies of a head of `head_dim` = D, in radians per position. Each power is rounded to the nearest
/// f32; torch's is that one's neighbour for one frequency in two hundred.
pub fn frequencies(rope: &Rope, head_dim: usize) -> Vec<f32> {
    FREQUENCIES.count();
    let plain = |i: usize| {
        let exponent = (2 * i) as f32 / head_dim as f32;
        1.0 / f64::from(rope.theta as f32).powf(f64::from(exponent)) as f32
    };
    (0..head_dim / 2).map(|i| scaled(&rope.scaling, i, plain(i))).collect()
}

/// Frequency i, f, changed. A division of a number by a tensor is one by its reciprocal in torch, and so it is here.
fn scaled(scaling: &Scaling, i: usize, f: f32) -> f32 {
    match *scaling {
        Scaling::None => f,
        Scaling::Linear { factor } => f / factor as f32,
        Scaling::Factors(ref factors) => f / factors.get(i).copied().unwrap_or(1.0),
        Scaling::Llama3 { factor, low, high, original } => {
            let original = original as f64;
            let wave = (1.0 / f) * (2.0 * PI) as f32; // positions per turn
            if wave > (original / low) as f32 {
                return f / factor as f32;
            }
            if wave < (original / high) as f32 {
                return f;
            }
            let smooth = ((1.0 / wave) * original as f32 - low as f32) / (high - low) as f32;
            (1.0 - smooth) * f / factor as f32 + smooth * f
        }
    }
}

/// Cosines and sines (P, D/2), row-major, of positions 0..P, rounded to f32.
pub fn tables(config: &Config, positions: usize) -> [Vec<f32>; 2] {
    FREQUENCIES.count();
    let frequencies = frequencies(&config.rope, config.head_dim);
    let angles = (0..positions).flat_map(|p| frequencies.iter().map(move |f| p as f32 * f));
    turned(&angles.collect::<Vec<f32>>())
}

/// Cosines and sines of angles in radians, rounded to f32.
pub(crate) fn turned(angles: &[f32]) -> [Vec<f32>; 2] {
    [cosine, sine].map(|function| angles.iter().map(|angle| function(*angle)).collect())
}

/// Up to this angle in radians, [`cosine`] and [`sine`] have the bits of torch's on x86-64 processors, but for about
/// one random angle in a million (none of 4 million below 60); beyond it they are the nearest f32, and torch's are
/// their neighbours for one angle in a hundred.
const SAME_BITS: f32 = 10000.0;

/// cos a = -+sin(a - (n + 1/2) pi), with the n that makes the difference smallest.
fn cosine(angle: f32) -> f32 {
    let wide = f64::from(angle);
    if angle.abs() >= SAME_BITS {
        return wide.cos() as f32;
    }
    let n = (wide / PI - 0.5).round_ties_even();
    let r = less_half_turns(wide, n + 0.5);
    (if n % 2.0 == 0.0 { -sine_near_zero(r) } else { sine_near_zero(r) }) as f32
}

/// sin a = +-sin(a - n pi), with the n that makes the difference smallest.
fn sine(angle: f32) -> f32 {
    let wide = f64::from(angle);
    if angle.abs() >= SAME_BITS {
        return wide.sin() as f32;
    }
    let n = (wide / PI).round_ties_even();
    let r = less_half_turns(wide, n);
    (if n % 2.0 == 0.0 { sine_near_zero(r) } else { -sine_near_zero(r) }) as f32
}

/// a - n pi, with pi in three parts: the first has 24 bits, so that its product with n is exact.
fn less_half_turns(angle: f64, n: f64) -> f64 {
    const HIGH: f64 = PI as f32 as f64;
    ((angle - n * HIGH) - n * (PI - HIGH)) - n * 1.2246467991473532e-16
}

/// sin r for |r| <= pi / 2 as the odd polynomial of degree 9 whose largest relative error there, 6.05e-9, is the least
/// possible; its coefficients are those that Remez's exchange algorithm converges to.
///
/// That error is a tenth of an f32's last place, so one result in twenty is not the nearest f32. torch's are not
/// either: they are the same, and a model in f64 that shares these tables shares its logits to 1e-14.
fn sine_near_zero(r: f64) -> f64 {
    const TERMS: [f64; 4] =
        [-0.16666659550427756, 0.008333066246082155, -0.0001980960290193795, 2.605780637968037e-06];
    let square = r * r;
    let tail = TERMS.iter().rev().fold(0.0, |sum, term| sum * square + term);
    r + r * square * tail
}

/// The tables as the inputs of a model's graph, for sequences of `positions` tokens.
pub fn values<R: Real>(config: &Config, positions: usize) -> Values<R> {
    FREQUENCIES.count();
    let shape = [positions, config.head_dim / 2];
    let array = |table: Vec<f32>| Array::floats(Dtype::F32, &shape, table.into_iter().map(f64::from));
    NAMES.iter().map(|name| (*name).to_owned()).zip(tables(config, positions).map(array)).collect()
}
