//! (C) `graph`: compile QLoRA without a break.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::panic::Location;
use std::rc::Rc;
use std::time::Duration;

use challenges::graph::Compile;
use compiler::front::capture::Capture;
use compiler::front::explain::Break;
use compiler::fuse::LONG;
use compiler::ir::arena::{Arena, Life, aligned_bytes};
use compiler::ir::code::{Code, element};
use compiler::ir::sized::Sized;
use kernels::plan::Choice;
use kernels::tile::{self, Op as Tile, Value};
use reference::grad;
use reference::graph::interpret::Values;
use reference::graph::{
    self, Array, Binary, Builder, Compare, Dtype, Error, Facts, Fault, Foreign, Graph, Host, Id, Known, Node,
    Op, Record, Tape, Tensor, Type, Unary, interpret,
};
use reference::philox;

/// The attempt.
pub struct Exercise;

impl Compile for Exercise {
    // ANCHOR: graph-step-1
    // step C.1: trace the program; keep the graph and the breaks
    fn capture(&self, name: &str, program: &dyn Fn(&Tape), examples: &Values<f32>) -> Result<Capture, Error> {
        todo!("C.1: trace the program; keep the graph and the breaks")
    }
    // ANCHOR_END: graph-step-1

    // ANCHOR: graph-step-2
    // step C.2: choose the padded lengths (buckets) of a dynamic dimension
    fn buckets(&self, facts: Facts) -> Vec<i64> {
        todo!("C.2: choose the padded lengths (buckets) of a dynamic dimension")
    }
    // ANCHOR_END: graph-step-2

    // ANCHOR: graph-step-3
    // step C.3: prune dead nodes, duplicates and no-ops
    fn prune(&self, graph: &Graph) -> Result<Graph, Error> {
        todo!("C.3: prune dead nodes, duplicates and no-ops")
    }
    // ANCHOR_END: graph-step-3

    // ANCHOR: graph-step-4
    // step C.4: choose the nodes to materialise; the others are fused into their consumers
    fn keep(&self, sized: &Sized<'_>, must: &BTreeSet<Id>) -> BTreeSet<Id> {
        todo!("C.4: choose the nodes to materialise; the others are fused into their consumers")
    }
    // ANCHOR_END: graph-step-4

    // ANCHOR: graph-step-5
    // step C.5: plan the memory: an offset in one arena for each buffer, by its live range
    fn place(&self, lives: &[Option<Life>]) -> Arena {
        todo!("C.5: plan the memory: an offset in one arena for each buffer, by its live range")
    }
    // ANCHOR_END: graph-step-5

    // ANCHOR: graph-step-6
    // step C.6: lower an element-wise operation to tile operations
    fn lower(&self, op: &Op, from: Dtype, to: Dtype, inputs: &[Value], code: &mut Code) -> Option<Value> {
        todo!("C.6: lower an element-wise operation to tile operations")
    }
    // ANCHOR_END: graph-step-6

    // ANCHOR: graph-step-7
    // step C.7: autotune a product: time the candidates, take the fastest
    fn tune(&self, candidates: &[Choice], time: &mut dyn FnMut(Choice) -> Duration) -> Choice {
        todo!("C.7: autotune a product: time the candidates, take the fastest")
    }
    // ANCHOR_END: graph-step-7

    // ANCHOR: graph-step-8
    // step C.8: vectorise a score or mask program over all scores, or differentiate it
    fn flex(&self, program: &Graph, types: &[Type], known: &Known, slope: bool) -> Result<Graph, Error> {
        todo!("C.8: vectorise a score or mask program over all scores, or differentiate it")
    }
    // ANCHOR_END: graph-step-8
}

/// A program under record.
#[derive(Default)]
struct Recorder {
    graph: Graph,
    lines: Vec<&'static Location<'static>>,
    handles: Vec<Id>, // which node the handles of a place mean: another one after a write
    scope: Vec<String>,
    values: Values<f32>, // of inputs, those of foreign calls among them
    breaks: Vec<Break>,
    error: Option<Error>,
}

impl Record for Recorder {
    // step C.1: record an operation as a node
    fn apply(
        &mut self,
        op: Op,
        inputs: &[usize],
        ty: Option<Type>,
        at: &'static Location<'static>,
    ) -> Option<(usize, Type)> {
        todo!("C.1: record an operation as a node")
    }

    // step C.1: record a read of values as a break; answer it from the example inputs
    fn read(&mut self, place: usize, at: &'static Location<'static>) -> Option<Vec<f64>> {
        todo!("C.1: record a read of values as a break; answer it from the example inputs")
    }

    // step C.1: record a read of an address as a break without an answer
    fn pointer(&mut self, place: usize, at: &'static Location<'static>) -> Option<usize> {
        todo!("C.1: record a read of an address as a break without an answer")
    }

    // step C.1: record a foreign call as a break; its result is a new input
    fn foreign(
        &mut self,
        call: &Foreign,
        inputs: &[usize],
        at: &'static Location<'static>,
    ) -> Option<(usize, Type)> {
        todo!("C.1: record a foreign call as a break; its result is a new input")
    }

    // step C.1: record a call to the host as a break; answer it with the value of now
    fn host(
        &mut self,
        host: Host,
        name: &str,
        run: &dyn Fn() -> f64,
        at: &'static Location<'static>,
    ) -> Option<f64> {
        todo!("C.1: record a call to the host as a break; answer it with the value of now")
    }

    // step C.1: record an in-place write as a break; later uses see the new node
    fn write(&mut self, place: usize, value: usize, at: &'static Location<'static>) {
        todo!("C.1: record an in-place write as a break; later uses see the new node")
    }

    fn know(&mut self, symbol: &str, facts: Facts) {
        self.graph.know(symbol, facts);
    }

    fn output(&mut self, name: &str, place: usize) {
        self.graph.output(name, self.handles[place]);
    }

    fn enter(&mut self, part: &str) {
        self.scope.push(part.to_owned());
    }

    fn leave(&mut self) {
        self.scope.pop();
    }
}

impl Recorder {
    // step C.1: evaluate a result on the example inputs; `None` if one is missing
    fn value(&mut self, place: usize, at: &'static Location<'static>) -> Option<Array<f32>> {
        todo!("C.1: evaluate a result on the example inputs; `None` if one is missing")
    }

    /// Keeps the first mistake, with the line that made it.
    fn fail<T>(&mut self, error: Error, at: &'static Location<'static>) -> Option<T> {
        self.error.get_or_insert(Error { source: Some(at), ..error });
        None
    }
}

// step C.3: find the input that a no-op passes on
fn passes_on(to: &Graph, node: &Node, inputs: &[Id]) -> Option<Id> {
    todo!("C.3: find the input that a no-op passes on")
}

/// What it takes to compute a node again.
#[derive(Clone, Copy)]
struct Cost {
    ops: usize,
    loads: usize,
}

/// Operations that are worth a pass over memory.
const DEAR: usize = 6;

// step C.4: estimate a node's cost in a pass; functions count more than arithmetic
fn own_ops(sized: &Sized<'_>, id: Id) -> usize {
    todo!("C.4: estimate a node's cost in a pass; functions count more than arithmetic")
}

// step C.4: collect a node's consumers, looking through views
fn consumers(sized: &Sized<'_>, id: Id) -> BTreeSet<Id> {
    todo!("C.4: collect a node's consumers, looking through views")
}

// step C.5: find the lowest offset that is free for a live range; `placed` is sorted by offset
fn lowest(placed: &[(usize, &Life)], life: &Life) -> usize {
    todo!("C.5: find the lowest offset that is free for a live range; `placed` is sorted by offset")
}

// step C.6: round an f32 to its 16-bit type
fn rounded(code: &mut Code, value: Value, to: Dtype) -> Value {
    todo!("C.6: round an f32 to its 16-bit type")
}

// step C.6: lower a cast
fn cast(code: &mut Code, value: Value, from: Dtype, to: Dtype) -> Value {
    todo!("C.6: lower a cast")
}

// step C.6: clamp an integer to its type
fn bounded(code: &mut Code, value: Value, to: Dtype) -> Value {
    todo!("C.6: clamp an integer to its type")
}

// step C.6: round a constant to its type, once
fn constant(value: f64, to: Dtype) -> f32 {
    todo!("C.6: round a constant to its type, once")
}

// step C.6: map a unary operation to its tile operation
fn of_unary(unary: Unary) -> tile::Unary {
    todo!("C.6: map a unary operation to its tile operation")
}

// step C.6: map a binary operation to its tile operation
fn of_binary(binary: Binary) -> tile::Binary {
    todo!("C.6: map a binary operation to its tile operation")
}

// step C.6: map a comparison to its tile operation
fn of_compare(compare: Compare) -> tile::Compare {
    todo!("C.6: map a comparison to its tile operation")
}

/// How often each candidate is timed.
const ROUNDS: usize = 4;
