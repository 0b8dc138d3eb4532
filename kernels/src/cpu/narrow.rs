//! Attention in f16 and bf16 on the CPU: its tensors are widened by passes before it, and its results rounded by passes
//! after it. The copies in f32 lie in memory that the plan has beside its arena, one step's after the other's.

use std::sync::Arc;

use crate::plan::{Attention, AttentionGrad, Memory, Step, View, contiguous};
use crate::tile::{Element, Index, Op, Program, Store};

/// A tensor and its copy, from one to the other.
pub(super) struct Cast {
    pub program: Arc<Program>,
    pub space: Vec<usize>,
    pub from: View,
    pub to: View,
}

/// A step in f32 that stands for a narrow one.
pub(super) struct Wide {
    pub before: Vec<Cast>,
    pub step: Step,
    pub after: Vec<Cast>,
    /// Bytes of the copies.
    pub bytes: usize,
}

/// Makes copies in a memory.
struct Copies {
    memory: Memory,
    element: Element,
    bytes: usize,
    floats: usize, // so far
    before: Vec<Cast>,
    after: Vec<Cast>,
}

/// The step in f32 of an attention, or of its gradients, that has another type, with its copies in `memory`. `None` of
/// any other step.
pub(super) fn widened(step: &Step, memory: Memory) -> Option<Wide> {
    let element = match step {
        Step::Attention { attention, .. } => attention.element,
        Step::AttentionGrad(grad) => grad.attention.element,
        _ => return None,
    };
    if element == Element::F32 {
        return None;
    }
    let bytes = copied_bytes(step);
    let mut copies = Copies { memory, element, bytes, floats: 0, before: Vec::new(), after: Vec::new() };
    let step = match step {
        Step::Attention { attention, output, lse } => Step::Attention {
            attention: Box::new(copies.attention(attention)),
            output: copies.written(output, &attention.output_shape()),
            lse: lse.clone(),
        },
        Step::AttentionGrad(grad) => Step::AttentionGrad(Box::new(copies.gradients(grad))),
        _ => return None,
    };
    let Copies { before, after, .. } = copies;
    Some(Wide { before, step, after, bytes })
}

/// Bytes of the copies: of all that a step reads, and of all that it may write.
fn copied_bytes(step: &Step) -> usize {
    let of = |attention: &Attention, times: usize| {
        let own = [attention.q_shape(), attention.k_shape(), attention.v_shape(), attention.output_shape()];
        own.iter().map(|shape| lines(shape) * times).sum::<usize>() * size_of::<f32>()
    };
    match step {
        Step::Attention { attention, .. } => of(attention, 1),
        Step::AttentionGrad(grad) => of(&grad.attention, 2),
        _ => 0,
    }
}

/// Elements of a shape, in whole cache lines of f32.
fn lines(shape: &[usize; 4]) -> usize {
    shape.iter().product::<usize>().next_multiple_of(16)
}

impl Copies {
    fn attention(&mut self, of: &Attention) -> Attention {
        let (q, k) = (self.read(&of.q, &of.q_shape()), self.read(&of.k, &of.k_shape()));
        let v = self.read(&of.v, &of.v_shape());
        Attention { element: Element::F32, q, k, v, ..of.clone() }
    }

    fn gradients(&mut self, of: &AttentionGrad) -> AttentionGrad {
        let attention = self.attention(&of.attention);
        let shape = attention.output_shape();
        let (output, grad) = (self.read(&of.output, &shape), self.read(&of.grad, &shape));
        let shapes = [attention.q_shape(), attention.k_shape(), attention.v_shape()];
        let mut written =
            |view: &Option<View>, shape: &[usize; 4]| view.as_ref().map(|view| self.written(view, shape));
        let wrt_q = written(&of.wrt_q, &shapes[0]);
        let (wrt_k, wrt_v) = (written(&of.wrt_k, &shapes[1]), written(&of.wrt_v, &shapes[2]));
        AttentionGrad { attention, output, grad, wrt_q, wrt_k, wrt_v, ..of.clone() }
    }

    /// A copy that is there before the step.
    fn read(&mut self, view: &View, shape: &[usize; 4]) -> View {
        let copy = self.copy(shape);
        self.before.extend(cast(view, self.element, &copy, Element::F32, shape));
        copy
    }

    /// A copy that goes back after the step.
    fn written(&mut self, view: &View, shape: &[usize; 4]) -> View {
        let copy = self.copy(shape);
        self.after.extend(cast(&copy, Element::F32, view, self.element, shape));
        copy
    }

    fn copy(&mut self, shape: &[usize; 4]) -> View {
        let offset = self.floats;
        self.floats += lines(shape);
        View { memory: self.memory, bytes: self.bytes, offset, strides: contiguous(shape) }
    }
}

/// Nothing, of a tensor without elements.
fn cast(from: &View, of_from: Element, to: &View, of_to: Element, shape: &[usize; 4]) -> Option<Cast> {
    if shape.contains(&0) {
        return None;
    }
    let ops = vec![Op::Load { input: 0, element: of_from, index: Index::View }];
    let store = Store { output: 0, element: of_to, index: Index::View, per_row: false, value: 0 };
    let program = Arc::new(Program { name: "cast".into(), ops, stores: vec![store] });
    Some(Cast { program, space: shape.to_vec(), from: from.clone(), to: to.clone() })
}
