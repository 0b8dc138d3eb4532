//! Values for the inputs of a graph, drawn by what becomes of them: an index points into its table, a divisor is not 0,
//! a logarithm is taken of something positive, a weight of NF4 has the format's tables.
//!
//! The wish of a node for its operand goes back through what hands elements on as they are to the inputs that they come
//! from. What the walk does not see - an index that is computed - shows when the graph is interpreted; then smaller
//! numbers are drawn ([`Caution`]).

use std::collections::{BTreeMap, BTreeSet};

use reference::graph::interpret::Values;
use reference::graph::{Array, Binary, Dim, Dtype, Graph, Id, Op, Symbol, Type, Unary};
use reference::nf4::{CODE2, NF4};

use crate::random::Random;

/// How far from 0 whole numbers are drawn that nothing is known of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caution {
    /// Up to 8 on either side.
    Free,
    /// 0 or 1.
    Small,
    /// 0; 1 where something is divided by it.
    Least,
}

/// What becomes of an input.
#[derive(Clone, Debug, Default, PartialEq)]
struct Wish {
    /// It is an index into so many rows.
    below: Option<i64>,
    /// Something is divided by it, or the root or the logarithm of it is taken.
    positive: bool,
    /// It is a condition.
    condition: bool,
    /// It holds these numbers.
    table: Option<&'static [f32]>,
}

/// Values for every input.
///
/// # Errors
/// If a size is negative, or of no given symbol.
pub fn values(
    graph: &Graph,
    sizes: &BTreeMap<Symbol, i64>,
    seed: u64,
    caution: Caution,
) -> Result<Values<f64>, String> {
    let wishes = wishes(graph, sizes);
    let none = Wish::default();
    let mut values = Values::new();
    for (name, id) in graph.inputs() {
        let ty = graph.ty(id);
        let shape =
            numbers(ty, sizes).ok_or_else(|| format!("{}: expected sizes from 0 on", graph.site(id)))?;
        let mut random = Random::named(seed, name);
        let wish = wishes.get(&id).unwrap_or(&none);
        let count: usize = shape.iter().product();
        let drawn = (0..count).map(|i| element(ty.dtype, wish, caution, i, &mut random));
        values.insert(name.to_owned(), held(ty.dtype, &shape, drawn));
    }
    Ok(values)
}

fn numbers(ty: &Type, sizes: &BTreeMap<Symbol, i64>) -> Option<Vec<usize>> {
    ty.shape.iter().map(|dim| usize::try_from(dim.value(sizes).ok()?).ok()).collect()
}

/// Elements as their type holds them.
fn held(dtype: Dtype, shape: &[usize], drawn: impl Iterator<Item = f64>) -> Array<f64> {
    match dtype {
        Dtype::U8 => Array::bytes(shape, drawn.map(|x| x as u8).collect()),
        Dtype::I32 => Array::integers(shape, drawn.map(|x| x as i32).collect()),
        Dtype::F32 | Dtype::F16 | Dtype::Bf16 => Array::<f32>::floats(dtype, shape, drawn).widened(),
    }
}

fn element(dtype: Dtype, wish: &Wish, caution: Caution, i: usize, random: &mut Random) -> f64 {
    if let Some(table) = wish.table {
        return table.get(i).map_or(0.0, |value| f64::from(*value));
    }
    let unit = random.unit();
    match dtype {
        _ if wish.below.is_some() => whole(dtype, wish, caution, unit).floor(),
        Dtype::F32 | Dtype::F16 | Dtype::Bf16 if wish.positive => 0.125 + 1.375 * unit,
        Dtype::F32 | Dtype::F16 | Dtype::Bf16 => 3.0 * unit - 1.5,
        Dtype::U8 | Dtype::I32 => whole(dtype, wish, caution, unit).floor(),
    }
}

/// A whole number; `unit` is at least 0 and less than 1.
fn whole(dtype: Dtype, wish: &Wish, caution: Caution, unit: f64) -> f64 {
    let below = wish.below.map(|rows| rows.clamp(1, i64::from(i32::MAX)) as f64);
    match (caution, below) {
        (Caution::Least, _) => f64::from(u8::from(wish.positive)),
        (Caution::Small, _) if wish.positive => 1.0,
        (Caution::Small, below) => unit * below.unwrap_or(2.0).min(2.0),
        (Caution::Free, Some(below)) => unit * below,
        (Caution::Free, None) if wish.positive => 1.0 + unit * 8.0,
        (Caution::Free, None) if wish.condition => unit * 2.0,
        (Caution::Free, None) if dtype == Dtype::U8 => unit * 256.0,
        (Caution::Free, None) => unit * 17.0 - 8.0,
    }
}

/// What becomes of each input.
fn wishes(graph: &Graph, sizes: &BTreeMap<Symbol, i64>) -> BTreeMap<Id, Wish> {
    let mut wishes = BTreeMap::new();
    for id in graph.ids() {
        for (input, wish) in asked(graph, id, sizes) {
            hand_back(graph, input, &wish, &mut wishes);
        }
    }
    wishes
}

/// What a node wishes of its operands.
fn asked(graph: &Graph, id: Id, sizes: &BTreeMap<Symbol, i64>) -> Vec<(Id, Wish)> {
    let node = graph.node(id);
    let inputs = &node.inputs;
    let rows = |of: Id| graph.ty(of).shape.first().and_then(|dim: &Dim| dim.value(sizes).ok());
    let positive = || Wish { positive: true, ..Wish::default() };
    let table = |table| Wish { table: Some(table), ..Wish::default() };
    match &node.op {
        Op::Gather => vec![(inputs[1], Wish { below: rows(inputs[0]), ..Wish::default() })],
        Op::ScatterAdd => vec![(inputs[1], Wish { below: rows(id), ..Wish::default() })],
        Op::Binary(Binary::Div) => vec![(inputs[1], positive())],
        Op::Unary(Unary::Log | Unary::Sqrt) => vec![(inputs[0], positive())],
        Op::Select => vec![(inputs[0], Wish { condition: true, ..Wish::default() })],
        Op::Dequantize { nested: None, .. } => vec![(inputs[1], table(&NF4)), (inputs[2], positive())],
        Op::Dequantize { nested: Some(_), .. } => {
            let scales = [(inputs[4], positive()), (inputs[5], positive())];
            [(inputs[1], table(&NF4)), (inputs[3], table(&CODE2))].into_iter().chain(scales).collect()
        }
        Op::Attention(of)
        | Op::AttentionGrad { attention: of, .. }
        | Op::AttentionLse(of)
        | Op::AttentionLseGrad { attention: of, .. } => {
            of.programs().flat_map(|(program, _)| of_extras(program, inputs, sizes)).collect()
        }
        Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } | Op::Cast | Op::Detach => vec![],
        Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Reduce(..) | Op::Matmul => vec![],
        Op::Reshape | Op::Transpose { .. } | Op::Broadcast | Op::Slice { .. } | Op::Concat { .. } => vec![],
        Op::RandomMask { .. } | Op::Collective { .. } => vec![],
    }
}

/// What a program of attention wishes of the extras: its inputs after the five that say which score it is about.
fn of_extras(program: &Graph, inputs: &[Id], sizes: &BTreeMap<Symbol, i64>) -> Vec<(Id, Wish)> {
    let wishes = wishes(program, sizes);
    let extras = program.inputs().skip(5).zip(inputs.iter().skip(3));
    extras.filter_map(|((_, inside), outside)| Some((*outside, wishes.get(&inside)?.clone()))).collect()
}

/// Hands a wish back to the inputs that a node's elements come from.
fn hand_back(graph: &Graph, from: Id, wish: &Wish, wishes: &mut BTreeMap<Id, Wish>) {
    let (mut open, mut seen) = (vec![from], BTreeSet::new());
    while let Some(id) = open.pop() {
        if seen.insert(id) {
            let node = graph.node(id);
            if matches!(node.op, Op::Input { .. }) {
                wishes.entry(id).or_default().add(wish);
            }
            open.extend(sources(&node.op, &node.inputs, wish));
        }
    }
}

/// The operands whose elements a node hands on, or whose signs decide its own.
fn sources<'a>(op: &Op, inputs: &'a [Id], wish: &Wish) -> &'a [Id] {
    match op {
        Op::Detach | Op::Reshape | Op::Transpose { .. } | Op::Broadcast | Op::Slice { .. } => inputs,
        Op::Concat { .. } | Op::Cast | Op::Binary(Binary::Min | Binary::Max) => inputs,
        Op::Gather => &inputs[..1],
        Op::Select => &inputs[1..],
        Op::Binary(Binary::Mul) if inputs[0] == inputs[1] => &[], // a square is positive by itself
        Op::Binary(Binary::Add | Binary::Mul | Binary::Div) | Op::Reduce(..) if wish.positive => inputs,
        Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } | Op::Unary(_) | Op::Binary(_) => &[],
        Op::Compare(_) | Op::Reduce(..) | Op::Matmul | Op::ScatterAdd => &[],
        Op::Dequantize { .. } | Op::Attention(_) | Op::AttentionGrad { .. } => &[],
        Op::AttentionLse(_) | Op::AttentionLseGrad { .. } | Op::RandomMask { .. } => &[],
        Op::Collective { .. } => inputs,
    }
}

impl Wish {
    fn add(&mut self, other: &Wish) {
        self.below = match (self.below, other.below) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.positive |= other.positive;
        self.condition |= other.condition;
        self.table = self.table.or(other.table);
    }
}
