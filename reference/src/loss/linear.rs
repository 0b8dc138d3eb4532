//! From hidden states to the logits that a loss is taken of.
//!
//! ```text
//! z = hidden weight^T + bias        logits = cap tanh(scale z / cap)
//! ```
//!
//! Source of the cap: Gemma 2 (2024), section 2. A temperature divides logits: its scale is 1 / temperature.

use super::{Error, check};
use crate::graph::{Dtype, Tensor};
use crate::oracles::PRODUCTS;

/// The last product of a model, in f64.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear<'a> {
    /// (N, H)
    pub hidden: &'a [f64],
    /// (V, H)
    pub weight: &'a [f64],
    /// (V), or none.
    pub bias: Option<&'a [f64]>,
    /// H
    pub width: usize,
}

/// The gradients of what a product is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearGradient {
    /// (N, H)
    pub hidden: Vec<f64>,
    /// (V, H)
    pub weight: Vec<f64>,
    /// (V); of no use if there is no bias.
    pub bias: Vec<f64>,
}

impl Linear<'_> {
    /// z (N, V), and V.
    ///
    /// Fails where the elements do not make such shapes.
    pub fn exact(&self) -> Result<(Vec<f64>, usize), Error> {
        PRODUCTS.count();
        check::rows("hidden", self.hidden, self.width)?;
        let vocab = check::rows("weight", self.weight, self.width)?;
        check::length(
            "bias",
            self.bias.unwrap_or(self.weight),
            self.bias.map_or(self.weight.len(), |_| vocab),
        )?;
        let bias = |v: usize| self.bias.map_or(0.0, |bias| bias[v]);
        let entry = |h, (v, w)| dot(h, w) + bias(v);
        let row = |h| self.weight.chunks(self.width).enumerate().map(move |w| entry(h, w));
        Ok((self.hidden.chunks(self.width).flat_map(row).collect(), vocab))
    }

    /// Given g (N, V), the gradient of z: dhidden = g weight, dweight = g^T hidden, dbias = the sum of g's rows.
    pub fn pull_back(&self, g: &[f64]) -> LinearGradient {
        PRODUCTS.count();
        let vocab = self.weight.len() / self.width;
        let [mut hidden, mut weight] = [self.hidden, self.weight].map(|like| vec![0.0; like.len()]);
        let mut bias = vec![0.0; vocab];
        for (i, g) in g.iter().enumerate() {
            let [row, column] = [i / vocab, i % vocab].map(|i| i * self.width..(i + 1) * self.width);
            add(&mut hidden[row.clone()], *g, &self.weight[column.clone()]);
            add(&mut weight[column], *g, &self.hidden[row]);
            bias[i % vocab] += g;
        }
        LinearGradient { hidden, weight, bias }
    }

    /// z f32 (N, V), of `hidden` (N, H), `weight` (V, H) and `bias` (V) of any float: the product is taken in the type
    /// of `hidden` and `weight`, and what follows in f32.
    pub fn graph(hidden: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        PRODUCTS.count();
        let z = hidden.matmul(&weight.t()).cast(Dtype::F32);
        bias.map_or(z.clone(), |bias| &z + &bias.cast(Dtype::F32))
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], factor: f64, x: &[f64]) {
    to.iter_mut().zip(x).for_each(|(to, x)| *to += factor * x);
}

/// What becomes of each logit before the loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Head {
    /// What it is multiplied with, first; 1 over the temperature.
    pub scale: f64,
    /// What its absolute value stays below.
    pub softcap: Option<f64>,
}

/// Nothing.
impl Default for Head {
    fn default() -> Self {
        Self { scale: 1.0, softcap: None }
    }
}

impl Head {
    /// At a temperature.
    pub fn temperature(temperature: f64) -> Self {
        Self { scale: 1.0 / temperature, softcap: None }
    }

    /// Whether the scale is finite and the cap above 0; infinity is no cap.
    pub fn check(&self) -> Result<(), Error> {
        check::setting("scale", self.scale, self.scale.is_finite(), "a finite number")?;
        let cap = self.softcap.unwrap_or(1.0);
        check::setting("softcap", cap, cap > 0.0, "a number above 0")
    }

    /// The cap, if it caps anything.
    fn cap(&self) -> Option<f64> {
        self.softcap.filter(|cap| cap.is_finite())
    }

    /// y = cap tanh(scale z / cap) for each z.
    ///
    /// Fails as [`check`](Self::check) does.
    pub fn exact(&self, z: &[f64]) -> Result<Vec<f64>, Error> {
        self.check()?;
        let one = |z: &f64| self.cap().map_or(self.scale * z, |cap| cap * (self.scale * z / cap).tanh());
        Ok(z.iter().map(one).collect())
    }

    /// Given the gradient of y: dz = scale (1 - (y / cap)^2) dy.
    pub fn pull_back(&self, z: &[f64], g: &[f64]) -> Vec<f64> {
        let slope = |z: f64| self.cap().map_or(0.0, |cap| (self.scale * z / cap).tanh());
        z.iter().zip(g).map(|(z, g)| self.scale * (1.0 - slope(*z) * slope(*z)) * g).collect()
    }

    /// The same of a tensor of any float, f32.
    pub fn graph(&self, z: &Tensor) -> Tensor {
        let z = z.cast(Dtype::F32);
        let scaled = if self.scale.to_bits() == 1.0_f64.to_bits() { z } else { &z * self.scale };
        self.cap().map_or(scaled.clone(), |cap| &(&scaled / cap).tanh() * cap)
    }
}
