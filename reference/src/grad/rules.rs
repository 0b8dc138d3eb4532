//! The table: one operation, one rule. `x`, `a`, `b` are its inputs, `y` its output, `g` the gradient of y.

use super::{pull_back, takes_gradient};
use crate::graph::{Binary, Dim, Error, Id, Op, Reduce, Tensor, Type, Unary, expand};

/// The gradient of each input, given the inputs, the output and its gradient. Nothing where none passes: integers,
/// conditions, what is detached or frozen.
///
/// Fails as [`expand`] does, for an operation without a rule of its own.
///
/// # Panics
/// If there are fewer inputs than the operation has.
pub fn rule(op: &Op, inputs: &[Tensor], y: &Tensor, g: &Tensor) -> Result<Vec<Option<Tensor>>, Error> {
    let input = |i: usize| &inputs[i]; // as many as the type checker asks for
    let found = match op {
        Op::Cast => vec![cast(input(0), g)],
        Op::Unary(unary) => vec![Some(of_unary(*unary, input(0), y, g))],
        Op::Binary(binary) => of_binary(*binary, input(0), input(1), y, g).map(Some).into(),
        Op::Select => {
            // y = c ? a : b;  da = c ? g : 0;  db = c ? 0 : g
            let (condition, zero) = (input(0), input(1).like(0.0));
            vec![None, Some(condition.select(g, &zero)), Some(condition.select(&zero, g))]
        }
        Op::Reduce(Reduce::Sum, _) => vec![Some(g.spread(input(0).shape()))], // dx = g, repeated
        Op::Reduce(Reduce::Max, dim) => vec![Some(of_largest(input(0), *dim, y, g))],
        Op::Matmul => vec![Some(g.matmul(&input(1).t())), Some(input(0).t().matmul(g))], // dA = G B^T;  dB = A^T G
        Op::Gather => vec![Some(g.scatter_add(input(1), input(0).dim(0))), None],
        Op::ScatterAdd => vec![Some(g.gather(input(1))), None],
        Op::Reshape => vec![Some(g.reshape(input(0).shape()))],
        Op::Transpose { order } => vec![Some(g.transpose(&inverse(order)))],
        Op::Broadcast => vec![Some(of_repeated(input(0), g))],
        Op::Slice { dim, start, end } => vec![Some(of_slice(input(0), *dim, start, end, g))],
        Op::Concat { dim } => of_concat(*dim, inputs, g),
        Op::Attention(attention) => {
            of_attention(inputs, g, |wrt| Op::AttentionGrad { attention: attention.clone(), wrt })
        }
        Op::AttentionLse(attention) => {
            of_attention(inputs, g, |wrt| Op::AttentionLseGrad { attention: attention.clone(), wrt })
        }
        Op::AttentionGrad { .. } | Op::AttentionLseGrad { .. } => by_definition(op, inputs, g)?,
        Op::Collective { kind, group } => vec![Some(g.collective(kind.derivative(), group))],
        Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } => Vec::new(), // from outside
        Op::Compare(_) | Op::RandomMask { .. } | Op::Detach => vec![None; inputs.len()], // no gradient passes
        Op::Dequantize { .. } => vec![None; inputs.len()],                      // the weight is frozen
    };
    let keep = |(input, part): (&Tensor, Option<Tensor>)| part.filter(|_| takes_gradient(input));
    Ok(inputs.iter().zip(found).map(keep).collect())
}

/// y = x in another type: dx = g in x's type; nothing between floats and integers.
fn cast(x: &Tensor, g: &Tensor) -> Option<Tensor> {
    (takes_gradient(x) && takes_gradient(g)).then(|| g.cast(x.ty().dtype))
}

fn of_unary(unary: Unary, x: &Tensor, y: &Tensor, g: &Tensor) -> Tensor {
    match unary {
        Unary::Neg => -g,                                 // y = -x;        dx = -g
        Unary::Exp => g * y,                              // y = e^x;       dx = g y
        Unary::Log => g / x,                              // y = ln x;      dx = g / x
        Unary::Sqrt => &(g * 0.5) / y,                    // y = sqrt x;    dx = g / (2 y)
        Unary::Tanh => g * &(&y.like(1.0) - &(y * y)),    // y = tanh x;    dx = g (1 - y^2)
        Unary::Sigmoid => g * &(y * &(&y.like(1.0) - y)), // y = 1/(1+e^-x) dx = g y (1 - y)
        Unary::Sin => g * &x.cos(),                       // y = sin x;     dx = g cos x
        Unary::Cos => -&(g * &x.sin()),                   // y = cos x;     dx = -g sin x
    }
}

fn of_binary(binary: Binary, a: &Tensor, b: &Tensor, y: &Tensor, g: &Tensor) -> [Tensor; 2] {
    let zero = || g.like(0.0);
    match binary {
        Binary::Add => [g.clone(), g.clone()], // y = a + b;     da = g, db = g
        Binary::Sub => [g.clone(), -g],        // y = a - b;     da = g, db = -g
        Binary::Mul => [g * b, g * a],         // y = a b;       da = g b, db = g a
        Binary::Div => [g / b, -&(&(g * y) / b)], // y = a / b;     da = g / b, db = -g y / b
        Binary::Min => {
            // y = b < a ? b : a
            let second = b.less(a);
            [second.select(&zero(), g), second.select(g, &zero())]
        }
        Binary::Max => {
            // y = a < b ? b : a
            let second = a.less(b);
            [second.select(&zero(), g), second.select(g, &zero())]
        }
    }
}

/// y = max x: g is shared equally by those that reach it.
fn of_largest(x: &Tensor, dim: usize, y: &Tensor, g: &Tensor) -> Tensor {
    let reached = x.equal(&y.spread(x.shape())).cast(x.ty().dtype);
    &reached * &(g / &reached.sum(dim))
}

/// y = x repeated: dx = the sum over the copies.
fn of_repeated(x: &Tensor, g: &Tensor) -> Tensor {
    let repeated = |dim: &usize| x.dim(*dim) != g.dim(*dim);
    (0..g.ty().rank()).filter(repeated).fold(g.clone(), |sum, dim| sum.sum(dim))
}

/// y = x[start..end]: dx = g with zeros before and after.
fn of_slice(x: &Tensor, dim: usize, start: &Dim, end: &Dim, g: &Tensor) -> Tensor {
    let zeros = |size: Dim| {
        let mut ty = x.ty().clone();
        ty.shape[dim] = size;
        g.tape().constant(0.0, &ty)
    };
    let (before, after) = (zeros(start.clone()), zeros(&x.dim(dim) - end));
    g.tape().concat(&[&before, g, &after], dim)
}

/// y = a, b, .. one after the other: each has its own stretch of g.
fn of_concat(dim: usize, parts: &[Tensor], g: &Tensor) -> Vec<Option<Tensor>> {
    let mut start = Dim::fixed(0);
    let stretch = |part: &Tensor| {
        let end = &start + &part.dim(dim);
        let stretch = g.slice(dim, &start, &end);
        start = end;
        Some(stretch)
    };
    parts.iter().map(stretch).collect()
}

/// y = attention(q, k, v, ..): an operation of its own for each input, so that none has to hold the scores.
fn of_attention(inputs: &[Tensor], g: &Tensor, op: impl Fn(usize) -> Op) -> Vec<Option<Tensor>> {
    let all: Vec<&Tensor> = inputs.iter().chain([g]).collect();
    let of = |wrt: usize| takes_gradient(&inputs[wrt]).then(|| g.tape().apply(op(wrt), &all, None));
    (0..inputs.len()).map(of).collect()
}

/// An operation without a rule of its own: the rules of what it stands for.
fn by_definition(op: &Op, inputs: &[Tensor], g: &Tensor) -> Result<Vec<Option<Tensor>>, Error> {
    let types: Vec<Type> = inputs.iter().map(|input| input.ty().clone()).collect();
    let mut definition = expand(op, &types)?;
    let output = definition.outputs()[0].1;
    let floats: Vec<bool> = inputs.iter().map(takes_gradient).collect();
    let wrt = definition.inputs().zip(&floats).filter(|(_, float)| **float).map(|((_, id), _)| id);
    let wrt: Vec<Id> = wrt.collect();
    let seed = definition.push_as(Op::Input { name: "seed".into() }, &[], g.ty().clone())?;
    let gradients = pull_back(&mut definition, output, seed, &wrt)?;
    definition.clear_outputs();
    for (i, gradient) in gradients.into_iter().enumerate() {
        definition.output(format!("{i}"), gradient);
    }
    let given: Vec<Tensor> = inputs.iter().chain([g]).cloned().collect();
    let mut found = g.tape().inline(&definition, &given).into_iter();
    Ok(floats.into_iter().map(|float| float.then(|| found.next()).flatten()).collect())
}

/// The order that undoes another one.
fn inverse(order: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, from)| inverse[*from] = to);
    inverse
}
