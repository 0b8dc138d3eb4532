//! Calls that a step may not make.
//!
//! A step may call what its stub imports, and vocabulary. Whatever else of the workbook computes the step's answer, or
//! a decisive part of it, counts its calls: the oracles of `reference`, and the given code of `challenges::given`. Every
//! call of an attempt's step is made through [`during`], in checks, guards and measured runs alike. If a counter of its
//! part moved meanwhile, on whatever thread, the call is reported: the item in progress is wrong, and the guard of the
//! step's part trips.
//!
//! Solutions count their calls as well. A check compares the count before and after each call of a step; see
//! [`crate::step_under_test`]. Everywhere else an attempt's step that calls the solution of its part is reported like one
//! that calls an oracle, except where the solution itself is graded. The ranks of B are threads, and one may run a step
//! of the attempt while another runs a step of the solution. So only calls of the same thread count there.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use challenges::{given, graph, issues, loss, nf4};
use reference::oracles;

use crate::calls::{capped, replay_command};
use crate::rubric;
use crate::source::Source;
use crate::unwound::caught;

/// An oracle that steps may not call.
pub(crate) struct Oracle {
    /// The path that an attempt would write.
    pub name: &'static str,
    /// The number of calls of this process so far.
    pub calls: fn() -> u64,
}

/// Steps that share a guard. A step may call no oracle of its part, or it could answer for another step.
struct Part {
    /// The guard that trips; a part without one has only its checks.
    guard: Option<&'static str>,
    steps: &'static [&'static str],
    oracles: &'static [Oracle],
    /// The number of calls to the solution so far.
    solution: fn() -> u64,
}

/// The guard of A, B and E.
pub(crate) const INSIDE_A_STEP: &str = "an oracle called inside a step";
/// The guard of attention.
pub(crate) const DEFINITION: &str = "a definition that answers";
/// The guard of sequence classification.
pub(crate) const CLASSIFIER: &str = "an oracle that answers";
/// The guard of GGUF files.
pub(crate) const GGUF: &str = "a reference that is asked";
/// The guard of vision.
pub(crate) const VISION: &str = "a reference that answers";

const fn oracle(name: &'static str, calls: fn() -> u64) -> Oracle {
    Oracle { name, calls }
}

/// Every part. No oracle answers the steps of C: they write into the given compiler.
const PARTS: [Part; 9] = [
    Part {
        guard: Some(INSIDE_A_STEP),
        steps: &["A.1", "A.2", "A.3", "A.4", "A.5", "A.6"],
        oracles: &[
            oracle("reference::nf4", || oracles::NF4.so_far()),
            oracle("the given baseline of challenges::nf4", given::nf4_calls),
        ],
        solution: nf4::solution_calls,
    },
    Part {
        guard: Some(INSIDE_A_STEP),
        steps: &["B.1", "B.2", "B.3", "B.4", "B.5", "B.6", "B.7", "B.8"],
        oracles: &[
            oracle("reference::optim::norm", || oracles::NORMS.so_far()),
            oracle("reference::schedule::shortest", || oracles::SHORTEST.so_far()),
            oracle("a generator of reference::schedule", || oracles::GENERATORS.so_far()),
        ],
        solution: challenges::solution_calls_of_this_thread,
    },
    Part {
        guard: None,
        steps: &["C.1", "C.2", "C.3", "C.4", "C.5", "C.6", "C.7", "C.8"],
        oracles: &[],
        solution: graph::solution_calls,
    },
    Part {
        guard: None,
        steps: &["D.1", "D.2", "D.3", "D.4", "D.5", "D.6", "D.7", "D.8"],
        oracles: &[oracle("the given code of challenges::issues::chat", given::chat_calls)],
        solution: issues::chat::solution_calls,
    },
    Part {
        guard: Some(DEFINITION),
        steps: &["D.9", "D.10", "D.11", "D.12", "D.13", "D.14"],
        oracles: &[
            oracle("reference::issues::attention", || oracles::ATTENTION.so_far()),
            oracle("a mask of reference::graph::programs", || oracles::MASKS.so_far()),
        ],
        solution: issues::attention::solution_calls,
    },
    Part {
        guard: Some(CLASSIFIER),
        steps: &["D.15", "D.16", "D.17", "D.18"],
        oracles: &[
            oracle("reference::issues::classify", || oracles::CLASSIFIERS.so_far()),
            oracle("reference::loss", || oracles::LOSSES.so_far()),
            oracle("reference::lora", || oracles::ADAPTERS.so_far()),
        ],
        solution: issues::classify::solution_calls,
    },
    Part {
        guard: Some(GGUF),
        steps: &["D.19", "D.20", "D.21", "D.22"],
        oracles: &[
            oracle("reference::issues::gguf", || oracles::GGUF.so_far()),
            oracle("reference::checkpoint::gguf::quantize", || oracles::BLOCKS.so_far()),
            oracle("reference::llama::rope", || oracles::FREQUENCIES.so_far()),
        ],
        solution: issues::gguf::solution_calls,
    },
    Part {
        guard: Some(VISION),
        steps: &["D.23", "D.24", "D.25", "D.26", "D.27"],
        oracles: &[oracle("reference::vision", || oracles::IMAGES.so_far())],
        solution: issues::vision::solution_calls,
    },
    Part {
        guard: Some(INSIDE_A_STEP),
        steps: &["E.1", "E.2", "E.3", "E.4", "E.5", "E.6"],
        oracles: &[
            oracle("reference::loss::Linear", || oracles::PRODUCTS.so_far()),
            oracle("reference::loss::Policy", || oracles::POLICIES.so_far()),
            oracle("reference::loss::Pool", || oracles::POOLS.so_far()),
        ],
        solution: loss::solution_calls,
    },
];

/// A call of a step during which an oracle was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The guard that trips.
    guard: Option<&'static str>,
    step: &'static str,
    /// The step, the oracle, and what the step was called with.
    pub message: String,
}

impl Found {
    /// The guard that trips in a challenge. `None` if its part has none, or if the step belongs to another challenge,
    /// which uses the attempt's answer.
    pub fn guard_in(&self, challenge: &str) -> Option<&'static str> {
        let letter = rubric::find(challenge)?.letter;
        self.guard.filter(|_| self.step.starts_with(letter))
    }
}

/// Whether calls of the solution are reported: not where the solution itself is graded.
static REPORTS_SOLUTION: AtomicBool = AtomicBool::new(false);

/// Sets whose steps this process grades.
pub(crate) fn grade(source: Source) {
    REPORTS_SOLUTION.store(source == Source::Own, Relaxed);
}

/// The first call since the item began.
static FOUND: Mutex<Option<Found>> = Mutex::new(None);

/// The first call of an oracle since the last question, if there was one.
pub(crate) fn take() -> Option<Found> {
    FOUND.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// As [`take`], but the answer stays.
pub(crate) fn peek() -> Option<Found> {
    FOUND.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Returns true if a guard of that name trips when an oracle is called.
pub(crate) fn is_guard(name: &str) -> bool {
    PARTS.iter().any(|part| part.guard == Some(name))
}

/// A step's part, and its name there.
fn of_step(step: &str) -> Option<(&'static Part, &'static str)> {
    PARTS.iter().find_map(|part| Some((part, *part.steps.iter().find(|known| **known == step)?)))
}

/// Runs a step of an attempt, and notes if an oracle of its part is called meanwhile. `message` describes what the step
/// is called with.
pub(crate) fn during<T>(step: &str, message: impl FnOnce() -> String, run: impl FnOnce() -> T) -> T {
    let Some((part, step)) = of_step(step) else { return run() };
    let _scope = Scope { part, step, before: part.so_far(), message: Some(message) };
    run()
}

/// The most oracles of one part.
const MOST: usize = 3;

/// The place of the solution among the counters of a part.
const SOLUTION: usize = MOST;

impl Part {
    /// The counters of its oracles, then that of its solution.
    fn so_far(&self) -> [u64; MOST + 1] {
        let of_solution = || if REPORTS_SOLUTION.load(Relaxed) { (self.solution)() } else { 0 };
        std::array::from_fn(|i| match i {
            SOLUTION => of_solution(),
            i => self.oracles.get(i).map_or(0, |oracle| (oracle.calls)()),
        })
    }

    /// The name of the code whose calls a counter counts.
    fn counted(&self, counter: usize) -> &'static str {
        self.oracles.get(counter).map_or("the workbook's solution", |oracle| oracle.name)
    }
}

/// A call in progress. It ends with the call, also where a panic ends that.
struct Scope<F: FnOnce() -> String> {
    part: &'static Part,
    step: &'static str,
    before: [u64; MOST + 1],
    message: Option<F>,
}

impl<F: FnOnce() -> String> Drop for Scope<F> {
    fn drop(&mut self) {
        let now = self.part.so_far();
        let Some(called) = (0..now.len()).find(|i| now[*i] > self.before[*i]) else { return };
        let Some(message) = self.message.take() else { return };
        let times = match now[called] - self.before[called] {
            1 => "once".to_owned(),
            calls => format!("{calls} times"),
        };
        let message = format!(
            "expected the step's own work, found {} called {times} while {} ran\n  {}",
            self.part.counted(called),
            self.step,
            capped(&message())
        );
        let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        found.get_or_insert(Found { guard: self.part.guard, step: self.step, message });
    }
}

/// Runs checks again for the sake of their calls, with other random numbers: the first one in which an oracle was
/// called, and how to run it again. Only checks of steps in a part with oracles are run.
pub(crate) fn in_checks<T>(
    challenge: &str,
    names: Vec<String>,
    seed: u64,
    run: impl Fn(&str, u64) -> T,
) -> Option<String> {
    let answered = |name: &String| name.split('/').next().and_then(of_step).is_some();
    names.into_iter().filter(answered).find_map(|name| {
        _ = caught(|| run(&name, seed)); // a hole or a wrong answer is reported by the check itself
        let found = take()?;
        let again = replay_command(challenge, &name, seed);
        Some(format!("{}\n  {again}", found.message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_listed_once() {
        let steps: Vec<&str> = PARTS.iter().flat_map(|part| part.steps).copied().collect();
        for step in &steps {
            assert_eq!(steps.iter().filter(|other| *other == step).count(), 1, "{step}");
        }
        assert!(PARTS.iter().all(|part| part.oracles.len() <= MOST));
    }
}
