//! D.18: what logits answer, and what the answers are worth.

use challenges::issues::classify::{Answer, Classify, Problem};

use super::super::part::same;
use super::{Check, Rows};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("classes", |steps, _| {
        class(steps, &[0.5, 2.0, -1.0], 1)?;
        class(steps, &[-3.0, -2.0, -1.0], 2)?;
        class(steps, &[-0.5], 0)?;
        class(steps, &[f32::MIN, f32::MAX, 0.0], 1)
    }),
    ("equal-logits", |steps, _| {
        class(steps, &[1.0, 3.0, 3.0, 2.0], 1)?;
        class(steps, &[0.0, -0.0], 0)?;
        class(steps, &[7.0; 5], 0)
    }),
    ("labels", |steps, _| {
        let logits = [0.5, -0.5, 0.0, 1e-30, -1e-30, 200.0, -200.0];
        let want = Answer::Labels(vec![true, false, false, true, false, true, false]);
        answer(steps, Problem::MultiLabel, &logits, &want)
    }),
    ("numbers", |steps, _| {
        let logits = [0.25, -3.5, 1e30];
        answer(steps, Problem::Regression, &logits, &Answer::Numbers(logits.to_vec()))
    }),
    ("who-was-taken-for-whom", |steps, _| {
        let got = steps.confusion(&[0, 0, 1, 2, 2, 2], &[0, 1, 1, 2, 0, 2], 3);
        same(
            "the confusion of [0, 0, 1, 2, 2, 2] with [0, 1, 1, 2, 0, 2]",
            &got,
            &vec![1, 1, 0, 0, 1, 0, 1, 0, 2],
        )?;
        same("that of nothing", &steps.confusion(&[], &[], 2), &vec![0; 4])?;
        same("that of classes that do not occur", &steps.confusion(&[3], &[1], 4)[13], &1)
    }),
    ("scores", |steps, _| {
        scores(steps, &[1, 1, 0, 0, 1, 0, 1, 0, 2], 3, &[Some(0.5), Some(2.0 / 3.0), Some(0.8)])
    }),
    ("classes-that-nobody-is", |steps, _| {
        // never true and never answered; answered and never true; true and never answered
        scores(steps, &[4, 1, 0, 0, 0, 0, 0, 0, 0], 3, &[Some(8.0 / 9.0), Some(0.0), None])?;
        scores(steps, &[4, 0, 2, 0], 2, &[Some(0.8), Some(0.0)])?;
        scores(steps, &[0, 0, 0, 0], 2, &[None, None])
    }),
    ("drawn", |steps, random| (0..100).try_for_each(|_| drawn(steps, random))),
];

fn class(steps: &dyn Classify, logits: &[f32], want: usize) -> Result<(), String> {
    answer(steps, Problem::SingleLabel, logits, &Answer::Class(want))
}

fn answer(steps: &dyn Classify, problem: Problem, logits: &[f32], want: &Answer) -> Result<(), String> {
    same(&format!("what {logits:?} answer to {problem}"), &steps.answer(problem, logits), want)
}

fn scores(
    steps: &dyn Classify,
    confusion: &[u64],
    classes: usize,
    want: &[Option<f64>],
) -> Result<(), String> {
    let got = steps.f1(confusion, classes);
    let near = |(got, want): (&Option<f64>, &Option<f64>)| match (got, want) {
        (Some(got), Some(want)) => (got - want).abs() < 1e-12,
        (got, want) => got == want,
    };
    if got.len() == want.len() && got.iter().zip(want).all(near) {
        return Ok(());
    }
    Err(format!(
        "the F1 scores of {classes} classes with the confusion {confusion:?}: got {got:?}, want {want:?}"
    ))
}

/// By precision and recall, pair by pair.
fn drawn(steps: &dyn Classify, random: &mut Random) -> Result<(), String> {
    let (classes, count) = (1 + random.below(6), random.below(40));
    let mut draw = || (0..count).map(|_| random.below(classes)).collect::<Vec<usize>>();
    let (truth, answers) = (draw(), draw());
    let both = |t: usize, a: usize| truth.iter().zip(&answers).filter(|(x, y)| (**x, **y) == (t, a)).count();
    let want: Vec<u64> = (0..classes * classes).map(|at| both(at / classes, at % classes) as u64).collect();
    let what = format!("the confusion of {truth:?} with {answers:?}");
    same(&what, &steps.confusion(&truth, &answers, classes), &want)?;
    let score = |class: usize| {
        let of = |all: &[usize]| all.iter().filter(|one| **one == class).count() as f64;
        let (right, truths, answered) = (both(class, class) as f64, of(&truth), of(&answers));
        match (truths > 0.0 || answered > 0.0, right > 0.0) {
            (false, _) => None,
            (true, false) => Some(0.0),
            (true, true) => {
                let (precision, recall) = (right / answered, right / truths);
                Some(2.0 * precision * recall / (precision + recall))
            }
        }
    };
    scores(steps, &want, classes, &(0..classes).map(score).collect::<Vec<_>>())
}
