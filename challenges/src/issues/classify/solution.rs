//! (D) `issues`, part `classify`: which class a text belongs to.

use challenges::issues::classify::{Adapter, Answer, Classify, HEADS, Layer, Problem, Trained};
use reference::graph::{Dtype, Tensor};

/// The attempt.
pub struct Solution;

impl Classify for Solution {
    // ANCHOR: classify-step-15
    // why: attention is causal, so only the last token has seen the whole text. Looking from the end finds it on either
    // side of the padding, and a text that holds the token of padding keeps it.
    // step D.15: find the token that each row is answered from
    fn last_tokens(&self, ids: &[i32], length: usize, pad: Option<i32>) -> Vec<usize> {
        let last = |row: &[i32]| row.iter().rposition(|id| Some(*id) != pad).unwrap_or(0);
        ids.chunks(length).map(last).collect()
    }
    // ANCHOR_END: classify-step-15

    // ANCHOR: classify-step-16
    // why: each cost is written so that no e^z overflows: the largest exponent is taken out first, as a constant, which
    // changes neither the value nor the gradient. The log-sum-exp of the classes does so by itself.
    // step D.16: write what each row's answer costs
    fn losses(&self, problem: Problem, logits: &Tensor, targets: &Tensor) -> Tensor {
        let (z, y) = (logits.cast(Dtype::F32), targets.detach());
        match problem {
            Problem::SingleLabel => flat(&(&z.logsumexp(1) - &at_class(&z, &y))),
            Problem::MultiLabel => flat(&(&softplus(&z) - &(&y * &z)).mean(1)),
            Problem::Regression => {
                let apart = &z - &y;
                flat(&(&apart * &apart).mean(1))
            }
        }
    }
    // ANCHOR_END: classify-step-16

    // ANCHOR: classify-step-17
    // why: a layer that is trained whole gets no pair, so that is asked first; without that order "all-linear" would
    // put a pair beside the head. In memory the two have other names, `lora_A.default.weight` and
    // `modules_to_save.default.weight`; a file leaves out the adapter's own name.
    // step D.17: name the tensors that are trained
    fn trained(&self, layers: &[Layer<'_>], adapter: &Adapter<'_>) -> Result<Vec<Trained>, String> {
        let is_called = |layer: &Layer<'_>, target: &str| layer.is_linear && ends_in(layer.name, target);
        let is_missing = |target: &&&str| !layers.iter().any(|layer| is_called(layer, target));
        if let Some(target) = adapter.target_modules.unwrap_or_default().iter().find(is_missing) {
            return Err((*target).to_owned());
        }
        let mut all = Vec::new();
        for layer in layers {
            let mut whole = adapter.modules_to_save.iter().chain(&HEADS);
            if whole.any(|name| layer.name.ends_with(name)) {
                all.push(tensor(layer.name, "", layer.shape));
            } else if match adapter.target_modules {
                None => layer.is_linear,
                Some(targets) => targets.iter().any(|target| is_called(layer, target)),
            } {
                let [outputs, inputs] = layer.shape;
                all.push(tensor(layer.name, ".lora_A", [adapter.rank, inputs]));
                all.push(tensor(layer.name, ".lora_B", [outputs, adapter.rank]));
            }
        }
        Ok(all)
    }
    // ANCHOR_END: classify-step-17

    // ANCHOR: classify-step-18
    // why: a probability above one half is a number above 0 before the sigmoid, so nothing is computed twice and
    // nothing rounded. Of equal logits the first is taken: the same as the original's argmax.
    // step D.18: read the answer off a row's logits
    fn answer(&self, problem: Problem, logits: &[f32]) -> Answer {
        match problem {
            Problem::SingleLabel => {
                let larger = |best: usize, at: usize| if logits[at] > logits[best] { at } else { best };
                Answer::Class((0..logits.len()).fold(0, larger))
            }
            Problem::MultiLabel => Answer::Labels(logits.iter().map(|z| *z > 0.0).collect()),
            Problem::Regression => Answer::Numbers(logits.to_vec()),
        }
    }

    // step D.18: count which class was taken for which
    fn confusion(&self, truth: &[usize], answers: &[usize], classes: usize) -> Vec<u64> {
        let mut counts = vec![0; classes * classes];
        truth.iter().zip(answers).for_each(|(truth, answer)| counts[truth * classes + answer] += 1);
        counts
    }

    // why: accuracy is high for who always answers the most frequent class; the F1 score of a class that is never
    // answered is 0. It is the harmonic mean of precision and recall, in which the right answers cancel.
    // step D.18: score each class
    fn f1(&self, confusion: &[u64], classes: usize) -> Vec<Option<f64>> {
        let score = |class: usize| {
            let truths: u64 = confusion[class * classes..][..classes].iter().sum();
            let answers: u64 = confusion.iter().skip(class).step_by(classes).sum();
            let right = confusion[class * classes + class];
            (truths + answers > 0).then(|| 2.0 * right as f64 / (truths + answers) as f64)
        };
        (0..classes).map(score).collect()
    }
    // ANCHOR_END: classify-step-18
}

/// (B, 1) to (B).
fn flat(x: &Tensor) -> Tensor {
    x.reshape([x.dim(0)])
}

// why: a gather would take rows of a table, and here each row has a column of its own. A mask of the class picks it
// out, and its gradient is the mask.
// step D.16: take each row's logit at its class
fn at_class(z: &Tensor, classes: &Tensor) -> Tensor {
    let class = classes.reshape([z.dim(0), 1.into()]).spread(z.shape());
    let is_class = z.tape().iota(z.shape(), 1).equal(&class);
    is_class.select(z, &z.like(0.0)).sum(1)
}

// why: ln(1 + e^z) is z where e^z overflows. With m = max(z, 0) it is m + ln(e^-m + e^(z - m)), whose exponents are
// never above 0.
// step D.16: write ln(1 + e^z)
fn softplus(z: &Tensor) -> Tensor {
    let largest = z.max(&z.like(0.0)).detach();
    &(&(-&largest).exp() + &(z - &largest).exp()).log() + &largest
}

/// Whether a layer is called so, or the last parts of its name are.
fn ends_in(layer: &str, name: &str) -> bool {
    layer.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// A tensor of a layer in an adapter's file.
fn tensor(layer: &str, part: &str, shape: [usize; 2]) -> Trained {
    Trained { name: format!("base_model.model.{layer}{part}.weight"), shape }
}
