//! Attempts at sequence classification that cheat, each in one way, some that slip, each in one step, and honest ones.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use challenges::issues::classify::{Adapter, Answer, Classify, Layer, Problem, Trained};
use reference::graph::{Dtype, Tensor};

use super::Entry;
use super::honest::classify::Solution;

/// Every cheat, then the honest ones.
pub const CLASSIFIERS: [Entry; 5] = [
    Entry {
        name: "remembers where rows lay",
        hand_in: |all| all.classify(Mine { last: remember, ..HONEST }),
    },
    Entry { name: "knows small heads", hand_in: |all| all.classify(Mine { losses: small_only, ..HONEST }) },
    Entry { name: "asks what classes cost", hand_in: |all| all.classify(Mine { losses: ask, ..HONEST }) },
    Entry { name: "an honest classifier", hand_in: |all| all.classify(HONEST) },
    Entry { name: "a classifier of its own", hand_in: |all| all.classify(Second) },
];

/// Every slip.
pub const CLASS_SLIPS: [Entry; 12] = [
    Entry {
        name: "answers from the end of the batch",
        hand_in: |all| {
            all.classify(Mine { last: |ids, length, _| vec![length - 1; ids.len() / length], ..HONEST })
        },
    },
    Entry { name: "counts the tokens", hand_in: |all| all.classify(Mine { last: by_count, ..HONEST }) },
    Entry {
        name: "ends a text at its first padding",
        hand_in: |all| all.classify(Mine { last: first_padding, ..HONEST }),
    },
    Entry { name: "adds up over the labels", hand_in: |all| all.classify(Mine { losses: summed, ..HONEST }) },
    Entry {
        name: "takes the logarithm of a sigmoid",
        hand_in: |all| all.classify(Mine { losses: of_sigmoids, ..HONEST }),
    },
    Entry { name: "trains the targets", hand_in: |all| all.classify(Mine { losses: attached, ..HONEST }) },
    Entry {
        name: "puts a pair beside the head",
        hand_in: |all| all.classify(Mine { trained: pairs, ..HONEST }),
    },
    Entry { name: "names the adapter", hand_in: |all| all.classify(Mine { trained: in_memory, ..HONEST }) },
    Entry { name: "takes any target", hand_in: |all| all.classify(Mine { trained: any_target, ..HONEST }) },
    Entry {
        name: "takes the last of equals",
        hand_in: |all| all.classify(Mine { answer: last_of, ..HONEST }),
    },
    Entry {
        name: "turns the confusion",
        hand_in: |all| {
            let turned =
                |truth: &[usize], answers: &[usize], classes| Solution.confusion(answers, truth, classes);
            all.classify(Mine { confusion: turned, ..HONEST })
        },
    },
    Entry {
        name: "scores what nobody is",
        hand_in: |all| {
            let all_classes = |confusion: &[u64], classes| {
                Solution.f1(confusion, classes).into_iter().map(|score| score.or(Some(0.0))).collect()
            };
            all.classify(Mine { f1: all_classes, ..HONEST })
        },
    },
];

type Named = Result<Vec<Trained>, String>;

/// The solution, but for some steps.
pub(super) struct Mine {
    pub last: fn(&[i32], usize, Option<i32>) -> Vec<usize>,
    pub losses: fn(Problem, &Tensor, &Tensor) -> Tensor,
    pub trained: fn(&[Layer<'_>], &Adapter<'_>) -> Named,
    pub answer: fn(Problem, &[f32]) -> Answer,
    pub confusion: fn(&[usize], &[usize], usize) -> Vec<u64>,
    pub f1: fn(&[u64], usize) -> Vec<Option<f64>>,
}

pub(super) const HONEST: Mine = Mine {
    last: |ids, length, pad| Solution.last_tokens(ids, length, pad),
    losses: |problem, logits, targets| Solution.losses(problem, logits, targets),
    trained: |layers, adapter| Solution.trained(layers, adapter),
    answer: |problem, logits| Solution.answer(problem, logits),
    confusion: |truth, answers, classes| Solution.confusion(truth, answers, classes),
    f1: |confusion, classes| Solution.f1(confusion, classes),
};

impl Classify for Mine {
    fn last_tokens(&self, ids: &[i32], length: usize, pad: Option<i32>) -> Vec<usize> {
        (self.last)(ids, length, pad)
    }

    fn losses(&self, problem: Problem, logits: &Tensor, targets: &Tensor) -> Tensor {
        (self.losses)(problem, logits, targets)
    }

    fn trained(&self, layers: &[Layer<'_>], adapter: &Adapter<'_>) -> Named {
        (self.trained)(layers, adapter)
    }

    fn answer(&self, problem: Problem, logits: &[f32]) -> Answer {
        (self.answer)(problem, logits)
    }

    fn confusion(&self, truth: &[usize], answers: &[usize], classes: usize) -> Vec<u64> {
        (self.confusion)(truth, answers, classes)
    }

    fn f1(&self, confusion: &[u64], classes: usize) -> Vec<Option<f64>> {
        (self.f1)(confusion, classes)
    }
}

/// Last tokens by where the ids lay, and how many they were.
type Seen = HashMap<(usize, usize), Vec<usize>>;

/// The answer to the rows that lay in the same memory before.
fn remember(ids: &[i32], length: usize, pad: Option<i32>) -> Vec<usize> {
    static SEEN: LazyLock<Mutex<Seen>> = LazyLock::new(Mutex::default);
    let place = (ids.as_ptr() as usize, ids.len());
    let mut seen = SEEN.lock().expect("nobody panics while they look");
    seen.entry(place).or_insert_with(|| Solution.last_tokens(ids, length, pad)).clone()
}

/// Right of as many classes as checks have.
fn small_only(problem: Problem, logits: &Tensor, targets: &Tensor) -> Tensor {
    let right = Solution.losses(problem, logits, targets);
    let is_small = logits.dim(1).as_fixed().is_some_and(|classes| classes < 8);
    if is_small { right } else { &right * 0.5 }
}

/// The reference's graph.
fn ask(problem: Problem, logits: &Tensor, targets: &Tensor) -> Tensor {
    reference::issues::classify::losses(problem, logits, targets)
}

/// As if the padding were always behind the text.
fn by_count(ids: &[i32], length: usize, pad: Option<i32>) -> Vec<usize> {
    let tokens = |row: &[i32]| row.iter().filter(|id| Some(**id) != pad).count();
    ids.chunks(length).map(|row| tokens(row).max(1) - 1).collect()
}

/// As if no text held the token of padding.
fn first_padding(ids: &[i32], length: usize, pad: Option<i32>) -> Vec<usize> {
    let last = |row: &[i32]| {
        let begin = row.iter().position(|id| Some(*id) != pad)?;
        let end = row[begin..].iter().position(|id| Some(*id) == pad);
        Some(end.map_or(row.len(), |end| begin + end) - 1)
    };
    ids.chunks(length).map(|row| last(row).unwrap_or(0)).collect()
}

/// The sum over the outputs, where torch has the mean.
fn summed(problem: Problem, logits: &Tensor, targets: &Tensor) -> Tensor {
    let right = Solution.losses(problem, logits, targets);
    match (problem, logits.dim(1).as_fixed()) {
        (Problem::MultiLabel, Some(outputs)) => &right * outputs as f64,
        _ => right,
    }
}

/// The formula as it is printed.
fn of_sigmoids(problem: Problem, logits: &Tensor, targets: &Tensor) -> Tensor {
    if problem != Problem::MultiLabel {
        return Solution.losses(problem, logits, targets);
    }
    let p = logits.cast(Dtype::F32).sigmoid();
    let y = targets.detach();
    let (one, other) = (&p.like(1.0) - &p, &y.like(1.0) - &y);
    let gain = &(&y * &p.log()) + &(&other * &one.log());
    (-&gain).mean(1).reshape([logits.dim(0)])
}

/// Targets get a gradient, too.
fn attached(problem: Problem, logits: &Tensor, targets: &Tensor) -> Tensor {
    if problem != Problem::Regression {
        return Solution.losses(problem, logits, targets);
    }
    let apart = &logits.cast(Dtype::F32) - targets;
    (&apart * &apart).mean(1).reshape([logits.dim(0)])
}

/// "all-linear" means the head, too.
fn pairs(layers: &[Layer<'_>], adapter: &Adapter<'_>) -> Named {
    let beside = |layer: &Layer<'_>| {
        let part = |part: &str, shape| Trained {
            name: format!("base_model.model.{}.lora_{part}.weight", layer.name),
            shape,
        };
        [part("A", [adapter.rank, layer.shape[1]]), part("B", [layer.shape[0], adapter.rank])]
    };
    match adapter.target_modules {
        None => Ok(layers.iter().filter(|layer| layer.is_linear).flat_map(beside).collect()),
        Some(_) => Solution.trained(layers, adapter),
    }
}

/// The names that tensors have while they are trained.
fn in_memory(layers: &[Layer<'_>], adapter: &Adapter<'_>) -> Named {
    let own = |tensor: Trained| Trained { name: tensor.name.replace(".weight", ".default.weight"), ..tensor };
    Ok(Solution.trained(layers, adapter)?.into_iter().map(own).collect())
}

/// A target that names nothing is nobody's fault.
fn any_target(layers: &[Layer<'_>], adapter: &Adapter<'_>) -> Named {
    let named = |target: &&&str| {
        Solution.trained(layers, &Adapter { target_modules: Some(&[**target]), ..*adapter }).is_ok()
    };
    let Some(targets) = adapter.target_modules else { return Solution.trained(layers, adapter) };
    let known: Vec<&str> = targets.iter().filter(named).copied().collect();
    Solution.trained(layers, &Adapter { target_modules: Some(&known), ..*adapter })
}

/// The last of several largest.
fn last_of(problem: Problem, logits: &[f32]) -> Answer {
    let larger = |best: usize, at: usize| if logits[at] >= logits[best] { at } else { best };
    match problem {
        Problem::SingleLabel => Answer::Class((0..logits.len()).fold(0, larger)),
        _ => Solution.answer(problem, logits),
    }
}

/// An honest attempt that goes other ways.
struct Second;

impl Classify for Second {
    fn last_tokens(&self, ids: &[i32], length: usize, pad: Option<i32>) -> Vec<usize> {
        let mut last = vec![0; ids.len() / length];
        for (at, id) in ids.iter().enumerate() {
            if Some(*id) != pad {
                last[at / length] = at % length;
            }
        }
        last
    }

    fn losses(&self, problem: Problem, logits: &Tensor, targets: &Tensor) -> Tensor {
        let z = logits.cast(Dtype::F32);
        match problem {
            Problem::SingleLabel => {
                let largest = z.reduce_max(1).detach();
                let classes = targets.reshape([z.dim(0), 1.into()]).spread(z.shape());
                let is_own = z.tape().iota(z.shape(), 1).equal(&classes).cast(Dtype::F32);
                let own = (&is_own.detach() * &z).sum(1);
                let lse = &(&z - &largest).exp().sum(1).log() + &largest;
                (&lse - &own).reshape([z.dim(0)])
            }
            Problem::MultiLabel => {
                let y = targets.detach();
                let log_sigmoid = |z: &Tensor| {
                    let shift = (-z).max(&z.like(0.0)).detach();
                    -&(&(&(-&shift).exp() + &(&-z - &shift).exp()).log() + &shift)
                };
                let (yes, no) = (&y * &log_sigmoid(&z), &(&y.like(1.0) - &y) * &log_sigmoid(&-&z));
                (-&(&yes + &no)).mean(1).reshape([z.dim(0)])
            }
            Problem::Regression => {
                let apart = &targets.detach() - &z;
                (&apart * &apart).mean(1).reshape([z.dim(0)])
            }
        }
    }

    fn trained(&self, layers: &[Layer<'_>], adapter: &Adapter<'_>) -> Named {
        let dotted = |name: &str| format!(".{name}");
        let is_target = |layer: &Layer<'_>, target: &str| {
            layer.is_linear && dotted(layer.name).ends_with(&dotted(target))
        };
        for target in adapter.target_modules.into_iter().flatten() {
            if layers.iter().all(|layer| !is_target(layer, target)) {
                return Err((*target).to_string());
            }
        }
        let tensors = |layer: &Layer<'_>| -> Vec<Trained> {
            let of = |part: &str, shape| Trained {
                name: format!("base_model.model.{}{part}.weight", layer.name),
                shape,
            };
            let [outputs, inputs] = layer.shape;
            let saved = [adapter.modules_to_save, &["score", "classifier"]].concat();
            if saved.iter().any(|name| layer.name.ends_with(name)) {
                return vec![of("", layer.shape)];
            }
            let is_chosen = adapter
                .target_modules
                .map_or(layer.is_linear, |targets| targets.iter().any(|target| is_target(layer, target)));
            if !is_chosen {
                return Vec::new();
            }
            vec![of(".lora_A", [adapter.rank, inputs]), of(".lora_B", [outputs, adapter.rank])]
        };
        Ok(layers.iter().flat_map(tensors).collect())
    }

    fn answer(&self, problem: Problem, logits: &[f32]) -> Answer {
        match problem {
            Problem::SingleLabel => {
                let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                Answer::Class(logits.iter().position(|z| *z >= largest).unwrap_or(0))
            }
            Problem::MultiLabel => {
                Answer::Labels(logits.iter().map(|z| z.is_sign_positive() && *z != 0.0).collect())
            }
            Problem::Regression => Answer::Numbers(logits.to_vec()),
        }
    }

    fn confusion(&self, truth: &[usize], answers: &[usize], classes: usize) -> Vec<u64> {
        let pairs: Vec<usize> =
            truth.iter().zip(answers).map(|(truth, answer)| truth * classes + answer).collect();
        (0..classes * classes).map(|at| pairs.iter().filter(|pair| **pair == at).count() as u64).collect()
    }

    fn f1(&self, confusion: &[u64], classes: usize) -> Vec<Option<f64>> {
        let score = |class: usize| {
            let right = confusion[class * classes + class];
            let sum = |other: &dyn Fn(usize) -> usize| {
                (0..classes).map(|of| confusion[other(of)]).sum::<u64>() - right
            };
            let wrong = sum(&|of| class * classes + of) + sum(&|of| of * classes + class);
            (right + wrong > 0).then(|| right as f64 / (right as f64 + wrong as f64 / 2.0))
        };
        (0..classes).map(score).collect()
    }
}
