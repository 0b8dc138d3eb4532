//! The steps of attention, of which one is under test.

use std::ops::Range;
use std::sync::atomic::AtomicU64;

use challenges::issues::attention::{
    Attend, BackEnd, Feature, Packing, Part, Rules, Solution, Verdict, solution_calls,
};
use reference::graph::Tensor;
use reference::graph::programs::ScoreEntry;

use crate::calls::few;

/// The attempt's step of that name; all others are the solution's.
pub(super) type StepUnderTest<'a> = crate::step_under_test::StepUnderTest<'a, dyn Attend + 'a>;

/// Nothing of it has run yet.
pub(super) fn step_under_test<'a>(step: &'a str, attempt: &'a dyn Attend) -> StepUnderTest<'a> {
    StepUnderTest { step, attempt, solution: &Solution, solution_calls, asked: AtomicU64::new(0) }
}

impl Attend for StepUnderTest<'_> {
    fn sees(&self, at: &ScoreEntry, rules: &Rules) -> Tensor {
        self.of("D.9", || format!("sees: {rules:?}"), |step| step.sees(at, rules))
    }

    fn choose(&self, wanted: &[Feature], back_ends: &[BackEnd]) -> Vec<Verdict> {
        self.of(
            "D.10",
            || format!("choose: {wanted:?} of {} back ends", back_ends.len()),
            |step| step.choose(wanted, back_ends),
        )
    }

    fn pack(&self, documents: &[i32], row: usize) -> Packing {
        self.of(
            "D.11",
            || format!("pack: rows of {row}, documents {}", few(documents)),
            |step| step.pack(documents, row),
        )
    }

    fn merge(&self, parts: &[Part]) -> Part {
        self.of(
            "D.12",
            || format!("merge: {} parts of {}", parts.len(), parts[0].output.ty()),
            |step| step.merge(parts),
        )
    }

    fn pieces(
        &self,
        queries: Range<usize>,
        keys: usize,
        rules: &Rules,
        most: usize,
        least: usize,
    ) -> Vec<Range<usize>> {
        self.of(
            "D.13",
            || format!("pieces: queries {queries:?}, {keys} keys, {rules:?}, at most {most}, at least {least} long"),
            |step| step.pieces(queries.clone(), keys, rules, most, least),
        )
    }

    fn sink(&self, part: &Part, sinks: &Tensor) -> Tensor {
        self.of("D.14", || format!("sink: {}", part.output.ty()), |step| step.sink(part, sinks))
    }
}
