//! (B) `fsdp`: QLoRA over many ranks, with the loss of one.

use challenges::fsdp::{Activations, Fsdp, Gradient, Host, LayerBytes};
use reference::fsdp::{Cut, Parameter, Placement, Shards};
use reference::graph::{Dtype, Group, Tape, Tensor, Type};
use reference::schedule::{self, Kind, Rule, Schedule, Shape, Workload};

/// The attempt.
pub struct Solution;

impl Fsdp for Solution {
    // ANCHOR: fsdp-step-1
    // why: a rank has to decode what it holds without asking anybody, so it begins where a row and a block begin. All
    // shards are equally long, as a gather asks for it; the last ranks have less, or nothing, and pad it. A second-level
    // scale stands for 256 blocks, and where two ranks share some of them, both hold it: 4 bytes.
    // step B.1: cut a parameter's rows at whole blocks, and each of its parts where those rows need it
    fn place(&self, parameter: &Parameter, ranks: usize) -> Placement {
        let fewest = parameter.fewest_rows().max(1);
        let share = parameter.rows().div_ceil(fewest).div_ceil(ranks) * fewest * parameter.row();
        let end = parameter.elements();
        let held = |rank: usize| (rank * share).min(end)..((rank + 1) * share).min(end);
        let parts = parameter.parts().into_iter().map(|part| {
            if part.covers.is_none() {
                return Shards::replicated(part.elements(), ranks);
            }
            let ranges: Vec<_> = (0..ranks).map(|rank| part.standing_for(&held(rank))).collect();
            let len = ranges.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
            Shards { ranges, len }
        });
        Placement { parts: parts.collect() }
    }
    // ANCHOR_END: fsdp-step-1

    // ANCHOR: fsdp-step-2
    // why: an all-gather sets the shards side by side, padding and all; the part is what remains without the padding, and
    // without what a rank before has already. It is gathered as it is stored: a weight in 4 bits is a quarter of the
    // bytes of the same weight in bf16.
    // step B.2: gather the shards, and take the whole out of them
    fn gather(&self, shard: &Tensor, shards: &Shards, group: &Group) -> Tensor {
        if shards.is_replicated() {
            return shard.clone();
        }
        let all = shard.all_gather(0, group); // (ranks * len)
        let pieces = shards.pieces();
        let pieces: Vec<Tensor> =
            pieces.iter().map(|piece| all.slice(0, piece.start as i64, piece.end as i64)).collect();
        match &pieces[..] {
            [whole] => whole.clone(),
            pieces => shard.tape().concat(&pieces.iter().collect::<Vec<_>>(), 0),
        }
    }
    // ANCHOR_END: fsdp-step-2

    // ANCHOR: fsdp-step-3
    // why: a part that stays is not gathered a second time, and every byte of room spares a byte of traffic, whichever part
    // it is. The backward runs from the end, so the last parts wait the shortest.
    // step B.3: from the last part to the first, keep each that still fits
    fn keep(&self, bytes: &[usize], room: usize) -> Vec<bool> {
        let mut left = room;
        let mut kept: Vec<bool> = vec![false; bytes.len()];
        for (kept, bytes) in kept.iter_mut().zip(bytes).rev() {
            *kept = *bytes <= left;
            left -= if *kept { *bytes } else { 0 };
        }
        kept
    }
    // ANCHOR_END: fsdp-step-3

    // ANCHOR: fsdp-step-4
    // why: each rank has the whole gradient of its own micro-batches and needs its own rows of everyone's sum: that is a
    // reduce-scatter, half of what an all-reduce sends. It is in f32, whatever the model computes in: a sum of many small
    // numbers is where 8 bits are lost.
    // step B.4: hand out the sum of everyone's gradients in shards
    fn reduce(&self, gradient: &Tensor, shards: &Shards, group: &Group) -> Tensor {
        let flat = gradient.reshape([reference::graph::product(gradient.shape())]);
        if shards.is_replicated() {
            return flat.all_reduce(group);
        }
        let elements: usize = shards.pieces().iter().map(ExactSizeIterator::len).sum();
        let padding = shards.len * shards.ranks() - elements;
        let zeros = || gradient.tape().constant(0.0, &Type::new(Dtype::F32, [padding]));
        let padded = if padding == 0 { flat } else { gradient.tape().concat(&[&flat, &zeros()], 0) };
        padded.reduce_scatter(0, group)
    }

    // why: a rank knows the squares of its own shards; the root is taken of everyone's sum. What several ranks have, each
    // counts in part. Every rank then has the same norm, to the bit, and shortens its shards by the same factor.
    // step B.4: the norm of a gradient in shards
    fn norm(&self, tape: &Tape, gradients: &[Gradient], groups: &[Group]) -> Tensor {
        let zero = tape.constant(0.0, &Type::scalar(Dtype::F32));
        let square = |gradient: &Gradient| {
            let square = (&gradient.shard * &gradient.shard).total();
            if gradient.copies == 1 { square } else { &square * (1.0 / gradient.copies as f64) }
        };
        let own = gradients.iter().map(square).fold(zero, |sum, square| &sum + &square);
        groups.iter().fold(own, |sum, group| sum.all_reduce(group)).sqrt()
    }
    // ANCHOR_END: fsdp-step-4

    // ANCHOR: fsdp-step-5
    // why: a gather that starts early is on its way while a layer computes, and its result is there besides that layer's
    // own parts: two at a time, which is what the room is for.
    // step B.5: start a gather early where it and the one before it fit together
    fn prefetch(&self, bytes: &[usize], room: usize) -> Vec<bool> {
        let fits = |pair: &[usize]| {
            pair.iter().try_fold(0_usize, |sum, n| sum.checked_add(*n)).is_some_and(|sum| sum <= room)
        };
        bytes.iter().take(1).map(|_| false).chain(bytes.windows(2).map(fits)).collect()
    }
    // ANCHOR_END: fsdp-step-5

    // ANCHOR: fsdp-step-6
    // why: x has to be somewhere, or there is nothing to begin from. If all of them have room, what is left keeps whole
    // layers, the last first, which wait the shortest and spare their recomputation. If they have not, the first ones,
    // which wait the longest, go to the host.
    // step B.6: keep every x, moving the first where there is no room; then whole layers, from the last
    fn activations(&self, layers: &[LayerBytes], room: usize, host: Host) -> Vec<Activations> {
        let mut used: usize = layers.iter().map(|layer| layer.x).sum();
        let mut all = vec![Activations { is_kept: false, is_on_host: false }; layers.len()];
        for (own, layer) in all.iter_mut().zip(layers) {
            if used > room && host == Host::Used {
                own.is_on_host = true;
                used -= layer.x;
            }
        }
        for (own, layer) in all.iter_mut().zip(layers).rev().filter(|(own, _)| !own.is_on_host) {
            own.is_kept = used.saturating_add(layer.kept) <= room;
            used += if own.is_kept { layer.kept } else { 0 };
        }
        all
    }
    // ANCHOR_END: fsdp-step-6

    // ANCHOR: fsdp-step-7
    // why: the outputs of q, k, v, gate and up are cut, so that a rank has whole heads and a part of the MLP's width; o and
    // down then read what the rank has, which cuts their inputs. Between the two nobody is asked. Of an adapter's pair the
    // one that touches what is cut is cut with it.
    // step B.7: by which dimension each parameter of a layer is cut
    fn cut(&self, parameter: &str) -> Cut {
        let is_of =
            |modules: &[&str]| modules.iter().any(|module| parameter.contains(&format!(".{module}.")));
        let is_column = is_of(&["q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"]);
        let is_row = is_of(&["o_proj", "down_proj"]);
        match (is_column, is_row) {
            (true, _) if !parameter.contains(".lora_A.") => Cut::Rows,
            (_, true) if !parameter.contains(".lora_B.") => Cut::Columns,
            _ => Cut::Whole,
        }
    }

    // why: a rank's part of a row-parallel product is a part of every output's sum, its adapter's part as well: one sum of
    // both is enough. The gradient of that sum is the sum of the gradients, so backward needs nothing of its own.
    // step B.7: add up what the ranks' inputs make
    fn join(&self, module: &str, y: &Tensor, group: &Group) -> Tensor {
        let is_row = ["self_attn.o_proj", "mlp.down_proj"].contains(&module);
        if is_row { y.all_reduce(group) } else { y.clone() }
    }

    // why: what is cut has its gradient where it is. What everyone has is used by each rank for its own outputs or inputs,
    // and its gradient is what all of these uses make together.
    // step B.7: the gradient of what everyone has
    fn total(&self, gradient: &Tensor, cut: Cut, group: &Group) -> Tensor {
        match cut {
            Cut::Whole => gradient.all_reduce(group),
            Cut::Rows | Cut::Columns => gradient.clone(),
        }
    }
    // ANCHOR_END: fsdp-step-7

    // ANCHOR: fsdp-step-8
    // why: W is next to nothing where only adapters are trained, so it fills no bubble. R needs its own F alone, and D
    // nothing at all: both can be done while a rank waits for a gradient. W is put off for as long as there is other work,
    // or until the cap needs its room. F runs as far ahead of B as in 1F1B, where rank r has p - r micro-batches between
    // them; or, if that is more, as many as the slowest stage does while a micro-batch goes down from the rank to the last
    // stage and its gradient comes back, and one more where messages take time.
    //
    // With equal stages, no latency and no cap that reaches the bound, (p - 1)(F + B) + m (F + R + B) + W, for every p up
    // to 8 and m up to 32 that was tried; 1F1B takes (p - 1 + m)(F + R + B + W). p = 4, m = 8, F = R = B = 1, W = 0.1:
    // 30.1 against 34.1, a bubble of 17.61 % against 27.27 %.
    // step B.8: of what can begin first, do B before R before F before W
    fn schedule(&self, shape: Shape, workload: &Workload) -> Result<Schedule, schedule::Error> {
        const SAME: f64 = 1e-9; // times this near are sums of the same numbers in another order
        workload.check(shape)?;
        let preference = [Kind::Backward, Kind::Recompute, Kind::Forward, Kind::Weight];
        let time = |kinds: &[Kind], stage: usize| -> f64 {
            let asked = kinds.iter().filter(|kind| workload.asks(**kind, stage));
            asked.map(|kind| workload.time(*kind, stage)).sum()
        };
        let stages = 0..shape.stages();
        let slowest = stages.clone().map(|stage| time(&preference, stage)).fold(0.0, f64::max);
        let spare = usize::from(workload.latency > 0.0);
        let mut trip = time(&[Kind::Recompute], shape.stages() - 1);
        let mut ahead = vec![0; shape.stages()];
        for stage in stages.rev() {
            trip += time(&[Kind::Forward, Kind::Backward], stage);
            let needed = (trip / slowest - SAME).ceil() as usize;
            ahead[stage] = needed.saturating_add(spare).max(shape.ranks() - stage);
            trip += 2.0 * workload.latency;
        }
        schedule::listed(shape, workload, &Rule { preference, ahead })
    }
    // ANCHOR_END: fsdp-step-8
}
