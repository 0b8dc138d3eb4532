//! The type checker: what each operation asks of its inputs, and the type that it gives.

use super::op::{Attention, Binary, Dtype, Op, Reduce, Unary};
use super::{Class, Collective, Dim, Fault, Graph, Group, Id, Type, product};
use crate::nf4::{Layout, is_block_size};

/// The type of a node that is not there yet. `given` is what the writer says that it is.
pub(super) fn infer(graph: &Graph, op: &Op, inputs: &[Id], given: Option<Type>) -> Result<Type, Fault> {
    let at = Inference::new(graph, inputs, graph.nodes().len())?;
    tokens(graph, op, inputs)?;
    if op.takes_type() {
        let given = given.ok_or(Fault::Untyped)?;
        at.takes(op, &given)?;
        return Ok(given);
    }
    let need = at.gives(op)?;
    given.map_or(Ok(()), |got| same(got, need.clone()))?;
    Ok(need)
}

fn same(got: Type, need: Type) -> Result<(), Fault> {
    if got == need { Ok(()) } else { Err(Fault::Type { got, need }) }
}

/// Whether a node that is there has a type that is right, and its inputs stand before it.
pub(super) fn verify(graph: &Graph, id: Id) -> Result<(), Fault> {
    let node = graph.node(id);
    let at = Inference::new(graph, &node.inputs, id.0 as usize)?;
    tokens(graph, &node.op, &node.inputs)?;
    if node.op.takes_type() {
        return at.takes(&node.op, &node.ty);
    }
    same(node.ty.clone(), at.gives(&node.op)?)
}

/// That nobody but a receive reads what a send gives.
fn tokens(graph: &Graph, op: &Op, inputs: &[Id]) -> Result<(), Fault> {
    let sends = |id: &Id| matches!(graph.node(*id).op, Op::Collective { kind: Collective::Send { .. }, .. });
    let receives = matches!(op, Op::Collective { kind: Collective::Receive { .. }, .. });
    match inputs.iter().position(sends) {
        Some(input) if !receives => Err(Fault::Token { input }),
        _ => Ok(()),
    }
}

/// Where a node is to stand: what its inputs give and what is known.
struct Inference<'a> {
    graph: &'a Graph,
    inputs: Vec<&'a Type>,
}

impl<'a> Inference<'a> {
    /// The one of a node with that number, whose inputs have smaller ones.
    fn new(graph: &'a Graph, inputs: &[Id], number: usize) -> Result<Self, Fault> {
        match inputs.iter().find(|id| id.0 as usize >= number) {
            Some(id) => Err(Fault::NoSuchNode { id: *id }),
            None => Ok(Self { graph, inputs: inputs.iter().map(|id| graph.ty(*id)).collect() }),
        }
    }

    fn takes(&self, op: &Op, given: &Type) -> Result<(), Fault> {
        bounded(&given.shape)?;
        self.accept(op, given)
    }

    fn gives(&self, op: &Op) -> Result<Type, Fault> {
        let need = self.result(op)?;
        bounded(&need.shape)?;
        Ok(need)
    }

    /// Whether a type that the writer chose fits.
    fn accept(&self, op: &Op, given: &Type) -> Result<(), Fault> {
        let result = |need: &str| Err(Fault::Result { got: given.clone(), need: need.to_owned() });
        let follows = || self.result(op).and_then(|need| same(given.clone(), need));
        match op {
            Op::Input { .. } => self.arity(0, "0")?,
            Op::Constant { value } => {
                self.arity(0, "0")?;
                holds(given.dtype, *value)?;
            }
            Op::Iota { dim } => {
                self.arity(0, "0")?;
                dim_of(given, *dim)?;
                if given.dtype != Dtype::I32 {
                    return result("i32");
                }
            }
            Op::Cast => {
                self.arity(1, "1")?;
                if self.inputs[0].shape != given.shape {
                    return result("the shape of its input");
                }
            }
            Op::Reshape => {
                self.arity(1, "1")?;
                multipliable(&self.inputs[0].shape)?;
                multipliable(&given.shape)?;
                let (from, to) = (product(&self.inputs[0].shape), product(&given.shape));
                if from != to || self.inputs[0].dtype != given.dtype {
                    return result(&format!("{from} elements of {}", self.inputs[0].dtype.name()));
                }
            }
            Op::Broadcast => self.broadcast(given)?,
            Op::ScatterAdd => self.scatter(given)?,
            Op::Dequantize { block_size, nested } => self.dequantize(given, *block_size, *nested)?,
            Op::Detach | Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select => follows()?,
            Op::Reduce(..) | Op::Matmul | Op::Gather | Op::Transpose { .. } | Op::Slice { .. } => follows()?,
            Op::Concat { .. } | Op::Attention(_) | Op::AttentionGrad { .. } => follows()?,
            Op::AttentionLse(_) | Op::AttentionLseGrad { .. } => follows()?,
            Op::RandomMask { .. } | Op::Collective { .. } => follows()?,
        }
        Ok(())
    }

    /// The type that follows.
    fn result(&self, op: &Op) -> Result<Type, Fault> {
        match op {
            Op::Detach => self.arity(1, "1").map(|()| self.inputs[0].clone()),
            Op::Unary(unary) => self.unary(*unary),
            Op::Binary(binary) => self.binary(*binary),
            Op::Compare(_) => self.alike(0, 2, "2").map(|ty| ty.with(Dtype::U8)),
            Op::Select => self.select(),
            Op::Reduce(reduce, dim) => self.reduce(*reduce, *dim),
            Op::Matmul => self.matmul(),
            Op::Gather => self.gather(),
            Op::Transpose { order } => self.transpose(order),
            Op::Slice { dim, start, end } => self.slice(*dim, start, end),
            Op::Concat { dim } => self.concat(*dim),
            Op::Attention(attention) => self.attention(attention),
            Op::AttentionGrad { attention, wrt } => self.attention_grad(attention, *wrt, Self::attention),
            Op::AttentionLse(attention) => self.attention_lse(attention),
            Op::AttentionLseGrad { attention, wrt } => {
                self.attention_grad(attention, *wrt, Self::attention_lse)
            }
            Op::RandomMask { probability, .. } => self.random_mask(*probability),
            Op::Collective { kind, group } => self.collective(*kind, group),
            Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } | Op::Cast => Err(Fault::Untyped),
            Op::ScatterAdd | Op::Reshape | Op::Broadcast | Op::Dequantize { .. } => Err(Fault::Untyped),
        }
    }

    fn arity(&self, count: usize, need: &'static str) -> Result<(), Fault> {
        let got = self.inputs.len();
        if got == count { Ok(()) } else { Err(Fault::Arity { got, need }) }
    }

    fn dtype(&self, input: usize, fits: impl Fn(Dtype) -> bool, need: &str) -> Result<(), Fault> {
        let got = self.inputs[input].dtype;
        if fits(got) { Ok(()) } else { Err(Fault::Dtype { input, got, need: need.to_owned() }) }
    }

    /// The error that an input's shape is not the one needed.
    fn shape(&self, input: usize, need: impl Into<String>) -> Fault {
        Fault::Shape { input, got: self.inputs[input].shape.clone(), need: need.into() }
    }

    /// Exactly these dimensions.
    fn exactly(&self, input: usize, dtype: Dtype, shape: &[Dim]) -> Result<(), Fault> {
        self.dtype(input, |got| got == dtype, dtype.name())?;
        if self.inputs[input].shape == shape {
            return Ok(());
        }
        Err(self.shape(input, super::error::Shape(shape).to_string()))
    }

    /// As many dimensions as that.
    fn rank(&self, input: usize, rank: usize, need: &str) -> Result<(), Fault> {
        if self.inputs[input].rank() == rank { Ok(()) } else { Err(self.shape(input, need)) }
    }

    /// The one type that the inputs `from..from + count` have; `need` names how many inputs there are.
    fn alike(&self, from: usize, count: usize, need: &'static str) -> Result<&Type, Fault> {
        self.arity(from + count, need)?;
        let first = self.inputs[from];
        for input in from + 1..from + count {
            self.exactly(input, first.dtype, &first.shape)?;
        }
        Ok(first)
    }

    fn unary(&self, unary: Unary) -> Result<Type, Fault> {
        self.arity(1, "1")?;
        let integers = unary == Unary::Neg;
        let fits = |dtype: Dtype| dtype.is_float() || (integers && dtype == Dtype::I32);
        self.dtype(0, fits, if integers { "a float or i32" } else { "a float" })?;
        Ok(self.inputs[0].clone())
    }

    fn binary(&self, binary: Binary) -> Result<Type, Fault> {
        let ty = self.alike(0, 2, "2")?;
        let bytes = matches!(binary, Binary::Min | Binary::Max);
        self.dtype(0, |dtype| dtype != Dtype::U8 || bytes, "a float or i32")?;
        Ok(ty.clone())
    }

    fn select(&self) -> Result<Type, Fault> {
        let ty = self.alike(1, 2, "3")?;
        self.exactly(0, Dtype::U8, &ty.shape)?;
        Ok(ty.clone())
    }

    fn reduce(&self, reduce: Reduce, dim: usize) -> Result<Type, Fault> {
        self.arity(1, "1")?;
        let integers = reduce == Reduce::Sum;
        let fits = |dtype: Dtype| dtype.is_float() || (integers && dtype == Dtype::I32);
        self.dtype(0, fits, if integers { "a float or i32" } else { "a float" })?;
        let mut ty = self.inputs[0].clone();
        dim_of(&ty, dim)?;
        ty.shape[dim] = Dim::fixed(1);
        Ok(ty)
    }

    fn matmul(&self) -> Result<Type, Fault> {
        self.arity(2, "2")?;
        self.dtype(0, Dtype::is_float, "a float")?;
        let (a, b) = (self.inputs[0], self.inputs[1]);
        self.dtype(1, |dtype| dtype == a.dtype, a.dtype.name())?;
        let [lead @ .., m, k] = a.shape.as_slice() else { return Err(self.shape(0, "[.., M, K]")) };
        let need = || self.shape(1, format!("{}, then {k}, then N", super::error::Shape(lead)));
        let [other @ .., rows, n] = b.shape.as_slice() else { return Err(need()) };
        if other != lead || rows != k {
            return Err(need());
        }
        let shape = lead.iter().chain([m, n]).cloned().collect();
        Ok(Type { dtype: a.dtype, shape })
    }

    fn gather(&self) -> Result<Type, Fault> {
        self.arity(2, "2")?;
        self.dtype(1, |dtype| dtype == Dtype::I32, "i32")?;
        let (table, index) = (self.inputs[0], self.inputs[1]);
        let [_, row @ ..] = table.shape.as_slice() else { return Err(self.shape(0, "[n, ..]")) };
        Ok(Type { dtype: table.dtype, shape: index.shape.iter().chain(row).cloned().collect() })
    }

    fn scatter(&self, given: &Type) -> Result<(), Fault> {
        self.arity(2, "2")?;
        self.dtype(0, Dtype::is_float, "a float")?;
        self.dtype(1, |dtype| dtype == Dtype::I32, "i32")?;
        let (rows, index) = (self.inputs[0], self.inputs[1]);
        let Some(row) = rows.shape.strip_prefix(index.shape.as_slice()) else {
            return Err(self.shape(0, format!("{} and a row", super::error::Shape(&index.shape))));
        };
        match given.shape.as_slice() {
            [_, rest @ ..] if rest == row && given.dtype == rows.dtype => Ok(()),
            _ => Err(Fault::Result {
                got: given.clone(),
                need: format!("n rows {} of {}", super::error::Shape(row), rows.dtype.name()),
            }),
        }
    }

    fn random_mask(&self, probability: f64) -> Result<Type, Fault> {
        let ty = self.alike(0, 3, "3")?;
        self.dtype(0, |dtype| dtype == Dtype::I32, "i32")?;
        if !(0.0..=1.0).contains(&probability) {
            let got = probability.to_string();
            return Err(Fault::Setting { what: "probability", got, need: "a number from 0 to 1" });
        }
        Ok(ty.with(Dtype::U8))
    }

    fn collective(&self, kind: Collective, group: &Group) -> Result<Type, Fault> {
        self.arity(1, "1")?;
        bounded(std::slice::from_ref(&group.size))?;
        self.prove(&(&group.size - &Dim::fixed(1)), "1", &group.size)?;
        let mut ty = self.inputs[0].clone();
        let adds = |dtype: Dtype| dtype.is_float() || dtype == Dtype::I32;
        match kind {
            Collective::AllGather { dim } => {
                ty.shape[dim] = dim_of(&ty, dim)? * &group.size;
            }
            Collective::ReduceScatter { dim } => {
                self.dtype(0, adds, "a float or i32")?;
                let need = || self.shape(0, format!("a dimension {dim} that {} divides", group.size));
                ty.shape[dim] = dim_of(&ty, dim)?.divided_by(&group.size).ok_or_else(need)?;
            }
            Collective::AllReduce => self.dtype(0, adds, "a float or i32")?,
            Collective::Send { .. } | Collective::Receive { .. } => {}
        }
        Ok(ty)
    }

    fn transpose(&self, order: &[usize]) -> Result<Type, Fault> {
        self.arity(1, "1")?;
        let from = self.inputs[0];
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..from.rank()) {
            return Err(Fault::Order { got: order.to_vec(), rank: from.rank() });
        }
        Ok(Type { dtype: from.dtype, shape: order.iter().map(|dim| from.shape[*dim].clone()).collect() })
    }

    fn broadcast(&self, given: &Type) -> Result<(), Fault> {
        self.arity(1, "1")?;
        let from = self.inputs[0];
        let fits = |(a, b): (&Dim, &Dim)| a == b || a.is_one();
        let repeats = from.shape.iter().zip(&given.shape).all(fits);
        if repeats && from.rank() == given.rank() && from.dtype == given.dtype {
            return Ok(());
        }
        Err(Fault::Result { got: given.clone(), need: format!("{from}, with a 1 repeated") })
    }

    fn slice(&self, dim: usize, start: &Dim, end: &Dim) -> Result<Type, Fault> {
        self.arity(1, "1")?;
        let mut ty = self.inputs[0].clone();
        let size = dim_of(&ty, dim)?;
        bounded(&[start.clone(), end.clone()])?;
        self.prove(start, "0", start)?;
        self.prove(&(end - start), &start.to_string(), end)?;
        self.prove(&(size - end), &end.to_string(), size)?;
        ty.shape[dim] = end - start;
        Ok(ty)
    }

    /// That `difference`, which is `large - small`, is never negative.
    fn prove(&self, difference: &Dim, small: &str, large: &Dim) -> Result<(), Fault> {
        if difference.bounds(self.graph.known()).0 >= 0 {
            return Ok(());
        }
        let mut known: Vec<String> = difference.symbols().map(|symbol| self.fact(symbol)).collect();
        known.dedup();
        let known = if known.is_empty() { "the sizes".to_owned() } else { known.join(", ") };
        Err(Fault::Unproven { claim: format!("{small} <= {large}"), known })
    }

    fn fact(&self, symbol: &str) -> String {
        match self.graph.known().get(symbol) {
            Some(facts) => format!("{symbol} in {facts}"),
            None => format!("{symbol} >= 0"),
        }
    }

    fn concat(&self, dim: usize) -> Result<Type, Fault> {
        let Some(first) = self.inputs.first() else {
            return Err(Fault::Arity { got: 0, need: "at least 1" });
        };
        let mut ty = (*first).clone();
        dim_of(&ty, dim)?;
        for (input, other) in self.inputs.iter().enumerate().skip(1) {
            self.dtype(input, |dtype| dtype == ty.dtype, ty.dtype.name())?;
            let mut need = ty.shape.clone();
            let size = other
                .shape
                .get(dim)
                .ok_or_else(|| self.shape(input, format!("{} dimensions", ty.shape.len())))?;
            need[dim] = size.clone();
            if other.shape != need {
                return Err(self.shape(input, super::error::Shape(&need).to_string()));
            }
            ty.shape[dim] = &ty.shape[dim] + size;
            bounded(&ty.shape[dim..=dim])?;
        }
        Ok(ty)
    }

    fn dequantize(&self, given: &Type, block_size: usize, nested: Option<usize>) -> Result<(), Fault> {
        let need = if nested.is_some() { "6" } else { "3" };
        self.arity(Layout { len: 0, block_size, nested }.parts().count(), need)?;
        let positive = |size: i64| usize::try_from(size).ok().filter(|size| *size > 0);
        let sizes = given.shape.iter().map(|dim| dim.as_fixed().and_then(positive));
        let elements = sizes.reduce(|a, b| a?.checked_mul(b?)).flatten();
        let (Some(len), true) = (elements, given.dtype.is_float()) else {
            let need = "a float of fixed sizes".to_owned();
            return Err(Fault::Result { got: given.clone(), need });
        };
        if let Some(size) = [block_size].into_iter().chain(nested).find(|size| !is_block_size(*size)) {
            let (got, need) = (size.to_string(), "a power of two from 32 to 4096");
            return Err(Fault::Setting { what: "block size", got, need });
        }
        let parts = Layout { len, block_size, nested }.parts();
        parts.enumerate().try_for_each(|(input, part)| {
            let shape: Vec<Dim> = part.shape().iter().map(|size| Dim::from(*size)).collect();
            self.exactly(input, part.dtype, &shape)
        })
    }

    fn attention(&self, attention: &Attention) -> Result<Type, Fault> {
        if self.inputs.len() < 3 {
            return Err(Fault::Arity { got: self.inputs.len(), need: "at least 3" });
        }
        self.heads()?;
        if !attention.scale.is_finite() {
            let got = attention.scale.to_string();
            return Err(Fault::Setting { what: "scale", got, need: "a finite number" });
        }
        for (program, gives) in attention.programs() {
            self.program(program, &gives).map_err(|error| Fault::Program { error: Box::new(error) })?;
        }
        let (q, v) = (self.inputs[0], self.inputs[2]);
        let shape = q.shape[..3].iter().chain(&v.shape[3..]).cloned().collect();
        Ok(Type { dtype: q.dtype, shape })
    }

    /// That q, k and v fit each other.
    fn heads(&self) -> Result<(), Fault> {
        let (q, k) = (self.inputs[0], self.inputs[1]);
        self.dtype(0, Dtype::is_float, "a float")?;
        self.rank(0, 4, "[batch, heads, queries, D]")?;
        self.rank(1, 4, "[batch, key heads, keys, D]")?;
        self.rank(2, 4, "[batch, key heads, keys, Dv]")?;
        let divides = match (q.shape[1].as_fixed(), k.shape[1].as_fixed()) {
            (Some(heads), Some(groups)) => groups > 0 && heads % groups == 0,
            _ => q.shape[1] == k.shape[1],
        };
        if !divides {
            return Err(self.shape(1, format!("a number of key heads that divides {}", q.shape[1])));
        }
        let [batch, _, _, depth] = &q.shape[..] else { return Ok(()) };
        let [_, groups, keys, _] = &k.shape[..] else { return Ok(()) };
        self.exactly(1, q.dtype, &[batch.clone(), groups.clone(), keys.clone(), depth.clone()])?;
        let value_depth = self.inputs[2].shape[3].clone();
        self.exactly(2, q.dtype, &[batch.clone(), groups.clone(), keys.clone(), value_depth])
    }

    /// That a program takes the arguments and the extras, gives what it has to, and keeps to scalars.
    fn program(&self, program: &Graph, gives: &Type) -> Result<(), super::Error> {
        program.check()?;
        let arguments = Attention::ARGUMENTS.map(|(_, dtype)| Type::scalar(dtype));
        let extras = self.inputs[3..].iter().map(|ty| (*ty).clone());
        let needs: Vec<Type> = arguments.into_iter().chain(extras).collect();
        let inputs: Vec<(&str, Id)> = program.inputs().collect();
        if inputs.len() != needs.len() {
            let (got, need) = (inputs.len(), "score, batch, head, query, key and the extras");
            return Err(Fault::Arity { got, need }.of(&program.name));
        }
        for ((name, id), need) in inputs.iter().zip(&needs) {
            if program.ty(*id) != need {
                return Err(Fault::Type { got: program.ty(*id).clone(), need: need.clone() }.of(name));
            }
        }
        let [(name, output)] = program.outputs() else {
            let got = program.outputs().len().to_string();
            return Err(Fault::Setting { what: "number of outputs", got, need: "1" }.of(&program.name));
        };
        if program.ty(*output) != gives {
            return Err(Fault::Type { got: program.ty(*output).clone(), need: gives.clone() }.of(name));
        }
        scalars_only(program)
    }

    /// One number a query.
    fn attention_lse(&self, attention: &Attention) -> Result<Type, Fault> {
        let mut ty = self.attention(attention)?.with(Dtype::F32);
        ty.shape.truncate(3);
        Ok(ty)
    }

    /// The gradient of what `of` is the type of.
    fn attention_grad(
        &self,
        attention: &Attention,
        wrt: usize,
        of: fn(&Self, &Attention) -> Result<Type, Fault>,
    ) -> Result<Type, Fault> {
        let Some((grad, inputs)) = self.inputs.split_last() else {
            return Err(Fault::Arity { got: 0, need: "those of an attention and a gradient" });
        };
        let forward = Inference { graph: self.graph, inputs: inputs.to_vec() };
        let output = of(&forward, attention)?;
        if **grad != output {
            return Err(Fault::Type { got: (*grad).clone(), need: output });
        }
        match inputs.get(wrt) {
            Some(input) if input.dtype.is_float() => Ok((*input).clone()),
            _ => Err(Fault::Setting {
                what: "wrt",
                got: wrt.to_string(),
                need: "the number of an input of floats",
            }),
        }
    }
}

/// The nodes of a program that depend on the place in the score matrix.
pub(super) fn per_score(program: &Graph) -> Vec<bool> {
    let arguments: Vec<Id> = program.inputs().take(Attention::ARGUMENTS.len()).map(|(_, id)| id).collect();
    let mut depends = vec![false; program.nodes().len()];
    for id in program.ids() {
        let node = program.node(id);
        depends[id.0 as usize] =
            arguments.contains(&id) || node.inputs.iter().any(|input| depends[input.0 as usize]);
    }
    depends
}

/// That what depends on the place in the score matrix has no dimensions and is computed element by element.
fn scalars_only(program: &Graph) -> Result<(), super::Error> {
    let depends = per_score(program);
    for id in program.ids().filter(|id| depends[id.0 as usize]) {
        let node = program.node(id);
        let element = node.op.class() == Class::Pointwise
            || matches!(node.op, Op::Input { .. } | Op::Detach | Op::Gather);
        let table_read = node.op != Op::Gather || !depends[node.inputs[0].0 as usize];
        if !element || !table_read || node.ty.rank() > 0 {
            let need = "a scalar, element by element or read from a table".to_owned();
            return Err(Fault::Result { got: node.ty.clone(), need }.at(id.0 as usize, &node.op));
        }
    }
    Ok(())
}

/// How many dimensions a type may have, terms a size, and factors a term.
pub(super) const LONGEST: usize = 64;

/// That sizes are of a length that can be worked with, whoever wrote them.
fn bounded(sizes: &[Dim]) -> Result<(), Fault> {
    let longest = |what, got: Option<usize>| match got {
        Some(got) if got > LONGEST => Err(Fault::Setting { what, got: got.to_string(), need: "at most 64" }),
        _ => Ok(()),
    };
    longest("number of dimensions", Some(sizes.len()))?;
    longest("number of terms of a size", sizes.iter().map(Dim::terms).max())?;
    longest("number of factors of a size", sizes.iter().map(Dim::degree).max())
}

/// That the product of sizes, written as a sum, does not grow beyond all bounds.
fn multipliable(sizes: &[Dim]) -> Result<(), Fault> {
    let terms = sizes.iter().fold(1_usize, |terms, size| terms.saturating_mul(size.terms().max(1)));
    let factors = terms.saturating_mul(sizes.iter().map(Dim::degree).sum());
    if factors <= 256 {
        return Ok(());
    }
    let got = format!("{factors} or fewer");
    Err(Fault::Setting { what: "number of factors in the number of elements", got, need: "at most 256" })
}

fn dim_of(ty: &Type, dim: usize) -> Result<&Dim, Fault> {
    ty.shape.get(dim).ok_or(Fault::NoSuchDim { dim, rank: ty.rank() })
}

/// Whether a constant's value is one of its type.
fn holds(dtype: Dtype, value: f64) -> Result<(), Fault> {
    let integral =
        |min: i32, max: i32| value.fract() == 0.0 && (f64::from(min)..=f64::from(max)).contains(&value);
    let fits = match dtype {
        Dtype::U8 => integral(0, 255),
        Dtype::I32 => integral(i32::MIN, i32::MAX),
        Dtype::F32 | Dtype::F16 | Dtype::Bf16 => true,
    };
    if fits { Ok(()) } else { Err(Fault::Value { got: value, dtype }) }
}
