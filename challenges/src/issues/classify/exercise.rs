//! (D) `issues`, part `classify`: which class a text belongs to.

use challenges::issues::classify::{Adapter, Answer, Classify, HEADS, Layer, Problem, Trained};
use reference::graph::{Dtype, Tensor};

/// The attempt.
pub struct Exercise;

impl Classify for Exercise {
    // ANCHOR: classify-step-15
    // step D.15: find the token that each row is answered from
    fn last_tokens(&self, ids: &[i32], length: usize, pad: Option<i32>) -> Vec<usize> {
        todo!("D.15: find the token that each row is answered from")
    }
    // ANCHOR_END: classify-step-15

    // ANCHOR: classify-step-16
    // step D.16: write what each row's answer costs
    fn losses(&self, problem: Problem, logits: &Tensor, targets: &Tensor) -> Tensor {
        todo!("D.16: write what each row's answer costs")
    }
    // ANCHOR_END: classify-step-16

    // ANCHOR: classify-step-17
    // step D.17: name the tensors that are trained
    fn trained(&self, layers: &[Layer<'_>], adapter: &Adapter<'_>) -> Result<Vec<Trained>, String> {
        todo!("D.17: name the tensors that are trained")
    }
    // ANCHOR_END: classify-step-17

    // ANCHOR: classify-step-18
    // step D.18: read the answer off a row's logits
    fn answer(&self, problem: Problem, logits: &[f32]) -> Answer {
        todo!("D.18: read the answer off a row's logits")
    }

    // step D.18: count which class was taken for which
    fn confusion(&self, truth: &[usize], answers: &[usize], classes: usize) -> Vec<u64> {
        todo!("D.18: count which class was taken for which")
    }

    // step D.18: score each class
    fn f1(&self, confusion: &[u64], classes: usize) -> Vec<Option<f64>> {
        todo!("D.18: score each class")
    }
    // ANCHOR_END: classify-step-18
}

/// (B, 1) to (B).
fn flat(x: &Tensor) -> Tensor {
    x.reshape([x.dim(0)])
}

// step D.16: take each row's logit at its class
fn at_class(z: &Tensor, classes: &Tensor) -> Tensor {
    todo!("D.16: take each row's logit at its class")
}

// step D.16: write ln(1 + e^z)
fn softplus(z: &Tensor) -> Tensor {
    todo!("D.16: write ln(1 + e^z)")
}

/// Whether a layer is called so, or the last parts of its name are.
fn ends_in(layer: &str, name: &str) -> bool {
    layer.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// A tensor of a layer in an adapter's file.
fn tensor(layer: &str, part: &str, shape: [usize; 2]) -> Trained {
    Trained { name: format!("base_model.model.{layer}{part}.weight"), shape }
}
