//! Losses of sequences for training: batches whose rows, lengths and answers change from step to step.
//!
//! [`Answers`](super::losses::Answers) are for a given number of sequences of one length. A training run meets another
//! shape in each batch, and a loss for each of them would be compiled for each. Here the rows stay N, whatever they
//! are, and say by themselves which sequence they belong to:
//!
//! ```text
//! log_p (N)  --  answer (N)  -->  sums of slots (S)  -->  the loss of pairs or answers  -->  shares of slots  -->  loss
//! ```
//!
//! There are as many slots as the largest batch has sequences; one that a batch leaves empty has a share of 0. Every
//! loss is made of the log-probabilities alone, so chunks know their gradient up to a factor, and the logits are
//! computed once.
//!
//! Inputs of every `whole`: `log_p` f32 (N), the values of rows; `answer` i32 (N), the slot of each row's token; `mask`
//! f32 (N), 1 of a token that counts. What each asks for beside them stands at its function. Pairs are slots i and
//! S / 2 + i, the chosen answer first.

use reference::graph::{Dtype, Error, Tape, Tensor};
use reference::loss::{
    Compared, Head, Judged, Kto, Level, Orpo, PairKind, PairLoss, Policy, SimPo, Tokens, next_token_rows,
};

use super::problem::{Loss, row_dim};

/// The value of a row that a loss is made of.
pub const LOG_P: &str = "log_p";
/// 1 where no logit is larger than the label's.
pub const CORRECT: &str = "correct";
/// The entropy of the row's distribution, in nats.
pub const ENTROPY: &str = "entropy";
/// The mean of the row's logits.
pub const LOGITS: &str = "logits";

/// Sequences of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sequences {
    /// S: sequences that a batch may have.
    pub slots: usize,
    /// V, the entries of the vocabulary.
    pub vocab: usize,
    /// What logits are divided by.
    pub temperature: f64,
}

/// A policy's loss as sequences are trained by it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The settings; how tokens are averaged is what `shares` says.
    pub policy: Policy,
    /// Whether `old` is given: the log-probabilities when the tokens were sampled. They are today's otherwise.
    pub old: bool,
    /// Whether the distance from the reference is weighed by the ratio, as the tokens are not this policy's.
    pub is_distance_corrected: bool,
}

impl Sequences {
    /// A loss of pairs. Beside: `reference` f32 (N), the log-probabilities of another model; `tokens` f32 (S), what IPO
    /// divides sums by; `shares` f32 (S / 2).
    pub fn pairs(self, pair: PairLoss) -> Result<Loss, Error> {
        self.loss("pairs", |own| {
            let ratios = own.pooled(&(&own.log_p - &own.rows("reference")));
            let ratios = if pair.kind == PairKind::Ipo { &ratios / &own.slots("tokens") } else { ratios };
            let Compared { chosen, rejected } = own.compared(&ratios);
            own.weighed(&pair.rows(&(&chosen - &rejected)).values)
        })
    }

    /// The odds of pairs, and the likelihood of the chosen texts. Beside: `tokens` f32 (S), what sums are divided by;
    /// `shares` f32 (S / 2); `likelihood` f32 (N), what each row's -`log_p` counts.
    pub fn odds(self, orpo: Orpo) -> Result<Loss, Error> {
        self.loss("odds", |own| {
            let odds = orpo.rows(&own.compared(&own.means())).values;
            &own.weighed(&odds) + &own.likelihood()
        })
    }

    /// A loss of pairs without a reference. Beside: `tokens` f32 (S), what sums are divided by; `shares` f32 (S / 2);
    /// `likelihood` f32 (N), what each row's -`log_p` counts.
    pub fn simpo(self, simpo: SimPo) -> Result<Loss, Error> {
        self.loss("simpo", |own| {
            let margins = simpo.rows(&own.compared(&own.means())).values;
            &own.weighed(&margins) + &own.likelihood()
        })
    }

    /// A loss of answers that are good or bad. Beside: `reference` f32 (N); `desirable` and `shares` f32 (S); `z` f32
    /// (1).
    pub fn kto(self, kto: Kto) -> Result<Loss, Error> {
        self.loss("kto", |own| {
            let policy = own.pooled(&(&own.log_p - &own.rows("reference")));
            let reference = policy.like(0.0); // it is taken off token by token: little is left to round
            let judged = Judged { policy, reference, desirable: own.slots("desirable") };
            let z = own.tape.input("z", Dtype::F32, [1_usize]).reshape([] as [i64; 0]);
            own.weighed(&kto.rows(&judged, &z).values)
        })
    }

    /// A loss of sampled tokens. Beside: `advantages` f32 (N), for each token that of its sequence; `shares` f32 (N);
    /// `tokens` f32 (S), where a sequence has one ratio; `old` and `reference` f32 (N), if there are some.
    pub fn sampled(self, sampling: Sampling) -> Result<Loss, Error> {
        self.loss("sampled", |own| {
            let Sampling { policy, old, is_distance_corrected } = sampling;
            let log_p = &own.log_p;
            let old = if old { own.rows("old") } else { log_p.detach() };
            let apart = &(log_p - &old.detach()) * &own.mask;
            let ratio = match policy.level {
                Level::Token => apart,
                Level::Sequence => (&own.pooled(&apart) / &own.slots("tokens")).gather(&own.answer),
            };
            let tokens = Tokens {
                old: Some(ratio.like(0.0)),
                log_p: ratio.clone(),
                reference: None,
                advantages: own.rows("advantages"),
                mask: own.mask.clone(),
            };
            let gain = Policy { level: Level::Token, ..policy }.tokens(&tokens);
            let all = if policy.beta == 0.0 {
                gain
            } else {
                let d = &(&own.rows("reference") - log_p) * &own.mask;
                let distance = &(&d.exp() - &d) - 1.0;
                let distance = if is_distance_corrected { &distance * &ratio.exp() } else { distance };
                &gain + &(&distance * policy.beta)
            };
            (&all * &own.rows("shares")).total()
        })
    }

    /// A loss of log-probabilities, with what is logged of each row.
    fn loss(self, name: &str, whole: impl FnOnce(&Own<'_>) -> Tensor) -> Result<Loss, Error> {
        let rows = |tape: &Tape, logits: &Tensor| {
            let logits = Head::temperature(self.temperature).graph(logits);
            let labels = tape.input("labels", Dtype::I32, [row_dim(tape)]);
            let each = next_token_rows(&logits, &labels);
            let mean = logits.mean(1).reshape([row_dim(tape)]);
            vec![
                (LOG_P, -&each.losses),
                (CORRECT, each.correct.detach()), // so that nothing is computed to be multiplied by 0
                (ENTROPY, each.entropy.detach()),
                (LOGITS, mean.detach()),
            ]
        };
        Loss::new(name, self.vocab, rows, |tape| {
            let answer = tape.input("answer", Dtype::I32, [row_dim(tape)]);
            let mask = tape.input("mask", Dtype::F32, [row_dim(tape)]);
            let log_p = tape.input(LOG_P, Dtype::F32, [row_dim(tape)]);
            whole(&Own { slots: self.slots, tape, log_p, answer, mask })
        })
    }
}

/// What a `whole` is written from.
struct Own<'a> {
    slots: usize,
    tape: &'a Tape,
    log_p: Tensor,
    answer: Tensor,
    mask: Tensor,
}

impl Own<'_> {
    /// A number of each row.
    fn rows(&self, name: &str) -> Tensor {
        self.tape.input(name, Dtype::F32, [row_dim(self.tape)])
    }

    /// A number of each slot.
    fn slots(&self, name: &str) -> Tensor {
        self.tape.input(name, Dtype::F32, [self.slots])
    }

    /// The sum of each slot's rows, (S).
    fn pooled(&self, rows: &Tensor) -> Tensor {
        (rows * &self.mask).scatter_add(&self.answer, self.slots)
    }

    /// The mean log-probability of each slot; -1 of an empty one, whose odds are then a number.
    fn means(&self) -> Tensor {
        let tokens = self.slots("tokens");
        let means = &self.pooled(&self.log_p) / &tokens.max(&tokens.like(1.0));
        tokens.equal(&tokens.like(0.0)).select(&means.like(-1.0), &means)
    }

    fn compared(&self, slots: &Tensor) -> Compared<Tensor> {
        Compared::halves_of(slots, (self.slots / 2) as i64)
    }

    /// Values of pairs or of slots under their shares.
    fn weighed(&self, values: &Tensor) -> Tensor {
        let shares = self.tape.input("shares", Dtype::F32, values.shape());
        (values * &shares).total()
    }

    fn likelihood(&self) -> Tensor {
        -&(&self.log_p * &self.rows("likelihood")).total()
    }
}
