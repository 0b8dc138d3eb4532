//! The losses of [`reference::loss`] in the two parts that a chunked run takes: what each row gives, and what all make.
//!
//! Each function is also an example of how the two graphs of a loss are written: `rows` from a tape and the logits,
//! `whole` from a tape. Shapes broadcast, types do not mix; [`reference::graph::Tensor`] has the operations.
//!
//! `labels` i32 (N) belong to the rows; where a label is ignored the row does not count. Losses of sequences and of
//! pairs are for a given number of them, one after the other.

use reference::graph::{Dim, Dtype, Error, Tape, Tensor};
use reference::loss::{
    Compared, CrossEntropy, Divergence, Dpo, Head, IGNORED, Judged, Kto, LogProbabilities, Mse, Nll, Orpo,
    Pool, Reduction, Rows, SimPo, Targets, kept, log_softmax,
};

use super::problem::{Loss, row_dim};

/// Cross entropy of logits behind a head. Extras: `labels`, and `class_weight` f32 (V) if there are such. With a
/// z-loss, rows give `nll` and `z`, else `nll`.
pub fn cross_entropy(
    settings: CrossEntropy,
    head: Head,
    vocab: usize,
    weighted: bool,
    reduction: Reduction,
) -> Result<Loss, Error> {
    let has_z = settings.z_loss != 0.0;
    let class_weight = |tape: &Tape| weighted.then(|| tape.input("class_weight", Dtype::F32, [vocab]));
    let rows = |tape: &Tape, logits: &Tensor| {
        let (logits, labels) = (head.graph(logits), labels(tape));
        let nll = settings.rows(&logits, &labels, class_weight(tape).as_ref()).values;
        let z = has_z.then(|| ("z", settings.z_rows(&logits, &labels).values));
        [("nll", nll)].into_iter().chain(z).collect()
    };
    let whole = |tape: &Tape| {
        let labels = labels(tape);
        let counts = kept(&labels, settings.ignore_index);
        let weights = class_weight(tape).map_or(counts.clone(), |weight| {
            let ignored = counts.equal(&counts.like(0.0));
            let of_label = weight.gather(&ignored.select(&labels.like(0.0), &labels));
            ignored.select(&of_label.like(0.0), &of_label)
        });
        let reduced =
            |name: &str, weights: Tensor| Rows { values: values(tape, name), weights }.reduce(reduction);
        let nll = reduced("nll", weights);
        if has_z { &nll + &reduced("z", counts) } else { nll }
    };
    Loss::new("cross_entropy", vocab, rows, whole)
}

/// Cross entropy with probabilities. Extras: `targets` f32 (N, V).
pub fn targets(settings: Targets, vocab: usize, reduction: Reduction) -> Result<Loss, Error> {
    let rows = |tape: &Tape, logits: &Tensor| {
        let targets = tape.input("targets", Dtype::F32, [row_dim(tape), vocab.into()]);
        vec![("nll", settings.rows(logits, &targets, None).values)]
    };
    Loss::new("targets", vocab, rows, |tape| every_row(tape, "nll", reduction))
}

/// The distance from a teacher whose logits are a product of their own. Extras: `teacher_hidden` f32 (N, width),
/// `teacher_weight` f32 (V, width), and `mask` f32 (N).
pub fn distillation(
    divergence: Divergence,
    vocab: usize,
    width: usize,
    reduction: Reduction,
) -> Result<Loss, Error> {
    let rows = |tape: &Tape, logits: &Tensor| {
        let hidden = tape.input("teacher_hidden", Dtype::F32, [row_dim(tape), width.into()]);
        let weight = tape.input("teacher_weight", Dtype::F32, [vocab, width]);
        let mask = values(tape, "mask");
        vec![("divergence", divergence.rows(logits, &hidden.matmul(&weight.t()), &mask).values)]
    };
    let whole = |tape: &Tape| {
        let rows = Rows { values: values(tape, "divergence"), weights: values(tape, "mask") };
        rows.reduce(reduction)
    };
    Loss::new("distillation", vocab, rows, whole)
}

/// Squares of what is missing to `targets` f32 (N, V), where V are the outputs of a regression.
pub fn squares(outputs: usize, reduction: Reduction) -> Result<Loss, Error> {
    let rows = |tape: &Tape, logits: &Tensor| {
        let targets = tape.input("targets", Dtype::F32, [row_dim(tape), outputs.into()]);
        vec![("squares", Mse.rows(logits, &targets).values)]
    };
    Loss::new("squares", outputs, rows, |tape| every_row(tape, "squares", reduction))
}

/// Negative log-likelihood of log-probabilities, which here are the log-softmax of the logits. Extras: `labels`.
pub fn likelihood(settings: Nll, classes: usize, reduction: Reduction) -> Result<Loss, Error> {
    let rows = |tape: &Tape, logits: &Tensor| {
        vec![("nll", settings.rows(&log_softmax(logits), &labels(tape), None).values)]
    };
    let whole = |tape: &Tape| {
        let weights = kept(&labels(tape), settings.ignore_index);
        Rows { values: values(tape, "nll"), weights }.reduce(reduction)
    };
    Loss::new("likelihood", classes, rows, whole)
}

/// Answers to questions, whose tokens' log-probabilities are what rows give.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answers {
    /// S, the answers; of pairs, the chosen ones first.
    pub count: usize,
    /// T, the positions of each.
    pub length: usize,
    /// V, the entries of the vocabulary.
    pub vocab: usize,
}

impl Answers {
    /// Direct preference optimisation. Extras: `labels`; `reference` f32 (S), the sums of another model.
    pub fn dpo(self, dpo: Dpo, reduction: Reduction) -> Result<Loss, Error> {
        self.loss("dpo", |tape, log_p, mask| {
            let policy = self.compared(&Pool::Sum.graph(log_p, mask));
            let reference = self.compared(&tape.input("reference", Dtype::F32, [self.count]));
            dpo.rows(&policy, &reference).reduce(reduction)
        })
    }

    /// Simple preference optimisation. Extras: `labels`.
    pub fn simpo(self, simpo: SimPo, reduction: Reduction) -> Result<Loss, Error> {
        self.loss("simpo", |_, log_p, mask| {
            simpo.rows(&self.compared(&Pool::Mean.graph(log_p, mask))).reduce(reduction)
        })
    }

    /// Odds ratio preference optimisation: the likelihood of the answers that were chosen, and the odds. Extras:
    /// `labels`.
    pub fn orpo(self, orpo: Orpo, reduction: Reduction) -> Result<Loss, Error> {
        self.loss("orpo", |_, log_p, mask| self.odds_and_likelihood(orpo, reduction, log_p, [mask, mask]))
    }

    /// The same with the likelihood of prompts and answers, as TRL has it. Extras: `labels`, of prompts too; `answer`
    /// f32 (S * T), not 0 where a label belongs to an answer. The odds are of answers alone.
    pub fn orpo_of_texts(self, orpo: Orpo, reduction: Reduction) -> Result<Loss, Error> {
        self.loss("orpo_of_texts", |tape, log_p, mask| {
            let answer = tape.input("answer", Dtype::F32, [self.count * self.length]).reshape(mask.shape());
            let answer = answer.equal(&answer.like(0.0)).select(&mask.like(0.0), mask);
            self.odds_and_likelihood(orpo, reduction, log_p, [&answer, mask])
        })
    }

    /// The odds of the tokens under the first mask, and the likelihood of the chosen ones under the second.
    fn odds_and_likelihood(
        self,
        orpo: Orpo,
        reduction: Reduction,
        log_p: &Tensor,
        masks: [&Tensor; 2],
    ) -> Tensor {
        let odds = orpo.rows(&self.compared(&Pool::Mean.graph(log_p, masks[0]))).reduce(reduction);
        let chosen = |x: &Tensor| x.slice(0, 0, (self.count / 2) as i64);
        &odds + &orpo.token_rows(&chosen(log_p), &chosen(masks[1])).reduce(Reduction::Mean)
    }

    /// Kahneman-Tversky optimisation. Extras: `labels`; `reference` and `desirable` f32 (S); `z` f32 ().
    pub fn kto(self, kto: Kto, reduction: Reduction) -> Result<Loss, Error> {
        self.loss("kto", |tape, log_p, mask| {
            let given = |name: &str| tape.input(name, Dtype::F32, [self.count]);
            let [reference, desirable] = ["reference", "desirable"].map(given);
            let judged = Judged { policy: Pool::Sum.graph(log_p, mask), reference, desirable };
            kto.rows(&judged, &tape.input("z", Dtype::F32, Vec::<Dim>::new())).reduce(reduction)
        })
    }

    /// A loss of log-probabilities (S, T) under their mask.
    fn loss(self, name: &str, whole: impl FnOnce(&Tape, &Tensor, &Tensor) -> Tensor) -> Result<Loss, Error> {
        let rows = |tape: &Tape, logits: &Tensor| {
            vec![("log_p", LogProbabilities::default().rows(logits, &labels(tape)).values)]
        };
        Loss::new(name, self.vocab, rows, |tape| {
            let (all, shape) = ([self.count * self.length], [self.count, self.length]);
            let log_p = tape.input("log_p", Dtype::F32, all).reshape(shape);
            let mask = kept(&tape.input("labels", Dtype::I32, all), IGNORED).reshape(shape);
            whole(tape, &log_p, &mask)
        })
    }

    fn compared(self, answers: &Tensor) -> Compared<Tensor> {
        Compared::halves_of(answers, self.count / 2)
    }
}

fn labels(tape: &Tape) -> Tensor {
    tape.input("labels", Dtype::I32, [row_dim(tape)])
}

/// A number for each row.
fn values(tape: &Tape, name: &str) -> Tensor {
    tape.input(name, Dtype::F32, [row_dim(tape)])
}

/// Rows that all count once.
fn every_row(tape: &Tape, name: &str, reduction: Reduction) -> Tensor {
    let values = values(tape, name);
    Rows { weights: values.like(1.0), values }.reduce(reduction)
}
