//! Attention whose score and mask are programs: one launch, and no matrix of probabilities in memory.
//!
//! The user gives two small graphs, from a score and its place to a score and to a condition. Written over all of
//! (batch, head, query, key) they are ordinary graphs, so the kernel writer makes tile programs of them like of
//! anything else; the machine runs these on one block of scores at a time. The derivative of the score program is not
//! the user's to write: [`reference::grad`] makes a third graph of the first.
//!
//! A program that needs more than its score, its place and tables - one that first computes a table from an extra - has
//! no such form; then, and for the gradient of an extra, attention is computed by its definition, by products and a
//! softmax of compiled code.
//!
//! Source: Dong et al., "Flex Attention" (2024).

use std::collections::BTreeMap;

use kernels::plan::contiguous;
use kernels::tile::{Op as TileOp, Program};
use reference::graph::{Attention, Dtype, Graph, Id, Op, Type};

use crate::contract::Compile;
use crate::fuse::emit::{self, Layout, Root};
use crate::ir::sized::Sized;

/// The programs of an attention, and what else they read: `Layout::buffer` of an extra is its number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flex {
    /// From a score (input 0) to a score.
    pub score: Option<Program>,
    /// From a new score (input 0) to a condition.
    pub mask: Option<Program>,
    /// From a score (input 0) and the gradient of the new one (input 1) to its own.
    pub slope: Option<Program>,
    /// Over (batch, head, query, key); the first one is input 1 of `score` and `mask`, and input 2 of `slope`.
    pub extras: Vec<Layout>,
}

/// The attention of a node, or the one that it differentiates.
pub fn of(op: &Op) -> Option<&Attention> {
    match op {
        Op::Attention(attention) | Op::AttentionGrad { attention, .. } => Some(attention),
        Op::AttentionLse(attention) | Op::AttentionLseGrad { attention, .. } => Some(attention),
        Op::RandomMask { .. } | Op::Collective { .. } => None,
        Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } | Op::Dequantize { .. } => None,
        Op::Cast | Op::Detach | Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select => None,
        Op::Reduce(..) | Op::Matmul | Op::Gather | Op::ScatterAdd | Op::Concat { .. } => None,
        Op::Reshape | Op::Transpose { .. } | Op::Broadcast | Op::Slice { .. } => None,
    }
}

/// Whether two nodes are, or differentiate, the same attention of whatever they read; constants to the bit.
pub fn is_of_same(a: &Op, b: &Op) -> bool {
    of(a).zip(of(b)).is_some_and(|(a, b)| a.is(b))
}

/// The programs of an attention or of the one that a gradient is of. Nothing if one of them has no such form.
pub fn flex(passes: &dyn Compile, sized: &Sized, id: Id) -> Option<Flex> {
    let attention = of(&sized.graph.node(id).op)?;
    let of = |(number, input): (usize, &Id)| {
        let ty = sized.graph.ty(*input);
        if number < 3 { ty.with(Dtype::F32) } else { ty.clone() } // programs see scores, which are f32
    };
    let types: Vec<Type> = inputs(sized, id).iter().enumerate().map(of).collect();
    let writer = Writer { passes, sized, types: &types };
    let mut flex = Flex::default();
    let mut write = |program: Option<&Graph>, derived: bool| match program {
        Some(program) => Some(Some(writer.program(&mut flex.extras, program, derived)?)),
        None => Some(None),
    };
    let score = write(attention.score.as_ref(), false)?;
    let mask = write(attention.mask.as_ref(), false)?;
    let slope = write(attention.score.as_ref(), true)?;
    Some(Flex { score, mask, slope, ..flex })
}

/// q, k, v and the extras of an attention or of the one that a gradient is of.
pub fn inputs<'a>(sized: &Sized<'a>, id: Id) -> &'a [Id] {
    let node = sized.graph.node(id);
    let differentiates = matches!(node.op, Op::AttentionGrad { .. } | Op::AttentionLseGrad { .. });
    let gradient = usize::from(differentiates);
    &node.inputs[..node.inputs.len() - gradient]
}

/// Writes the programs of one attention.
struct Writer<'a> {
    passes: &'a dyn Compile,
    sized: &'a Sized<'a>,
    types: &'a [Type], // of q, k, v and the extras
}

impl Writer<'_> {
    /// A program, or its slope, as a tile program; the extras that it reads are added to `extras`.
    fn program(&self, extras: &mut Vec<Layout>, program: &Graph, slope: bool) -> Option<Program> {
        let mut known = self.sized.graph.known().clone();
        known.extend(program.known().iter().map(|(symbol, facts)| (symbol.clone(), *facts)));
        let graph = self.passes.flex(program, self.types, &known, slope).ok()?;
        let sized = Sized::new(&graph, self.sized.sizes()).ok()?;
        let buffers: BTreeMap<Id, Layout> = graph
            .inputs()
            .enumerate()
            .map(|(buffer, (_, id))| (id, Layout { buffer, offset: 0, strides: contiguous(sized.shape(id)) }))
            .collect();
        let root = graph.outputs().first()?.1;
        let space = sized.shape(root).to_vec();
        let layout = Layout { buffer: buffers.len(), offset: 0, strides: contiguous(&space) };
        let kernel = emit::kernel(self.passes, &sized, &buffers, &[Root { node: root, layout }]).ok()?;
        let own = 1 + usize::from(slope);
        let numbers = kernel.inputs.iter().map(|input| number(input, own, &kernel.outputs[0], extras));
        let numbers: Vec<usize> = numbers.collect::<Option<_>>()?;
        let kept = kernel.space == space && !kernel.program.needs_rows();
        kept.then(|| renumbered(kernel.program, &numbers))
    }
}

/// The number of an input: the blocks are the first ones, and lie as the result does.
fn number(input: &Layout, own: usize, block: &Layout, extras: &mut Vec<Layout>) -> Option<usize> {
    if input.buffer < own {
        return (input.offset == 0 && input.strides == block.strides).then_some(input.buffer);
    }
    let extra = Layout { buffer: input.buffer - own, ..input.clone() };
    let known = extras.iter().position(|one| *one == extra);
    Some(
        own + known.unwrap_or_else(|| {
            extras.push(extra);
            extras.len() - 1
        }),
    )
}

/// A program with other numbers for its inputs.
fn renumbered(mut program: Program, numbers: &[usize]) -> Program {
    for op in &mut program.ops {
        if let TileOp::Load { input, .. } | TileOp::Gather { input, .. } = op {
            *input = numbers[*input];
        }
    }
    program.stores.iter_mut().for_each(|store| store.per_row = false);
    program
}
