//! Problems with drawn settings, sizes and numbers.

use std::collections::BTreeMap;

use challenges::loss::losses::{self, Answers};
use challenges::loss::problem::ROWS;
use challenges::loss::{Chunked, Loss, Problem, Sampled, Solution, Trains};
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype, Error, Graph, Type};
use reference::loss::{
    Clip, CrossEntropy, Divergence, Dpo, Head, IGNORED, Kto, Nll, Orpo, Policy, Reduction, SimPo, Targets,
};

use super::case::Case;
use crate::loss::problem::Random;

/// How large a problem is.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub sequences: usize,
    pub length: usize,
    pub width: usize,
    pub vocab: usize,
}

/// A small problem of any kind.
pub fn any(random: &mut Random) -> Case {
    one_of(&[cross_entropy, cross_entropy, with_targets, of_answers, of_answers, policy, policy], random)
}

/// One whose seeds are computed from the values of whole sequences.
pub fn of_sequences(random: &mut Random) -> Case {
    one_of(&[of_answers], random)
}

/// What writes a loss for some sizes.
type Writer = fn(&mut Random, Sizes) -> Result<Loss, Error>;

fn one_of(writers: &[Writer], random: &mut Random) -> Case {
    let vocab = random.one(&[2, 3, 17, 37, 64, 65]);
    let width = random.one(&[1, 2, 5, 12, 16]);
    let length = random.one(&[1, 2, 3, 4, 4, 17]); // with 17 there are chunks whose bucket is longer than they are
    let sizes = Sizes { sequences: 2 * (1 + random.below(3)), length, width, vocab };
    let loss = random.one(writers)(random, sizes).expect("a loss");
    let trains = [(); 3].map(|()| random.below(3) > 0);
    with(loss, sizes, trains, random)
}

/// The plain cross entropy with drawn numbers.
pub fn plain(sizes: Sizes, reduction: Reduction, trains: [bool; 3], seed: u64) -> Case {
    let loss = losses::cross_entropy(CrossEntropy::default(), Head::default(), sizes.vocab, false, reduction);
    with(loss.expect("a loss"), sizes, trains, &mut Random(seed))
}

/// Numbers for a loss; with a bias where it is trained, and else every other time.
pub fn with(loss: Loss, sizes: Sizes, trains: [bool; 3], random: &mut Random) -> Case {
    let Sizes { width, vocab, .. } = sizes;
    let [hidden, weight, bias] = trains;
    let has_bias = bias || random.below(2) == 0;
    let trains = Trains { hidden, weight, bias };
    let problem = Problem {
        loss,
        width,
        vocab,
        dtype: Dtype::F32,
        accumulate_dtype: Dtype::F32,
        bias: has_bias,
        trains,
    };
    let rows = sizes.sequences * sizes.length;
    let counts = vec![true; rows];
    let mut case = Case { problem, values: Values::new(), counts, upstream: None };
    let shapes = [("hidden", vec![rows, width]), ("weight", vec![vocab, width]), ("bias", vec![vocab])];
    for (name, shape) in shapes {
        case.floats(name, &shape, [-1.0, 1.0], random);
    }
    case.extras(sizes, random);
    let numbers = if case.is_for_each_row() { rows } else { 1 };
    if random.below(2) == 0 {
        case.upstream = Some((0..numbers).map(|_| random.between(-2.0, 2.0) as f32).collect());
    }
    case
}

impl Case {
    fn floats(&mut self, name: &str, shape: &[usize], [low, high]: [f64; 2], random: &mut Random) {
        let numbers = random.all(shape.iter().product(), low, high);
        self.values.insert(name.into(), Array::floats(Dtype::F32, shape, numbers));
    }

    fn is_for_each_row(&self) -> bool {
        self.problem.loss.whole.outputs().iter().any(|(_, id)| self.problem.loss.whole.ty(*id).rank() > 0)
    }

    /// What the loss asks for beside logits and values.
    fn extras(&mut self, sizes: Sizes, random: &mut Random) {
        let bound = BTreeMap::from([(ROWS.into(), self.counts.len() as i64)]);
        for (name, ty) in asked(&self.problem.loss) {
            let shape: Vec<usize> =
                ty.shape.iter().map(|dim| dim.value(&bound).expect("a size") as usize).collect();
            match name.as_str() {
                "labels" => self.label(labels(sizes, random)),
                "mask" | "desirable" => {
                    let numbers = random.mask(shape.iter().product());
                    self.values.insert(name, Array::floats(Dtype::F32, &shape, numbers));
                }
                "advantages" => self.floats(&name, &shape, [-1.0, 1.0], random),
                "old" | "reference" => self.floats(&name, &shape, [-4.0, -0.5], random),
                _ => self.floats(&name, &shape, [0.1, 1.1], random),
            }
        }
        if let Some(mask) = self.values.get("mask") {
            self.counts = mask.wide().iter().map(|mask| *mask != 0.0).collect();
        }
    }

    fn label(&mut self, labels: Vec<i32>) {
        self.counts = labels.iter().map(|label| *label != IGNORED).collect();
        self.values.insert("labels".into(), Array::integers(&[labels.len()], labels));
    }
}

/// Every sequence has a token that counts: the odds of nothing are infinite.
fn labels(sizes: Sizes, random: &mut Random) -> Vec<i32> {
    let mut labels = random.labels(sizes.sequences * sizes.length, sizes.vocab, IGNORED);
    for sequence in labels.chunks_mut(sizes.length) {
        sequence[random.below(sizes.length)] = random.below(sizes.vocab) as i32;
    }
    labels
}

/// The inputs of both parts that a user gives.
fn asked(loss: &Loss) -> BTreeMap<String, Type> {
    let values: Vec<&str> = loss.values().collect();
    let of = |graph: &Graph| -> Vec<(String, Type)> {
        let inputs = graph.inputs().filter(|(name, _)| *name != "logits" && !values.contains(name));
        inputs.map(|(name, id)| (name.to_owned(), graph.ty(id).clone())).collect()
    };
    of(&loss.rows).into_iter().chain(of(&loss.whole)).collect()
}

fn reduction(random: &mut Random) -> Reduction {
    random.one(&[Reduction::None, Reduction::Sum, Reduction::Mean, Reduction::Items(7.5)])
}

fn cross_entropy(random: &mut Random, sizes: Sizes) -> Result<Loss, Error> {
    let settings = CrossEntropy {
        label_smoothing: random.one(&[0.0, 0.1]),
        z_loss: random.one(&[0.0, 0.01]),
        ..CrossEntropy::default()
    };
    let head = Head { scale: random.one(&[1.0, 0.25]), softcap: random.one(&[None, Some(2.0)]) };
    losses::cross_entropy(settings, head, sizes.vocab, random.below(2) == 0, reduction(random))
}

fn with_targets(random: &mut Random, Sizes { vocab, width, .. }: Sizes) -> Result<Loss, Error> {
    let reduction = reduction(random);
    let divergence = random.one(&[Divergence::ForwardKl, Divergence::JensenShannon { beta: 0.3 }]);
    match random.below(4) {
        0 => losses::targets(Targets { label_smoothing: 0.1 }, vocab, reduction),
        1 => losses::squares(vocab, reduction),
        2 => losses::likelihood(Nll { ignore_index: IGNORED }, vocab, reduction),
        _ => losses::distillation(divergence, vocab, width, reduction),
    }
}

fn of_answers(random: &mut Random, sizes: Sizes) -> Result<Loss, Error> {
    let answers = Answers { count: sizes.sequences, length: sizes.length, vocab: sizes.vocab };
    let reduction = random.one(&[Reduction::Sum, Reduction::Mean]);
    match random.below(4) {
        0 => answers.dpo(Dpo { beta: 0.3, label_smoothing: 0.1 }, reduction),
        1 => answers.simpo(SimPo { beta: 2.0, gamma: 0.5, label_smoothing: 0.0 }, reduction),
        2 => answers.orpo(Orpo { beta: 0.2 }, reduction),
        _ => answers.kto(Kto { beta: 0.2, desirable_weight: 1.0, undesirable_weight: 1.3 }, reduction),
    }
}

fn policy(random: &mut Random, Sizes { sequences, length, vocab, .. }: Sizes) -> Result<Loss, Error> {
    let clip = Clip { low: 0.2, high: random.one(&[0.2, 0.28]), delta: random.one(&[None, Some(4.0)]) };
    let policy = random.one(&[
        Policy::grpo(0.04, clip),
        Policy::bnpo(0.0, clip),
        Policy::dapo(0.0, clip, 17.0),
        Policy::dr_grpo(0.1, clip, length as f64),
        Policy::gspo(0.04, clip),
    ]);
    let [old, reference] = [(); 2].map(|()| random.below(2) == 0);
    let temperature = random.one(&[1.0, 0.9]);
    Solution.policy(&policy, &Sampled { sequences, length, vocab, temperature, old, reference })
}
