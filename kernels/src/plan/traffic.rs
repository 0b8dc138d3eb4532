//! The bytes that a step moves, as its views tell: each element that it touches counts once, whatever caches do. What a
//! gather touches depends on its indices; it counts as one element a lane, and no more than there are.

use super::{Attention, Product, Step, View};
use crate::tile::{Element, Index, Op, Program};

impl Step {
    /// Bytes read, and bytes written, of a step that passed its plan's check.
    pub fn traffic(&self) -> (u64, u64) {
        let (read, written) = match self {
            Step::Pass { program, space, inputs, .. } => of_pass(program, space, inputs),
            Step::Product(product) => of_product(product),
            Step::Attention { attention, lse, .. } => {
                let lse = lse.as_ref().map_or(0, |_| floats(&attention.space()[..3]));
                (of_attention(attention), sum([elements(&attention.output_shape(), attention.element), lse]))
            }
            Step::AttentionGrad(grad) => {
                let of = &grad.attention;
                let output = elements(&of.output_shape(), of.element);
                let extra = [output, output, floats(&of.space()[..3])]; // O, its gradient, L
                let shapes = [of.q_shape(), of.k_shape(), of.v_shape()];
                let wrt = [&grad.wrt_q, &grad.wrt_k, &grad.wrt_v].into_iter().zip(shapes);
                let written =
                    wrt.map(|(view, shape)| view.as_ref().map_or(0, |_| elements(&shape, of.element)));
                (sum(extra.into_iter().chain([of_attention(of)])), sum(written))
            }
            Step::Scatter { count, width, table, .. } => {
                (sum([floats(&[*count, *width]), floats(&[*count])]), floats(&[*table, *width]))
            }
            Step::Start(start) => start.bytes(),
            Step::Wait { .. } => (0, 0),
            Step::Call { what, .. } => {
                (sum(what.inputs().iter().map(|part| what.input_bytes(*part))), what.output_bytes())
            }
        };
        (read as u64, written as u64)
    }
}

/// Bytes of a shape of f32.
fn floats(shape: &[usize]) -> usize {
    elements(shape, Element::F32)
}

/// Bytes of a shape.
fn elements(shape: &[usize], element: Element) -> usize {
    count(shape.iter().copied()).saturating_mul(element.bytes())
}

/// A product that stays at the largest number. A sound step has such a size only along dimensions that repeat elements.
fn count(sizes: impl Iterator<Item = usize>) -> usize {
    sizes.fold(1, usize::saturating_mul)
}

fn sum(bytes: impl IntoIterator<Item = usize>) -> usize {
    bytes.into_iter().fold(0, usize::saturating_add)
}

/// Bytes of the elements that a view has over a space, those that it repeats once.
fn touched(view: &View, space: &[usize], element: Element) -> usize {
    let sizes = space.iter().zip(&view.strides);
    let distinct = sizes.map(|(size, stride)| if *stride == 0 { 1.min(*size) } else { *size });
    count(distinct).saturating_mul(element.bytes())
}

fn of_pass(program: &Program, space: &[usize], inputs: &[View]) -> (usize, usize) {
    let lanes = count(space.iter().copied());
    let (mut read, mut written) = program.traffic(lanes); // of what is read lane by lane
    for op in &program.ops {
        let (input, bytes) = match *op {
            Op::Load { input, element, index: Index::View } => {
                (input, touched(&inputs[input], space, element))
            }
            Op::Gather { input, element, .. } => {
                (input, lanes.saturating_mul(element.bytes()).min(inputs[input].bytes))
            }
            _ => continue,
        };
        read[input] = read[input].max(bytes);
    }
    let rows = lanes / space.last().copied().unwrap_or(1).max(1);
    for store in program.stores.iter().filter(|store| store.index == Index::View) {
        written[store.output] =
            (if store.per_row { rows } else { lanes }).saturating_mul(store.element.bytes());
    }
    (sum(read), sum(written))
}

fn of_product(Product { batch, m, n, k, a, b, elements, to, add, .. }: &Product) -> (usize, usize) {
    let space = |last: [usize; 2]| batch.iter().copied().chain(last).collect::<Vec<_>>();
    let result = touched(to, &space([*m, *n]), elements[2]);
    let a = touched(a, &space([*m, *k]), elements[0]);
    let b = touched(b, &space([*k, *n]), elements[1]);
    (sum([a, b, if *add { result } else { 0 }]), result)
}

/// What is read of q, k, v and of what the programs take beside the scores.
fn of_attention(attention: &Attention) -> usize {
    let own = [attention.q_shape(), attention.k_shape(), attention.v_shape()];
    let programs = attention.score.iter().chain(&attention.mask);
    let extras = attention.extras.iter().enumerate().map(|(number, view)| {
        let reads = |op: &Op| {
            Program::reads(op).filter(|(input, _)| *input == number + 1).map(|(_, element)| element)
        };
        let element = programs.clone().flat_map(|program| &program.ops).find_map(reads);
        element.map_or(0, |element| touched(view, &attention.space(), element).min(view.bytes))
    });
    sum(own.iter().map(|shape| elements(shape, attention.element)).chain(extras))
}
