//! (C) `graph`: compile QLoRA without a break.
//!
//! A training step is some two thousand operations. Run one by one, each reads its inputs from memory and writes its
//! output back, and every frozen weight gets a gradient that nobody reads. Compiled, the step is a few hundred launches
//! over one arena of memory that was laid out beforehand: what can be fused is fused, what is dead is gone, and what is
//! needed twice is kept or computed again, whichever is cheaper.
//!
//! **What is compiled.** A [`reference::graph::Graph`], forward, backward and optimiser together, for given sizes of its
//! symbols. **What comes out.** A [`kernels::plan::Plan`]: tile programs, products of matrices and dequantisations over
//! an arena. **What it means.** What the interpreter says: equal where every rounding is defined, elsewhere within the
//! fair tolerance (`tests/tests/workbook/compiled.rs`).
//!
//! Before the passes, [`capture`] records an ordinary function as a graph; [`explain`] names what cannot be recorded,
//! [`change`] why a program gave another graph, and [`zoo`] shows every kind of both beside its cure.
//!
//! The passes, in their order:
//!
//! | module | does |
//! |---|---|
//! | [`capture`] | records an ordinary function over handles; what cannot be recorded is a break |
//! | [`pad`] | lets lengths be padded to a bucket without a result that notices |
//! | [`attend`] | writes the score and mask programs of an attention as tile programs |
//! | `prune` (C.3) | takes out what no output needs, what is computed twice, what does nothing |
//! | [`decompose`] | says in f32 what has a kernel in f32 |
//! | [`recompute`] | computes again for the backward pass what is not worth keeping |
//! | [`sized`] | binds the symbols |
//! | [`sums`] | lets products add up in one buffer |
//! | [`fuse`], [`emit`], [`map`] | writes one tile program for everything between buffers |
//! | [`carry`] | lets what a run updates stay where it is |
//! | [`reuse`] | lets a pass write where it reads |
//! | [`memory`] | lives of the buffers, and their places in the arena |
//! | [`forecast`] | the bytes alive during each part, as polynomials in the symbols |
//! | [`compile`] | makes the plan |
//! | [`tune`] | times the candidates of each product |
//! | [`executor`] | keeps what is compiled, by bucket, counts, and runs |
//!
//! **Not required.** The type checker, the derivative rules, the kernel writer, the machine: they are there.
//!
//! Sources: Ansel et al., "`PyTorch` 2" (2024), for what compiles today and where it breaks; Chen et al., "Training Deep
//! Nets with Sublinear Memory Cost" (2016), for computing again instead of keeping.

pub mod attend;
pub mod capture;
pub mod carry;
pub mod change;
pub mod compile;
pub mod decompose;
pub mod emit;
pub mod executor;
pub mod explain;
pub mod forecast;
pub mod fuse;
pub mod map;
pub mod memory;
pub mod pad;
pub mod recompute;
pub mod reuse;
pub mod sized;
mod solution;
pub mod sums;
pub mod tune;
pub mod zoo;

use std::collections::BTreeSet;
use std::time::Duration;

use kernels::plan::Choice;
use kernels::tile::Value;
use reference::graph::interpret::Values;
use reference::graph::{Dtype, Error, Facts, Graph, Id, Known, Op, Tape, Type};

use crate::calls::Calls;
use capture::Capture;
use emit::Code;
use memory::{Arena, Life};
use sized::Sized;

// ANCHOR: graph-trait
/// The steps of challenge C, from small to large.
pub trait Compile: Sync {
    /// C.1 - records a program over handles as a graph, and every break as one. `examples` are values for its inputs,
    /// as far as there are some: a program that reads a value is answered with what they make of it.
    ///
    /// Fails where shapes or types do not fit; the error names the line. And where the whole graph is not sound.
    fn capture(&self, name: &str, program: &dyn Fn(&Tape), examples: &Values<f32>) -> Result<Capture, Error>;

    /// C.2 - the sizes that a symbol is rounded up to: growing, each within the facts, the last one the largest.
    fn buckets(&self, facts: Facts) -> Vec<i64>;

    /// C.3 - the same graph, with all of its inputs and outputs, but without nodes that no output needs, that compute
    /// what another one has computed, or that do nothing.
    fn prune(&self, graph: &Graph) -> Result<Graph, Error>;

    /// C.4 - which nodes get a buffer beyond those that `must` have one. All others are computed where they are used,
    /// as often as they are used.
    fn keep(&self, sized: &Sized<'_>, must: &BTreeSet<Id>) -> BTreeSet<Id>;

    /// C.5 - where each buffer lies in one arena. Two that live at the same time do not meet; places are multiples of
    /// [`memory::LINE`].
    fn place(&self, lives: &[Option<Life>]) -> Arena;

    /// C.6 - an operation on single elements as operations of a tile program: the value of its result, of type `to`,
    /// from those of its inputs, the first of type `from`. Nothing, if it is no operation on single elements.
    fn lower(&self, op: &Op, from: Dtype, to: Dtype, inputs: &[Value], code: &mut Code) -> Option<Value>;

    /// C.7 - the fastest of some choices for a product, each of which `time` runs once and times.
    fn tune(&self, candidates: &[Choice], time: &mut dyn FnMut(Choice) -> Duration) -> Choice;

    /// C.8 - a score or mask program over all scores at once. `types` are those of q (B, H, Tq, D), k (B, G, Tk, D), v
    /// and the extras. The graph's inputs, in this order: `score` f32 (B, H, Tq, Tk), then `extra0`, `extra1`, .. of the
    /// extras' own types. Its one output is `result` (B, H, Tq, Tk), f32 of a score program and u8 of a mask. With `slope`
    /// it is the gradient instead: `grad` f32 (B, H, Tq, Tk), the gradient of the program's result, is an input between
    /// `score` and the extras, and `result` f32 is the gradient of the score.
    fn flex(&self, program: &Graph, types: &[Type], known: &Known, slope: bool) -> Result<Graph, Error>;
}
// ANCHOR_END: graph-trait

static CALLS: Calls = Calls::new();

/// Calls of this process so far to any step of [`Solution`].
pub fn solution_calls() -> u64 {
    CALLS.so_far()
}

/// The solution. It counts its calls: an attempt has to do its own work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Solution;

impl Solution {
    fn counted() -> solution::Solution {
        CALLS.count();
        solution::Solution
    }
}

impl Compile for Solution {
    fn capture(&self, name: &str, program: &dyn Fn(&Tape), examples: &Values<f32>) -> Result<Capture, Error> {
        Self::counted().capture(name, program, examples)
    }

    fn buckets(&self, facts: Facts) -> Vec<i64> {
        Self::counted().buckets(facts)
    }

    fn prune(&self, graph: &Graph) -> Result<Graph, Error> {
        Self::counted().prune(graph)
    }

    fn keep(&self, sized: &Sized<'_>, must: &BTreeSet<Id>) -> BTreeSet<Id> {
        Self::counted().keep(sized, must)
    }

    fn place(&self, lives: &[Option<Life>]) -> Arena {
        Self::counted().place(lives)
    }

    fn lower(&self, op: &Op, from: Dtype, to: Dtype, inputs: &[Value], code: &mut Code) -> Option<Value> {
        Self::counted().lower(op, from, to, inputs, code)
    }

    fn tune(&self, candidates: &[Choice], time: &mut dyn FnMut(Choice) -> Duration) -> Choice {
        Self::counted().tune(candidates, time)
    }

    fn flex(&self, program: &Graph, types: &[Type], known: &Known, slope: bool) -> Result<Graph, Error> {
        Self::counted().flex(program, types, known, slope)
    }
}

/// The solution's text: what an exercise is derived from, and the last page of the lesson.
pub const SOLUTION: &str = include_str!("solution.rs");

/// Hints from small to large, chosen by the step that failed.
pub const HINTS: &str = include_str!("hints.toml");
