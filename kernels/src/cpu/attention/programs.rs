//! The programs of an attention as they run on a block: the score's alone where every query sees every key, the score's
//! and the mask's in one where some do not.

use crate::plan::{Attention, AttentionGrad, View};
use crate::tile::{Element, Index, Op, Program, Schedule, Store, Value};

/// A program with its schedule.
#[derive(Debug)]
pub(crate) struct Scheduled {
    pub program: Program,
    pub schedule: Schedule,
}

/// An attention's programs, made when its plan is prepared.
#[derive(Debug)]
pub(crate) struct Programs {
    /// From a score to a score.
    pub score: Option<Scheduled>,
    /// From a score to a score, -inf where the mask forbids it.
    pub masked: Option<Scheduled>,
    /// The mask alone, i32, if it does not depend on the score.
    pub mask: Option<Scheduled>,
    /// From a score and the gradient of the new one to the gradient of the score.
    pub slope: Option<Scheduled>,
    /// Whether the mask differs between sequences, and between heads.
    pub mask_varies: [bool; 2],
}

impl Scheduled {
    fn of(program: Program) -> Self {
        Self { schedule: Schedule::of(&program, &[]), program }
    }
}

impl Programs {
    /// The programs of an attention that passed its check.
    pub fn of(attention: &Attention) -> Self {
        let (score, mask) = (attention.score.as_deref(), attention.mask.as_deref());
        let alone = mask.filter(|mask| !mask.ops.iter().any(reads_score));
        Self {
            score: score.cloned().map(Scheduled::of),
            masked: mask.map(|mask| Scheduled::of(masked(score, mask))),
            mask: alone.map(|mask| Scheduled::of(whole(mask))),
            slope: None,
            mask_varies: [0, 1].map(|dim| mask.is_some_and(|mask| varies(mask, &attention.extras, dim))),
        }
    }

    /// The same for its gradients.
    pub fn of_grad(grad: &AttentionGrad) -> Self {
        let slope = grad.slope.as_deref().cloned().map(Scheduled::of);
        Self { slope, ..Self::of(&grad.attention) }
    }
}

fn reads_score(op: &Op) -> bool {
    matches!(op, Op::Load { input: 0, .. })
}

/// A mask that stores i32.
fn whole(mask: &Program) -> Program {
    let mut mask = mask.clone();
    mask.stores.iter_mut().for_each(|store| store.element = Element::I32);
    mask
}

/// Whether a mask's values depend on the index along a dimension.
fn varies(mask: &Program, extras: &[View], dim: usize) -> bool {
    mask.ops.iter().any(|op| match *op {
        Op::Coordinate(one) => one == dim,
        Op::Load { input, index: Index::View, .. } if input > 0 => extras[input - 1].strides[dim] != 0,
        _ => false, // the score, which such a mask does not read; one element for all; made of other values
    })
}

/// The score's program, and -inf where the mask gives 0 for its result.
fn masked(score: Option<&Program>, mask: &Program) -> Program {
    let load = || vec![Op::Load { input: 0, element: Element::F32, index: Index::View }];
    let mut ops = score.map_or_else(load, |score| score.ops.clone());
    let scored = score.map_or(0, |score| score.stores[0].value);
    let mut at: Vec<Value> = Vec::new(); // where each value of the mask is now
    for op in &mask.ops {
        if reads_score(op) {
            at.push(scored);
        } else {
            ops.push(op.on(|value| at[value]));
            at.push(ops.len() - 1);
        }
    }
    let value = ops.len() + 1;
    ops.extend([Op::Float(f32::NEG_INFINITY), Op::Select(at[mask.stores[0].value], scored, value - 1)]);
    let store = Store { output: 0, element: Element::F32, index: Index::View, once: false, value };
    Program { name: mask.name.clone(), ops, stores: vec![store] }
}
