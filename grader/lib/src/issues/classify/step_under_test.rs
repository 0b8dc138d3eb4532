//! The steps of sequence classification, of which one is under test.

use std::sync::atomic::AtomicU64;

use challenges::issues::classify::{
    Adapter, Answer, Classify, Layer, Problem, Solution, Trained, solution_calls,
};
use reference::graph::Tensor;

use crate::calls::few;

/// The attempt's step of that name; all others are the solution's.
pub(super) type StepUnderTest<'a> = crate::step_under_test::StepUnderTest<'a, dyn Classify + 'a>;

/// Nothing of it has run yet.
pub(super) fn step_under_test<'a>(step: &'a str, attempt: &'a dyn Classify) -> StepUnderTest<'a> {
    StepUnderTest { step, attempt, solution: &Solution, solution_calls, asked: AtomicU64::new(0) }
}

impl Classify for StepUnderTest<'_> {
    fn last_tokens(&self, ids: &[i32], length: usize, pad: Option<i32>) -> Vec<usize> {
        self.of(
            "D.15",
            || format!("last_tokens: length {length}, pad {pad:?}, ids {}", few(ids)),
            |step| step.last_tokens(ids, length, pad),
        )
    }

    fn losses(&self, problem: Problem, logits: &Tensor, targets: &Tensor) -> Tensor {
        self.of(
            "D.16",
            || format!("losses: {problem}, logits {}, targets {}", logits.ty(), targets.ty()),
            |step| step.losses(problem, logits, targets),
        )
    }

    fn trained(&self, layers: &[Layer<'_>], adapter: &Adapter<'_>) -> Result<Vec<Trained>, String> {
        let names = || layers.iter().map(|layer| layer.name).collect::<Vec<_>>();
        self.of(
            "D.17",
            || format!("trained: {adapter:?}, layers {}", few(&names())),
            |step| step.trained(layers, adapter),
        )
    }

    fn answer(&self, problem: Problem, logits: &[f32]) -> Answer {
        self.of(
            "D.18",
            || format!("answer: {problem}, logits {}", few(logits)),
            |step| step.answer(problem, logits),
        )
    }

    fn confusion(&self, truth: &[usize], answers: &[usize], classes: usize) -> Vec<u64> {
        self.of(
            "D.18",
            || format!("confusion: {classes} classes, truth {}, answers {}", few(truth), few(answers)),
            |step| step.confusion(truth, answers, classes),
        )
    }

    fn f1(&self, confusion: &[u64], classes: usize) -> Vec<Option<f64>> {
        self.of(
            "D.18",
            || format!("f1: {classes} classes, {}", few(confusion)),
            |step| step.f1(confusion, classes),
        )
    }
}
