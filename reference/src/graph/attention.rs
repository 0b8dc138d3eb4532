//! Attention by its definition: the operations that it stands for.
//!
//! ```text
//! s[b,h,q,k] = score(scale * sum_d Q[b,h,q,d] K[b,h/g,k,d], b, h, q, k)
//! p[b,h,q,k] = mask ? e^(s - max_k s) / sum_k e^(s - max_k s) : 0
//! O[b,h,q,d] = sum_k p[b,h,q,k] V[b,h/g,k,d]
//! L[b,h,q]   = ln sum_k (mask ? e^s : 0)
//! ```
//!
//! Its gradient is defined as what the rules of [`crate::grad`] make of this.

use std::convert::Infallible;

use super::infer::per_score;
use super::{Attention, Builder, Dim, Dtype, Error, Fault, Graph, Id, Node, Op, Tensor, Type};
use crate::grad;

/// An attention or its gradient as a graph of simpler operations, given the types of its inputs: the inputs `q`, `k`,
/// `v`, `extra0`, .., `grad`, in their order, and one output.
///
/// Fails where the inputs do not fit.
pub fn expand(op: &Op, inputs: &[Type]) -> Result<Graph, Error> {
    let simple = || {
        let (what, got, need) = ("operation", op.name().to_owned(), "one with a definition");
        Err(Fault::Setting { what, got, need }.at(0, op))
    };
    match op {
        Op::Attention(attention) => forward(attention, inputs, weighted),
        Op::AttentionGrad { attention, wrt } => backward(attention, *wrt, inputs, weighted),
        Op::AttentionLse(attention) => forward(attention, inputs, lse),
        Op::AttentionLseGrad { attention, wrt } => backward(attention, *wrt, inputs, lse),
        Op::RandomMask { .. } | Op::Collective { .. } => simple(),
        Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } | Op::Dequantize { .. } => simple(),
        Op::Cast | Op::Detach | Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select => simple(),
        Op::Reduce(..) | Op::Matmul | Op::Gather | Op::ScatterAdd | Op::Concat { .. } => simple(),
        Op::Reshape | Op::Transpose { .. } | Op::Broadcast | Op::Slice { .. } => simple(),
    }
}

/// The name of an input by its number.
fn name(input: usize) -> String {
    match input {
        0 => "q".to_owned(),
        1 => "k".to_owned(),
        2 => "v".to_owned(),
        extra => format!("extra{}", extra - 3),
    }
}

/// What the definition makes of the scores: values or their logarithmic sums.
type Definition = fn(&Attention, &[Tensor]) -> Tensor;

fn forward(attention: &Attention, inputs: &[Type], definition: Definition) -> Result<Graph, Error> {
    check(attention, inputs)?;
    let builder = Builder::new("attention");
    for (symbol, facts) in attention.programs().flat_map(|(program, _)| program.known()) {
        builder.tape().symbol(symbol, *facts);
    }
    let input = |(i, ty): (usize, &Type)| builder.tape().input(&name(i), ty.dtype, &ty.shape);
    let handles: Vec<Tensor> = inputs.iter().enumerate().map(input).collect();
    builder.tape().output("output", &definition(attention, &handles));
    builder.finish()
}

/// That inputs of these types fit an attention.
fn check(attention: &Attention, inputs: &[Type]) -> Result<(), Error> {
    let mut graph = Graph::new("attention");
    for (symbol, facts) in attention.programs().flat_map(|(program, _)| program.known()) {
        graph.know(symbol, *facts);
    }
    let given = |(i, ty): (usize, &Type)| graph.push_as(Op::Input { name: name(i) }, &[], ty.clone());
    let given = inputs.iter().enumerate().map(given).collect::<Result<Vec<Id>, Error>>()?;
    graph.push(Op::Attention(Box::new(attention.clone())), &given).map(|_| ())
}

/// Every score (B, H, Tq, Tk) f32, minus infinity where the mask forbids it.
fn scores(attention: &Attention, inputs: &[Tensor]) -> Tensor {
    let [q, k, _, extras @ ..] = inputs else { unreachable!("the type checker asks for three inputs") };
    let k = repeat_heads(&k.cast(Dtype::F32), &q.dim(1));
    let scores = &q.cast(Dtype::F32).matmul(&k.t()) * attention.scale; // (B, H, Tq, Tk)
    let scores = match &attention.score {
        Some(program) => apply(program, &scores, extras),
        None => scores,
    };
    match &attention.mask {
        Some(program) => apply(program, &scores, extras).select(&scores, &scores.like(f64::NEG_INFINITY)),
        None => scores,
    }
}

/// The values, weighted by the softmax of the scores.
fn weighted(attention: &Attention, inputs: &[Tensor]) -> Tensor {
    let (q, v, scores) = (&inputs[0], &inputs[2], scores(attention, inputs));
    let largest = scores.reduce_max(3).detach();
    let blind = largest.equal(&largest.like(f64::NEG_INFINITY)); // a query that may see no key
    let e = (&scores - &blind.select(&largest.like(0.0), &largest)).exp();
    let sum = e.sum(3);
    let p = &e / &blind.select(&sum.like(1.0), &sum);
    let v = repeat_heads(&v.cast(Dtype::F32), &q.dim(1));
    p.matmul(&v).cast(q.ty().dtype) // (B, H, Tq, Dv)
}

/// The logarithm of each query's sum of e^score. What is taken out of a blind query's is its gradient too: its sum is 0
/// for every score.
fn lse(attention: &Attention, inputs: &[Tensor]) -> Tensor {
    let scores = scores(attention, inputs);
    let largest = scores.reduce_max(3).detach();
    let blind = largest.equal(&largest.like(f64::NEG_INFINITY));
    let shift = blind.select(&largest.like(0.0), &largest);
    let sum = (&scores - &shift).exp().sum(3);
    let log = &blind.select(&sum.like(1.0), &sum).log() + &shift;
    let lse = blind.select(&log.like(f64::NEG_INFINITY), &log); // (B, H, Tq, 1)
    lse.reshape(&lse.shape()[..3])
}

/// Every key head once for each query head that reads it: (B, G, T, D) -> (B, H, T, D).
fn repeat_heads(x: &Tensor, heads: &Dim) -> Tensor {
    let [batch, groups, keys, depth] = [0, 1, 2, 3].map(|dim| x.dim(dim));
    let (Some(h), Some(g)) = (heads.as_fixed(), groups.as_fixed()) else { return x.clone() };
    let [one, times] = [Dim::fixed(1), Dim::fixed(h / g.max(1))];
    let apart = x.reshape([&batch, &groups, &one, &keys, &depth]);
    let repeated = apart.spread(&[batch.clone(), groups, times, keys.clone(), depth.clone()]);
    repeated.reshape([&batch, heads, &keys, &depth])
}

/// A program on every score at once, `scores` f32 (B, H, Tq, Tk): what depends on the place gets their shape, what does
/// not stays as it is. `extras` are what else the attention is given.
pub fn apply(program: &Graph, scores: &Tensor, extras: &[Tensor]) -> Tensor {
    let (tape, shape) = (scores.tape(), scores.shape());
    let indices = (0..4).map(|dim| tape.iota(shape, dim));
    let mut given = std::iter::once(scores.clone()).chain(indices).chain(extras.iter().cloned());
    let lifted = per_score(program);
    let step = |id: Id, node: &Node, mut inputs: Vec<Tensor>| -> Result<Tensor, Infallible> {
        if let Op::Input { .. } = node.op {
            return Ok(given.next().unwrap_or_else(|| scores.clone()));
        }
        let lift = lifted[id.0 as usize];
        let tables = usize::from(node.op == Op::Gather);
        let spread = |input: &mut Tensor| *input = input.spread(shape);
        inputs.iter_mut().skip(tables).filter(|_| lift).for_each(spread);
        let ty = if lift { Type::new(node.ty.dtype, shape) } else { node.ty.clone() };
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        Ok(tape.apply(node.op.clone(), &inputs, node.op.takes_type().then_some(ty)))
    };
    let Ok(values) = program.fold(step);
    let output = program.outputs().first().map(|(_, id)| values[id.0 as usize].spread(shape));
    output.unwrap_or_else(|| scores.clone())
}

/// The rules of differentiation on the definition.
fn backward(
    attention: &Attention,
    wrt: usize,
    inputs: &[Type],
    definition: Definition,
) -> Result<Graph, Error> {
    let Some((grad, inputs)) = inputs.split_last() else {
        return Err(
            Fault::Arity { got: 0, need: "those of an attention and a gradient" }.of("attention_grad")
        );
    };
    let mut graph = forward(attention, inputs, definition)?;
    let output = graph.outputs()[0].1;
    let seed = graph.push_as(Op::Input { name: "grad".into() }, &[], grad.clone())?;
    let input = graph.find_input(&name(wrt));
    let input = input.ok_or_else(|| Fault::NotGiven { name: name(wrt) }.of("attention_grad"))?;
    let [gradient] = grad::pull_back(&mut graph, output, seed, &[input])?.try_into().unwrap_or([seed]);
    graph.clear_outputs();
    graph.output("output", gradient);
    Ok(graph)
}
