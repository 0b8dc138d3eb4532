//! Attention that does not see padding.
//!
//! A place in the matrix of scores is real if its sequence, head, query and key are. The mask forbids every other one,
//! so that its weight and the gradient of its score are 0; the scores' program is given a score of 0 there, and reads
//! tables at row 0. Lengths are extras after those that there were.

use std::convert::Infallible;

use reference::graph::{Attention, Binary, Builder, Dim, Dtype, Graph, Id, Node, Op, Tensor, Type};

use super::layout::{Axis, Padding};
use super::sizes::Sizes;

/// How a program knows which places along a dimension are real.
pub struct Bound {
    /// The number of the program's argument that counts it: 1 to 4 for batch, head, query and key.
    pub argument: usize,
    /// Its size.
    pub size: Dim,
    /// How many there are, i32 (), or, where they are not the first ones, which, u8 (size).
    pub extra: Tensor,
}

/// Whether an input is one of the extras, by its number.
pub fn is_extra(input: usize) -> bool {
    input >= 3
}

/// Whether a program computes something of padded tables before it reads them.
pub fn reads_tables(attention: &Attention, padding: &Padding) -> bool {
    let pads = |program: &Graph, id: Id| program.ty(id).shape.iter().any(|size| padding.touches(size));
    attention.programs().any(|(program, _)| {
        let places = per_place(program);
        let tables = program.ids().filter(|id| !places[id.0 as usize]);
        let mut computed = tables.filter(|id| !matches!(program.node(*id).op, Op::Input { .. }));
        computed
            .any(|id| pads(program, id) || program.node(id).inputs.iter().any(|input| pads(program, *input)))
    })
}

/// The nodes of a program that depend on the place.
fn per_place(program: &Graph) -> Vec<bool> {
    let arguments: Vec<Id> = program.inputs().take(Attention::ARGUMENTS.len()).map(|(_, id)| id).collect();
    let mut depends: Vec<bool> = Vec::new();
    for id in program.ids() {
        let inputs = &program.node(id).inputs;
        depends.push(arguments.contains(&id) || inputs.iter().any(|input| depends[input.0 as usize]));
    }
    depends
}

/// The bounds of an attention's places; none, if no dimension of the scores is padded.
pub fn bounds(sizes: &mut Sizes, padding: &Padding, axes: [(&Axis, &Dim); 4]) -> Vec<Bound> {
    let mut bounds = Vec::new();
    for (i, (axis, size)) in axes.into_iter().enumerate().filter(|(_, (_, size))| padding.touches(size)) {
        let extra = match axis {
            Some(factors) if !padding.is_leading(axis) => sizes.along(factors),
            _ => sizes.real(size),
        };
        bounds.push(Bound { argument: i + 1, size: size.clone(), extra });
    }
    bounds
}

/// The same attention of real places. `extras` are the types of those that it has.
pub fn bounded(
    attention: &Attention,
    extras: &[Type],
    bounds: &[Bound],
) -> Result<Attention, reference::graph::Error> {
    let score =
        attention.score.as_ref().map(|score| program(Some(score), false, extras, bounds)).transpose()?;
    let mask = program(attention.mask.as_ref(), true, extras, bounds)?;
    Ok(Attention { scale: attention.scale, score, mask: Some(mask) })
}

/// A program, of real places.
fn program(
    old: Option<&Graph>,
    is_mask: bool,
    extras: &[Type],
    bounds: &[Bound],
) -> Result<Graph, reference::graph::Error> {
    let builder = Builder::new(old.map_or("real", |old| &old.name));
    let tape = builder.tape();
    let known = old.into_iter().flat_map(Graph::known);
    known.for_each(|(symbol, facts)| drop(tape.symbol(symbol, *facts)));
    let arguments = arguments(&builder, old, extras);
    let taken: Vec<&str> = old.into_iter().flat_map(Graph::inputs).map(|(name, _)| name).collect();
    let real = bounds.iter().map(|bound| within(&builder, bound, &arguments, &taken)).collect::<Vec<_>>();
    let real = real.into_iter().reduce(|a, b| a.min(&b));
    let real = real.unwrap_or_else(|| tape.constant(1.0, &Type::scalar(Dtype::U8)));
    let result = old.map(|old| copied(&builder, old, &arguments, &real, bounds));
    let output = match result {
        Some(result) if is_mask => result.min(&real),
        Some(result) => result,
        None => real,
    };
    tape.output(if is_mask { "mask" } else { "score" }, &output);
    builder.finish()
}

/// The inputs that the program has, or would have.
fn arguments(builder: &Builder, old: Option<&Graph>, extras: &[Type]) -> Vec<Tensor> {
    let tape = builder.tape();
    if let Some(old) = old {
        return old
            .inputs()
            .map(|(name, id)| tape.input(name, old.ty(id).dtype, &old.ty(id).shape))
            .collect();
    }
    let arguments = Attention::ARGUMENTS.map(|(name, dtype)| tape.input(name, dtype, Vec::<Dim>::new()));
    let extra = |(i, ty): (usize, &Type)| tape.input(&format!("extra{i}"), ty.dtype, &ty.shape);
    arguments.into_iter().chain(extras.iter().enumerate().map(extra)).collect()
}

/// Whether a place is real along one dimension.
fn within(builder: &Builder, bound: &Bound, arguments: &[Tensor], taken: &[&str]) -> Tensor {
    let mut name = format!("real.{}", Attention::ARGUMENTS[bound.argument].0);
    while taken.contains(&name.as_str()) {
        name.push('\'');
    }
    let ty = bound.extra.ty();
    let extra = builder.tape().input(&name, ty.dtype, &ty.shape);
    let place = &arguments[bound.argument];
    if ty.rank() == 0 { place.less(&extra) } else { extra.gather(place) }
}

/// The program's operations; what could fail at a place that is not real is given something harmless there.
fn copied(builder: &Builder, old: &Graph, arguments: &[Tensor], real: &Tensor, bounds: &[Bound]) -> Tensor {
    let places = per_place(old);
    let mut inputs = arguments.iter();
    let score = old.inputs().next().map(|(_, id)| id);
    let uses_score = old.nodes().iter().any(|node| node.inputs.iter().any(|input| Some(*input) == score))
        || old.outputs().iter().any(|(_, id)| Some(*id) == score);
    let step = |id: Id, node: &Node, mut parts: Vec<Tensor>| -> Result<Tensor, Infallible> {
        if places[id.0 as usize] {
            harmless(old, id, &mut parts, real, bounds);
        }
        let given = if let Op::Input { .. } = node.op { inputs.next() } else { None };
        Ok(match given {
            Some(first) if Some(id) == score && uses_score => real.select(first, &first.like(0.0)),
            Some(first) => first.clone(),
            None => {
                let parts: Vec<&Tensor> = parts.iter().collect();
                builder.tape().apply(node.op.clone(), &parts, node.chosen_type())
            }
        })
    };
    let Ok(place) = old.fold(step);
    old.outputs().first().map_or_else(|| real.clone(), |(_, id)| place[id.0 as usize].clone())
}

/// An index in the table, and a divisor that is not 0.
fn harmless(old: &Graph, id: Id, parts: &mut [Tensor], real: &Tensor, bounds: &[Bound]) {
    let node = old.node(id);
    let fits = |bound: &Bound| {
        let argument = old.inputs().nth(bound.argument).map(|(_, id)| id);
        argument == node.inputs.get(1).copied() && old.ty(node.inputs[0]).shape.first() == Some(&bound.size)
    };
    match node.op {
        Op::Gather if !bounds.iter().any(fits) => parts[1] = real.select(&parts[1], &parts[1].like(0.0)),
        Op::Binary(Binary::Div) if node.ty.dtype == Dtype::I32 => {
            parts[1] = real.select(&parts[1], &parts[1].like(1.0));
        }
        Op::Gather | Op::Binary(_) => {}
        Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } | Op::Dequantize { .. } => {}
        Op::Cast | Op::Detach | Op::Unary(_) | Op::Compare(_) | Op::Select => {}
        Op::Reduce(..) | Op::Matmul | Op::ScatterAdd | Op::Concat { .. } => {}
        Op::Reshape | Op::Transpose { .. } | Op::Broadcast | Op::Slice { .. } => {}
        Op::Attention(_) | Op::AttentionGrad { .. } | Op::AttentionLse(_) => {}
        Op::AttentionLseGrad { .. } | Op::RandomMask { .. } | Op::Collective { .. } => {}
    }
}
