//! The losses that checks compute in chunks.

use challenges::loss::{Loss, losses, problem};
use reference::graph::{Dtype, Tape, Tensor};
use reference::loss::{CrossEntropy, Divergence, Head, IGNORED, Nll, Reduction, Targets, log_softmax};

use crate::compare::describe;
use crate::random::Random;

/// Plain cross entropy.
pub(in super::super) fn plain(vocab: usize, reduction: Reduction) -> Result<Loss, String> {
    losses::cross_entropy(CrossEntropy::default(), Head::default(), vocab, false, reduction).map_err(describe)
}

/// Makes a loss over a vocabulary of a size.
pub(super) type Make = fn(usize, &mut Random) -> Result<Loss, String>;

/// Every loss whose rows are computed by themselves.
pub(super) const OF_ROWS: [(&str, Make); 10] = [
    ("cross-entropy", cross_entropy),
    ("smoothing-and-class-weights", smoothing_and_class_weights),
    ("softcap-and-scale", softcap_and_scale),
    ("z-loss", z_loss),
    ("probability-targets", probability_targets),
    ("distillation", distillation),
    ("jensen-shannon", jensen_shannon),
    ("squares", squares),
    ("likelihood", likelihood),
    ("made-up", made_up),
];

pub(super) fn cross_entropy(vocab: usize, _: &mut Random) -> Result<Loss, String> {
    plain(vocab, Reduction::Mean)
}

pub(super) fn smoothing_and_class_weights(vocab: usize, _: &mut Random) -> Result<Loss, String> {
    let smooth = CrossEntropy { label_smoothing: 0.1, ..CrossEntropy::default() };
    losses::cross_entropy(smooth, Head::default(), vocab, true, Reduction::Mean).map_err(describe)
}

pub(super) fn softcap_and_scale(vocab: usize, _: &mut Random) -> Result<Loss, String> {
    let head = Head { scale: 0.75, softcap: Some(2.5) };
    losses::cross_entropy(CrossEntropy::default(), head, vocab, false, Reduction::Mean).map_err(describe)
}

pub(super) fn z_loss(vocab: usize, _: &mut Random) -> Result<Loss, String> {
    let settings = CrossEntropy { z_loss: 0.01, ..CrossEntropy::default() };
    losses::cross_entropy(settings, Head::default(), vocab, false, Reduction::Mean).map_err(describe)
}

pub(super) fn probability_targets(vocab: usize, _: &mut Random) -> Result<Loss, String> {
    losses::targets(Targets { label_smoothing: 0.0 }, vocab, Reduction::Mean).map_err(describe)
}

pub(super) fn distillation(vocab: usize, _: &mut Random) -> Result<Loss, String> {
    losses::distillation(Divergence::ForwardKl, vocab, 9, Reduction::Mean).map_err(describe)
}

pub(super) fn jensen_shannon(vocab: usize, _: &mut Random) -> Result<Loss, String> {
    losses::distillation(Divergence::JensenShannon { beta: 0.3 }, vocab, 9, Reduction::Mean).map_err(describe)
}

pub(super) fn squares(vocab: usize, _: &mut Random) -> Result<Loss, String> {
    losses::squares(vocab, Reduction::Mean).map_err(describe)
}

pub(super) fn likelihood(vocab: usize, _: &mut Random) -> Result<Loss, String> {
    losses::likelihood(Nll { ignore_index: IGNORED }, vocab, Reduction::Mean).map_err(describe)
}

/// A loss that nobody has seen: some functions of log-probabilities and logits, drawn, under a name that is taken.
pub(in super::super) fn made_up(vocab: usize, random: &mut Random) -> Result<Loss, String> {
    let [a, b, c] = [0; 3].map(|_| 0.3 + random.unit());
    let kind = random.below(3);
    let rows = |tape: &Tape, logits: &Tensor| {
        let labels = tape.input("labels", Dtype::I32, [logits.dim(0)]);
        let nll = CrossEntropy::default().rows(logits, &labels, None).values;
        let all = log_softmax(logits);
        let odd = match kind {
            0 => (&(logits * a).tanh() * &all).mean(1),
            1 => (&all.exp() * &(logits * a).sin()).sum(1),
            _ => (&(logits * logits) * b).sigmoid().mean(1),
        };
        let ignored = labels.equal(&labels.like(f64::from(IGNORED)));
        let odd = odd.reshape([logits.dim(0)]);
        let focal = &(&nll * &(-&(&nll * c)).exp()) + &(&odd * b);
        vec![("nll", ignored.select(&focal.like(0.0), &focal))]
    };
    let whole = |tape: &Tape| {
        let nll = tape.input("nll", Dtype::F32, [problem::row_dim(tape)]);
        &nll.total() * 0.125
    };
    Loss::new("cross_entropy", vocab, rows, whole).map_err(describe)
}
