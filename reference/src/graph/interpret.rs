//! The meaning of a graph: each operation's definition, one after the other, in the definition's own order.
//!
//! Every node is computed in full before the next one. In f32 each value is rounded to its node's type, and sums are
//! taken from the first element to the last; in f64 nothing is rounded, except what is defined as a rounding: the
//! dequantised weights of NF4 have the bits of their format in both.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::vec::IntoIter;

use super::{
    Array, Binary, Compare, Data, Dim, Dtype, Error, Fault, Graph, Id, Node, Op, Real, Reduce, Symbol, Type,
    Unary, expand,
};
use crate::nf4::{self, Part};
use crate::philox;

/// Values by the names of a graph's inputs.
pub type Values<R> = BTreeMap<String, Array<R>>;

// ANCHOR: graph-interpret
/// Computes the outputs of a graph, in their order. Inputs that no output needs may be left out.
///
/// Fails where an input is missing or does not fit, a symbol gets two values or one that its facts exclude, an index
/// lies outside its table, or a result does not fit in memory.
pub fn interpret<R: Real>(graph: &Graph, values: &Values<R>) -> Result<Vec<Array<R>>, Error> {
    let mut run = Run::new(graph, values, Bound::new())?;
    while let Some(id) = run.next() {
        let result = run.compute(id)?;
        run.keep(id, result);
    }
    Ok(run.outputs())
}

/// A graph on its way from inputs to outputs.
pub(super) struct Run<'a, R: Real> {
    pub graph: &'a Graph,
    pub bound: Bound,
    needed: Peekable<IntoIter<Id>>, // what is still to be computed, in order
    results: Vec<Option<Cow<'a, Array<R>>>>, // of every node, until its last use
    last_use: Vec<Option<Id>>,
}

impl<'a, R: Real> Run<'a, R> {
    /// Holds the inputs against their types; `bound` are symbols that no input has to bind.
    pub fn new(graph: &'a Graph, values: &'a Values<R>, mut bound: Bound) -> Result<Self, Error> {
        let needed = graph.ancestors(graph.outputs().iter().map(|(_, id)| *id));
        let given = graph.inputs().filter(|(_, id)| needed.contains(id)).map(|(name, id)| {
            let missing = || Fault::NotGiven { name: name.to_owned() }.of(&graph.name);
            Ok((name, id, values.get(name).ok_or_else(missing)?))
        });
        let given = given.collect::<Result<Vec<_>, Error>>()?;
        bind(graph, &given, &mut bound)?;
        let mut results = vec![None; graph.nodes().len()];
        for (_, id, value) in given {
            results[index(id)] = Some(Cow::Borrowed(value));
        }
        let computed = |id: &Id| !matches!(graph.node(*id).op, Op::Input { .. });
        let needed = needed.into_iter().filter(computed).collect::<Vec<_>>().into_iter().peekable();
        Ok(Self { graph, bound, needed, results, last_use: last_uses(graph) })
    }

    /// The node whose turn it is.
    pub fn next(&mut self) -> Option<Id> {
        self.needed.peek().copied()
    }

    /// What a node gives.
    pub fn compute(&self, id: Id) -> Result<Array<R>, Error> {
        let node = self.graph.node(id);
        at_node(node, &self.results, &self.bound).map_err(|fault| fault.at(index(id), &node.op))
    }

    /// What the first input of a node is.
    pub fn first_input(&self, id: Id) -> Option<&Array<R>> {
        self.results[index(*self.graph.node(id).inputs.first()?)].as_deref()
    }

    /// Keeps what a node gives, and nothing that no later node reads.
    pub fn keep(&mut self, id: Id, result: Array<R>) {
        self.needed.next();
        self.results[index(id)] = Some(Cow::Owned(result));
        for input in
            self.graph.node(id).inputs.iter().filter(|input| self.last_use[index(**input)] == Some(id))
        {
            self.results[index(*input)] = None;
        }
    }

    /// The outputs, in their order.
    pub fn outputs(&self) -> Vec<Array<R>> {
        let output = |(_, id): &(String, Id)| self.results[index(*id)].clone().map(Cow::into_owned);
        self.graph.outputs().iter().filter_map(output).collect()
    }
}
// ANCHOR_END: graph-interpret

fn index(id: Id) -> usize {
    id.0 as usize
}

/// The last node that uses each; none for those that are outputs.
fn last_uses(graph: &Graph) -> Vec<Option<Id>> {
    let mut last = vec![None; graph.nodes().len()];
    for id in graph.ids() {
        for input in &graph.node(id).inputs {
            last[index(*input)] = Some(id);
        }
    }
    for (_, id) in graph.outputs() {
        last[index(*id)] = None;
    }
    last
}

/// What every symbol stands for, once it is known.
pub type Bound = BTreeMap<Symbol, i64>;

/// Reads the symbols off the inputs' shapes, and holds every input against its type.
fn bind<R: Real>(graph: &Graph, given: &[(&str, Id, &Array<R>)], bound: &mut Bound) -> Result<(), Error> {
    for (name, id, value) in given {
        bind_input(graph, name, *id, value, bound)?;
    }
    for (name, id, value) in given {
        fits(graph, name, *id, value, bound)?;
    }
    Ok(())
}

/// Reads the symbols off one input's shape.
pub(super) fn bind_input<R: Real>(
    graph: &Graph,
    name: &str,
    id: Id,
    value: &Array<R>,
    bound: &mut Bound,
) -> Result<(), Error> {
    let ty = graph.ty(id);
    if value.dtype != ty.dtype || value.shape.len() != ty.rank() || !value.is_sound() {
        return Err(unlike(value, ty).of(name));
    }
    for (dim, size) in ty.shape.iter().zip(&value.shape) {
        if let Some(symbol) = dim.as_symbol() {
            bind_one(graph, symbol, *size as i64, bound)?;
        }
    }
    Ok(())
}

/// Holds an input against its type, where its symbols are bound.
pub(super) fn fits<R: Real>(
    graph: &Graph,
    name: &str,
    id: Id,
    value: &Array<R>,
    bound: &Bound,
) -> Result<(), Error> {
    let shape = sizes(graph.ty(id), bound).map_err(|fault| fault.of(name))?;
    if shape == value.shape { Ok(()) } else { Err(unlike(value, graph.ty(id)).of(name)) }
}

pub(super) fn bind_one(graph: &Graph, symbol: &Symbol, got: i64, bound: &mut Bound) -> Result<(), Error> {
    let wrong = |need: String| Err(Fault::Bound { symbol: symbol.clone(), got, need }.of(&graph.name));
    if let Some(facts) = graph.known().get(symbol)
        && !facts.hold(got)
    {
        return wrong(facts.to_string());
    }
    match bound.insert(symbol.clone(), got) {
        Some(before) if before != got => wrong(format!("{before}, as elsewhere")),
        _ => Ok(()),
    }
}

fn unlike<R: Real>(value: &Array<R>, need: &Type) -> Fault {
    Fault::Given { got: format!("{}{:?}", value.dtype.name(), value.shape), need: need.clone() }
}

/// A shape in numbers.
pub(super) fn sizes(ty: &Type, bound: &Bound) -> Result<Vec<usize>, Fault> {
    let size = |dim: &Dim| dim.value(bound).map_err(|symbol| Fault::Unbound { symbol });
    let shape = ty.shape.iter().map(size).collect::<Result<Vec<i64>, Fault>>()?;
    let elements = shape.iter().try_fold(1_i64, |product, size| product.checked_mul(*size));
    let fits = elements.is_some_and(|n| Vec::<f64>::new().try_reserve_exact(n as usize).is_ok());
    let positive = shape.iter().all(|size| *size >= 0);
    if !fits || !positive {
        return Err(Fault::TooLarge { shape });
    }
    Ok(shape.into_iter().map(|size| size as usize).collect())
}

/// Computes one node.
pub(super) fn at_node<R: Real>(
    node: &Node,
    results: &[Option<Cow<Array<R>>>],
    bound: &Bound,
) -> Result<Array<R>, Fault> {
    let inputs: Vec<&Array<R>> = node.inputs.iter().filter_map(|id| results[index(*id)].as_deref()).collect();
    let types: Vec<Type> = inputs.iter().map(|input| fixed_type(input)).collect();
    let shape = sizes(&node.ty, bound)?;
    let number =
        |dim: &Dim| dim.value(bound).map(|size| size as usize).map_err(|symbol| Fault::Unbound { symbol });
    let at = NodeType { dtype: node.ty.dtype, shape: &shape };
    match &node.op {
        Op::Input { name } => Err(Fault::NotGiven { name: name.clone() }),
        Op::Constant { value } => Ok(at.constant(*value)),
        Op::Iota { dim } => Ok(at.iota(*dim)),
        Op::Cast => Ok(at.cast(inputs[0])),
        Op::Detach => Ok(inputs[0].clone()),
        Op::Reshape => Ok(Array::new(node.ty.dtype, &shape, inputs[0].data.clone())),
        Op::Unary(unary) => Ok(at.unary(*unary, inputs[0])),
        Op::Binary(binary) => at.binary(*binary, inputs[0], inputs[1]),
        Op::Compare(compare) => Ok(at.compare(*compare, inputs[0], inputs[1])),
        Op::Select => Ok(at.select(inputs[0], inputs[1], inputs[2])),
        Op::Reduce(reduce, dim) => Ok(at.reduce(*reduce, *dim, inputs[0])),
        Op::Matmul => Ok(at.matmul(inputs[0], inputs[1])),
        Op::Gather => at.gather(inputs[0], inputs[1]),
        Op::ScatterAdd => at.scatter(inputs[0], inputs[1]),
        Op::Transpose { order } => {
            let strides = strides(&inputs[0].shape);
            Ok(at.pick(inputs[0], 0, &order.iter().map(|dim| strides[*dim]).collect::<Vec<_>>()))
        }
        Op::Broadcast => {
            let from = inputs[0].shape.iter().zip(strides(&inputs[0].shape));
            Ok(at.pick(
                inputs[0],
                0,
                &from.map(|(size, stride)| if *size == 1 { 0 } else { stride }).collect::<Vec<_>>(),
            ))
        }
        Op::Slice { dim, start, .. } => {
            let strides = strides(&inputs[0].shape);
            Ok(at.pick(inputs[0], number(start)?.saturating_mul(strides[*dim]), &strides))
        }
        Op::Concat { dim } => Ok(at.concat(*dim, &inputs)),
        Op::Dequantize { block_size, nested } => at.dequantize(*block_size, *nested, &inputs),
        Op::RandomMask { probability, stream } => Ok(at.random_mask(*probability, *stream, &inputs)),
        Op::Collective { group, .. } => match group.size.value(bound) {
            Ok(1) => Ok(inputs[0].clone()),
            Ok(size) => Err(Fault::Alone { axis: group.axis.clone(), size }),
            Err(symbol) => Err(Fault::Unbound { symbol }),
        },
        Op::Attention(_) | Op::AttentionGrad { .. } | Op::AttentionLse(_) | Op::AttentionLseGrad { .. } => {
            let numbers = bound.iter().map(|(symbol, size)| (symbol.clone(), Dim::fixed(*size))).collect();
            let op =
                node.op.substitute(&numbers).map_err(|error| Fault::Program { error: Box::new(error) })?;
            by_definition(&op, &types, &inputs)
        }
    }
}

/// The type of a value whose sizes are numbers.
fn fixed_type<R: Real>(value: &Array<R>) -> Type {
    Type::new(value.dtype, value.shape.iter().copied())
}

/// Distance in elements between neighbours along each dimension.
fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1_usize; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim].saturating_mul(shape[dim]); // too large only where there are no elements
    }
    strides
}

/// A node's own type, in numbers.
struct NodeType<'a> {
    dtype: Dtype,
    shape: &'a [usize],
}

impl NodeType<'_> {
    fn len(&self) -> usize {
        self.shape.iter().product()
    }

    fn array<R: Real>(&self, data: Data<R>) -> Array<R> {
        Array::new(self.dtype, self.shape, data)
    }

    fn floats<R: Real>(&self, values: impl Iterator<Item = R>) -> Array<R> {
        self.array(Data::Float(values.map(|value| value.round_to(self.dtype)).collect()))
    }

    fn constant<R: Real>(&self, value: f64) -> Array<R> {
        let len = self.len();
        match self.dtype {
            Dtype::U8 => self.array(Data::U8(vec![value as u8; len])),
            Dtype::I32 => self.array(Data::I32(vec![value as i32; len])),
            Dtype::F32 | Dtype::F16 | Dtype::Bf16 => {
                self.array(Data::Float(vec![R::nearest(value, self.dtype); len]))
            }
        }
    }

    fn iota<R: Real>(&self, dim: usize) -> Array<R> {
        let (stride, size) = (strides(self.shape)[dim], self.shape[dim].max(1));
        self.array(Data::I32((0..self.len()).map(|i| (i / stride % size) as i32).collect()))
    }

    fn cast<R: Real>(&self, from: &Array<R>) -> Array<R> {
        let data = match (&from.data, self.dtype) {
            (Data::Float(x), Dtype::U8) => Data::U8(x.iter().map(|x| x.wide() as u8).collect()),
            (Data::Float(x), Dtype::I32) => Data::I32(x.iter().map(|x| x.wide() as i32).collect()),
            (Data::Float(x), _) => return self.floats(x.iter().copied()),
            (Data::U8(x), Dtype::U8) => Data::U8(x.clone()),
            (Data::U8(x), Dtype::I32) => Data::I32(x.iter().map(|x| i32::from(*x)).collect()),
            (Data::U8(x), _) => {
                Data::Float(x.iter().map(|x| R::nearest(f64::from(*x), self.dtype)).collect())
            }
            (Data::I32(x), Dtype::U8) => Data::U8(x.iter().map(|x| (*x).clamp(0, 255) as u8).collect()),
            (Data::I32(x), Dtype::I32) => Data::I32(x.clone()),
            (Data::I32(x), _) => {
                Data::Float(x.iter().map(|x| R::nearest(f64::from(*x), self.dtype)).collect())
            }
        };
        self.array(data)
    }

    fn unary<R: Real>(&self, unary: Unary, x: &Array<R>) -> Array<R> {
        match &x.data {
            Data::Float(x) => self.floats(x.iter().map(|x| unary_of(unary, *x))),
            Data::I32(x) => self.array(Data::I32(x.iter().map(|x| x.wrapping_neg()).collect())),
            Data::U8(x) => self.array(Data::U8(x.clone())), // no operation of one byte passes the type checker
        }
    }

    fn binary<R: Real>(&self, binary: Binary, a: &Array<R>, b: &Array<R>) -> Result<Array<R>, Fault> {
        Ok(match (&a.data, &b.data) {
            (Data::Float(a), Data::Float(b)) => {
                self.floats(a.iter().zip(b).map(|(a, b)| binary_of(binary, *a, *b)))
            }
            (Data::I32(a), Data::I32(b)) => {
                let pairs = a.iter().zip(b).enumerate();
                let values = pairs.map(|(element, (a, b))| {
                    integers_of(binary, *a, *b).ok_or(Fault::DivisionByZero { element })
                });
                self.array(Data::I32(values.collect::<Result<_, _>>()?))
            }
            _ => {
                let pairs = a.as_bytes().iter().zip(b.as_bytes());
                let smaller = binary == Binary::Min;
                let pick = |(a, b): (&u8, &u8)| if smaller { *a.min(b) } else { *a.max(b) };
                self.array(Data::U8(pairs.map(pick).collect()))
            }
        })
    }

    fn compare<R: Real>(&self, compare: Compare, a: &Array<R>, b: &Array<R>) -> Array<R> {
        fn holds<T: PartialOrd>(compare: Compare, a: &[T], b: &[T]) -> Vec<u8> {
            let one = |(a, b): (&T, &T)| match compare {
                Compare::Less => u8::from(a < b),
                Compare::Equal => u8::from(a == b),
            };
            a.iter().zip(b).map(one).collect()
        }
        self.array(Data::U8(match (&a.data, &b.data) {
            (Data::I32(a), Data::I32(b)) => holds(compare, a, b),
            (Data::U8(a), Data::U8(b)) => holds(compare, a, b),
            _ => holds(compare, a.as_floats(), b.as_floats()),
        }))
    }

    fn select<R: Real>(&self, condition: &Array<R>, a: &Array<R>, b: &Array<R>) -> Array<R> {
        fn pick<T: Copy>(condition: &[u8], a: &[T], b: &[T]) -> Vec<T> {
            let both = a.iter().zip(b);
            condition
                .iter()
                .zip(both)
                .map(|(condition, (a, b))| if *condition != 0 { *a } else { *b })
                .collect()
        }
        let condition = condition.as_bytes();
        self.array(match (&a.data, &b.data) {
            (Data::I32(a), Data::I32(b)) => Data::I32(pick(condition, a, b)),
            (Data::U8(a), Data::U8(b)) => Data::U8(pick(condition, a, b)),
            _ => Data::Float(pick(condition, a.as_floats(), b.as_floats())),
        })
    }

    fn reduce<R: Real>(&self, reduce: Reduce, dim: usize, x: &Array<R>) -> Array<R> {
        let (size, inner) = (x.shape[dim], strides(&x.shape)[dim]);
        let along = |i: usize| (0..size).map(move |step| (i / inner * size + step) * inner + i % inner);
        if let Data::I32(x) = &x.data {
            let sum = |i| along(i).fold(0_i32, |sum, j| sum.wrapping_add(x[j]));
            return self.array(Data::I32((0..self.len()).map(sum).collect()));
        }
        let x = x.as_floats();
        let one = |i| match reduce {
            Reduce::Sum => along(i).fold(R::default(), |sum, j| sum + x[j]),
            Reduce::Max => {
                along(i).fold(R::of(f64::NEG_INFINITY), |max, j| binary_of(Binary::Max, max, x[j]))
            }
        };
        self.floats((0..self.len()).map(one))
    }

    fn matmul<R: Real>(&self, a: &Array<R>, b: &Array<R>) -> Array<R> {
        let rank = self.shape.len();
        let (m, n, k) = (self.shape[rank - 2], self.shape[rank - 1], a.shape[rank - 1]);
        let mut result = vec![R::default(); self.len()];
        let (a, b) = (a.as_floats(), b.as_floats());
        for (i, row) in result.chunks_mut(n.max(1)).enumerate() {
            let lead = i / m.max(1);
            for (j, factor) in a[i * k..][..k].iter().enumerate() {
                let other = &b[(lead * k + j) * n..][..n];
                row.iter_mut().zip(other).for_each(|(sum, b)| *sum = *sum + *factor * *b);
            }
        }
        self.floats(result.into_iter())
    }

    /// The elements that lie `strides` apart, from `start` on.
    fn pick<R: Real>(&self, x: &Array<R>, start: usize, strides: &[usize]) -> Array<R> {
        fn pick<T: Copy>(x: &[T], places: &[usize]) -> Vec<T> {
            places.iter().map(|place| x[*place]).collect()
        }
        let places = places(self.shape, start, strides);
        self.array(match &x.data {
            Data::Float(x) => Data::Float(pick(x, &places)),
            Data::I32(x) => Data::I32(pick(x, &places)),
            Data::U8(x) => Data::U8(pick(x, &places)),
        })
    }

    fn concat<R: Real>(&self, dim: usize, inputs: &[&Array<R>]) -> Array<R> {
        fn join<T: Copy>(outer: usize, parts: &[&[T]]) -> Vec<T> {
            let chunk =
                |i: usize, part: &[T]| part[i * (part.len() / outer)..][..part.len() / outer].to_vec();
            (0..outer).flat_map(|i| parts.iter().flat_map(move |part| chunk(i, part))).collect()
        }
        let outer = if self.len() == 0 { 1 } else { self.shape[..dim].iter().product() };
        self.array(match inputs[0].data {
            Data::Float(_) => {
                Data::Float(join(outer, &inputs.iter().map(|x| x.as_floats()).collect::<Vec<_>>()))
            }
            Data::I32(_) => {
                Data::I32(join(outer, &inputs.iter().map(|x| x.as_integers()).collect::<Vec<_>>()))
            }
            Data::U8(_) => Data::U8(join(outer, &inputs.iter().map(|x| x.as_bytes()).collect::<Vec<_>>())),
        })
    }

    /// The rows of a table that an index names, or that a scatter adds to; none, where nothing is read or written.
    fn rows_of(&self, index: &[i32], rows: usize) -> Result<Vec<usize>, Fault> {
        if self.len() == 0 { Ok(Vec::new()) } else { in_range(index, rows) }
    }

    fn gather<R: Real>(&self, table: &Array<R>, rows: &Array<R>) -> Result<Array<R>, Fault> {
        fn take<T: Copy>(table: &[T], rows: &[usize], width: usize) -> Vec<T> {
            rows.iter().flat_map(|row| table[row * width..][..width].iter().copied()).collect()
        }
        let width: usize = table.shape[1..].iter().product();
        let rows = self.rows_of(rows.as_integers(), table.shape[0])?;
        Ok(self.array(match &table.data {
            Data::Float(table) => Data::Float(take(table, &rows, width)),
            Data::I32(table) => Data::I32(take(table, &rows, width)),
            Data::U8(table) => Data::U8(take(table, &rows, width)),
        }))
    }

    fn scatter<R: Real>(&self, rows: &Array<R>, index: &Array<R>) -> Result<Array<R>, Fault> {
        let width: usize = self.shape[1..].iter().product();
        let mut sums = vec![R::default(); self.len()];
        for (i, to) in self.rows_of(index.as_integers(), self.shape[0])?.into_iter().enumerate() {
            let row = &rows.as_floats()[i * width..][..width];
            sums[to * width..][..width].iter_mut().zip(row).for_each(|(sum, x)| *sum = *sum + *x);
        }
        Ok(self.floats(sums.into_iter()))
    }

    fn random_mask<R: Real>(&self, probability: f64, stream: u32, inputs: &[&Array<R>]) -> Array<R> {
        let [first, second, index] = [0, 1, 2].map(|i| inputs[i].as_integers());
        let bit = |i: usize| {
            let key = [first[i] as u32, second[i] as u32];
            u8::from(philox::happens(key, index[i] as u32, stream, probability))
        };
        self.array(Data::U8((0..self.len()).map(bit).collect()))
    }

    fn dequantize<R: Real>(
        &self,
        block_size: usize,
        nested: Option<usize>,
        inputs: &[&Array<R>],
    ) -> Result<Array<R>, Fault> {
        let bytes = |part: Part| inputs[part as usize].as_bytes();
        let floats = |part: Part| -> Vec<f32> {
            let values = inputs.get(part as usize).map_or(&[][..], |input| input.as_floats());
            values.iter().map(|x| x.wide() as f32).collect()
        };
        let [table, code_table, offset] =
            [Part::QuantMap, Part::NestedQuantMap, Part::NestedOffset].map(floats);
        let scales = floats(if nested.is_some() { Part::NestedAbsmax } else { Part::Absmax });
        let wrong_table = || Fault::Weight { reason: "a table of another length".into() };
        let absmax = match nested {
            None => nf4::Absmax::Single(&scales),
            Some(block_size) => nf4::Absmax::Double {
                codes: bytes(Part::Absmax),
                table: code_table.as_slice().try_into().map_err(|_| wrong_table())?,
                scales: &scales,
                block_size,
                offset: offset[0],
            },
        };
        let table = table.as_slice().try_into().map_err(|_| wrong_table())?;
        let weight = nf4::Weight { len: self.len(), block_size, packed: bytes(Part::Packed), table, absmax };
        let fault = |error: nf4::Error| Fault::Weight { reason: error.to_string() };
        let dtype = nf4::OutputDtype::try_from(self.dtype).map_err(fault)?;
        weight.check().map_err(fault)?;
        let bits = nf4::dequantize_bits(&weight, dtype);
        Ok(self
            .array(Data::Float(bits.into_iter().map(|bits| R::of(f64::from(dtype.value(bits)))).collect())))
    }
}

/// An operation that is defined by simpler ones.
fn by_definition<R: Real>(op: &Op, types: &[Type], inputs: &[&Array<R>]) -> Result<Array<R>, Fault> {
    let wrong = |error| Fault::Program { error: Box::new(error) };
    let definition = expand(op, types).map_err(wrong)?;
    let names = definition.inputs().map(|(name, _)| name.to_owned());
    let values = names.zip(inputs.iter().map(|input| (*input).clone())).collect();
    let result = interpret(&definition, &values).map_err(wrong)?;
    result.into_iter().next().ok_or(Fault::Untyped)
}

/// Where the elements of a shape lie whose neighbours are `strides` apart, in row-major order.
fn places(shape: &[usize], start: usize, strides: &[usize]) -> Vec<usize> {
    if shape.contains(&0) {
        return Vec::new(); // also where the sizes before the 0 are large
    }
    let mut places = vec![start];
    for (size, stride) in shape.iter().zip(strides) {
        let step = |place: usize| (0..*size).map(move |i| place + i * stride);
        places = places.into_iter().flat_map(step).collect();
    }
    places
}

/// Indices as rows of a table.
fn in_range(index: &[i32], rows: usize) -> Result<Vec<usize>, Fault> {
    let row = |(element, got): (usize, &i32)| match usize::try_from(*got) {
        Ok(row) if row < rows => Ok(row),
        _ => Err(Fault::Index { got: i64::from(*got), rows, element }),
    };
    index.iter().enumerate().map(row).collect()
}

fn unary_of<R: Real>(unary: Unary, x: R) -> R {
    match unary {
        Unary::Neg => -x,
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Tanh => x.tanh(),
        Unary::Sigmoid => R::of(1.0) / (R::of(1.0) + (-x).exp()),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
    }
}

fn binary_of<R: Real>(binary: Binary, a: R, b: R) -> R {
    let not_a_number = a.partial_cmp(&b).is_none();
    match binary {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Min | Binary::Max if not_a_number => a + b,
        Binary::Min => {
            if b < a {
                b
            } else {
                a
            }
        }
        Binary::Max => {
            if a < b {
                b
            } else {
                a
            }
        }
    }
}

/// Nothing where the divisor is 0.
fn integers_of(binary: Binary, a: i32, b: i32) -> Option<i32> {
    Some(match binary {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::Div if b == 0 => return None,
        Binary::Div => a.wrapping_div(b) - i32::from(a.wrapping_rem(b) != 0 && (a < 0) != (b < 0)),
        Binary::Min => a.min(b),
        Binary::Max => a.max(b),
    })
}

/// Everyone's arrays one after the other along a dimension.
pub(super) fn collected<R: Real>(dim: usize, all: &[&Array<R>]) -> Array<R> {
    let mut shape = all[0].shape.clone();
    shape[dim] *= all.len();
    NodeType { dtype: all[0].dtype, shape: &shape }.concat(dim, all)
}

/// The sum of everyone's arrays, in their order, rounded once.
pub(super) fn reduced<R: Real>(all: &[&Array<R>]) -> Array<R> {
    let at = NodeType { dtype: all[0].dtype, shape: &all[0].shape };
    if let Data::I32(first) = &all[0].data {
        let sum =
            |i: usize| all[1..].iter().fold(first[i], |sum, one| sum.wrapping_add(one.as_integers()[i]));
        return at.array(Data::I32((0..first.len()).map(sum).collect()));
    }
    let first = all[0].as_floats();
    let sum = |i: usize| all[1..].iter().fold(first[i], |sum, one| sum + one.as_floats()[i]);
    at.floats((0..first.len()).map(sum))
}

/// Part `number` of `count` equal ones along a dimension.
pub(super) fn shard<R: Real>(whole: &Array<R>, dim: usize, number: usize, count: usize) -> Array<R> {
    let (mut shape, strides) = (whole.shape.clone(), strides(&whole.shape));
    shape[dim] /= count;
    let start = number.saturating_mul(shape[dim]).saturating_mul(strides[dim]);
    NodeType { dtype: whole.dtype, shape: &shape }.pick(whole, start, &strides)
}
