//! A cache of keys and values, and what new tokens have to do with it: see [`decode`](super::decode).

use super::Model;
use crate::graph::{Attention, Dim, Dtype, Tape, Tensor, Type, programs};

/// The names of the caches of a layer, `model.layers.0`; keys first.
pub(super) fn caches(layer: &str) -> [String; 2] {
    ["keys", "values"].map(|what| format!("{layer}.self_attn.{what}"))
}

/// What new tokens have to do with a cache.
pub(super) struct Cache {
    slots: Dim,
    /// Tokens that are in the cache, i32 ().
    start: Tensor,
    /// The last new token's number, i32 ().
    last: Tensor,
    /// The position of every new token, i32 (1, T).
    pub positions: Tensor,
    /// The new token that each slot is written with, i32 (C); one of them where it is not written.
    index: Tensor,
    /// Whether a slot is written, u8 (C, 1).
    is_written: Tensor,
}

impl Cache {
    /// The arithmetic that all layers share.
    pub fn write(model: &Model) -> Self {
        let (tape, [_, length]) = (model.tape(), model.batch());
        let slots = Dim::from(model.spec().config.positions);
        tape.within("cache", || {
            let start = tape.input("start", Dtype::I32, [] as [Dim; 0]);
            let count = tape.constant(1.0, &Type::new(Dtype::I32, [&length])).total();
            let last = &count - 1.0;
            let slot = &tape.iota(std::slice::from_ref(&slots), 0) - &start; // (C)
            let is_written = slot.like(-1.0).less(&slot).min(&slot.less(&count));
            Self {
                positions: &tape.iota(&[1.into(), length], 1) + &start,
                index: slot.max(&slot.like(0.0)).min(&last),
                is_written: is_written.reshape([slots.clone(), 1.into()]),
                slots,
                start,
                last,
            }
        })
    }

    /// A cache with the rows (1, T, W) of the new tokens: (1, C, W). It is an output, too.
    pub fn extend(&self, tape: &Tape, name: &str, new: &Tensor) -> Tensor {
        let [length, width] = [new.dim(1), new.dim(2)];
        let old = tape.input(name, new.ty().dtype, [&self.slots, &width]);
        let taken = new.reshape([&length, &width]).gather(&self.index); // (C, W)
        let all = self.is_written.select(&taken, &old);
        tape.output(name, &all);
        all.reshape([&1.into(), &self.slots, &width])
    }

    /// Attention of the new tokens to those in the cache and to themselves, and the extra that its mask reads.
    pub fn attention(&self, scale: f64) -> (Attention, Vec<&Tensor>) {
        let mask = programs::mask("cached", &[self.start.ty().clone()], |at| {
            at.key.less(&(&(&at.query + &at.extras[0]) + 1.0))
        });
        let mask = Some(mask.expect("scalars fit each other"));
        (Attention { mask, ..Attention::plain(scale) }, vec![&self.start])
    }

    /// The last new token's row of (1, T, H): (1, 1, H).
    pub fn last_row(&self, x: &Tensor) -> Tensor {
        let width = x.dim(2);
        let row = x.reshape([x.dim(1), width.clone()]).gather(&self.last.reshape([Dim::fixed(1)]));
        row.reshape([1.into(), 1.into(), width])
    }
}
