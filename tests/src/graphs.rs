//! Random graphs: well typed, over every operation, with values for their inputs.
//!
//! A graph is made of a list of steps, each a kind of operation and a few numbers that choose among what fits; a step
//! that nothing fits is left out. So a failing graph shrinks by losing steps, and sizes towards 1.

mod motif;

use std::collections::BTreeMap;
use std::fmt;

use proptest::collection::vec;
use proptest::prelude::*;
use reference::graph::interpret::Values;
use reference::graph::programs::{self, ScoreEntry};
use reference::graph::{
    Array, Attention, Binary, Builder, Compare, Data, Dim, Dtype, Facts, Graph, Id, Known, Op, Real, Reduce,
    Symbol, Tensor, Type, Unary, product,
};
use reference::nf4::{CODE2, NF4};

/// A graph and values for its inputs. Floats are values of f32 and of their own type.
#[derive(Clone)]
pub struct Case {
    /// The graph.
    pub graph: Graph,
    /// Values by the names of its inputs.
    pub values: Values<f64>,
}

/// Any graph at all: every type, every operation, odd names and parts, sizes of 0.
pub fn any() -> impl Strategy<Value = Case> {
    recipe(0).prop_map(|recipe| recipe.follow(false))
}

/// A graph that may be differentiated: its first output is the number `loss`, which depends smoothly on the inputs of
/// floats but for `min`, `max`, `reduce_max` and comparisons; whoever takes differences has to stay away from their
/// ties ([`nearest_tie`]).
pub fn smooth() -> impl Strategy<Value = Case> {
    recipe(1).prop_map(|recipe| recipe.follow(true))
}

pub use motif::repeated;

impl Case {
    /// The values as another kind of floats.
    pub fn values<R: Real>(&self) -> Values<R> {
        self.values.iter().map(|(name, value)| (name.clone(), narrow(value))).collect()
    }
}

/// The same array of another kind of floats.
pub fn narrow<R: Real>(value: &Array<f64>) -> Array<R> {
    match &value.data {
        Data::Float(data) => Array::floats(value.dtype, &value.shape, data.iter().copied()),
        Data::U8(data) => Array::bytes(&value.shape, data.clone()),
        Data::I32(data) => Array::integers(&value.shape, data.clone()),
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.graph)?;
        self.values.iter().try_for_each(|(name, value)| writeln!(f, "{name:?} = {value:?}"))
    }
}

/// The inputs of floats that a gradient can be asked for: those that no frozen weight is made of.
pub fn trainable(graph: &Graph) -> Vec<Id> {
    let frozen = |id: &Id| matches!(graph.node(*id).op, Op::Dequantize { .. });
    let frozen = graph.ancestors(graph.ids().filter(frozen));
    let inputs = graph.inputs().map(|(_, id)| id);
    inputs.filter(|id| graph.ty(*id).dtype.is_float() && !frozen.contains(id)).collect()
}

/// The least difference, not 0, between two numbers that a node compares, and the largest number anywhere: whether
/// differences of this size may be taken.
///
/// Numbers that are equal here, drawn at random as they are, are equal everywhere, and their gradients too.
pub fn nearest_tie(case: &Case) -> (f64, f64) {
    let mut graph = case.graph.clone();
    graph.clear_outputs();
    graph.ids().collect::<Vec<_>>().into_iter().for_each(|id| graph.output(format!("{}", id.0), id));
    let values = reference::graph::interpret(&graph, &case.values).expect("a sound graph runs");
    let wide: Vec<Vec<f64>> = values.iter().map(Array::wide).collect();
    let mut nearest = f64::INFINITY;
    let mut look = |a: f64, b: f64| {
        let apart = (a - b).abs();
        nearest = if apart > 0.0 { nearest.min(apart) } else { nearest };
    };
    for node in graph.nodes() {
        let inputs: Vec<usize> = node.inputs.iter().map(|id| id.0 as usize).collect();
        if let Op::Binary(Binary::Min | Binary::Max) | Op::Compare(_) = node.op {
            wide[inputs[0]].iter().zip(&wide[inputs[1]]).for_each(|(a, b)| look(*a, *b));
        } else if let Op::Reduce(Reduce::Max, dim) = node.op {
            each_row(&values[inputs[0]].shape, dim, |row| {
                let row: Vec<f64> = row.iter().map(|i| wide[inputs[0]][*i]).collect();
                let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                for x in row {
                    look(top, x);
                }
            });
        }
    }
    let floats = graph.ids().filter(|id| graph.ty(*id).dtype.is_float());
    let largest = floats.flat_map(|id| &wide[id.0 as usize]).fold(0.0, |most: f64, x| most.max(x.abs()));
    (nearest, largest)
}

/// The places of the elements along a dimension, for each place in the others.
pub fn each_row(shape: &[usize], dim: usize, mut see: impl FnMut(&[usize])) {
    let inner: usize = shape[dim + 1..].iter().product();
    let outer: usize = shape[..dim].iter().product();
    for start in (0..outer).flat_map(|i| (0..inner).map(move |j| i * inner * shape[dim] + j)) {
        see(&(0..shape[dim]).map(|k| start + k * inner).collect::<Vec<_>>());
    }
}

/// What a graph is made of.
#[derive(Clone, Debug)]
struct Recipe {
    sizes: Vec<Size>,
    steps: Vec<Step>,
    seed: u64,
}

/// A size that tensors share, as a number or as a symbol with facts around it.
#[derive(Clone, Debug)]
struct Size {
    value: usize,
    symbolic: bool,
    slack: [usize; 2],
}

#[derive(Clone, Debug)]
struct Step {
    kind: usize,
    choice: [usize; 4],
}

const KINDS: usize = 20;

fn recipe(least: usize) -> impl Strategy<Value = Recipe> {
    let value = prop_oneof![8 => prop::sample::select(vec![1_usize, 2, 3, 5, 7]), 1 => least..9];
    let size = (value, any_bool(), [0..3_usize, 0..3_usize]);
    let size = size.prop_map(|(value, symbolic, slack)| Size { value, symbolic, slack });
    let step = (0..KINDS, [0..60_usize, 0..60, 0..60, 0..60]);
    let step = step.prop_map(|(kind, choice)| Step { kind, choice });
    (vec(size, 3), vec(step, 0..14), 0..1_000_000_u64).prop_map(|(sizes, steps, seed)| Recipe {
        sizes,
        steps,
        seed,
    })
}

fn any_bool() -> impl Strategy<Value = bool> {
    proptest::bool::ANY
}

impl Recipe {
    fn follow(&self, smooth: bool) -> Case {
        let mut maker = Maker::new(self, smooth);
        for (i, step) in self.steps.iter().enumerate() {
            let part = PARTS[step.choice[3] % PARTS.len()];
            let builder = maker.builder.tape().clone();
            let made = if smooth || i % 3 == 0 {
                maker.step(step)
            } else {
                builder.within(part, || maker.step(step))
            };
            maker.pool.extend(made.filter(|made| maker.count(made.shape()) <= 400));
        }
        maker.finish(self.seed as usize)
    }
}

/// Parts of a model, odd ones too.
const PARTS: [&str; 6] = ["layers.0", "a b", "mlp", "quote\" and \\", "line\nbreak", "\u{e9}\u{1}"];

/// A graph in the making.
struct Maker {
    builder: Builder,
    pool: Vec<Tensor>,
    sizes: Vec<Dim>,
    known: Known,
    bound: BTreeMap<Symbol, i64>,
    values: Values<f64>,
    random: u64,
    smooth: bool,
}

impl Maker {
    fn new(recipe: &Recipe, smooth: bool) -> Self {
        let mut maker = Self {
            builder: Builder::new(if smooth { "smooth" } else { "any \"graph\"" }),
            pool: Vec::new(),
            sizes: Vec::new(),
            known: Known::new(),
            bound: BTreeMap::new(),
            values: Values::new(),
            random: recipe.seed,
            smooth,
        };
        for (i, size) in recipe.sizes.iter().enumerate() {
            let dim = maker.size(i, size);
            maker.sizes.push(dim);
        }
        let all = maker.sizes.clone();
        let first = maker.floats(Dtype::F32, &all); // binds every symbol
        maker.pool.push(first);
        maker
    }

    fn size(&mut self, i: usize, size: &Size) -> Dim {
        if !size.symbolic {
            return Dim::from(size.value);
        }
        let name = if self.smooth { ["B", "T", "N"][i % 3] } else { ["B", "odd name", "T_2"][i % 3] };
        let value = size.value as i64;
        let multiple = [1, value.max(1)][size.slack[1] % 2];
        let min = (value - size.slack[0] as i64).max(0);
        let facts = Facts::range(min, value + size.slack[1] as i64).multiple_of(multiple);
        self.known.insert(name.into(), facts);
        self.bound.insert(name.into(), value);
        self.builder.tape().symbol(name, facts)
    }

    /// The next random number.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn number(&self, dim: &Dim) -> usize {
        dim.value(&self.bound).expect("every symbol is bound").max(0) as usize
    }

    fn count(&self, shape: &[Dim]) -> usize {
        shape.iter().map(|dim| self.number(dim)).product()
    }

    fn name(&self) -> String {
        let i = self.values.len();
        let odd = if self.smooth { "x" } else { ["x", "a b", "say \"x\"", "x\n", "\u{fc}\\"][i % 5] };
        format!("{odd}{i}")
    }

    /// A new input with an element from each drawn number.
    fn input(&mut self, dtype: Dtype, shape: &[Dim], element: impl Fn(u64) -> f64) -> Tensor {
        let name = self.name();
        let sizes: Vec<usize> = shape.iter().map(|dim| self.number(dim)).collect();
        let numbers: Vec<f64> = (0..sizes.iter().product()).map(|_| element(self.draw())).collect();
        let value = match dtype {
            Dtype::U8 => Array::bytes(&sizes, numbers.iter().map(|x| *x as u8).collect()),
            Dtype::I32 => Array::integers(&sizes, numbers.iter().map(|x| *x as i32).collect()),
            _ => {
                let held: Array<f32> = Array::floats(dtype, &sizes, numbers);
                Array::floats(dtype, &sizes, held.wide())
            }
        };
        self.values.insert(name.clone(), value);
        self.builder.tape().input(&name, dtype, shape)
    }

    /// A new input of floats between -1.5 and 1.5.
    fn floats(&mut self, dtype: Dtype, shape: &[Dim]) -> Tensor {
        self.input(dtype, shape, |random| (random >> 11) as f64 / (1_u64 << 53) as f64 * 3.0 - 1.5)
    }

    /// A new input of indices below the size of a dimension.
    fn indices(&mut self, shape: &[Dim], below: &Dim) -> Option<Tensor> {
        let below = self.number(below) as u64;
        (below > 0).then(|| self.input(Dtype::I32, shape, |random| (random % below) as f64))
    }

    /// A tensor that fits, or none.
    fn pick(&self, choice: usize, fits: impl Fn(&Type) -> bool) -> Option<Tensor> {
        let found: Vec<&Tensor> = self.pool.iter().filter(|tensor| fits(tensor.ty())).collect();
        found.get(choice % found.len().max(1)).map(|tensor| (*tensor).clone())
    }

    fn pick_float(&self, choice: usize) -> Option<Tensor> {
        self.pick(choice, |ty| ty.dtype.is_float())
    }

    /// A tensor of the same type.
    fn like(&self, of: &Tensor, choice: usize) -> Tensor {
        self.pick(choice, |ty| ty == of.ty()).unwrap_or_else(|| of.clone())
    }

    /// One of the shared sizes, or a number.
    fn any_size(&self, choice: usize) -> Dim {
        let numbers = [1_usize, 2, 3, 5, 7].map(Dim::from);
        self.sizes
            .iter()
            .chain(&numbers)
            .nth(choice % (self.sizes.len() + numbers.len()))
            .cloned()
            .expect("a size")
    }

    fn dtype(&self, choice: usize) -> Dtype {
        if self.smooth { Dtype::F32 } else { Dtype::NAMES[choice % 5].0 }
    }

    fn op(&self, op: Op, inputs: &[&Tensor]) -> Tensor {
        self.builder.tape().apply(op, inputs, None)
    }

    fn step(&mut self, step: &Step) -> Option<Tensor> {
        let c = step.choice;
        match step.kind {
            0 => {
                let shape: Vec<Dim> = (0..c[0] % 4).map(|i| self.any_size(c[1] + 3 * i + i * c[2])).collect();
                let dtype = self.dtype(c[3]);
                Some(match dtype {
                    Dtype::U8 | Dtype::I32 => self.input(dtype, &shape, |random| (random % 9) as f64),
                    _ => self.floats(dtype, &shape),
                })
            }
            1 => self.constant(c),
            2 => self.iota(c),
            3 => self.cast(c),
            4 => self.unary(c),
            5 => self.binary(c),
            6 => self.select(c),
            7 => self.reduce(c),
            8 => self.matmul(c),
            9 => self.gather(c),
            10 => self.scatter(c),
            11 => self.reshape(c),
            12 => self.transpose(c),
            13 => self.broadcast(c),
            14 => self.slice(c),
            15 => self.concat(c),
            16 => Some(self.dequantize(c)),
            17 => self.attention(c),
            18 => self.random_mask(c),
            _ => Some(self.attention_grad(c)),
        }
    }

    fn constant(&self, c: [usize; 4]) -> Option<Tensor> {
        let like = self.pick(c[0], |_| true)?;
        let odd = [0.1, -0.0, 1e300, 5e-324, f64::INFINITY, f64::NEG_INFINITY];
        let whole = !self.smooth && !like.ty().dtype.is_float();
        Some(like.like(match c[1] {
            _ if whole => (c[1] % 8) as f64,
            i if self.smooth => i as f64 / 20.0 - 1.4,
            i => odd[i % odd.len()],
        }))
    }

    fn iota(&self, c: [usize; 4]) -> Option<Tensor> {
        let like = self.pick(c[0], |ty| ty.rank() > 0)?;
        let iota = self.builder.tape().iota(like.shape(), c[1] % like.ty().rank());
        Some(if self.smooth { &iota.cast(Dtype::F32) * 0.3 } else { iota })
    }

    fn cast(&self, c: [usize; 4]) -> Option<Tensor> {
        let x = self.pick(c[0], |_| true)?;
        if self.smooth {
            return Some(x.cast([Dtype::F16, Dtype::Bf16][c[1] % 2]).sin().cast(Dtype::F32)); // exact in f64
        }
        Some(if c[2] % 5 == 0 { x.detach() } else { x.cast(self.dtype(c[1])) })
    }

    fn unary(&self, c: [usize; 4]) -> Option<Tensor> {
        let x = self.pick_float(c[0])?;
        let unary = Unary::NAMES[c[1] % 8].0;
        let x = match unary {
            Unary::Log | Unary::Sqrt if self.smooth => positive(&x),
            Unary::Exp if self.smooth => x.sin(),
            _ => x,
        };
        Some(self.op(Op::Unary(unary), &[&x]))
    }

    fn binary(&self, c: [usize; 4]) -> Option<Tensor> {
        let binary = Binary::NAMES[c[2] % 6].0;
        let bytes = matches!(binary, Binary::Min | Binary::Max);
        let a = self.pick(c[0], |ty| ty.dtype != Dtype::U8 || bytes)?;
        let b = self.like(&a, c[1]);
        let b = match binary {
            Binary::Div if self.smooth => positive(&b),
            Binary::Mul if self.smooth => b.sin(),
            Binary::Div if b.ty().dtype == Dtype::I32 => b.like(-3.0),
            _ => b,
        };
        Some(self.op(Op::Binary(binary), &[&a, &b]))
    }

    fn select(&self, c: [usize; 4]) -> Option<Tensor> {
        let a = self.pick(c[0], |_| true)?;
        let [b, left, right] = [1, 2, 3].map(|i| self.like(&a, c[i]));
        let condition = self.op(Op::Compare(Compare::NAMES[c[1] % 2].0), &[&left, &right]);
        if !self.smooth && c[2] % 3 == 0 {
            return Some(condition);
        }
        Some(self.op(Op::Select, &[&condition, &a, &b]))
    }

    fn reduce(&self, c: [usize; 4]) -> Option<Tensor> {
        let largest = c[2] % 3 == 0;
        let fits = |ty: &Type| ty.rank() > 0 && (ty.dtype.is_float() || (ty.dtype == Dtype::I32 && !largest));
        let x = self.pick(c[0], fits)?;
        let dim = c[1] % x.ty().rank();
        Some(if largest { x.reduce_max(dim) } else { x.sum(dim) })
    }

    fn matmul(&mut self, c: [usize; 4]) -> Option<Tensor> {
        let a = self.pick(c[0], |ty| ty.dtype.is_float() && ty.rank() >= 2)?;
        let [lead @ .., _, k] = a.shape() else { return None };
        let shape: Vec<Dim> = lead.iter().cloned().chain([k.clone(), self.any_size(c[1])]).collect();
        let b = self.floats(a.ty().dtype, &shape);
        let (a, b) = if c[2] % 2 == 0 { (a, b) } else { (b.t(), a.t()) };
        Some(self.op(Op::Matmul, &[&a, &b]))
    }

    fn gather(&mut self, c: [usize; 4]) -> Option<Tensor> {
        let table = self.pick(c[0], |ty| ty.rank() > 0 && ty.rank() < 4)?;
        let shape = [self.any_size(c[1]), self.any_size(c[2])];
        let index = self.indices(&shape[..c[3] % 2], &table.dim(0))?;
        Some(table.gather(&index))
    }

    fn scatter(&mut self, c: [usize; 4]) -> Option<Tensor> {
        let rows = self.pick_float(c[0])?;
        let size = self.any_size(c[1]);
        let index = self.indices(&rows.shape()[..c[2] % (rows.ty().rank() + 1)], &size)?;
        Some(rows.scatter_add(&index, size))
    }

    fn reshape(&self, c: [usize; 4]) -> Option<Tensor> {
        let x = self.pick(c[0], |_| true)?;
        let mut shape = x.shape().to_vec();
        match c[1] % 3 {
            0 => shape = vec![product(&shape)],
            1 => shape.insert(c[2] % (shape.len() + 1), Dim::fixed(1)),
            _ if shape.len() < 2 => return None,
            _ => {
                let at = c[2] % (shape.len() - 1);
                let merged = product(&shape[at..at + 2]);
                shape.splice(at..at + 2, [merged]);
            }
        }
        (shape.len() < 5).then(|| x.reshape(shape))
    }

    fn transpose(&self, c: [usize; 4]) -> Option<Tensor> {
        let x = self.pick(c[0], |_| true)?;
        let rank = x.ty().rank();
        let mut order: Vec<usize> = (0..rank).collect();
        order.rotate_left(c[1] % rank.max(1));
        if c[2] % 2 == 0 {
            order.reverse();
        }
        Some(x.transpose(&order))
    }

    fn broadcast(&self, c: [usize; 4]) -> Option<Tensor> {
        let x = self.pick(c[0], |ty| ty.shape.iter().any(Dim::is_one))?;
        let replace =
            |(i, dim): (usize, &Dim)| if dim.is_one() { self.any_size(c[1] + i) } else { dim.clone() };
        let shape: Vec<Dim> = x.shape().iter().enumerate().map(replace).collect();
        Some(x.spread(&shape))
    }

    fn slice(&self, c: [usize; 4]) -> Option<Tensor> {
        let x = self.pick(c[0], |ty| ty.rank() > 0)?;
        let dim = c[1] % x.ty().rank();
        let size = x.dim(dim);
        let least = size.bounds(&self.known).0.clamp(0, 100);
        let start = c[2] as i64 % (least + 1);
        let left = c[3] as i64 % (least - start + 1);
        let end = if c[3] % 2 == 0 { Dim::fixed(start + left) } else { &size - &Dim::fixed(left) };
        if self.smooth && self.number(&end) as i64 == start {
            return None; // nothing would be left to take the largest of
        }
        Some(x.slice(dim, start, end))
    }

    fn concat(&self, c: [usize; 4]) -> Option<Tensor> {
        let a = self.pick(c[0], |ty| ty.rank() > 0)?;
        let dim = c[1] % a.ty().rank();
        let beside = |ty: &Type| {
            let same = |i: usize| i == dim || ty.shape[i] == a.shape()[i];
            ty.dtype == a.ty().dtype && ty.rank() == a.ty().rank() && (0..ty.rank()).all(same)
        };
        let [b, d] = [c[2], c[3]].map(|choice| self.pick(choice, beside));
        let parts = [Some(a.clone()), b, d].into_iter().flatten().collect::<Vec<_>>();
        let parts: Vec<&Tensor> = parts.iter().take(1 + c[2] % 3).collect();
        Some(self.builder.tape().concat(&parts, dim))
    }

    /// A table as an input.
    fn table(&mut self, values: &[f32]) -> Tensor {
        let name = self.name();
        let held = Array::floats(Dtype::F32, &[values.len()], values.iter().map(|x| f64::from(*x)));
        self.values.insert(name.clone(), held);
        self.builder.tape().input(&name, Dtype::F32, [values.len()])
    }

    fn dequantize(&mut self, c: [usize; 4]) -> Tensor {
        let (shape, block_size) = ([1 + c[0] % 9, 1 + c[1] % 40], [32, 64][c[2] % 2]);
        let len = shape[0] * shape[1];
        let blocks = len.div_ceil(block_size);
        let byte = |random: u64| (random % 256) as f64;
        let positive = |random: u64| (random % 100) as f64 / 64.0;
        let mut inputs = vec![self.input(Dtype::U8, &[len.div_ceil(2).into()], byte), self.table(&NF4)];
        let nested = (c[3] % 2 == 0).then_some(32);
        match nested {
            None => inputs.push(self.input(Dtype::F32, &[blocks.into()], positive)),
            Some(size) => {
                inputs.push(self.input(Dtype::U8, &[blocks.into()], byte));
                inputs.push(self.table(&CODE2));
                inputs.push(self.input(Dtype::F32, &[blocks.div_ceil(size).into()], positive));
                inputs.push(self.input(Dtype::F32, &[], positive));
            }
        }
        let dtype = if self.smooth { Dtype::F32 } else { Dtype::NAMES[c[2] % 3].0 };
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        let op = Op::Dequantize { block_size, nested };
        self.builder.tape().apply(op, &inputs, Some(Type::new(dtype, shape)))
    }

    /// A small attention with its inputs: q, k, v and extras.
    fn attention_parts(&mut self, c: [usize; 4]) -> (Attention, Vec<Tensor>) {
        let [batch, queries, keys] = [self.any_size(c[0]), self.any_size(c[1]), self.any_size(c[2])];
        let groups = Dim::from(1 + c[3] % 2);
        let heads = &groups * &Dim::from(1 + c[2] % 2);
        let [depth, value_depth] = [c[0], c[1]].map(|choice| Dim::from(1 + choice % 3));
        let dtype = if self.smooth { Dtype::F32 } else { Dtype::NAMES[c[3] % 3].0 };
        let mut inputs = vec![
            self.floats(dtype, &[batch.clone(), heads, queries, depth.clone()]),
            self.floats(dtype, &[batch.clone(), groups.clone(), keys.clone(), depth]),
            self.floats(dtype, &[batch, groups, keys.clone(), value_depth]),
            self.floats(Dtype::F32, &[Dim::fixed(7)]),
        ];
        let longest = 9 + self.number(&keys);
        inputs.push(self.input(Dtype::I32, &[longest.into()], |random| (random % 2) as f64));
        let extras: Vec<Type> = inputs[3..].iter().map(|extra| extra.ty().clone()).collect();
        (Attention { scale: 0.7, score: score(c, &extras), mask: mask(c, &extras) }, inputs)
    }

    fn attention(&mut self, c: [usize; 4]) -> Option<Tensor> {
        let (attention, inputs) = self.attention_parts(c);
        let [q, k, v, extras @ ..] = inputs.as_slice() else { return None };
        let extras: Vec<&Tensor> = extras.iter().collect();
        if c[0] % 3 > 0 || (self.smooth && attention.mask.is_some()) {
            return Some(q.attend(attention, k, v, &extras)); // what a blind query has is no number
        }
        let lse = q.attend_lse(attention.clone(), k, v, &extras);
        let lse = lse.reshape(lse.shape().iter().chain([&Dim::fixed(1)])).cast(q.ty().dtype);
        Some(&q.attend(attention, k, v, &extras) + &lse)
    }

    fn random_mask(&mut self, c: [usize; 4]) -> Option<Tensor> {
        let x = self.pick_float(c[0])?;
        let key = self.input(Dtype::I32, &[Dim::fixed(2)], |random| f64::from(random as i32));
        Some(x.dropout(&key, [0.1, 0.5, 0.75, 1.0][c[1] % 4], c[2] as u32))
    }

    fn attention_grad(&mut self, c: [usize; 4]) -> Tensor {
        let (attention, mut inputs) = self.attention_parts(c);
        let (q, v) = (inputs[0].shape(), inputs[2].shape());
        let shape = [q[0].clone(), q[1].clone(), q[2].clone(), v[3].clone()];
        inputs.push(self.floats(inputs[0].ty().dtype, &shape));
        let op = Op::AttentionGrad { attention: Box::new(attention), wrt: c[3] % 4 };
        self.op(op, &inputs.iter().collect::<Vec<_>>())
    }

    fn finish(self, choice: usize) -> Case {
        let tape = self.builder.tape();
        if self.smooth {
            let parts = self.pool.iter().filter(|tensor| tensor.ty().dtype.is_float()).rev();
            let (last, first) = (parts.take(4), self.pool.first());
            let total = last.chain(first).map(weighed).reduce(|sum, part| &sum + &part);
            tape.output("loss", &total.expect("the first tensor is there"));
        } else {
            tape.output("first", &self.pool[0]);
            let some = self.pool.iter().enumerate().skip(1).filter(|(i, _)| i % (1 + choice % 3) == 0);
            some.for_each(|(i, tensor)| tape.output(&format!("out \"{i}\""), tensor));
        }
        Case { graph: self.builder.finish().expect("steps that fit"), values: self.values }
    }
}

/// x^2 + 0.5
fn positive(x: &Tensor) -> Tensor {
    &(x * x) + 0.5
}

/// Every element's sine with a weight of its own, added up.
fn weighed(x: &Tensor) -> Tensor {
    let flat = x.reshape([product(x.shape())]);
    let place = flat.tape().iota(flat.shape(), 0).cast(x.ty().dtype);
    (&flat.sin() * &(&(&place * 0.7) + 0.4).cos()).total()
}

/// One of the usual score programs, or none.
fn score(c: [usize; 4], extras: &[Type]) -> Option<Graph> {
    let body = |at: &ScoreEntry| match c[0] % 5 {
        0 => programs::softcap(&at.score, 2.0),
        1 => programs::alibi(at, &at.score, 4),
        2 => programs::distance_bias(at, &at.score, 0.3),
        _ => programs::softcap(&programs::relative_bias(at, &at.score, &at.extras[0], 3), 1.5),
    };
    (c[0] % 5 < 4).then(|| programs::score("score", extras, body).expect("a sound program"))
}

/// One of the usual masks, or none.
fn mask(c: [usize; 4], extras: &[Type]) -> Option<Graph> {
    let body = |at: &ScoreEntry| match c[1] % 5 {
        0 => programs::causal(at),
        1 => programs::and(&programs::causal(at), &programs::sliding_window(at, 2)),
        2 => programs::and(&programs::causal(at), &programs::document(at, &at.extras[1])),
        _ => programs::prefix_lm(at, 2),
    };
    (c[1] % 5 < 4).then(|| programs::mask("mask", extras, body).expect("a sound program"))
}
