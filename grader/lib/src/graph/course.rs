//! Challenge C's row in the table of courses, and how an attempt at it is handed in.

use challenges::graph::{Compile, HINTS, Solution, solution_text};

use super::{facts, items, work};
use crate::attempts::Attempts;
use crate::course::{Backend, Course};
use crate::device::Processor;
use crate::gather::{Child, Source};
use crate::stub::Language;

/// Challenge C.
pub(crate) const COURSE: Course = Course {
    name: "graph",
    part: None,
    backend: Backend::Cpu,
    language: Language::Rust,
    items: |effort| items(effort, Backend::Cpu),
    work: |child, attempts, source, item| work_on(child, attempts, source, item, Backend::Cpu),
    facts: |seen| facts(seen, Backend::Cpu),
    step_through: |_, _, _| Err("a compiler is not single-stepped".into()),
    ranks: 1,
    memory_limit: 3 << 30, // the timed step operation by operation, twice
    solution: solution_text,
    hints: HINTS,
    takes: Some("nf4"),
    together: &[
        &[
            "graph.lengths",
            "graph.lengths_right",
            "graph.breaks",
            "graph.compilations",
            "graph.hidden_compilations",
            "graph.launches",
            "graph.layers",
            "graph.attention_layers",
            "graph.mlp_layers",
            "graph.norm_layers",
            "graph.loss_parts",
            "graph.flex_launches",
            "graph.dequantized",
            "graph.dequantizer_calls",
            "graph.products",
            "graph.questions",
            "graph.trials",
            "graph.part_a",
        ],
        &["graph.over_op_by_op", "graph.step", "graph.op_by_op.step"],
    ],
    follow: None,
};

/// Challenge C, its plans on a card.
pub(crate) const ON_A_CARD: Course = Course {
    backend: Backend::Cuda,
    items: |effort| items(effort, Backend::Cuda),
    work: |child, attempts, source, item| work_on(child, attempts, source, item, Backend::Cuda),
    facts: |seen| facts(seen, Backend::Cuda),
    memory_limit: 8 << 30, // of host memory; the driver itself takes several hundred MiB
    ..COURSE
};

/// Does one item on a back end.
fn work_on(child: &mut Child, attempts: &Attempts, source: Source, item: &str, backend: Backend) {
    let attempt = attempts.graph_attempt(source);
    match attempt.and_then(|attempt| Ok((attempt, Processor::of(child, backend)?))) {
        Ok((attempt, on)) => work(child, on, attempt, attempts.companion_nf4(source), item),
        Err(reason) => child.impossible(item, &reason),
    }
}

impl Attempts {
    /// Hands in an attempt at challenge C.
    #[must_use]
    pub fn graph(self, attempt: impl Compile + 'static) -> Self {
        self.with::<Box<dyn Compile>>(COURSE.key(), Box::new(attempt))
    }

    fn graph_attempt(&self, source: Source) -> Result<&dyn Compile, String> {
        match source {
            Source::Own => COURSE.required::<Box<dyn Compile>>(self).map(AsRef::as_ref),
            Source::Solution => Ok(&Solution),
        }
    }

    /// The attempt at C that belongs to an attempt at another challenge; the solution's needs none.
    pub(crate) fn companion_graph(&self, source: Source) -> Option<&dyn Compile> {
        match source {
            Source::Own => self.own::<Box<dyn Compile>>(&COURSE.key()).map(AsRef::as_ref),
            Source::Solution => None,
        }
    }
}
