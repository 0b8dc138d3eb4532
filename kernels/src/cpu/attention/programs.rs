//! The programs of an attention as they run on a block: the score's alone where every query sees every key, the score's
//! and the mask's in one where some do not.

use std::sync::Arc;

use super::super::engine::{Binding, Launch, aligned_bytes};
use super::{block_sizes, bounds};
use crate::plan::{Attention, AttentionGrad, View};
use crate::tile::{Element, Index, Op, Program, Schedule, Store, Value};

/// A program, ready for each size that a block can have.
#[derive(Debug)]
pub(crate) struct Scheduled {
    launches: [Launch; 4], // whether the block is the last along the queries, and along the keys
    pub own: usize,        // inputs that are blocks
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
    /// A program whose first inputs are blocks; number `in_place` of them may be the one that it writes.
    fn of(program: Program, attention: &Attention, own: usize, in_place: usize) -> Self {
        let schedule = Arc::new(Schedule::of(&program, &[]));
        let program = Arc::new(program);
        let launch = |last: usize| {
            let [queries, keys] = block_sizes(attention, [last / 2 == 1, last % 2 == 1]);
            let block = || vec![queries * keys, queries * keys, keys, 1];
            let extras = attention.extras.iter().map(|view| view.strides.clone());
            let inputs = (0..own).map(|_| block()).chain(extras).collect();
            let space = vec![1, 1, queries, keys];
            let strides = [inputs, vec![block()]];
            Launch::new(program.clone(), schedule.clone(), space, strides, |input| input == in_place)
        };
        Self { launches: [launch(0), launch(1), launch(2), launch(3)], own }
    }

    /// The program for a block that is the last along the queries, and along the keys, or is not.
    pub fn launch(&self, [of_queries, of_keys]: [bool; 2]) -> &Launch {
        &self.launches[usize::from(of_queries) * 2 + usize::from(of_keys)]
    }

    /// The program itself.
    pub fn program(&self) -> &Program {
        &self.launches[0].program
    }

    /// Bytes that a thread needs to run it on a block.
    fn bytes(&self, extras: usize) -> usize {
        let machine = self.launches.iter().map(Launch::machine_bytes).max().unwrap_or(0);
        aligned_bytes((self.own + extras) * size_of::<Binding>()).saturating_add(machine)
    }
}

impl Programs {
    /// The programs of an attention that passed its check.
    pub fn of(attention: &Attention) -> Self {
        let (score, mask) = (attention.score.as_deref(), attention.mask.as_deref());
        let alone = mask.filter(|mask| !mask.ops.iter().any(reads_score));
        let scheduled = |program| Scheduled::of(program, attention, 1, 0);
        Self {
            score: score.cloned().map(scheduled),
            masked: mask.map(|mask| scheduled(masked(score, mask))),
            mask: alone.map(|mask| scheduled(whole(mask))),
            slope: None,
            mask_varies: [0, 1].map(|dim| mask.is_some_and(|mask| varies(mask, &attention.extras, dim))),
        }
    }

    /// The same for its gradients.
    pub fn of_grad(grad: &AttentionGrad) -> Self {
        let slope = grad.slope.as_deref().cloned();
        let slope = slope.map(|slope| Scheduled::of(slope, &grad.attention, 2, 1));
        Self { slope, ..Self::of(&grad.attention) }
    }

    /// Bytes that a thread needs to run any of them on a block, given how many extras there are.
    pub fn bytes(&self, extras: usize) -> usize {
        let all = [&self.score, &self.masked, &self.mask, &self.slope];
        let run = all.into_iter().flatten().map(|program| program.bytes(extras)).max().unwrap_or(0);
        run.max(self.mask.as_ref().map_or(0, |mask| aligned_bytes(bounds::bytes(mask.program()))))
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
    let store = Store { output: 0, element: Element::F32, index: Index::View, per_row: false, value };
    Program { name: mask.name.clone(), ops, stores: vec![store] }
}
