//! The eight decisions that the compiler leaves to whoever uses it: challenge C's contract.

use std::collections::BTreeSet;
use std::time::Duration;

use kernels::plan::Choice;
use kernels::tile::Value;
use reference::graph::interpret::Values;
use reference::graph::{Dtype, Error, Facts, Graph, Id, Known, Op, Tape, Type};

use crate::front::capture::Capture;
use crate::ir::arena::{Arena, Life};
use crate::ir::code::Code;
use crate::ir::sized::Sized;

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
    /// what another one has computed, or that do nothing. Collectives that an output needs all stay, in their order.
    fn prune(&self, graph: &Graph) -> Result<Graph, Error>;

    /// C.4 - which nodes get a buffer beyond those that `must` have one. All others are computed where they are used,
    /// as often as they are used.
    fn keep(&self, sized: &Sized<'_>, must: &BTreeSet<Id>) -> BTreeSet<Id>;

    /// C.5 - where each buffer lies in one arena. Two that live at the same time do not meet; places are multiples of
    /// [`LINE`](crate::ir::arena::LINE).
    fn place(&self, lives: &[Option<Life>]) -> Arena;

    /// C.6 - an operation on single elements as operations of a tile program: the value of its result, of type `to`,
    /// from those of its inputs, the first of type `from`. Nothing, if it is no operation on single elements.
    fn lower(&self, op: &Op, from: Dtype, to: Dtype, inputs: &[Value], code: &mut Code) -> Option<Value>;

    /// C.7 - the fastest of some choices for a product, each of which `time` runs once and times.
    fn tune(&self, candidates: &[Choice], time: &mut dyn FnMut(Choice) -> Duration) -> Choice;

    /// C.8 - a score or mask program over all scores at once. `types` are those of q (B, H, Tq, D), k (B, G, Tk, D), v
    /// and the extras. The graph's inputs, in this order: `score` f32 (B, H, Tq, Tk), then `extra0`, `extra1`, .. of
    /// the extras' own types. Its one output is `result` (B, H, Tq, Tk), f32 of a score program and u8 of a mask. With
    /// `slope` it is the gradient instead: `grad` f32 (B, H, Tq, Tk), the gradient of the program's result, is an input
    /// between `score` and the extras, and `result` f32 is the gradient of the score.
    fn flex(&self, program: &Graph, types: &[Type], known: &Known, slope: bool) -> Result<Graph, Error>;
}
// ANCHOR_END: graph-trait
