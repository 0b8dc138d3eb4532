//! What the library TRL adds up, which `tests/peers/loss_trl.py` wrote: ORPO's loss with the likelihood of prompts, and
//! policies whose batches share an update.
//!
//! TRL takes the odds of f64 log-probabilities in f32, so they agree to some 1e-7.

use std::collections::BTreeMap;

use challenges::loss::losses::Answers;
use challenges::loss::{Chunked, Loss, Problem, Solution, Trains};
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype};
use reference::loss::{
    Clip, Compared, Exact, IGNORED, Linear, LogProbabilities, Orpo, Policy, Pool, Reduction, Tokens, Value,
};
use serde::Deserialize;
use tests::one_graph::devices;

use super::case::Case;

const KEPT: &str = include_str!("trl.json");

/// How far from TRL's numbers an f64 computation may be, and a chunked one in f32, relative to the largest.
const CLOSE: [f64; 2] = [3e-7, 3e-6];

#[derive(Deserialize)]
struct Kept {
    orpo: Pairs,
    policy: Update,
}

/// Texts of two pairs, the chosen ones first.
#[derive(Deserialize)]
struct Pairs {
    shape: [usize; 4], // texts, their length, V, H
    text: Vec<i32>,    // each token's id, ignored where there is padding
    answer: Vec<f64>,  // 1 where a token belongs to an answer
    beta: f64,
    hidden: Vec<f64>,
    weight: Vec<f64>,
    loss: f64,
    grad_hidden: Vec<f64>,
    grad_weight: Vec<f64>,
}

/// The completions of an update, in batches of equally many.
#[derive(Deserialize)]
struct Update {
    length: usize,
    batches: usize,
    beta: f64,
    low: f64,
    high: f64,
    log_p: Vec<f64>,
    old: Vec<f64>,
    reference: Vec<f64>,
    advantages: Vec<f64>,
    mask: Vec<f64>,
    losses: BTreeMap<String, Sum>,
}

/// What the batches add up to.
#[derive(Deserialize)]
struct Sum {
    loss: f64,
    gradient: Vec<f64>,
}

fn kept() -> Kept {
    serde_json::from_str(KEPT).expect("the kept answers parse")
}

fn near(name: &str, got: &[f64], want: &[f64], close: f64) {
    assert_eq!(got.len(), want.len(), "{name}");
    let largest = want.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= close * largest, "{name}, element {i}: {got}, not {want}");
    }
}

impl Pairs {
    /// Each position's next token, and which of these belong to an answer.
    fn shifted(&self) -> (Vec<i32>, Vec<f64>) {
        let length = self.shape[1];
        let answers = self.answer.chunks(length).flat_map(|row| row[1..].iter().copied().chain([0.0]));
        (Solution.shift(&self.text, length), answers.collect())
    }

    /// The loss and its gradients by the oracle, the likelihood being that of the tokens under a mask.
    fn exact(&self, is_likely: &[f64]) -> [Vec<f64>; 3] {
        let [_, length, vocab, width] = self.shape;
        let (labels, answers) = self.shifted();
        let linear = Linear { hidden: &self.hidden, weight: &self.weight, bias: None, width };
        let (logits, _) = linear.exact().expect("sound");
        let tokens = LogProbabilities::default().exact(&logits, vocab, &labels).expect("sound");
        let pooled = Pool::Mean.exact(&tokens.values, length, &answers).expect("sound");
        let loss = Orpo { beta: self.beta };
        let odds = loss.exact(Compared::halves(&pooled.values).expect("pairs")).expect("sound");
        let odds = odds.reduce(Reduction::Mean).expect("sound");
        let half = labels.len() / 2;
        let plain = loss.exact_tokens(&tokens.values[..half], &is_likely[..half]).expect("sound");
        let Value { loss: likelihood, mut gradient } = plain.reduce(Reduction::Mean).expect("sound");
        gradient.resize(labels.len(), 0.0);
        let of_odds = pooled.pull_back(&Exact::as_halves(&odds.gradient));
        let both: Vec<f64> = of_odds.iter().zip(&gradient).map(|(a, b)| a + b).collect();
        let of = linear.pull_back(&tokens.pull_back(&both));
        [vec![odds.loss[0] + likelihood[0]], of.hidden, of.weight]
    }

    fn case(&self, loss: Loss) -> Case {
        let [texts, length, vocab, width] = self.shape;
        let ((labels, answers), rows) = (self.shifted(), texts * length);
        let dtype = Dtype::F32;
        let trains = Trains { hidden: true, weight: true, bias: false };
        let problem = Problem { loss, width, vocab, dtype, accumulate_dtype: dtype, bias: false, trains };
        let counts = labels.iter().map(|label| *label != IGNORED).collect();
        let floats = |shape: &[usize], numbers: &[f64]| Array::floats(dtype, shape, numbers.iter().copied());
        let values = Values::from([
            ("hidden".into(), floats(&[rows, width], &self.hidden)),
            ("weight".into(), floats(&[vocab, width], &self.weight)),
            ("answer".into(), floats(&[rows], &answers)),
            ("labels".into(), Array::integers(&[rows], labels)),
        ]);
        Case { problem, values, counts, upstream: None }
    }
}

#[test]
fn the_likelihood_of_prompts_makes_the_orpo_of_trl() {
    let kept = kept().orpo;
    let (labels, answers) = kept.shifted();
    let texts: Vec<f64> = labels.iter().map(|label| if *label == IGNORED { 0.0 } else { 1.0 }).collect();
    let want = [vec![kept.loss], kept.grad_hidden.clone(), kept.grad_weight.clone()];
    let names = ["loss", "hidden.grad", "weight.grad"];
    for (i, got) in kept.exact(&texts).iter().enumerate() {
        near(names[i], got, &want[i], CLOSE[0]);
    }
    let [of_answers, ..] = kept.exact(&answers);
    assert!((of_answers[0] - kept.loss).abs() > 0.01, "the answers alone have another likelihood");

    let [count, length, vocab, _] = kept.shape;
    let loss = Answers { count, length, vocab }.orpo_of_texts(Orpo { beta: kept.beta }, Reduction::Mean);
    let case = kept.case(loss.expect("shapes fit"));
    let sizes = [1, 5, case.counted()];
    for (device, size) in devices().into_iter().flat_map(|device| sizes.map(|size| (device, size))) {
        let got = case.run(device, size);
        for (name, want) in names.iter().zip(&want) {
            let what = format!("{size} rows at a time on {}: {name}", device.name());
            near(&what, &got[*name].wide(), want, CLOSE[1]);
        }
    }
}

#[test]
fn policies_add_up_over_the_batches_of_an_update_as_in_trl() {
    let kept = kept().policy;
    let clip = Clip { low: kept.low, high: kept.high, delta: None };
    let tokens: f64 = kept.mask.iter().sum();
    let sequences = kept.advantages.len();
    let (beta, batches) = (kept.beta, kept.batches as f64);
    for (name, want) in &kept.losses {
        let (policy, reduction, share) = match name.as_str() {
            "grpo" => (Policy::grpo(beta, clip), Reduction::Items(sequences as f64), 1.0),
            "bnpo" => (Policy::bnpo(beta, clip), Reduction::Mean, 1.0 / batches),
            "dapo" => (Policy::dapo(beta, clip, tokens), Reduction::Mean, 1.0),
            "dr_grpo" => (Policy::dr_grpo(beta, clip, kept.length as f64), Reduction::Mean, 1.0 / batches),
            other => panic!("no policy {other} is known"),
        };
        let part = |batch: usize| {
            let rows = sequences / kept.batches;
            let cut = |all: &[f64], width: usize| all[batch * rows * width..][..rows * width].to_vec();
            let of_tokens = |all: &[f64]| cut(all, kept.length);
            let [log_p, old, reference, mask] =
                [&kept.log_p, &kept.old, &kept.reference, &kept.mask].map(|all| of_tokens(all));
            let given = Tokens {
                log_p: log_p.as_slice(),
                old: Some(old.as_slice()),
                reference: Some(reference.as_slice()),
                advantages: &cut(&kept.advantages, 1),
                mask: &mask,
            };
            policy.exact(&given, kept.length).and_then(|rows| rows.reduce(reduction)).expect("sound")
        };
        let parts: Vec<Value> = (0..kept.batches).map(part).collect();
        let loss: f64 = parts.iter().map(|part| share * part.loss[0]).sum();
        let gradient: Vec<f64> = parts.iter().flat_map(|part| &part.gradient).map(|g| share * g).collect();
        near(name, &[loss], &[want.loss], 1e-12);
        near(name, &gradient, &want.gradient, 1e-12);
    }
}
