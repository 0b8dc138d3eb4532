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

use super::{Config, Rope, Scaling};
use crate::graph::interpret::Values;
use crate::graph::{Array, Dtype, Real};

/// The names of the two tables, cosines first.
pub const NAMES: [&str; 2] = ["rope.cos", "rope.sin"];

/// The D / 2 frequencies of a head of `head_dim` = D, in radians per position.
pub fn frequencies(rope: &Rope, head_dim: usize) -> Vec<f32> {
    let plain = |i: usize| {
        let exponent = (2 * i) as f32 / head_dim as f32;
        1.0 / (rope.theta as f32).powf(exponent)
    };
    (0..head_dim / 2).map(plain).map(|frequency| scaled(&rope.scaling, frequency)).collect()
}

/// One frequency f, changed. A division of a number by a tensor is one by its reciprocal in torch, and so it is here.
fn scaled(scaling: &Scaling, f: f32) -> f32 {
    match *scaling {
        Scaling::None => f,
        Scaling::Linear { factor } => f / factor as f32,
        Scaling::Llama3 { factor, low, high, original } => {
            let original = original as f64;
            let wave = (1.0 / f) * (2.0 * std::f64::consts::PI) as f32; // positions per turn
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
    let frequencies = frequencies(&config.rope, config.head_dim);
    let angles = (0..positions).flat_map(|p| frequencies.iter().map(move |f| f64::from(p as f32 * f)));
    let angles: Vec<f64> = angles.collect();
    let rounded = |function: fn(f64) -> f64| angles.iter().map(|a| function(*a) as f32).collect();
    [rounded(f64::cos), rounded(f64::sin)]
}

/// The tables as the inputs of a model's graph, for sequences of `positions` tokens.
pub fn values<R: Real>(config: &Config, positions: usize) -> Values<R> {
    let shape = [positions, config.head_dim / 2];
    let array = |table: Vec<f32>| Array::floats(Dtype::F32, &shape, table.into_iter().map(f64::from));
    NAMES.iter().map(|name| (*name).to_owned()).zip(tables(config, positions).map(array)).collect()
}
