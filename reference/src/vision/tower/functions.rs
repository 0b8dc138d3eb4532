//! What towers are made of: linear layers, norms, attention and activations, in f32 from weights of any type.

use std::collections::BTreeMap;

use crate::graph::{Attention, Dim, Dtype, Tape, Tensor, Type};

/// A tower being written onto a tape. Each weight is an input under its name in the checkpoint.
pub struct Writer<'a> {
    /// The tape.
    pub tape: &'a Tape,
    /// The type and the dimensions of every weight.
    pub weights: &'a BTreeMap<String, (Dtype, Vec<usize>)>,
}

impl Writer<'_> {
    /// A weight, as it is stored.
    ///
    /// # Panics
    /// If the tower has none of that name.
    pub fn weight(&self, name: &str) -> Tensor {
        let (dtype, shape) = &self.weights[name];
        self.tape.input(name, *dtype, shape.iter().copied()).cast(Dtype::F32)
    }

    /// x W^T + b, the bias if there is one.
    pub fn linear(&self, name: &str, x: &Tensor) -> Tensor {
        let y = x.matmul(&self.weight(&format!("{name}.weight")).t());
        let bias = format!("{name}.bias");
        if self.weights.contains_key(&bias) { &y + &self.weight(&bias) } else { y }
    }

    /// x W^T of a convolution whose kernels do not overlap: W (out, ..) over whole patches (.., in).
    pub fn patches(&self, name: &str, x: &Tensor) -> Tensor {
        let weight = self.weight(name);
        let inputs: i64 = weight.shape()[1..].iter().filter_map(Dim::as_fixed).product();
        x.matmul(&weight.reshape([weight.dim(0), inputs.into()]).t())
    }

    /// (x - mean) / sqrt(variance + eps) w + b, over the last dimension.
    pub fn norm(&self, name: &str, eps: f64, x: &Tensor) -> Tensor {
        let last = x.ty().rank() - 1;
        let apart = x - &x.mean(last);
        let normed = &apart / &(&(&apart * &apart).mean(last) + eps).sqrt();
        let [weight, bias] = ["weight", "bias"].map(|part| self.weight(&format!("{name}.{part}")));
        &(&normed * &weight) + &bias
    }
}

/// (B, T, heads * D) to (B, heads, T, D).
pub fn split(x: &Tensor, heads: usize, width: usize) -> Tensor {
    x.reshape([x.dim(0), x.dim(1), heads.into(), (width / heads).into()]).transpose(&[0, 2, 1, 3])
}

/// (B, heads, T, D) to (B, T, heads * D).
pub fn join(x: &Tensor, width: usize) -> Tensor {
    x.transpose(&[0, 2, 1, 3]).reshape([x.dim(0), x.dim(2), width.into()])
}

/// Attention whose scores are divided by the root of a head's width.
pub fn plain(width: usize, heads: usize) -> Attention {
    Attention::plain(1.0 / ((width / heads) as f64).sqrt())
}

/// x sigmoid(1.702 x)
pub fn quick_gelu(x: &Tensor) -> Tensor {
    x * &(x * 1.702).sigmoid()
}

/// x / 2 (1 + erf(x / sqrt 2)). Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016).
pub fn gelu(x: &Tensor) -> Tensor {
    &(x * 0.5) * &(&erf(&(x * std::f64::consts::FRAC_1_SQRT_2)) + 1.0)
}

/// erf x = x A(x^2) below 1/2, else 1 - e^(-x^2) C(x), two quotients of polynomials; in f64 within 3e-16 of the true
/// value. Beyond 6 it is 1 in f64.
///
/// Source of the coefficients: Cody, "Rational Chebyshev Approximations for the Error Function" (1969), tables II
/// and III.
pub fn erf(x: &Tensor) -> Tensor {
    let size = x.max(&-x).min(&x.like(6.0));
    let square = &size * &size;
    let near = &(x * &polynomial(&NEAR[0], &square)) / &polynomial(&NEAR[1], &square);
    let rest = &(&(-&square).exp() * &polynomial(&FAR[0], &size)) / &polynomial(&FAR[1], &size);
    let far = &(-&rest) + 1.0;
    let far = x.less(&x.like(0.0)).select(&-&far, &far);
    size.less(&size.like(0.46875)).select(&near, &far)
}

/// By Horner's rule, from the highest power.
fn polynomial(coefficients: &[f64], x: &Tensor) -> Tensor {
    let first = x.like(coefficients[0]);
    coefficients[1..].iter().fold(first, |sum, coefficient| &(&sum * x) + *coefficient)
}

/// Below 0.46875, in x^2: above and below the line.
const NEAR: [[f64; 5]; 2] = [
    [0.18577770618460315, 3.1611237438705655, 113.86415415105016, 377.485237685302, 3209.3775891384694],
    [1.0, 23.601290952344122, 244.02463793444417, 1282.6165260773723, 2844.236833439171],
];

/// Above it, in |x|.
const FAR: [[f64; 9]; 2] = [
    [
        2.1531153547440383e-08,
        0.5641884969886701,
        8.883149794388377,
        66.11919063714163,
        298.6351381974001,
        881.952221241769,
        1712.0476126340707,
        2051.0783778260716,
        1230.3393547979972,
    ],
    [
        1.0,
        15.744926110709835,
        117.6939508913125,
        537.1811018620099,
        1621.3895745666903,
        3290.7992357334597,
        4362.619090143247,
        3439.3676741437216,
        1230.3393548037495,
    ],
];

/// A size that is known when a graph is written.
pub fn fixed<const N: usize>(dtype: Dtype, shape: [Dim; N]) -> Type {
    Type { dtype, shape: shape.into() }
}
