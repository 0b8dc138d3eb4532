//! Why a program that was recorded before gave another graph.
//!
//! A graph is compiled once and serves every batch that its symbols allow. What a program knows only as a number of its
//! own - a size, a scale, the layer's number, how long a cache has grown - is part of the graph, and another number
//! makes another graph, to be compiled again. [`difference`] finds the first place where two of them part, and says how
//! the number becomes something that a graph leaves open.
//!
//! The part of the model that a node belongs to (its scope) is a label: graphs that differ in nothing else are the
//! same.

use std::fmt;
use std::panic::Location;

use reference::graph::{Dim, Graph, Id, Node, Op, Type};

use crate::front::capture::Capture;
use crate::front::explain::{line, named};

/// The first place where two graphs part.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The line that asked for the node, if it is a node.
    pub at: Option<&'static Location<'static>>,
    /// Which node, symbol or output, and in which part of the model.
    pub what: String,
    /// What it was.
    pub was: String,
    /// What it is now.
    pub is: String,
    /// What to write instead.
    pub cure: &'static str,
}

/// Where a program recorded again parts from what it was before; nothing, if it is one and the same graph.
pub fn difference(before: &Capture, now: &Capture) -> Option<Change> {
    let (a, b) = (&before.graph, &now.graph);
    let longest = a.nodes().len().max(b.nodes().len());
    let ids = (0..longest as u32).map(Id);
    let parts = |id: &Id| !same(a.nodes().get(id.0 as usize), b.nodes().get(id.0 as usize));
    match ids.into_iter().find(parts) {
        Some(id) => Some(at_node(before, now, id)),
        None => at_facts(a, b).or_else(|| at_outputs(a, b)),
    }
}

/// Whether two nodes are there and compute the same.
fn same(a: Option<&Node>, b: Option<&Node>) -> bool {
    a.zip(b).is_some_and(|(a, b)| a.is(b))
}

fn at_node(before: &Capture, now: &Capture, id: Id) -> Change {
    let extent = |capture: &Capture| capture.graph.nodes().len();
    let has = |capture: &Capture| (id.0 as usize) < extent(capture);
    let longer = if extent(before) > extent(now) { before } else { now }; // it does what the other one does not
    let text = |capture: &Capture| if has(capture) { capture.graph.line(id) } else { "nothing more".into() };
    let (was, is) = first_difference(&text(before), &text(now));
    let cure = if has(before) && has(now) {
        cure(&now.graph, before.graph.node(id), now.graph.node(id))
    } else {
        ONE_WAY
    };
    Change { at: Some(longer.lines[id.0 as usize]), what: named(&longer.graph, id), was, is, cure }
}

/// The first lines of two texts that differ.
fn first_difference(a: &str, b: &str) -> (String, String) {
    let differ = a.lines().zip(b.lines()).find(|(a, b)| a != b);
    let (a, b) = differ.unwrap_or((a, b));
    (a.trim().to_owned(), b.trim().to_owned())
}

fn at_facts(a: &Graph, b: &Graph) -> Option<Change> {
    let symbol =
        b.known().keys().chain(a.known().keys()).find(|name| a.known().get(*name) != b.known().get(*name))?;
    let facts = |graph: &Graph| graph.known().get(symbol).map_or("not declared".into(), ToString::to_string);
    Some(Change {
        at: None,
        what: format!("the size {symbol}"),
        was: facts(a),
        is: facts(b),
        cure: "declare the widest facts that ever hold, the same each time",
    })
}

fn at_outputs(a: &Graph, b: &Graph) -> Option<Change> {
    let names = |graph: &Graph| {
        let names: Vec<String> =
            graph.outputs().iter().map(|(name, id)| format!("{name:?} %{}", id.0)).collect();
        names.join(", ")
    };
    let what = "the outputs".to_owned();
    let cure = "name the same outputs each time; who does not need one leaves it alone";
    (a.outputs() != b.outputs()).then(|| Change { at: None, what, was: names(a), is: names(b), cure })
}

/// Two ways through a program are two graphs.
const ONE_WAY: &str = "make the choice an input and `select` by it; or record each way once, under its own name, and \
                       choose before the step";

/// How what differs between two nodes becomes something that a graph leaves open.
fn cure(graph: &Graph, a: &Node, b: &Node) -> &'static str {
    let kind = |node: &Node| std::mem::discriminant(&node.op);
    let is_same_kind = kind(a) == kind(b);
    let found = match &a.op {
        _ if !is_same_kind => None,
        Op::Constant { .. } if a.ty == b.ty => {
            Some("hand the number in as an input: one graph serves all its values")
        }
        Op::Input { .. } if a.op != b.op => Some(
            "call a part the same in every layer: the caller chooses which weights it hands in, and the layer's number \
             is a scope",
        ),
        Op::Input { .. } if grows(graph, b) && a.ty.dtype == b.ty.dtype => {
            Some("keep a cache of the largest length, and hand in how much of it is filled")
        }
        Op::Slice { .. } => {
            Some("cut at a symbol, or `gather` by an index that is an input: one graph serves every place")
        }
        Op::Attention(_) => {
            Some("hand the number to the mask's program as an extra: one program serves all its values")
        }
        Op::Iota { .. } => Some(
            "let the mask be a program of (query, key) and no table: it serves every length (`programs::mask`)",
        ),
        Op::Input { .. } | Op::Constant { .. } | Op::Cast | Op::Detach | Op::Unary(_) | Op::Binary(_) => None,
        Op::Compare(_) | Op::Select | Op::Reduce(..) | Op::Matmul | Op::Gather | Op::ScatterAdd => None,
        Op::Reshape | Op::Transpose { .. } | Op::Broadcast | Op::Concat { .. } => None,
        Op::Dequantize { .. } | Op::AttentionGrad { .. } => None,
        Op::AttentionLse(_) | Op::AttentionLseGrad { .. } | Op::RandomMask { .. } | Op::Collective { .. } => {
            None
        }
    };
    let alike = a.op.name() == b.op.name() && a.inputs == b.inputs;
    found.unwrap_or(if alike { of_types(&a.ty, &b.ty) } else { ONE_WAY })
}

/// Whether an input is only a beginning that something is put after.
fn grows(graph: &Graph, input: &Node) -> bool {
    let reads = |node: &&Node| node.inputs.iter().any(|id| std::ptr::eq(graph.node(*id), input));
    graph.nodes().iter().filter(reads).any(|node| matches!(node.op, Op::Concat { .. }))
}

fn of_types(a: &Type, b: &Type) -> &'static str {
    let open = |ty: &Type| ty.shape.iter().any(|dim| dim.as_fixed().is_none());
    if a.dtype != b.dtype {
        return "state the compute type once, among the program's settings, and `cast` to it";
    }
    if a.shape.iter().map(Dim::as_fixed).eq(b.shape.iter().map(Dim::as_fixed)) && open(b) {
        return "give each size a symbol of its own: that two are equal now is no fact";
    }
    "declare the size as a symbol with facts (`Tape::symbol`): one graph serves every size that they allow"
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "recompiled: {} changed", self.what)?;
        self.at.map_or(Ok(()), |at| line(f, at))?;
        writeln!(f, "was:  {}\nis:   {}", self.was, self.is)?;
        write!(f, "cure: {}", self.cure)
    }
}
