//! E.4: what all rows make together, and the seeds of their gradients.

use std::collections::BTreeMap;

use challenges::loss::Loss;
use challenges::loss::losses::Answers;
use challenges::loss::plan::{ChunkPlan, Passes};
use challenges::loss::run::{Hidden, Runner, Size};
use reference::graph::{Array, Builder, Dtype};
use reference::loss::{Dpo, IGNORED, Kto, Orpo, Reduction, SimPo};

use super::losses::{Make, cross_entropy, distillation, made_up, plain, z_loss};
use super::{Check, Rows};
use crate::compare::describe;
use crate::loss::case::{Case, Found, SMALL, Sizes, Trial};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("mean", |on, random| drawn(Reduction::Mean, random)?.right(on, 4)),
    ("sum", |on, random| drawn(Reduction::Sum, random)?.right(on, 4)),
    ("none", |on, random| {
        let case = drawn(Reduction::None, random)?;
        let upstream = Some(upstream(case.counts.len(), random));
        Case { upstream, ..case }.right(on, 4)
    }),
    ("items", |on, random| drawn(Reduction::Items(29.0), random)?.right(on, 4)),
    ("upstream", |on, random| {
        let upstream = Some(upstream(1, random));
        Case { upstream, ..drawn(Reduction::Mean, random)? }.right(on, 4)
    }),
    ("unequal-chunks", |on, random| unequal(SMALL, random)?.right(on, 4)),
    ("every-chunk-size", |on, random| every_size(on, random)),
    ("accumulation", |on, random| accumulated(on, random)),
    ("all-ignored", |on, random| {
        let mut case = drawn(Reduction::Mean, random)?;
        case.label(vec![IGNORED; case.counts.len()]);
        case.right(on, 4)
    }),
    ("preferences", |on, random| preferences(on, random)),
    ("a-value-that-nobody-asks-for", |on, random| {
        let case = Case::drawn(with_metric(SMALL.vocab)?, SMALL, random);
        [4, 13].into_iter().try_for_each(|size| case.right(on, size))
    }),
    ("nothing-but-seeds", |on, random| nothing_but_seeds(on, random)),
    ("shift", |on, _| shift(on)),
    ("infinity-and-nan", |on, random| surfaces(on, random)),
    ("a-label-outside", |on, random| outside(on, random)),
];

/// Cross entropy.
fn drawn(reduction: Reduction, random: &mut Random) -> Result<Case, String> {
    Ok(Case::drawn(plain(SMALL.vocab, reduction)?, SMALL, random))
}

fn upstream(count: usize, random: &mut Random) -> Vec<f32> {
    (0..count).map(|_| (2.0 * random.unit() - 0.5) as f32).collect()
}

/// Rows that count are many at the beginning and few at the end, and dear where they are few.
pub(in super::super) fn unequal(sizes: Sizes, random: &mut Random) -> Result<Case, String> {
    let Sizes { rows, vocab, .. } = sizes;
    let mut case = Case::drawn(plain(vocab, Reduction::Mean)?, sizes, random);
    let counts = |row: usize| row + 4 < rows || row == rows - 1;
    let label = |row: usize| if counts(row) { random.below(vocab) as i32 } else { IGNORED };
    case.label((0..rows).map(label).collect());
    Ok(case)
}

/// One at a time, an odd number, one with a rest, all at once.
fn every_size(on: Trial<'_>, random: &mut Random) -> Result<(), String> {
    let sizes = [1, 3, 5, 8, 13, 100];
    let losses: [(&str, Make); 4] = [
        ("cross-entropy", cross_entropy),
        ("z-loss", z_loss),
        ("distillation", distillation),
        ("made-up", made_up),
    ];
    for (name, make) in losses {
        let case = Case::drawn(make(SMALL.vocab, random)?, SMALL, random).biased(random);
        sizes
            .into_iter()
            .try_for_each(|size| case.right(on, size))
            .map_err(|message| format!("{name}: {message}"))?;
    }
    Ok(())
}

/// Two batches of unequal size that share a number of items give the gradient of one large batch.
fn accumulated(on: Trial<'_>, random: &mut Random) -> Result<(), String> {
    let whole = Case::drawn(plain(SMALL.vocab, Reduction::Items(11.0))?, SMALL, random);
    let mut runner = Runner::new(on.device, &challenges::graph::Solution, on.attempt, &whole.problem);
    let mut so_far = BTreeMap::new();
    let mut loss = 0.0;
    for rows in [0..9, 9..SMALL.rows] {
        let part = whole.part(rows);
        let (hidden, given) = part.given(on.device)?;
        let mut job = part.job(Hidden::Borrowed(&hidden), &given, Size::Rows(4));
        job.so_far = so_far;
        let mut results = runner.run(job).map_err(describe)?;
        loss += f64::from(results.loss.first().copied().unwrap_or(f32::NAN));
        results.gradients.remove("hidden.grad");
        so_far = results.gradients;
    }
    drop(runner);
    let mut whole = whole;
    whole.problem.trains.hidden = false;
    let shape = [whole.problem.vocab, whole.problem.width];
    let sum = so_far.get("weight.grad").ok_or("there is no `weight.grad`")?;
    let weight = crate::compare::array(on.device, Dtype::F32, &shape, sum)?;
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
    Ok(Loss { rows: builder.finish().map_err(describe)?, whole })
}

/// That seeds are the only outputs, and that a loss whose seeds follow from labels takes one pass.
fn nothing_but_seeds(on: Trial<'_>, random: &mut Random) -> Result<(), String> {
    for reduction in [Reduction::Mean, Reduction::Sum] {
        let case = Case::drawn(plain(SMALL.vocab, reduction)?, SMALL, random);
        case.run(on, 4)?; // the machine says which output is none
        let plan = ChunkPlan::new(on.attempt, &case.problem, &case.counts, 4).map_err(describe)?;
        if plan.graphs.passes != Passes::One {
            return Err("labels are enough for the seeds, and they ask for the values of all rows: \
                the logits are computed twice"
                .into());
        }
    }
    Ok(())
}

/// Losses of sequences and pairs: seeds that depend on all rows.
fn preferences(on: Trial<'_>, random: &mut Random) -> Result<(), String> {
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
        let case = Case::drawn(loss.map_err(describe)?, sizes, random);
        [3, 20]
            .into_iter()
            .try_for_each(|size| case.right(on, size))
            .map_err(|message| format!("{name}: {message}"))?;
    }
    Ok(())
}

fn shift(on: Trial<'_>) -> Result<(), String> {
    let none = IGNORED;
    let all: [(&[i32], usize, Vec<i32>); 5] = [
        (&[5, 6, 7, 8], 4, vec![6, 7, 8, none]),
        (&[5, 6, 7, 8, 9, 10], 3, vec![6, 7, none, 9, 10, none]),
        (&[5, none, 7, 8], 2, vec![none, none, 8, none]),
        (&[3, 4, 5], 1, vec![none; 3]),
        (&[], 4, vec![]),
    ];
    for (labels, length, want) in all {
        let got = on.attempt.shift(labels, length);
        if got != want {
            return Err(format!("{labels:?} in sequences of {length}: got {got:?}, want {want:?}"));
        }
    }
    Ok(())
}

/// What is not finite in one row shows in the loss and in that row, and nowhere else.
fn surfaces(on: Trial<'_>, random: &mut Random) -> Result<(), String> {
    for bad in [f64::NAN, f64::INFINITY] {
        let clean = Case::drawn(plain(SMALL.vocab, Reduction::Mean)?, SMALL, random);
        let mut hidden = clean.values["hidden"].wide();
        let [counting, ignored] = [4, 3].map(|row| row * SMALL.width);
        hidden[counting] = bad;
        let mut case = Case { values: clean.values.clone(), ..clean };
        case.problem.trains.weight = false;
        case.values
            .insert("hidden".into(), Array::floats(Dtype::F32, &[SMALL.rows, SMALL.width], hidden.clone()));
        let got = case.run(on, 4)?;
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
        let loss = case.run(on, 4)?["loss"].wide()[0];
        if !loss.is_finite() {
            return Err(format!("with {bad} in row 3, which is ignored, the loss is {loss}"));
        }
    }
    Ok(())
}

/// A label that is no entry of the vocabulary is an error that names its row.
fn outside(on: Trial<'_>, random: &mut Random) -> Result<(), String> {
    for bad in [SMALL.vocab as i32, -1, i32::MAX] {
        let mut case = Case::drawn(plain(SMALL.vocab, Reduction::Mean)?, SMALL, random);
        let mut labels = case.values["labels"].as_integers().to_vec();
        labels[7] = bad;
        case.label(labels);
        match case.run(on, 4) {
            Err(message) if message.contains('7') && message.contains(&bad.to_string()) => {}
            Err(message) => {
                return Err(format!("a label {bad} in row 7 is refused with other words: {message}"));
            }
            Ok(_) => {
                return Err(format!("a label {bad} in row 7 is taken, the vocabulary has {}", SMALL.vocab));
            }
        }
    }
    Ok(())
}
