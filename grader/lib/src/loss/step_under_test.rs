//! The steps of challenge E, of which one is under test.

use std::sync::atomic::AtomicU64;

use challenges::loss::{Chunked, Cost, Loss, Problem, Sampled, Solution, solution_calls};
use reference::graph::{Error, Graph, Tensor};
use reference::loss::Policy;

use crate::calls::few;

/// The attempt's step of that name; all others are the solution's.
pub(super) type StepUnderTest<'a> = crate::step_under_test::StepUnderTest<'a, dyn Chunked + 'a>;

/// Nothing of it has run yet.
pub(super) fn step_under_test<'a>(step: &'a str, attempt: &'a dyn Chunked) -> StepUnderTest<'a> {
    StepUnderTest { step, attempt, solution: &Solution, solution_calls, asked: AtomicU64::new(0) }
}

impl Chunked for StepUnderTest<'_> {
    fn log_sum_exp(&self, hidden: &Tensor, weight: &Tensor, stretch: usize) -> Tensor {
        self.of(
            "E.1",
            || format!("log_sum_exp: hidden {}, weight {}, stretch {stretch}", hidden.ty(), weight.ty()),
            |step| step.log_sum_exp(hidden, weight, stretch),
        )
    }

    fn cut(&self, counts: &[bool], size: usize) -> Vec<Vec<usize>> {
        self.of("E.2", || format!("cut: size {size}, counts {}", few(counts)), |step| step.cut(counts, size))
    }

    fn forward(&self, problem: &Problem) -> Result<Graph, Error> {
        self.of("E.2", || format!("forward: {}", self::problem(problem)), |step| step.forward(problem))
    }

    fn backward(&self, problem: &Problem) -> Result<Graph, Error> {
        self.of("E.3", || format!("backward: {}", self::problem(problem)), |step| step.backward(problem))
    }

    fn seeds(&self, problem: &Problem) -> Result<Graph, Error> {
        self.of("E.4", || format!("seeds: {}", self::problem(problem)), |step| step.seeds(problem))
    }

    fn shift(&self, labels: &[i32], length: usize) -> Vec<i32> {
        self.of(
            "E.4",
            || format!("shift: length {length}, labels {}", few(labels)),
            |step| step.shift(labels, length),
        )
    }

    fn policy(&self, policy: &Policy, sampled: &Sampled) -> Result<Loss, Error> {
        self.of("E.5", || format!("policy: {policy:?}\n{sampled:?}"), |step| step.policy(policy, sampled))
    }

    fn size(&self, costs: &[Cost], rows: usize, budget: usize) -> Option<usize> {
        self.of(
            "E.6",
            || format!("size: rows {rows}, budget {budget}, costs {costs:?}"),
            |step| step.size(costs, rows, budget),
        )
    }
}

/// What is asked of a problem, then its two graphs.
fn problem(problem: &Problem) -> String {
    let Problem { loss, width, vocab, dtype, accumulate_dtype: sums, bias, trains } = problem;
    format!(
        "width {width}, vocab {vocab}, {dtype:?}, accumulated in {sums:?}, bias {bias}, {trains:?}\n{}{}",
        loss.rows, loss.whole
    )
}
