//! The correctness checks of E: every step for itself, the others being the solution's.

use std::collections::BTreeMap;

use challenges::loss::losses::{self, Answers};
use challenges::loss::plan::Plan;
use challenges::loss::run::{Hidden, Runner, Size};
use challenges::loss::{Chunked, Cost, Loss, Problem, Sampled, Trains};
use kernels::Cpu;
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dim, Dtype, Graph, Id, Op, Real, Tape, Tensor, interpret};
use reference::loss::{
    Average, Clip, CrossEntropy, Divergence, Dpo, Head, IGNORED, Kto, Level, LogProbabilities, Nll, Orpo,
    Policy, Reduction, SimPo, Targets, Tokens, log_softmax,
};

use super::alone::Alone;
use super::case::{ALL, Case, Found, SMALL, Sizes};
use crate::graph::{difference, narrowed, told};
use crate::random::Random;

/// What a step's checks are called.
const STEPS: [(&str, &[&str]); 6] = [
    (
        "E.1",
        &[
            "one-stretch",
            "by-seven",
            "one-at-a-time",
            "longer-than-the-vocabulary",
            "far-from-zero",
            "half-precision",
            "minus-infinity",
            "infinity-and-nan",
            "never-more-than-a-stretch",
        ],
    ),
    (
        "E.2",
        &[
            "every-row-once",
            "ignored-rows-cost-nothing",
            "nothing-counts",
            "inputs-and-outputs",
            "cross-entropy",
            "bias",
            "upcast",
            "no-copy-of-the-weight",
            "every-loss",
        ],
    ),
    (
        "E.3",
        &[
            "cross-entropy",
            "smoothing-and-class-weights",
            "softcap-and-scale",
            "z-loss",
            "bias",
            "probability-targets",
            "distillation",
            "squares-and-likelihood",
            "made-up",
            "adds-to-what-is-there",
            "sums-in-their-own-type",
            "frozen-head",
            "upcast",
        ],
    ),
    (
        "E.4",
        &[
            "mean",
            "sum",
            "none",
            "items",
            "upstream",
            "unequal-chunks",
            "every-chunk-size",
            "accumulation",
            "all-ignored",
            "preferences",
            "a-value-that-nobody-asks-for",
            "nothing-but-seeds",
            "shift",
            "infinity-and-nan",
            "a-label-outside",
        ],
    ),
    (
        "E.5",
        &[
            "grpo",
            "two-sided-clip",
            "bnpo",
            "dr-grpo",
            "gspo",
            "reference",
            "without-old",
            "temperature",
            "delta",
            "masks",
            "one-pass-for-tokens",
        ],
    ),
    ("E.6", &["the-most-that-fits", "evenly", "too-little", "more-than-enough", "any-costs"]),
];

/// Every check's name, in the order of the steps.
pub(super) fn names() -> Vec<String> {
    let of_step = |(step, cases): &(&str, &[&str])| {
        cases.iter().map(|case| format!("{step}/{case}")).collect::<Vec<_>>()
    };
    STEPS.iter().flat_map(of_step).collect()
}

/// Runs one check by its name.
pub(super) fn run(name: &str, attempt: &dyn Chunked, seed: u64) -> Result<u64, String> {
    let (step, case) = name.split_once('/').ok_or_else(|| format!("no check is called {name}"))?;
    let steps = Alone::new(step, attempt);
    let mut random = Random::named(seed, name);
    match step {
        "E.1" => log_sum_exp(&steps, case, &mut random),
        "E.2" => forward(&steps, case, &mut random),
        "E.3" => backward(&steps, case, &mut random),
        "E.4" => all_rows(&steps, case, &mut random),
        "E.5" => policy(&steps, case, &mut random),
        "E.6" => size(&steps, case, &mut random),
        _ => Err(format!("no step is called {step}")),
    }?;
    Ok(steps.asked.into_inner())
}

// --- E.1

/// A product's operands, and a stretch.
struct Stretched {
    hidden: Array<f64>, // (N, H)
    weight: Array<f64>, // (V, H)
    stretch: usize,
}

impl Stretched {
    fn drawn(dtype: Dtype, stretch: usize, reach: f64, random: &mut Random) -> Self {
        let mut draw = |shape: [usize; 2], reach: f64| {
            let numbers = (0..shape[0] * shape[1]).map(|_| reach * (2.0 * random.unit() - 1.0));
            Array::<f32>::floats(dtype, &shape, numbers).widened()
        };
        Self { hidden: draw([5, 6], reach), weight: draw([23, 6], 1.0), stretch }
    }

    fn graph(&self, attempt: &dyn Chunked) -> Result<Graph, String> {
        let builder = Builder::new("log_sum_exp");
        let input = |name: &str, value: &Array<f64>| {
            builder.tape().input(name, value.dtype, value.shape.iter().copied())
        };
        let (hidden, weight) = (input("hidden", &self.hidden), input("weight", &self.weight));
        builder.tape().output("lse", &attempt.log_sum_exp(&hidden, &weight, self.stretch));
        builder.finish().map_err(told)
    }

    /// ln of the sum of e^z of each row, by the definition.
    fn truth(&self) -> Vec<f64> {
        let width = self.hidden.shape[1];
        let (hidden, weight) = (self.hidden.wide(), self.weight.wide());
        let row = |h: &[f64]| {
            let dot = |w: &[f64]| h.iter().zip(w).map(|(h, w)| h * w).sum::<f64>();
            let z: Vec<f64> = weight.chunks(width).map(dot).collect();
            let largest = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let shift = if largest == f64::NEG_INFINITY { 0.0 } else { largest };
            z.iter().map(|z| (z - shift).exp()).sum::<f64>().ln() + shift
        };
        hidden.chunks(width).map(row).collect()
    }

    fn right(&self, attempt: &dyn Chunked) -> Result<(), String> {
        let graph = self.graph(attempt)?;
        let values: Values<f64> = [("hidden", &self.hidden), ("weight", &self.weight)]
            .map(|(name, x)| (name.to_owned(), x.clone()))
            .into();
        let wide = interpret(&graph, &values).map_err(told)?;
        let short = interpret(&graph, &narrowed(&values)).map_err(told)?;
        let rows = self.hidden.shape[0];
        let (wide, short) = (wide.first().ok_or("no output")?, short.first().ok_or("no output")?);
        if wide.shape != [rows, 1] || wide.dtype != Dtype::F32 {
            return Err(format!(
                "it has the shape {:?} of {:?}, needed is f32 ({rows}, 1)",
                wide.shape, wide.dtype
            ));
        }
        for (row, want) in self.truth().into_iter().enumerate() {
            for (got, slack) in [(wide.wide()[row], 1e-12), (short.wide()[row], self.slack())] {
                let alike = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
                if !alike && (got - want).abs() > slack * want.abs().max(1.0) || got.is_nan() != want.is_nan()
                {
                    return Err(format!("row {row}: got {got}, want {want}"));
                }
            }
        }
        Ok(())
    }

    /// The product may be rounded to its type.
    fn slack(&self) -> f64 {
        if self.hidden.dtype == Dtype::F32 { 3e-6 } else { 2e-2 }
    }
}

fn log_sum_exp(attempt: &dyn Chunked, case: &str, random: &mut Random) -> Result<(), String> {
    let drawn = |stretch, reach, random: &mut Random| Stretched::drawn(Dtype::F32, stretch, reach, random);
    let mut all = match case {
        "one-stretch" => drawn(23, 2.0, random),
        "by-seven" => drawn(7, 2.0, random),
        "one-at-a-time" => drawn(1, 2.0, random),
        "longer-than-the-vocabulary" => drawn(1000, 2.0, random),
        "far-from-zero" => drawn(4, 3e4, random),
        "half-precision" => Stretched::drawn(Dtype::Bf16, 6, 2.0, random),
        "never-more-than-a-stretch" => return narrow(attempt, &drawn(3, 2.0, random)),
        _ => drawn(5, 2.0, random),
    };
    if case == "minus-infinity" || case == "infinity-and-nan" {
        all.hidden = Array::floats(Dtype::F32, &[5, 6], all.hidden.wide().into_iter().map(|x| x.abs() + 0.1));
    }
    let mut set = |tensor: fn(&mut Stretched) -> &mut Array<f64>, rows: std::ops::Range<usize>, x: f64| {
        let array = tensor(&mut all);
        let mut numbers = array.wide();
        numbers[rows.start * 6..rows.end * 6].fill(x);
        *array = Array::floats(Dtype::F32, &array.shape.clone(), numbers);
    };
    if case == "minus-infinity" {
        set(|all| &mut all.weight, 0..6, f64::NEG_INFINITY); // all of the first stretch, and more
        set(|all| &mut all.weight, 20..23, f64::NEG_INFINITY);
        all.right(attempt)?;
        let mut none = drawn(5, 2.0, random);
        none.hidden = all.hidden.clone();
        none.weight = Array::floats(Dtype::F32, &[23, 6], vec![f64::NEG_INFINITY; 23 * 6]);
        return none.right(attempt);
    }
    if case == "infinity-and-nan" {
        set(|all| &mut all.hidden, 1..2, f64::NAN);
        set(|all| &mut all.hidden, 2..3, f64::INFINITY);
    }
    all.right(attempt)
}

/// That no product has more entries of the vocabulary than a stretch.
fn narrow(attempt: &dyn Chunked, of: &Stretched) -> Result<(), String> {
    let graph = of.graph(attempt)?;
    let most = of.stretch * of.hidden.shape[0];
    for id in graph.ids() {
        let elements: i64 = graph.ty(id).shape.iter().filter_map(Dim::as_fixed).product();
        if graph.node(id).op == Op::Matmul && elements as usize > most {
            let line = graph.line(id);
            return Err(format!(
                "with a stretch of {}, this has more entries than that:\n{line}",
                of.stretch
            ));
        }
    }
    Ok(())
}

// --- what is chunked

/// Plain cross entropy.
pub(super) fn plain(vocab: usize, reduction: Reduction) -> Result<Loss, String> {
    losses::cross_entropy(CrossEntropy::default(), Head::default(), vocab, false, reduction).map_err(told)
}

/// Losses of which each row is computed by itself.
fn loss_of_rows(case: &str, vocab: usize, random: &mut Random) -> Result<Loss, String> {
    let settings = CrossEntropy::default();
    let mean = Reduction::Mean;
    match case {
        "smoothing-and-class-weights" => {
            let smooth = CrossEntropy { label_smoothing: 0.1, ..settings };
            losses::cross_entropy(smooth, Head::default(), vocab, true, mean)
        }
        "softcap-and-scale" => {
            let head = Head { scale: 0.75, softcap: Some(2.5) };
            losses::cross_entropy(settings, head, vocab, false, mean)
        }
        "z-loss" => losses::cross_entropy(
            CrossEntropy { z_loss: 0.01, ..settings },
            Head::default(),
            vocab,
            false,
            mean,
        ),
        "probability-targets" => losses::targets(Targets { label_smoothing: 0.0 }, vocab, mean),
        "distillation" => losses::distillation(Divergence::ForwardKl, vocab, 9, mean),
        "jensen-shannon" => losses::distillation(Divergence::JensenShannon { beta: 0.3 }, vocab, 9, mean),
        "squares" => losses::squares(vocab, mean),
        "likelihood" => losses::likelihood(Nll { ignore_index: IGNORED }, vocab, mean),
        "made-up" => return made_up(vocab, random),
        _ => return plain(vocab, mean),
    }
    .map_err(told)
}

/// A loss that nobody has seen: some functions of log-probabilities and logits, drawn, under a name that is taken.
pub(super) fn made_up(vocab: usize, random: &mut Random) -> Result<Loss, String> {
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
        let nll = tape.input("nll", Dtype::F32, [challenges::loss::problem::row_dim(tape)]);
        &nll.total() * 0.125
    };
    Loss::new("cross_entropy", vocab, rows, whole).map_err(told)
}

/// Every loss whose rows are computed by themselves.
const OF_ROWS: [&str; 10] = [
    "cross-entropy",
    "smoothing-and-class-weights",
    "softcap-and-scale",
    "z-loss",
    "probability-targets",
    "distillation",
    "jensen-shannon",
    "squares",
    "likelihood",
    "made-up",
];

// --- E.2

fn forward(attempt: &Alone<'_>, case: &str, random: &mut Random) -> Result<(), String> {
    match case {
        "every-row-once" => {
            for (rows, size) in [(1, 1), (7, 1), (7, 3), (7, 7), (7, 100), (12, 4)] {
                cut(attempt, &vec![true; rows], size)?;
            }
            Ok(())
        }
        "ignored-rows-cost-nothing" => {
            for size in [1, 3, 16, 100] {
                let counts: Vec<bool> = (0..50).map(|_| random.below(3) > 0).collect();
                cut(attempt, &counts, size)?;
            }
            Ok(())
        }
        "nothing-counts" => cut(attempt, &[false; 9], 4),
        "inputs-and-outputs" => ports(attempt),
        "bias" => {
            let case = Case::drawn(plain(SMALL.vocab, Reduction::Mean)?, SMALL, random).biased(random);
            rows(attempt, &case)
        }
        "upcast" => upcast(attempt, random),
        "no-copy-of-the-weight" => [Dtype::Bf16, Dtype::F16].into_iter().try_for_each(|dtype| {
            let problem = Problem { dtype, ..exact_in_half(random)?.problem };
            no_copy(&attempt.forward(&problem).map_err(told)?)
        }),
        "every-loss" => {
            for name in OF_ROWS {
                let case = Case::drawn(loss_of_rows(name, SMALL.vocab, random)?, SMALL, random);
                rows(attempt, &case).map_err(|told| format!("{name}: {told}"))?;
            }
            Ok(())
        }
        _ => rows(attempt, &Case::drawn(plain(SMALL.vocab, Reduction::Mean)?, SMALL, random)),
    }
}

/// That chunks are the rows that count, in order, and no more chunks than needed.
fn cut(attempt: &dyn Chunked, counts: &[bool], size: usize) -> Result<(), String> {
    let chunks = attempt.cut(counts, size);
    let counting: Vec<usize> = (0..counts.len()).filter(|row| counts[*row]).collect();
    let about = format!("{} rows of which {} count, {size} at a time", counts.len(), counting.len());
    if let Some(chunk) = chunks.iter().find(|chunk| chunk.len() > size || chunk.is_empty()) {
        return Err(format!("{about}: there is a chunk of {} rows", chunk.len()));
    }
    let all: Vec<usize> = chunks.iter().flatten().copied().collect();
    if all != counting {
        return Err(format!("{about}: the chunks have the rows {all:?}, needed are {counting:?}"));
    }
    let need = counting.len().div_ceil(size);
    let got = chunks.len();
    if got > need { Err(format!("{about}: {got} chunks, {need} are enough")) } else { Ok(()) }
}

/// That graphs ask for what there is and give what is asked for.
fn ports(attempt: &dyn Chunked) -> Result<(), String> {
    for (bias, dtype) in [(false, Dtype::F32), (true, Dtype::Bf16)] {
        let loss = loss_of_rows("smoothing-and-class-weights", SMALL.vocab, &mut Random::new(1))?;
        let problem =
            Problem { loss, width: 6, vocab: SMALL.vocab, dtype, sums: Dtype::F32, bias, trains: ALL };
        let graph = attempt.forward(&problem).map_err(told)?;
        let names: Vec<&str> = graph.inputs().map(|(name, _)| name).collect();
        let mut need = vec!["hidden", "weight"];
        need.extend(bias.then_some("bias"));
        need.extend(problem.loss.extras().map(|(name, _)| name));
        let sorted = |names: &[&str]| {
            let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            names.sort();
            names
        };
        if sorted(&names) != sorted(&need) {
            return Err(format!("its inputs are {names:?}, needed are {need:?}"));
        }
        let outputs: Vec<&str> = graph.outputs().iter().map(|(name, _)| name.as_str()).collect();
        let need: Vec<&str> = problem.loss.values().collect();
        if outputs != need {
            return Err(format!("its outputs are {outputs:?}, needed are {need:?}"));
        }
    }
    Ok(())
}

/// The values of rows, against the truth.
fn rows(attempt: &dyn Chunked, case: &Case) -> Result<(), String> {
    let graph = attempt.forward(&case.problem).map_err(told)?;
    let truth = challenges::loss::Solution.forward(&case.problem).map_err(told)?;
    values_near(&graph, &truth, case, 1e-5)
}

/// The values of rows by a graph in f32, against what another one gives in f64.
fn values_near(graph: &Graph, truth: &Graph, case: &Case, slack: f64) -> Result<(), String> {
    let got = interpret(graph, &case.narrow()).map_err(told)?;
    let want = interpret(truth, &case.wide()).map_err(told)?;
    for ((name, _), (got, want)) in truth.outputs().iter().zip(got.iter().zip(&want)) {
        let (got, want) = (got.wide(), want.wide());
        let far = |row: &usize| (got[*row] - want[*row]).abs() > slack * want[*row].abs().max(1.0);
        if got.len() != want.len() {
            return Err(format!("`{name}` has {} values, needed are {}", got.len(), want.len()));
        }
        if let Some(row) = (0..want.len()).find(|row| case.counts[*row] && (far(row) || got[*row].is_nan())) {
            return Err(format!("`{name}` of row {row}: got {}, want {}", got[row], want[row]));
        }
    }
    Ok(())
}

/// Numbers whose product is exact in bf16, with a bias that is not: what is not taken to f32 before it is added loses digits.
pub(super) fn exact_in_half(random: &mut Random) -> Result<Case, String> {
    let sizes = Sizes { rows: 9, width: 8, vocab: 41 };
    let mut case = Case::drawn(plain(sizes.vocab, Reduction::Mean)?, sizes, random).biased(random);
    case.problem.dtype = Dtype::Bf16;
    let one = |i: usize| if i % sizes.width == (i / sizes.width) % sizes.width { 1.0 } else { 0.0 };
    let hidden =
        Array::floats(Dtype::F32, &[sizes.rows, sizes.width], (0..sizes.rows * sizes.width).map(one));
    let quarters = (0..sizes.vocab * sizes.width).map(|_| 0.25 * (random.below(129) as f64 - 64.0));
    let weight = Array::floats(Dtype::F32, &[sizes.vocab, sizes.width], quarters);
    let small = (0..sizes.vocab).map(|_| (random.below(255) as f64 - 127.0) / 1024.0);
    let bias = Array::floats(Dtype::F32, &[sizes.vocab], small);
    case.values
        .extend([("hidden", hidden), ("weight", weight), ("bias", bias)].map(|(name, x)| (name.into(), x)));
    Ok(case)
}

fn upcast(attempt: &dyn Chunked, random: &mut Random) -> Result<(), String> {
    let why = "logits have to be in f32 from the product on";
    rows(attempt, &exact_in_half(random)?).map_err(|told| format!("{told}: {why}"))
}

/// That no operand is in another type before the product.
fn no_copy(graph: &Graph) -> Result<(), String> {
    for name in ["weight", "hidden"] {
        let Some(operand) = graph.find_input(name) else { continue };
        let is_copy = |id: &Id| {
            let from = graph.ancestors([*id]);
            let multiplied = from.iter().any(|id| graph.node(*id).op == Op::Matmul);
            graph.node(*id).op == Op::Cast && from.contains(&operand) && !multiplied
        };
        if let Some(id) = graph.ids().find(is_copy) {
            let (to, line) = (graph.ty(id).dtype.name(), graph.line(id));
            return Err(format!(
                "`{name}` is cast to {to}: that is another copy of it, and the product is to be of the \
                problem's type\n{line}"
            ));
        }
    }
    Ok(())
}

// --- E.3

fn backward(attempt: &Alone<'_>, case: &str, random: &mut Random) -> Result<(), String> {
    let drawn = |name: &str, random: &mut Random| {
        Ok::<Case, String>(Case::drawn(loss_of_rows(name, SMALL.vocab, random)?, SMALL, random))
    };
    match case {
        "squares-and-likelihood" => {
            differentiated(attempt, &drawn("squares", random)?, random)?;
            differentiated(attempt, &drawn("likelihood", random)?, random)
        }
        "distillation" => {
            differentiated(attempt, &drawn("distillation", random)?, random)?;
            differentiated(attempt, &drawn("jensen-shannon", random)?, random)
        }
        "bias" => differentiated(attempt, &drawn("cross-entropy", random)?.biased(random), random),
        "made-up" => (0..6).try_for_each(|_| differentiated(attempt, &drawn("made-up", random)?, random)),
        "adds-to-what-is-there" => adds(attempt, &drawn("cross-entropy", random)?.biased(random), random),
        "sums-in-their-own-type" => {
            typed_sums(attempt, &drawn("cross-entropy", random)?.biased(random), random)
        }
        "frozen-head" => frozen(attempt, &mut drawn("cross-entropy", random)?),
        "upcast" => {
            let case = exact_in_half(random)?;
            let graph = attempt.backward(&case.problem).map_err(told)?;
            let truth = challenges::loss::Solution.forward(&case.problem).map_err(told)?;
            let seeded = case.seeded(vec![1.0; case.counts.len()]);
            values_near(&graph, &truth, &seeded, 1e-5)
                .map_err(|told| format!("{told}: logits have to be in f32 from the product on"))
        }
        name => differentiated(attempt, &drawn(name, random)?, random),
    }
}

/// A chunk's gradients by a graph in f32, against the rules' in f64.
fn differentiated(attempt: &dyn Chunked, case: &Case, random: &mut Random) -> Result<(), String> {
    let seeds =
        case.counts.iter().map(|counts| if *counts { 2.0 * random.unit() - 0.5 } else { 0.0 }).collect();
    let case = case.seeded(seeds);
    let graph = attempt.backward(&case.problem).map_err(told)?;
    let truth = challenges::loss::Solution.backward(&case.problem).map_err(told)?;
    let got = interpret(&graph, &case.narrow()).map_err(told)?;
    let plain = interpret(&truth, &case.narrow()).map_err(told)?;
    let want = interpret(&truth, &case.wide()).map_err(told)?;
    for (i, (name, id)) in truth.outputs().iter().enumerate() {
        let place = graph.outputs().iter().position(|(other, _)| other == name);
        let place = place.ok_or_else(|| format!("there is no output `{name}`: {}", truth.line(*id)))?;
        if let Some(told) = difference(&got[place], &plain[i], &want[i]) {
            return Err(format!("`{name}`: {told}"));
        }
    }
    Ok(())
}

/// That gradients of what all chunks share are added to what is given.
fn adds(attempt: &dyn Chunked, case: &Case, random: &mut Random) -> Result<(), String> {
    let mut case = case.seeded(vec![0.25; case.counts.len()]);
    let Problem { width, vocab, .. } = case.problem;
    case.floats("weight.grad", &[vocab, width], 3.0, random);
    case.floats("bias.grad", &[vocab], 3.0, random);
    differentiated_as_it_is(attempt, &case)
}

/// That gradients are added up in the type that the problem says.
fn typed_sums(attempt: &dyn Chunked, case: &Case, random: &mut Random) -> Result<(), String> {
    let mut case = case.seeded(vec![0.25; case.counts.len()]);
    let Problem { width, vocab, .. } = case.problem;
    case.floats("weight.grad", &[vocab, width], 3.0, random);
    case.floats("bias.grad", &[vocab], 3.0, random);
    let truth = challenges::loss::Solution.backward(&case.problem).map_err(told)?;
    let truth = by_name(&truth, interpret(&truth, &case.wide()).map_err(told)?);
    for (dtype, sums) in [(Dtype::Bf16, Dtype::F32), (Dtype::Bf16, Dtype::Bf16), (Dtype::F16, Dtype::F16)] {
        (case.problem.dtype, case.problem.sums) = (dtype, sums);
        let graph = attempt.backward(&case.problem).map_err(told)?;
        for name in SUMS {
            for id in [graph.find_input(name), graph.find_output(name)] {
                let got = id.map(|id| graph.ty(id).dtype);
                if got != Some(sums) {
                    let (got, need) = (got.map_or("not there", Dtype::name), sums.name());
                    return Err(format!("`{name}` is {got}, and the problem's sums are {need}"));
                }
            }
        }
        let values =
            case.narrow().into_iter().map(|(name, value)| (name.clone(), of_sums(&name, value, sums)));
        let got = interpret(&graph, &values.collect()).map_err(told)?;
        sums_near(&by_name(&graph, got), &truth)?;
    }
    Ok(())
}

/// What chunks add up.
const SUMS: [&str; 2] = ["weight.grad", "bias.grad"];

/// A value in the type of the sums, if it is one.
fn of_sums(name: &str, value: Array<f32>, sums: Dtype) -> Array<f32> {
    if SUMS.contains(&name) { Array::floats(sums, &value.shape, value.wide()) } else { value }
}

fn by_name<R: Real>(graph: &Graph, results: Vec<Array<R>>) -> BTreeMap<String, Array<R>> {
    graph.outputs().iter().map(|(name, _)| name.clone()).zip(results).collect()
}

/// That sums in narrow types are near the truth, by a few roundings of the largest element.
fn sums_near(got: &Found, truth: &BTreeMap<String, Array<f64>>) -> Result<(), String> {
    for name in SUMS {
        let (Some(got), Some(truth)) = (got.get(name), truth.get(name)) else {
            return Err(format!("there is no output `{name}`"));
        };
        let (got, truth) = (got.wide(), truth.wide());
        let largest = truth.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
        let far = got.iter().zip(&truth).position(|(got, truth)| {
            let near = (got - truth).abs() <= 0.03 * largest; // NaN is not near
            !near
        });
        if let Some(i) = far {
            return Err(format!("`{name}`, element {i}: got {:.4e}, the truth is {:.4e}", got[i], truth[i]));
        }
    }
    Ok(())
}

fn differentiated_as_it_is(attempt: &dyn Chunked, case: &Case) -> Result<(), String> {
    let graph = attempt.backward(&case.problem).map_err(told)?;
    let truth = challenges::loss::Solution.backward(&case.problem).map_err(told)?;
    let results = |graph: &Graph| -> Result<Found, String> {
        let names = graph.outputs().iter().map(|(name, _)| name.clone());
        Ok(names.zip(interpret(graph, &case.narrow()).map_err(told)?).collect())
    };
    let (got, plain) = (results(&graph)?, results(&truth)?);
    let exact = interpret(&truth, &case.wide()).map_err(told)?;
    let exact = |name: &str| truth.outputs().iter().position(|(other, _)| other == name).map(|i| &exact[i]);
    for name in ["weight.grad", "bias.grad"] {
        let (Some(got), Some(plain), Some(exact)) = (got.get(name), plain.get(name), exact(name)) else {
            return Err(format!("there is no output `{name}`"));
        };
        if let Some(told) = difference(got, plain, exact) {
            let cause = if lacks(got, plain, &case.values[name]) { MISSING } else { "" };
            return Err(format!("`{name}`, with something there before: {told}{cause}"));
        }
    }
    Ok(())
}

/// What is said of a sum that is started afresh.
const MISSING: &str = "\nlikely cause: what was there before is missing";

/// Whether a sum is right but for what was there before.
fn lacks(got: &Array<f32>, want: &Array<f32>, before: &Array<f64>) -> bool {
    let all = got.wide().into_iter().zip(want.wide()).zip(before.wide());
    got.shape == want.shape && all.into_iter().all(|((got, want), before)| (got + before - want).abs() < 1e-4)
}

/// That a frozen weight has no gradient, and that nothing is computed for one.
fn frozen(attempt: &dyn Chunked, case: &mut Case) -> Result<(), String> {
    case.problem.trains = Trains { hidden: true, weight: false, bias: false };
    let graph = attempt.backward(&case.problem).map_err(told)?;
    if let Some((name, _)) = graph.outputs().iter().find(|(name, _)| name == "weight.grad") {
        return Err(format!("the weight is frozen, and there is an output `{name}`"));
    }
    if graph.find_input("weight.grad").is_some() {
        return Err("the weight is frozen, and its gradient is asked for as an input".into());
    }
    case.right(attempt, 5)
}

// --- E.4

fn all_rows(attempt: &Alone<'_>, case: &str, random: &mut Random) -> Result<(), String> {
    let drawn = |reduction, random: &mut Random| {
        Ok::<Case, String>(Case::drawn(plain(SMALL.vocab, reduction)?, SMALL, random))
    };
    let upstream = |count: usize, random: &mut Random| {
        (0..count).map(|_| (2.0 * random.unit() - 0.5) as f32).collect::<Vec<f32>>()
    };
    match case {
        "sum" => drawn(Reduction::Sum, random)?.right(attempt, 4),
        "none" => {
            let case = drawn(Reduction::None, random)?;
            let upstream = Some(upstream(case.counts.len(), random));
            Case { upstream, ..case }.right(attempt, 4)
        }
        "items" => drawn(Reduction::Items(29.0), random)?.right(attempt, 4),
        "upstream" => {
            let upstream = Some(upstream(1, random));
            Case { upstream, ..drawn(Reduction::Mean, random)? }.right(attempt, 4)
        }
        "unequal-chunks" => unequal(random)?.right(attempt, 4),
        "every-chunk-size" => every_size(attempt, random),
        "accumulation" => accumulated(attempt, random),
        "all-ignored" => {
            let mut case = drawn(Reduction::Mean, random)?;
            case.label(vec![IGNORED; case.counts.len()]);
            case.right(attempt, 4)
        }
        "preferences" => preferences(attempt, random),
        "a-value-that-nobody-asks-for" => {
            let case = Case::drawn(with_metric(SMALL.vocab)?, SMALL, random);
            [4, 13].into_iter().try_for_each(|size| case.right(attempt, size))
        }
        "nothing-but-seeds" => nothing_but_seeds(attempt, random),
        "shift" => shift(attempt),
        "infinity-and-nan" => surfaces(attempt, random),
        "a-label-outside" => outside(attempt, random),
        _ => drawn(Reduction::Mean, random)?.right(attempt, 4),
    }
}

/// Rows that count are many at the beginning and few at the end, and dear where they are few.
pub(super) fn unequal(random: &mut Random) -> Result<Case, String> {
    let mut case = Case::drawn(plain(SMALL.vocab, Reduction::Mean)?, SMALL, random);
    let rows = case.counts.len();
    let label =
        |row: usize| if row < 9 || row == rows - 1 { random.below(SMALL.vocab) as i32 } else { IGNORED };
    case.label((0..rows).map(label).collect());
    Ok(case)
}

/// One at a time, an odd number, one with a rest, all at once.
fn every_size(attempt: &dyn Chunked, random: &mut Random) -> Result<(), String> {
    let sizes = [1, 3, 5, 8, 13, 100];
    for name in ["cross-entropy", "z-loss", "distillation", "made-up"] {
        let case = Case::drawn(loss_of_rows(name, SMALL.vocab, random)?, SMALL, random).biased(random);
        sizes
            .into_iter()
            .try_for_each(|size| case.right(attempt, size))
            .map_err(|told| format!("{name}: {told}"))?;
    }
    Ok(())
}

/// Two batches of unequal size that share a number of items give the gradient of one large batch.
fn accumulated(attempt: &dyn Chunked, random: &mut Random) -> Result<(), String> {
    let whole = Case::drawn(plain(SMALL.vocab, Reduction::Items(11.0))?, SMALL, random);
    let device = Cpu::with_threads(2);
    let mut runner = Runner::new(&device, &challenges::graph::Solution, attempt, &whole.problem);
    let mut so_far = BTreeMap::new();
    let mut loss = 0.0;
    for rows in [0..9, 9..SMALL.rows] {
        let part = whole.part(rows);
        let (hidden, given) = part.given(&device)?;
        let mut job = part.job(Hidden::Lent(&hidden), &given, Size::Rows(4));
        job.so_far = so_far;
        let mut results = runner.run(job).map_err(told)?;
        loss += f64::from(results.loss.first().copied().unwrap_or(f32::NAN));
        results.gradients.remove("hidden.grad");
        so_far = results.gradients;
    }
    let mut whole = whole;
    whole.problem.trains.hidden = false;
    let shape = [whole.problem.vocab, whole.problem.width];
    let sum = so_far.get("weight.grad").ok_or("there is no `weight.grad`")?;
    let weight = Array::from_memory(Dtype::F32, &shape, sum.view());
    let loss = Array::floats(Dtype::F32, &[], [loss]);
    whole.near(&Found::from([("loss".into(), loss), ("weight.grad".into(), weight)]))
}

/// Cross entropy beside a value that its `whole` does not ask for: the largest logit, which has a gradient.
fn with_metric(vocab: usize) -> Result<Loss, String> {
    let Loss { rows, whole } = plain(vocab, Reduction::Mean)?;
    let logits = rows.find_input("logits").ok_or("cross entropy has no logits")?;
    let builder = Builder::onto(rows);
    let logits = builder.tensor(logits);
    builder.tape().output("largest", &logits.reduce_max(1).reshape([logits.dim(0)]));
    Ok(Loss { rows: builder.finish().map_err(told)?, whole })
}

/// That seeds are the only outputs, and that a loss whose seeds follow from labels takes one pass.
fn nothing_but_seeds(attempt: &dyn Chunked, random: &mut Random) -> Result<(), String> {
    for reduction in [Reduction::Mean, Reduction::Sum] {
        let case = Case::drawn(plain(SMALL.vocab, reduction)?, SMALL, random);
        case.run(attempt, 4)?; // the machine says which output is none
        let plan = Plan::new(attempt, &case.problem, &case.counts, 4).map_err(told)?;
        if plan.first.is_some() {
            return Err("labels are enough for the seeds, and they ask for the values of all rows: \
                the logits are computed twice"
                .into());
        }
    }
    Ok(())
}

/// Losses of sequences and pairs: seeds that depend on all rows.
fn preferences(attempt: &dyn Chunked, random: &mut Random) -> Result<(), String> {
    let answers = Answers { count: 4, length: 5, vocab: SMALL.vocab };
    let (mean, smoothing) = (Reduction::Mean, 0.1);
    let all = [
        ("dpo", answers.dpo(Dpo { beta: 0.5, label_smoothing: smoothing }, mean)),
        ("simpo", answers.simpo(SimPo { beta: 2.0, gamma: 0.5, label_smoothing: smoothing }, mean)),
        ("orpo", answers.orpo(Orpo { beta: 0.3 }, mean)),
        ("kto", answers.kto(Kto { beta: 0.4, desirable_weight: 1.0, undesirable_weight: 1.5 }, mean)),
    ];
    for (name, loss) in all {
        let sizes = Sizes { rows: 20, ..SMALL };
        let case = Case::drawn(loss.map_err(told)?, sizes, random);
        [3, 20]
            .into_iter()
            .try_for_each(|size| case.right(attempt, size))
            .map_err(|told| format!("{name}: {told}"))?;
    }
    Ok(())
}

fn shift(attempt: &dyn Chunked) -> Result<(), String> {
    let none = IGNORED;
    let all: [(&[i32], usize, Vec<i32>); 5] = [
        (&[5, 6, 7, 8], 4, vec![6, 7, 8, none]),
        (&[5, 6, 7, 8, 9, 10], 3, vec![6, 7, none, 9, 10, none]),
        (&[5, none, 7, 8], 2, vec![none, none, 8, none]),
        (&[3, 4, 5], 1, vec![none; 3]),
        (&[], 4, vec![]),
    ];
    for (labels, length, want) in all {
        let got = attempt.shift(labels, length);
        if got != want {
            return Err(format!("{labels:?} in sequences of {length}: got {got:?}, want {want:?}"));
        }
    }
    Ok(())
}

/// What is not finite in one row shows in the loss and in that row, and nowhere else.
fn surfaces(attempt: &dyn Chunked, random: &mut Random) -> Result<(), String> {
    for bad in [f64::NAN, f64::INFINITY] {
        let clean = Case::drawn(plain(SMALL.vocab, Reduction::Mean)?, SMALL, random);
        let mut hidden = clean.values["hidden"].wide();
        let [counting, ignored] = [4, 3].map(|row| row * SMALL.width);
        hidden[counting] = bad;
        let mut case = Case { values: clean.values.clone(), ..clean };
        case.problem.trains.weight = false;
        case.values
            .insert("hidden".into(), Array::floats(Dtype::F32, &[SMALL.rows, SMALL.width], hidden.clone()));
        let got = case.run(attempt, 4)?;
        let (loss, of_hidden) = (got["loss"].wide()[0], got["hidden.grad"].wide());
        if !loss.is_nan() {
            return Err(format!("with {bad} among the hidden states of row 4, the loss is {loss}"));
        }
        let spoilt = |row: &[f64]| row.iter().any(|x| x.is_nan());
        let rows: Vec<usize> =
            (0..SMALL.rows).filter(|row| spoilt(&of_hidden[row * SMALL.width..][..SMALL.width])).collect();
        if rows != [4] {
            return Err(format!("with {bad} in row 4, these rows of the gradient are NaN: {rows:?}"));
        }
        hidden[counting] = 0.5;
        hidden[ignored] = bad; // nobody looks there
        case.values.insert("hidden".into(), Array::floats(Dtype::F32, &[SMALL.rows, SMALL.width], hidden));
        let loss = case.run(attempt, 4)?["loss"].wide()[0];
        if !loss.is_finite() {
            return Err(format!("with {bad} in row 3, which is ignored, the loss is {loss}"));
        }
    }
    Ok(())
}

/// A label that is no entry of the vocabulary is an error that names its row.
fn outside(attempt: &dyn Chunked, random: &mut Random) -> Result<(), String> {
    for bad in [SMALL.vocab as i32, -1, i32::MAX] {
        let mut case = Case::drawn(plain(SMALL.vocab, Reduction::Mean)?, SMALL, random);
        let mut labels = case.values["labels"].as_integers().to_vec();
        labels[7] = bad;
        case.label(labels);
        match case.run(attempt, 4) {
            Err(told) if told.contains('7') && told.contains(&bad.to_string()) => {}
            Err(told) => return Err(format!("a label {bad} in row 7 is refused with other words: {told}")),
            Ok(_) => {
                return Err(format!("a label {bad} in row 7 is taken, the vocabulary has {}", SMALL.vocab));
            }
        }
    }
    Ok(())
}

// --- E.5

/// A policy with its completions.
fn policy_of(case: &str) -> (Policy, Sampled) {
    let clip = Clip::both(0.2);
    let sampled = Sampled {
        sequences: 3,
        length: 6,
        vocab: SMALL.vocab,
        temperature: 1.0,
        old: true,
        reference: false,
    };
    match case {
        "two-sided-clip" => (Policy::bnpo(0.0, Clip { high: 0.28, ..clip }), sampled),
        "bnpo" => (Policy::bnpo(0.0, clip), sampled),
        "dr-grpo" => (Policy::dr_grpo(0.0, clip, 5.0), sampled),
        "gspo" => (Policy::gspo(0.1, clip), Sampled { reference: true, ..sampled }),
        "reference" => (Policy::grpo(0.04, clip), Sampled { reference: true, ..sampled }),
        "without-old" => (Policy::grpo(0.1, clip), Sampled { old: false, reference: true, ..sampled }),
        "temperature" => (Policy::grpo(0.0, clip), Sampled { temperature: 0.7, ..sampled }),
        "delta" => (Policy::grpo(0.0, Clip { delta: Some(1.1), ..clip }), sampled),
        _ => (Policy::grpo(0.0, clip), sampled),
    }
}

fn policy(attempt: &Alone<'_>, case: &str, random: &mut Random) -> Result<(), String> {
    let (policy, sampled) = policy_of(case);
    if case == "one-pass-for-tokens" {
        return one_pass(attempt, &policy, &sampled, random);
    }
    for round in 0..5 {
        let prompt = if case == "masks" { round % 3 + 1 } else { 2 };
        let loss = attempt.policy(&policy, &sampled).map_err(told)?;
        let case = completions(loss, &sampled, prompt, case == "masks", random);
        for size in [4, sampled.sequences * sampled.length] {
            let got = case.run(attempt, size)?;
            near_policy(&case, &policy, &sampled, &got)
                .map_err(|told| format!("{size} rows at a time: {told}"))?;
        }
        if policy.level == Level::Sequence && policy.average == Average::Sequences {
            let all = Policy { average: Average::Tokens, ..policy };
            let loss = attempt.policy(&all, &sampled).map_err(told)?;
            let case = Case { problem: Problem { loss, ..case.problem.clone() }, ..case };
            near_policy(&case, &all, &sampled, &case.run(attempt, 5)?)?;
        }
    }
    Ok(())
}

/// Completions behind prompts, of unequal length; numbers of tokens that do not count are not even finite.
fn completions(loss: Loss, sampled: &Sampled, prompt: usize, empty: bool, random: &mut Random) -> Case {
    let Sampled { sequences, length, vocab, .. } = *sampled;
    let sizes = Sizes { rows: sequences * length, ..SMALL };
    let mut case = Case::drawn(loss, sizes, random);
    let mut tokens = Vec::new();
    for sequence in 0..sequences {
        let none = empty && sequence == 0;
        let end = if none { prompt } else { prompt + 1 + random.below(length - prompt) };
        tokens.extend(
            (0..length).map(|t| if t < prompt || t >= end { IGNORED } else { random.below(vocab) as i32 }),
        );
    }
    let labels = challenges::loss::Solution.shift(&tokens, length);
    let sign = |one: bool| if one { 1.0 } else { -1.0 };
    let advantages: Vec<f64> =
        (0..sequences).map(|i| f64::from((sign(i % 2 == 0) * (0.3 + random.unit())) as f32)).collect();
    let each = |numbers: Vec<f64>| Array::floats(Dtype::F32, &[labels.len()], numbers);
    let garbage = |row: usize, x: f64| if labels[row] == IGNORED { f64::NAN } else { f64::from(x as f32) };
    let mut near = |spread: f64| {
        let numbers = case.log_probabilities(&labels, sampled.temperature).into_iter().enumerate();
        // likelier by now or less likely, and both by more than a clip allows
        numbers
            .map(|(row, x)| garbage(row, x + spread * sign(random.below(2) == 0) * (0.2 + random.unit())))
            .collect::<Vec<f64>>()
    };
    let (old, reference) = (near(0.5), near(0.8));
    case.values.insert("old".into(), each(old));
    case.values.insert("reference".into(), each(reference));
    case.values
        .insert("advantages".into(), each((0..labels.len()).map(|row| advantages[row / length]).collect()));
    case.values.insert("labels".into(), Array::integers(&[labels.len()], labels.clone()));
    case.counts = labels.iter().map(|label| *label != IGNORED).collect();
    case
}

/// A policy's loss and gradients against the written ones in f64.
fn near_policy(case: &Case, policy: &Policy, sampled: &Sampled, got: &Found) -> Result<(), String> {
    let labels = case.values["labels"].as_integers();
    let floats = |name: &str| case.values[name].wide();
    let mask: Vec<f64> = labels.iter().map(|label| f64::from(u8::from(*label != IGNORED))).collect();
    let (hidden, weight) = (floats("hidden"), floats("weight"));
    let linear =
        reference::loss::Linear { hidden: &hidden, weight: &weight, bias: None, width: case.problem.width };
    let (z, vocab) = linear.exact().map_err(told)?;
    let head = Head::temperature(sampled.temperature);
    let logits = head.exact(&z).map_err(told)?;
    let tokens = LogProbabilities::default().exact(&logits, vocab, labels).map_err(told)?;
    let (old, reference) = (floats("old"), floats("reference"));
    let of_sequences: Vec<f64> = floats("advantages").chunks(sampled.length).map(|row| row[0]).collect();
    let given = Tokens {
        log_p: tokens.values.as_slice(),
        old: sampled.old.then_some(old.as_slice()),
        reference: sampled.reference.then_some(reference.as_slice()),
        advantages: of_sequences.as_slice(),
        mask: &mask,
    };
    let value =
        policy.exact(&given, sampled.length).and_then(|rows| rows.reduce(Reduction::Mean)).map_err(told)?;
    let gradients = linear.pull_back(&head.pull_back(&z, &tokens.pull_back(&value.gradient)));
    let all =
        [("loss", value.loss.clone()), ("hidden.grad", gradients.hidden), ("weight.grad", gradients.weight)];
    for (name, want) in all {
        let got = got.get(name).ok_or_else(|| format!("there is no `{name}`"))?.wide();
        let largest = want.iter().fold(0.1_f64, |largest, x| largest.max(x.abs()));
        let far = |i: &usize| (got[*i] - want[*i]).abs() > 1e-5 * largest || got[*i].is_nan();
        if let Some(i) = (0..want.len()).find(far) {
            let cause = likely(policy, sampled, &got, &want);
            return Err(format!("`{name}`, element {i}: got {:e}, want {:e}{cause}", got[i], want[i]));
        }
    }
    Ok(())
}

/// What is the matter with a result, where that can be seen: of a constant length, every number times R.
fn likely(policy: &Policy, sampled: &Sampled, got: &[f64], want: &[f64]) -> String {
    let Average::Length(length) = policy.average else { return String::new() };
    let times = sampled.sequences as f64;
    let near = |(got, want): (&f64, &f64)| (got - times * want).abs() <= 1e-4 * (times * want).abs().max(0.1);
    if !got.iter().zip(want).all(near) {
        return String::new();
    }
    format!(
        "\nlikely cause: it is divided by the length alone, {length}, and not by {times} sequences of that length"
    )
}

/// Where tokens have ratios of their own, their sum takes no second pass.
fn one_pass(
    attempt: &dyn Chunked,
    policy: &Policy,
    sampled: &Sampled,
    random: &mut Random,
) -> Result<(), String> {
    let loss = attempt.policy(policy, sampled).map_err(told)?;
    let case = completions(loss, sampled, 2, false, random);
    let plan = Plan::new(&challenges::loss::Solution, &case.problem, &case.counts, 4).map_err(told)?;
    match plan.first {
        None => Ok(()),
        Some(_) => {
            Err("each token's loss is made of its own numbers, and `whole` asks for the values of all rows \
            before there is a gradient: the logits are computed twice"
                .into())
        }
    }
}

// --- E.6

fn size(attempt: &dyn Chunked, case: &str, random: &mut Random) -> Result<(), String> {
    let cost = |fixed, row| Cost { fixed, row };
    match case {
        "the-most-that-fits" => {
            for budget in [1_100, 5_050, 99_999] {
                fitting(attempt, &[cost(1_000, 100), cost(0, 90), cost(50, 0)], 1_000_000, budget)?;
            }
            Ok(())
        }
        "evenly" => {
            for rows in [10, 11, 100, 1001] {
                fitting(attempt, &[cost(0, 100)], rows, 1_000)?;
            }
            Ok(())
        }
        "too-little" => {
            for costs in [vec![cost(1_000, 100)], vec![cost(0, 100), cost(1_050, 0)]] {
                if let Some(n) = attempt.size(&costs, 50, 1_040) {
                    return Err(format!(
                        "of {costs:?}, {n} rows do not fit in 1040 bytes, and neither does one"
                    ));
                }
            }
            Ok(())
        }
        "more-than-enough" => fitting(attempt, &[cost(64, 8), cost(4_096, 0)], 77, usize::MAX),
        _ => {
            for _ in 0..200 {
                let costs: Vec<Cost> =
                    (0..=random.below(4)).map(|_| cost(random.below(5_000), random.below(300))).collect();
                let rows = 1 + random.below(3_000);
                fitting(attempt, &costs, rows, 5_300 + random.below(100_000))?;
            }
            Ok(())
        }
    }
}

/// That a size fits, needs no more chunks than the budget asks for, and makes them nearly equal.
fn fitting(attempt: &dyn Chunked, costs: &[Cost], rows: usize, budget: usize) -> Result<(), String> {
    let fits = |n: usize| costs.iter().all(|cost| cost.of(n) <= budget);
    let about = format!("{rows} rows, {budget} bytes, {costs:?}");
    let Some(n) = attempt.size(costs, rows, budget) else {
        return if fits(1) { Err(format!("{about}: nothing, and one row fits")) } else { Ok(()) };
    };
    if n == 0 || !fits(n) {
        return Err(format!("{about}: {n} rows do not fit"));
    }
    let most = (1..=rows).rev().find(|n| fits(*n)).unwrap_or(1);
    let need = rows.div_ceil(most);
    let got = rows.div_ceil(n);
    if got > need {
        return Err(format!("{about}: {got} chunks of {n} rows, and {need} of at most {most} are enough"));
    }
    let last = rows - (got - 1) * n.min(rows);
    if n.min(rows) - last >= got.max(2) {
        return Err(format!("{about}: {got} chunks of {n} rows leave {last} for the last one"));
    }
    Ok(())
}
