//! (C) `graph`: compile QLoRA without a break.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::Location;
use std::rc::Rc;
use std::time::Duration;

use challenges::graph::Compile;
use challenges::graph::capture::Capture;
use challenges::graph::emit::{Code, element};
use challenges::graph::explain::Break;
use challenges::graph::fuse::LONG;
use challenges::graph::memory::{Arena, Life, room};
use challenges::graph::sized::Sized;
use kernels::plan::Cut;
use kernels::tile::{self, Op as Tile, Value};
use reference::grad;
use reference::graph::interpret::Values;
use reference::graph::{
    self, Array, Binary, Builder, Compare, Dtype, Error, Facts, Fault, Foreign, Graph, Host, Id, Known, Node,
    Op, Record, Tape, Tensor, Type, Unary, interpret,
};

/// The attempt.
pub struct Exercise;

impl Compile for Exercise {
    // ANCHOR: graph-step-1
    // step C.1: let the program run on a tape of the recorder below, which keeps graph and breaks
    fn capture(&self, name: &str, program: &dyn Fn(&Tape), examples: &Values<f32>) -> Result<Capture, Error> {
        todo!("C.1: let the program run on a tape of the recorder below, which keeps graph and breaks")
    }
    // ANCHOR_END: graph-step-1

    // ANCHOR: graph-step-2
    // step C.2: choose the sizes that a symbol is rounded up to, from what is known of it
    fn buckets(&self, facts: Facts) -> Vec<i64> {
        todo!("C.2: choose the sizes that a symbol is rounded up to, from what is known of it")
    }
    // ANCHOR_END: graph-step-2

    // ANCHOR: graph-step-3
    // step C.3: write the graph without what no output needs, what is there twice, what does nothing
    fn prune(&self, graph: &Graph) -> Result<Graph, Error> {
        todo!("C.3: write the graph without what no output needs, what is there twice, what does nothing")
    }
    // ANCHOR_END: graph-step-3

    // ANCHOR: graph-step-4
    // step C.4: choose the nodes that get a buffer, beyond those that must have one
    fn keep(&self, sized: &Sized<'_>, must: &BTreeSet<Id>) -> BTreeSet<Id> {
        todo!("C.4: choose the nodes that get a buffer, beyond those that must have one")
    }
    // ANCHOR_END: graph-step-4

    // ANCHOR: graph-step-5
    // step C.5: find each buffer a place in one arena, apart from all that live at the same time
    fn place(&self, lives: &[Option<Life>]) -> Arena {
        todo!("C.5: find each buffer a place in one arena, apart from all that live at the same time")
    }
    // ANCHOR_END: graph-step-5

    // ANCHOR: graph-step-6
    // step C.6: say an operation on single elements in the machine's words
    fn lower(&self, op: &Op, from: Dtype, to: Dtype, inputs: &[Value], code: &mut Code) -> Option<Value> {
        todo!("C.6: say an operation on single elements in the machine's words")
    }
    // ANCHOR_END: graph-step-6

    // ANCHOR: graph-step-7
    // step C.7: find the candidate that runs fastest
    fn tune(&self, candidates: &[Cut], time: &mut dyn FnMut(Cut) -> Duration) -> Cut {
        todo!("C.7: find the candidate that runs fastest")
    }
    // ANCHOR_END: graph-step-7

    // ANCHOR: graph-step-8
    // step C.8: write a score or mask program over all scores at once, or the gradient of its score
    fn flex(&self, program: &Graph, types: &[Type], known: &Known, slope: bool) -> Result<Graph, Error> {
        todo!("C.8: write a score or mask program over all scores at once, or the gradient of its score")
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
    // step C.1: an operation that fits becomes a node
    fn apply(
        &mut self,
        op: Op,
        inputs: &[usize],
        ty: Option<Type>,
        at: &'static Location<'static>,
    ) -> Option<(usize, Type)> {
        todo!("C.1: an operation that fits becomes a node")
    }

    // step C.1: values that are read: a break, answered with what the examples make of them
    fn read(&mut self, place: usize, at: &'static Location<'static>) -> Option<Vec<f64>> {
        todo!("C.1: values that are read: a break, answered with what the examples make of them")
    }

    // step C.1: an address that is asked for: a break without an answer
    fn pointer(&mut self, place: usize, at: &'static Location<'static>) -> Option<usize> {
        todo!("C.1: an address that is asked for: a break without an answer")
    }

    // step C.1: a call into a library: a break, and a fresh input for what it gives
    fn foreign(
        &mut self,
        call: &Foreign,
        inputs: &[usize],
        at: &'static Location<'static>,
    ) -> Option<(usize, Type)> {
        todo!("C.1: a call into a library: a break, and a fresh input for what it gives")
    }

    // step C.1: the host: a break, with the answer that it gives now
    fn host(
        &mut self,
        host: Host,
        name: &str,
        run: &dyn Fn() -> f64,
        at: &'static Location<'static>,
    ) -> Option<f64> {
        todo!("C.1: the host: a break, with the answer that it gives now")
    }

    // step C.1: a tensor that is overwritten: a break, and from here on another node
    fn write(&mut self, place: usize, value: usize, at: &'static Location<'static>) {
        todo!("C.1: a tensor that is overwritten: a break, and from here on another node")
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
    // step C.1: what the examples make of a result; nothing where one is missing
    fn value(&mut self, place: usize, at: &'static Location<'static>) -> Option<Array<f32>> {
        todo!("C.1: what the examples make of a result; nothing where one is missing")
    }

    /// Keeps the first mistake, with the line that made it.
    fn fail<T>(&mut self, error: Error, at: &'static Location<'static>) -> Option<T> {
        self.error.get_or_insert(Error { source: Some(at), ..error });
        None
    }
}

// step C.3: the input, where a node gives nothing else
fn passes_on(to: &Graph, node: &Node, inputs: &[Id]) -> Option<Id> {
    todo!("C.3: the input, where a node gives nothing else")
}

/// What it takes to compute a node again.
#[derive(Clone, Copy)]
struct Cost {
    ops: usize,
    loads: usize,
}

/// Operations that are worth a pass over memory.
const DEAR: usize = 6;

// step C.4: how many operations a node adds to a pass; functions count more than arithmetic
fn own_ops(sized: &Sized<'_>, id: Id) -> usize {
    todo!("C.4: how many operations a node adds to a pass; functions count more than arithmetic")
}

// step C.4: the nodes that use a node, views of it aside
fn consumers(sized: &Sized<'_>, id: Id) -> BTreeSet<Id> {
    todo!("C.4: the nodes that use a node, views of it aside")
}

// step C.5: the lowest place that is free for a whole life; `placed` is in the order of first bytes
fn lowest(placed: &[(usize, &Life)], life: &Life) -> usize {
    todo!("C.5: the lowest place that is free for a whole life; `placed` is in the order of first bytes")
}

// step C.6: an f32 rounded to the type that the graph gives it
fn rounded(code: &mut Code, value: Value, to: Dtype) -> Value {
    todo!("C.6: an f32 rounded to the type that the graph gives it")
}

// step C.6: a value as one of another type
fn cast(code: &mut Code, value: Value, from: Dtype, to: Dtype) -> Value {
    todo!("C.6: a value as one of another type")
}

// step C.6: a whole number as one of its type
fn bounded(code: &mut Code, value: Value, to: Dtype) -> Value {
    todo!("C.6: a whole number as one of its type")
}

// step C.6: a constant as its type has it
fn constant(value: f64, to: Dtype) -> f32 {
    todo!("C.6: a constant as its type has it")
}

// step C.6: a function of one number
fn of_unary(unary: Unary) -> tile::Unary {
    todo!("C.6: a function of one number")
}

// step C.6: a function of two numbers
fn of_binary(binary: Binary) -> tile::Binary {
    todo!("C.6: a function of two numbers")
}

// step C.6: a relation
fn of_compare(compare: Compare) -> tile::Compare {
    todo!("C.6: a relation")
}

/// How often each candidate is timed.
const ROUNDS: usize = 4;
