//! One step of an attempt among the solution's others, so that a step is judged for itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use challenges::loss::{Chunked, Cost, Loss, Problem, Sampled, Solution, solution_calls};
use reference::graph::{Error, Graph, Tensor};
use reference::loss::Policy;

/// The attempt's step of that name; all others are the solution's.
pub(super) struct Alone<'a> {
    step: &'a str,
    attempt: &'a dyn Chunked,
    /// Calls to the solution that the attempt's own step made.
    pub asked: AtomicU64,
}

impl<'a> Alone<'a> {
    pub fn new(step: &'a str, attempt: &'a dyn Chunked) -> Self {
        Self { step, attempt, asked: AtomicU64::new(0) }
    }

    fn of<T>(&self, step: &str, run: impl FnOnce(&dyn Chunked) -> T) -> T {
        if self.step != step {
            return run(&Solution);
        }
        let before = solution_calls();
        let answer = run(self.attempt);
        self.asked.fetch_add(solution_calls() - before, Relaxed);
        answer
    }
}

impl Chunked for Alone<'_> {
    fn log_sum_exp(&self, hidden: &Tensor, weight: &Tensor, stretch: usize) -> Tensor {
        self.of("E.1", |step| step.log_sum_exp(hidden, weight, stretch))
    }

    fn cut(&self, counts: &[bool], size: usize) -> Vec<Vec<usize>> {
        self.of("E.2", |step| step.cut(counts, size))
    }

    fn forward(&self, problem: &Problem) -> Result<Graph, Error> {
        self.of("E.2", |step| step.forward(problem))
    }

    fn backward(&self, problem: &Problem) -> Result<Graph, Error> {
        self.of("E.3", |step| step.backward(problem))
    }

    fn seeds(&self, problem: &Problem) -> Result<Graph, Error> {
        self.of("E.4", |step| step.seeds(problem))
    }

    fn shift(&self, labels: &[i32], length: usize) -> Vec<i32> {
        self.of("E.4", |step| step.shift(labels, length))
    }

    fn policy(&self, policy: &Policy, sampled: &Sampled) -> Result<Loss, Error> {
        self.of("E.5", |step| step.policy(policy, sampled))
    }

    fn size(&self, costs: &[Cost], rows: usize, budget: usize) -> Option<usize> {
        self.of("E.6", |step| step.size(costs, rows, budget))
    }
}
