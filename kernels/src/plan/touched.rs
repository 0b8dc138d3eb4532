//! Which memory a step touches: what must not overlap with an operation between ranks that is in flight, and what
//! decides which steps may run side by side.
//!
//! A place is everything from the first element of a view to its last one. What a program finds by its own indices -
//! lane by lane, in a table, by a gather - may be anywhere in the memory that it is given.

use std::ops::Range;

use super::{Attention, Memory, Step, View};
use crate::tile::{Index, Op, Program};

/// Elements somewhere in memory, and whether a step writes them.
pub(super) struct Touched {
    view: View,
    space: Vec<usize>,
    element_bytes: usize,
    /// Whether it writes them; else it reads them.
    pub(super) is_written: bool,
}

impl Touched {
    pub(super) fn new(view: &View, space: &[usize], element_bytes: usize, is_written: bool) -> Self {
        Self { view: view.clone(), space: space.to_vec(), element_bytes, is_written }
    }

    /// Everything that belongs to a view.
    fn all(view: &View, is_written: bool) -> Self {
        let (view, space) = view.all();
        Self { view, space: space.to_vec(), element_bytes: 1, is_written }
    }

    /// The memory that it is in.
    pub(super) fn memory(&self) -> Memory {
        self.view.memory
    }

    /// Its bytes, counted in its memory: all of the arena is one.
    pub(super) fn bytes(&self) -> Range<usize> {
        self.view.range(&self.space, self.element_bytes).unwrap_or(0..usize::MAX)
    }

    /// Whether two places have a byte in common.
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.view.meets(&self.space, self.element_bytes, &other.view, &other.space, other.element_bytes)
    }
}

impl Step {
    /// The places that it touches, of a step that passed its own check.
    pub(super) fn touched(&self) -> Vec<Touched> {
        match self {
            Step::Pass { program, space, inputs, outputs } => of_pass(program, space, inputs, outputs),
            Step::Product(product) => {
                let space = |last: [usize; 2]| product.batch.iter().copied().chain(last).collect::<Vec<_>>();
                let [a, b, to] = product.elements.map(crate::tile::Element::bytes);
                vec![
                    Touched::new(&product.a, &space([product.m, product.k]), a, false),
                    Touched::new(&product.b, &space([product.k, product.n]), b, false),
                    Touched::new(&product.to, &space([product.m, product.n]), to, true),
                ]
            }
            Step::Attention { attention, output, lse } => {
                let (shape, bytes) = (attention.output_shape(), attention.element.bytes());
                let lse = lse.iter().map(|lse| Touched::new(lse, &shape[..3], 4, true));
                let written = [Touched::new(output, &shape, bytes, true)];
                of_attention(attention).into_iter().chain(written).chain(lse).collect()
            }
            Step::AttentionGrad(grad) => {
                let of = &grad.attention;
                let (shape, bytes) = (of.output_shape(), of.element.bytes());
                let read = [
                    Touched::new(&grad.output, &shape, bytes, false),
                    Touched::new(&grad.grad, &shape, bytes, false),
                    Touched::new(&grad.lse, &shape[..3], 4, false),
                ];
                let shapes = [of.q_shape(), of.k_shape(), of.v_shape()];
                let wrt = [&grad.wrt_q, &grad.wrt_k, &grad.wrt_v].into_iter().zip(shapes);
                let wrt =
                    wrt.filter_map(|(view, shape)| Some(Touched::new(view.as_ref()?, &shape, bytes, true)));
                of_attention(of).into_iter().chain(read).chain(wrt).collect()
            }
            Step::Scatter { rows, index, to, .. } => {
                vec![Touched::all(rows, false), Touched::all(index, false), Touched::all(to, true)]
            }
            Step::Call { inputs, output, .. } => {
                let read = inputs.iter().map(|view| Touched::all(view, false));
                read.chain([Touched::all(output, true)]).collect()
            }
            Step::Start(start) => start.touched(),
            Step::Wait { .. } => vec![],
        }
    }
}

fn of_pass(program: &Program, space: &[usize], inputs: &[View], outputs: &[View]) -> Vec<Touched> {
    let read = program.ops.iter().filter_map(|op| match *op {
        Op::Load { input, element, index: Index::View } => {
            Some(Touched::new(&inputs[input], space, element.bytes(), false))
        }
        _ => Program::reads(op).map(|(input, _)| Touched::all(&inputs[input], false)),
    });
    let written = program.stores.iter().map(|store| match store.index {
        Index::View => Touched::new(&outputs[store.output], space, store.element.bytes(), true),
        Index::Lane | Index::Block(_) | Index::First => Touched::all(&outputs[store.output], true),
    });
    read.chain(written).collect()
}

/// What is read of q, k, v and of what the programs take beside the scores.
fn of_attention(attention: &Attention) -> Vec<Touched> {
    let tensors = [
        (&attention.q, attention.q_shape()),
        (&attention.k, attention.k_shape()),
        (&attention.v, attention.v_shape()),
    ];
    let bytes = attention.element.bytes();
    let read = tensors.into_iter().map(|(view, shape)| Touched::new(view, &shape, bytes, false));
    read.chain(attention.extras.iter().map(|view| Touched::all(view, false))).collect()
}
