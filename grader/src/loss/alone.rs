//! One step of an attempt among the solution's others, so that a step is judged for itself.

use challenges::loss::{Chunked, Cost, Loss, Problem, Sampled, Solution};
use reference::graph::{Error, Graph, Tensor};
use reference::loss::Policy;

/// The attempt's step of that name; all others are the solution's.
pub(super) struct Alone<'a> {
    pub step: &'a str,
    pub attempt: &'a dyn Chunked,
}

impl Alone<'_> {
    fn of(&self, step: &str) -> &dyn Chunked {
        if self.step == step { self.attempt } else { &Solution }
    }
}

impl Chunked for Alone<'_> {
    fn log_sum_exp(&self, hidden: &Tensor, weight: &Tensor, stretch: usize) -> Tensor {
        self.of("E.1").log_sum_exp(hidden, weight, stretch)
    }

    fn cut(&self, counts: &[bool], size: usize) -> Vec<Vec<usize>> {
        self.of("E.2").cut(counts, size)
    }

    fn forward(&self, problem: &Problem) -> Result<Graph, Error> {
        self.of("E.2").forward(problem)
    }

    fn backward(&self, problem: &Problem) -> Result<Graph, Error> {
        self.of("E.3").backward(problem)
    }

    fn seeds(&self, problem: &Problem) -> Result<Graph, Error> {
        self.of("E.4").seeds(problem)
    }

    fn shift(&self, labels: &[i32], length: usize) -> Vec<i32> {
        self.of("E.4").shift(labels, length)
    }

    fn policy(&self, policy: &Policy, sampled: &Sampled) -> Result<Loss, Error> {
        self.of("E.5").policy(policy, sampled)
    }

    fn size(&self, costs: &[Cost], rows: usize, budget: usize) -> Option<usize> {
        self.of("E.6").size(costs, rows, budget)
    }
}
