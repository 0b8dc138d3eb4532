//! E.2: which rows are taken together, and the graph of a chunk's values.

use challenges::loss::{Chunked, Problem};
use reference::graph::{Array, Dtype, Graph, Id, Op, interpret};
use reference::loss::Reduction;

use super::losses::{OF_ROWS, cross_entropy, plain, smoothing_and_class_weights};
use super::{Check, Rows};
use crate::compare::describe;
use crate::loss::case::{ALL, Case, SMALL, Sizes};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("every-row-once", |on, _| {
        let cuts = [(1, 1), (7, 1), (7, 3), (7, 7), (7, 100), (12, 4)];
        cuts.into_iter().try_for_each(|(rows, size)| cut(on.attempt, &vec![true; rows], size))
    }),
    ("ignored-rows-cost-nothing", |on, random| {
        [1, 3, 16, 100].into_iter().try_for_each(|size| {
            let counts: Vec<bool> = (0..50).map(|_| random.below(3) > 0).collect();
            cut(on.attempt, &counts, size)
        })
    }),
    ("nothing-counts", |on, _| cut(on.attempt, &[false; 9], 4)),
    ("inputs-and-outputs", |on, _| ports(on.attempt)),
    ("cross-entropy", |on, random| {
        rows(on.attempt, &Case::drawn(cross_entropy(SMALL.vocab, random)?, SMALL, random))
    }),
    ("bias", |on, random| {
        rows(on.attempt, &Case::drawn(cross_entropy(SMALL.vocab, random)?, SMALL, random).biased(random))
    }),
    ("upcast", |on, random| upcast(on.attempt, random)),
    ("no-copy-of-the-weight", |on, random| {
        [Dtype::Bf16, Dtype::F16].into_iter().try_for_each(|dtype| {
            let problem = Problem { dtype, ..exact_in_half(HALF, random)?.problem };
            no_copy(&on.attempt.forward(&problem).map_err(describe)?)
        })
    }),
    ("every-loss", |on, random| {
        OF_ROWS.iter().try_for_each(|(name, make)| {
            let case = Case::drawn(make(SMALL.vocab, random)?, SMALL, random);
            rows(on.attempt, &case).map_err(|message| format!("{name}: {message}"))
        })
    }),
];

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
        return Err(format!("{about}: expected the rows {counting:?}, found {all:?}"));
    }
    let need = counting.len().div_ceil(size);
    let got = chunks.len();
    if got > need { Err(format!("{about}: expected at most {need} chunks, found {got}")) } else { Ok(()) }
}

/// That graphs ask for what there is and give what is asked for.
fn ports(attempt: &dyn Chunked) -> Result<(), String> {
    for (bias, dtype) in [(false, Dtype::F32), (true, Dtype::Bf16)] {
        let loss = smoothing_and_class_weights(SMALL.vocab, &mut Random::new(1))?;
        let problem = Problem {
            loss,
            width: 6,
            vocab: SMALL.vocab,
            dtype,
            accumulate_dtype: Dtype::F32,
            bias,
            trains: ALL,
        };
        let graph = attempt.forward(&problem).map_err(describe)?;
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
            return Err(format!("expected the inputs {need:?}, found {names:?}"));
        }
        let outputs: Vec<&str> = graph.outputs().iter().map(|(name, _)| name.as_str()).collect();
        let need: Vec<&str> = problem.loss.values().collect();
        if sorted(&outputs) != sorted(&need) {
            return Err(format!("expected the outputs {need:?}, found {outputs:?}"));
        }
    }
    Ok(())
}

/// The values of rows, against the truth.
fn rows(attempt: &dyn Chunked, case: &Case) -> Result<(), String> {
    let graph = attempt.forward(&case.problem).map_err(describe)?;
    let truth = challenges::loss::Solution.forward(&case.problem).map_err(describe)?;
    values_near(&graph, &truth, case, 1e-5)
}

/// The values of rows by a graph in f32, against what another one gives in f64.
pub(super) fn values_near(graph: &Graph, truth: &Graph, case: &Case, slack: f64) -> Result<(), String> {
    let got = interpret(graph, &case.narrow()).map_err(describe)?;
    let want = interpret(truth, &case.wide()).map_err(describe)?;
    for ((name, _), want) in truth.outputs().iter().zip(&want) {
        let place = graph.outputs().iter().position(|(other, _)| other == name);
        let place = place.ok_or_else(|| format!("there is no output `{name}`"))?;
        let (got, want) = (got[place].wide(), want.wide());
        let far = |row: &usize| (got[*row] - want[*row]).abs() > slack * want[*row].abs().max(1.0);
        if got.len() != want.len() {
            return Err(format!("`{name}`: expected {} values, found {}", want.len(), got.len()));
        }
        if let Some(row) = (0..want.len()).find(|row| case.counts[*row] && (far(row) || got[*row].is_nan())) {
            return Err(format!("`{name}` of row {row}: got {}, want {}", got[row], want[row]));
        }
    }
    Ok(())
}

/// The sizes of [`exact_in_half`] in checks.
pub(super) const HALF: Sizes = Sizes { rows: 9, width: 8, vocab: 41 };

/// Numbers whose products are exact in bf16, and so is the bias, but not the sum of the two: what is not taken to f32
/// before it is added loses digits.
pub(in super::super) fn exact_in_half(sizes: Sizes, random: &mut Random) -> Result<Case, String> {
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
    rows(attempt, &exact_in_half(HALF, random)?).map_err(|message| format!("{message}: {why}"))
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
