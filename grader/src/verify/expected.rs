//! What this version runs: the names that a whole report holds, and what makes a report one of a part.

use kernels::Vector;

use crate::course::{Back, Course};
use crate::gather::{Effort, Item};
use crate::scorecard::{Check, Guard, Machine};

/// The checks of A that exist once for each vector unit of the machine.
const EVERY_PATH: &str = "A.6/every-path-";

/// The names of a course, in the order in which they are run.
pub(crate) struct Expected {
    pub checks: Vec<String>,
    pub guards: Vec<String>,
    /// Guards that watch the timed cases, and are there where a case was timed.
    pub timed_guards: Vec<&'static str>,
}

impl Expected {
    /// What a course runs on a machine whose widest vector unit is `widest`.
    pub fn of(course: &Course, widest: Vector) -> Self {
        let items = (course.items)(&Effort::default());
        let checks = items.iter().filter(|item| item.is_check()).map(|item| item.name.clone());
        let mut checks: Vec<String> = checks.filter(|name| !name.starts_with(EVERY_PATH)).collect();
        if (course.name, course.back) == ("nf4", Back::Cpu) {
            let word = |unit: &Vector| unit.to_string().to_lowercase();
            checks.extend(up_to(widest).iter().map(|unit| format!("{EVERY_PATH}{}", word(unit))));
        }
        let guards = items.iter().filter_map(Item::guard).map(str::to_owned).collect();
        Self { checks, guards, timed_guards: timed_guards(&items) }
    }

    /// What a run lacks, if it is one of a part.
    pub fn part(&self, checks: &[Check], guards: &[Guard]) -> Option<String> {
        let there = |name: &&String| checks.iter().any(|check| check.name == **name);
        let ran = self.checks.iter().filter(there).count();
        let there = |name: &&String| guards.iter().any(|guard| guard.name == **name);
        let looked = self.guards.iter().filter(there).count();
        let (all, guards) = (self.checks.len(), self.guards.len());
        ((ran, looked) != (all, guards))
            .then(|| format!("a run of part: {ran} of {all} checks, {looked} of {guards} guards"))
    }
}

/// Each guard that looks on while something is timed, once.
fn timed_guards(items: &[Item]) -> Vec<&'static str> {
    let mut all: Vec<&str> = Vec::new();
    for name in items.iter().flat_map(|item| &item.guards) {
        if !all.contains(name) {
            all.push(name);
        }
    }
    all
}

/// The vector units of a machine, by its widest one.
fn up_to(widest: Vector) -> &'static [Vector] {
    match widest {
        Vector::Portable => &[Vector::Portable],
        Vector::Neon => &[Vector::Portable, Vector::Neon],
        Vector::Avx2 => &[Vector::Portable, Vector::Avx2],
        Vector::Avx512 => &[Vector::Portable, Vector::Avx2, Vector::Avx512],
    }
}

/// The vector unit that a report names, if its processor can have it.
pub(super) fn widest(machine: &Machine) -> Option<Vector> {
    let units: &[Vector] = match machine.arch.as_str() {
        "x86_64" => &[Vector::Portable, Vector::Avx2, Vector::Avx512],
        "aarch64" => &[Vector::Portable, Vector::Neon],
        _ => &[Vector::Portable],
    };
    units.iter().find(|unit| unit.to_string() == machine.vector).copied()
}

/// Numbers that are measured together: where the first is, the others are.
pub(super) fn together(course: &Course) -> &'static [&'static [&'static str]] {
    match (course.name, course.back) {
        ("nf4", Back::Cpu) => &[
            &["nf4.working_bytes", "nf4.peak_bytes", "nf4.launches"],
            &["nf4.graph_weights", "nf4.graph_weights_equal", "nf4.graph_breaks", "nf4.graph_launches"],
            &["nf4.vector_instructions", "nf4.instructions"],
            &["nf4.streamed_bytes", "nf4.streaming_stores", "nf4.unfenced_stores"],
            &["nf4.timed_elements", "nf4.timed_vector_instructions", "nf4.timed_streamed_bytes"],
        ],
        ("nf4", Back::Cuda) => &[
            &["nf4.working_bytes", "nf4.launches"],
            &["nf4.inline_ptx_executions", "nf4.plain_inline_ptx"],
            &["nf4.hinted_store_bytes", "nf4.hinted_load_bytes"],
        ],
        ("graph", _) => &[
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
        ("issues", _) => {
            &[&["issues.prompts.same", "issues.prompts.all"], &["issues.calls.same", "issues.calls.all"]]
        }
        ("loss", _) => &[
            &["loss.bytes.chunked", "loss.bytes.whole", "loss.bytes.rows"],
            &["loss.policy.bytes.chunked", "loss.policy.bytes.whole", "loss.policy.bytes.rows"],
            &["loss.over_whole", "loss.timed.whole", "loss.timed.chunked"],
        ],
        _ => &[],
    }
}
