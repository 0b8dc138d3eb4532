//! The text of a graph, written: what [`parse`](super::parse) reads back to the same graph, bit for bit.

use std::fmt::{self, Write};

use super::{Attention, Collective, Graph, Group, Id, Node, Op};

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        graph(f, self, 0)
    }
}

impl Graph {
    /// A node as the graph's text has it: one line, more where it has programs.
    pub fn line(&self, id: Id) -> String {
        format!("%{} = {}", id.0, Line(self.node(id))).trim_end().to_owned()
    }

    /// How errors call a node: its number and what it does.
    pub fn site(&self, id: Id) -> String {
        site(id.0 as usize, &self.node(id).op)
    }
}

/// How errors call a node that may not be there yet.
pub(super) fn site(node: usize, op: &Op) -> String {
    if let Op::Input { name } = op {
        format!("%{node} input {}", Quoted(name))
    } else {
        format!("%{node} {}", op.name())
    }
}

/// A node without its number.
struct Line<'a>(&'a Node);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        node(f, self.0, 0)
    }
}

/// A graph whose lines stand `depth` steps to the right.
fn graph(f: &mut fmt::Formatter<'_>, graph: &Graph, depth: usize) -> fmt::Result {
    let margin = "  ".repeat(depth);
    write!(f, "graph {}", Quoted(&graph.name))?;
    for (i, (symbol, facts)) in graph.known().iter().enumerate() {
        write!(f, "{}{} in {facts}", if i == 0 { " (" } else { ", " }, Name(symbol))?;
    }
    writeln!(f, "{} {{", if graph.known().is_empty() { "" } else { ")" })?;
    for id in graph.ids() {
        write!(f, "{margin}  %{} = ", id.0)?;
        node(f, graph.node(id), depth)?;
    }
    outputs(f, graph.outputs(), &margin)?;
    write!(f, "{margin}}}")
}

fn node(f: &mut fmt::Formatter<'_>, node: &Node, depth: usize) -> fmt::Result {
    write!(f, "{}", node.op.name())?;
    for input in &node.inputs {
        write!(f, " %{}", input.0)?;
    }
    settings(f, &node.op, depth)?;
    write!(f, " : {}", node.ty)?;
    if !node.scope.is_empty() {
        write!(f, " @ {}", Path(&node.scope))?;
    }
    writeln!(f)
}

/// All that is not a tensor about an operation, each after the word that announces it.
fn settings(f: &mut fmt::Formatter<'_>, op: &Op, depth: usize) -> fmt::Result {
    match op {
        Op::Input { name } => write!(f, " {}", Quoted(name)),
        Op::Constant { value } => write!(f, " {}", Number(*value)),
        Op::Iota { dim } | Op::Reduce(_, dim) | Op::Concat { dim } => write!(f, " dim {dim}"),
        Op::Transpose { order } => {
            write!(f, " order")?;
            order.iter().try_for_each(|dim| write!(f, " {dim}"))
        }
        Op::Slice { dim, start, end } => write!(f, " dim {dim} from {start} to {end}"),
        Op::Dequantize { block_size, nested } => {
            write!(f, " block {block_size}")?;
            nested.iter().try_for_each(|size| write!(f, " nested {size}"))
        }
        Op::RandomMask { probability, stream } => {
            write!(f, " probability {} stream {stream}", Number(*probability))
        }
        Op::Collective { kind, group } => collective(f, *kind, group),
        Op::Attention(settings) | Op::AttentionLse(settings) => attention(f, settings, depth),
        Op::AttentionGrad { attention: settings, wrt }
        | Op::AttentionLseGrad { attention: settings, wrt } => {
            write!(f, " wrt {wrt}")?;
            attention(f, settings, depth)
        }
        Op::Cast | Op::Detach | Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select => Ok(()),
        Op::Matmul | Op::Gather | Op::ScatterAdd | Op::Reshape | Op::Broadcast => Ok(()),
    }
}

fn collective(f: &mut fmt::Formatter<'_>, kind: Collective, group: &Group) -> fmt::Result {
    match kind {
        Collective::AllGather { dim } | Collective::ReduceScatter { dim } => write!(f, " dim {dim}")?,
        Collective::Send { by } | Collective::Receive { by } => write!(f, " by {by}")?,
        Collective::AllReduce => {}
    }
    write!(f, " over {} size {}", Quoted(&group.axis), group.size)
}

fn attention(f: &mut fmt::Formatter<'_>, attention: &Attention, depth: usize) -> fmt::Result {
    write!(f, " scale {}", Number(attention.scale))?;
    for (word, program) in [("score", &attention.score), ("mask", &attention.mask)] {
        if let Some(program) = program {
            write!(f, " {word} ")?;
            graph(f, program, depth + 1)?;
        }
    }
    Ok(())
}

fn outputs(f: &mut fmt::Formatter<'_>, outputs: &[(String, Id)], margin: &str) -> fmt::Result {
    for (i, (name, id)) in outputs.iter().enumerate() {
        let before = if i == 0 { format!("{margin}  return") } else { ",".to_owned() };
        write!(f, "{before} {} %{}", Quoted(name), id.0)?;
    }
    if outputs.is_empty() { Ok(()) } else { writeln!(f) }
}

/// The shortest text that reads back the same bits.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            x if x.to_bits() == f64::NAN.to_bits() => write!(f, "nan"),
            x if x.is_nan() => write!(f, "nan(0x{:x})", x.to_bits()),
            x => write!(f, "{x:?}"),
        }
    }
}

/// Any string, on one line.
pub(super) struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => write!(f, "\\n")?,
                c if c.is_control() => write!(f, "\\u{{{:x}}}", c as u32)?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// The name of a symbol: as it is where it is a word, else quoted.
pub(super) struct Name<'a>(pub &'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digit = self.0.starts_with(|c: char| c.is_ascii_digit());
        bare_or_quoted(f, self.0, !digit && !self.0.is_empty() && self.0.chars().all(in_word))
    }
}

/// The part of a model: as it is where it is words with dots between, else quoted.
struct Path<'a>(&'a str);

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bare_or_quoted(f, self.0, !self.0.is_empty() && self.0.chars().all(in_path))
    }
}

fn bare_or_quoted(f: &mut fmt::Formatter<'_>, text: &str, bare: bool) -> fmt::Result {
    if bare { f.write_str(text) } else { write!(f, "{}", Quoted(text)) }
}

/// Whether a word may have this character.
pub(super) fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether the part of a model may have this character without being quoted.
pub(super) fn in_path(c: char) -> bool {
    in_word(c) || c == '.'
}
