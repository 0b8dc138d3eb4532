//! Judges results without running anything: names of checks and guards, facts, rows and points.

use kernels::Vector;

use crate::course::{Backend, Course};
use crate::courses::{self, COURSES};
use crate::expected::Expected;
use crate::rubric::{Facts, Rubric};
use crate::score::{blank, judged};
use crate::scorecard::{Challenge, Machine};

pub use crate::calls::replay_command;
pub use crate::evidence::Seen;
pub use crate::score::absent;

/// Names and bytes of the timed cases of challenge A.
pub mod nf4 {
    pub use crate::nf4::cuda::{credit, version_bytes};
    pub use crate::nf4::{bench_name, total_bytes, total_speedup};
}

/// A challenge, or a part of one, on one back end.
#[derive(Clone, Copy)]
pub struct Part(&'static Course);

impl Part {
    /// Returns every part of this version: the challenges in the published order.
    pub fn all() -> impl Iterator<Item = Self> {
        COURSES.iter().map(Self)
    }

    /// Returns its name among all parts: `nf4`, `nf4.cuda`, `issues.chat`.
    pub fn key(self) -> String {
        self.0.key()
    }

    /// Returns the name of its challenge.
    pub fn challenge(self) -> &'static str {
        self.0.name
    }

    /// Returns true if it runs on a GPU.
    pub fn is_on_gpu(self) -> bool {
        self.0.backend == Backend::Cuda
    }
}

/// Returns the names of the checks and of the guards of a whole run on a machine whose widest vector unit is `widest`.
pub fn names(parts: &[Part], widest: Vector) -> [Vec<String>; 2] {
    let Expected { checks, guards, timed_guards } = Expected::of(&courses_of(parts), widest);
    [checks, guards.into_iter().chain(timed_guards.into_iter().map(str::to_owned)).collect()]
}

/// Judges a challenge of which the solution's `parts` ran: its facts, rows and points.
pub fn challenge(rubric: &'static Rubric, parts: &[Part], seen: &Seen<'_>, machine: &Machine) -> Challenge {
    let courses = courses_of(parts);
    let facts: Facts = courses::facts(rubric, &courses, seen, machine);
    let device = if parts.iter().any(|part| part.is_on_gpu()) { "cuda:0" } else { "cpu" };
    let ran = Challenge {
        device: device.into(),
        code: courses::code_of_solutions(&courses),
        attempted: true,
        checks: seen.checks.to_vec(),
        measurements: seen.measurements.clone(),
        ..blank(rubric, true)
    };
    judged(rubric, &facts, ran)
}

fn courses_of(parts: &[Part]) -> Vec<&'static Course> {
    parts.iter().map(|part| part.0).collect()
}
