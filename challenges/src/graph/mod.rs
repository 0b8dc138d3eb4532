//! (C) `graph`: compile QLoRA without a break.
//!
//! A training step is some two thousand operations. Run one by one, each reads its inputs from memory and writes its
//! output back. Compiled, the step is a few hundred launches over one arena of memory that was laid out beforehand:
//! what can be fused is fused, what no output needs is gone, such as the gradients of frozen weights that the
//! derivative rules write down, and what is needed twice is kept or computed again, whichever is cheaper.
//!
//! **What is compiled.** A [`reference::graph::Graph`], forward, backward and optimiser together, for given sizes of
//! its symbols. **What comes out.** A [`kernels::plan::Plan`] over an arena. **What it means.** What the interpreter
//! says.
//!
//! The crate [`compiler`] does it: its first page shows the passes in their order, and [`Compile`] is the eight
//! decisions that it leaves open. Before the passes, an ordinary function is recorded as a graph; [`zoo`] shows every
//! kind of break and of recompilation beside its cure.
//!
//! **Not required.** The type checker, the derivative rules, the kernel writer, the machine: they are there.
//!
//! Sources: Ansel et al., "`PyTorch` 2" (2024), for what compiles today and where it breaks; Chen et al., "Training
//! Deep Nets with Sublinear Memory Cost" (2016), for computing again instead of keeping.

pub mod zoo;

use std::collections::BTreeSet;
use std::time::Duration;

use compiler::front::capture::Capture;
use compiler::ir::arena::{Arena, Life};
use compiler::ir::code::Code;
use compiler::ir::sized::Sized;
use kernels::plan::Choice;
use kernels::tile::Value;
use reference::graph::interpret::Values;
use reference::graph::{Dtype, Error, Facts, Graph, Id, Known, Op, Tape, Type};

use linked::{Linked, counted, linked};

pub use compiler::Compile;

linked!(warpbook_graph -> Linked<dyn Compile>);

counted! {
    Compile, warpbook_graph;

    fn capture(&self, name: &str, program: &dyn Fn(&Tape), examples: &Values<f32>) -> Result<Capture, Error>;
    fn buckets(&self, facts: Facts) -> Vec<i64>;
    fn prune(&self, graph: &Graph) -> Result<Graph, Error>;
    fn keep(&self, sized: &Sized<'_>, must: &BTreeSet<Id>) -> BTreeSet<Id>;
    fn place(&self, lives: &[Option<Life>]) -> Arena;
    fn lower(&self, op: &Op, from: Dtype, to: Dtype, inputs: &[Value], code: &mut Code) -> Option<Value>;
    fn tune(&self, candidates: &[Choice], time: &mut dyn FnMut(Choice) -> Duration) -> Choice;
    fn flex(&self, program: &Graph, types: &[Type], known: &Known, slope: bool) -> Result<Graph, Error>;
}

/// The solution's text: what an exercise is derived from, and the last page of the lesson.
pub fn solution_text() -> &'static str {
    warpbook_graph().text
}

/// Hints from small to large, chosen by the step that failed.
pub const HINTS: &str = include_str!("hints.toml");
