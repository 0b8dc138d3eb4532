//! Which nodes one pass computes: a root joins a pass that is there, two passes unite, and a buffer that nothing needs
//! any more is dropped.
//!
//! A root that joins an earlier pass is computed earlier. What is computed again for the backward pass goes the other
//! way: it waits for a later pass that reads the same, and what reads it waits, too.

use std::collections::BTreeSet;

use reference::graph::{Class, Id};

use super::emit::{self, Kernel, Layout, Root};
use super::group::{FusionGroup, FusionGroups, Readers};
use super::{Fused, Fusion, LONG};
use crate::ir::scope;

/// Most results that one pass stores.
const OUTPUTS: usize = 8;

/// The part of the largest buffer's bytes up to which a pass's elements are few.
const SMALL_PART: usize = 32;

impl Fusion<'_> {
    /// Lets the latest pass compute this root that can, else the pass that it has alone.
    pub(super) fn join(&self, fused: &Fused, groups: &mut FusionGroups, root: &Root, alone: Kernel) {
        let earliest = groups.earliest(&alone);
        let anywhere = groups.anywhere(&alone);
        let latest = if self.unfused { earliest } else { groups.all.len() };
        let since = scope::since(self.sized.graph, &alone.nodes);
        for place in (earliest..latest).rev() {
            let FusionGroup::Pass(pass) = &groups.all[place] else { continue };
            if since.is_some_and(|since| pass.roots[0].node < since) {
                break; // what is computed again would be computed too early
            }
            if pass.roots.len() < OUTPUTS
                && helps(pass, &alone)
                && let Some(joined) = self.joined(fused, pass, std::slice::from_ref(root))
            {
                groups.replace(place, joined);
                return anywhere.into_iter().for_each(|free| groups.advance(free, place));
            }
        }
        if !self.beside(fused, groups, root, &alone) && !self.delay(fused, groups, root, &alone) {
            groups.push(FusionGroup::Pass(alone));
        }
    }

    /// Whether there is a reduction among nodes. Another pass may take a sum in another order, and what is computed again
    /// keeps its bits.
    fn has_reduction<'n>(&self, nodes: impl IntoIterator<Item = &'n Id>) -> bool {
        nodes.into_iter().any(|id| self.sized.graph.node(*id).op.class() == Class::Reduction)
    }

    /// Lets a pass do the work of an earlier one that reads the same and can wait for it; whether there is one. What
    /// reads the earlier one's results waits with it, if it is little and nothing here needs it: so a layer's
    /// activation is computed again by the pass that differentiates it, and the products that read it come after.
    fn delay(&self, fused: &Fused, groups: &mut FusionGroups, root: &Root, alone: &Kernel) -> bool {
        if self.unfused {
            return false;
        }
        for place in (0..groups.all.len()).rev() {
            let FusionGroup::Pass(pass) = &groups.all[place] else { continue };
            let is_free = pass.space == alone.space && pass.roots.len() < OUTPUTS;
            let is_remat = is_free && scope::since(self.sized.graph, &pass.nodes).is_some();
            let touches = |input: &&Layout| pass.inputs.iter().chain(&pass.outputs).any(|own| own == *input);
            let shares = || alone.inputs.iter().filter(touches).any(|input| is_of_each(input, pass));
            if !is_remat || !shares() || self.has_reduction(&pass.nodes) {
                continue;
            }
            let Some(waiting) = groups.waiting(place, alone) else { continue };
            if let Some(joined) = self.joined(fused, pass, std::slice::from_ref(root)) {
                groups.delay(&waiting, joined);
                return true;
            }
        }
        false
    }

    /// Lets another pass of the same shape do the work of a small one, to save a launch; whether there is one. Both
    /// read only what is given, so that the second may come as early as the first, or both write what nobody reads, so
    /// that the first may come as late as the second: the casts of adapters, and of their gradients.
    fn beside(&self, fused: &Fused, groups: &mut FusionGroups, root: &Root, alone: &Kernel) -> bool {
        let largest = fused.bytes.iter().max().copied().unwrap_or(0);
        let is_small = self.sized.elements(root.node) <= largest / SMALL_PART; // a byte at least each
        let is_late = |pass: &Kernel| pass.roots.iter().all(|root| self.is_read_by_none(root));
        let is_early = |pass: &Kernel| {
            let is_given = |input: &Layout| fused.given.contains_key(&input.buffer);
            !pass.roots.iter().any(|root| self.sized.is_output(root.node)) && pass.inputs.iter().all(is_given)
        };
        let is_remat = scope::since(self.sized.graph, &alone.nodes).is_some();
        let (late, early) = (is_late(alone), is_early(alone) && !is_remat);
        if self.unfused || !is_small || alone.inputs.is_empty() || !(late || early) {
            return false;
        }
        for place in (0..groups.all.len()).rev() {
            let FusionGroup::Pass(pass) = &groups.all[place] else { continue };
            let is_alike = pass.space == alone.space && pass.roots.len() < OUTPUTS && !pass.inputs.is_empty();
            if !is_alike || !(late && is_late(pass) || early && is_early(pass)) {
                continue;
            }
            if let Some(joined) = self.joined(fused, pass, std::slice::from_ref(root)) {
                let put = if late { FusionGroups::postpone } else { FusionGroups::replace };
                put(groups, place, joined);
                return true;
            }
        }
        false
    }

    /// Whether a root is an output that no node uses.
    fn is_read_by_none(&self, root: &Root) -> bool {
        self.sized.is_output(root.node) && self.sized.users(root.node).is_empty()
    }

    /// A pass that stores some roots more, if there is one and it is not too long.
    fn joined(&self, fused: &Fused, pass: &Kernel, more: &[Root]) -> Option<Kernel> {
        let mut roots = pass.roots.clone();
        roots.extend_from_slice(more);
        roots.sort_by_key(|root| root.node);
        let joined = emit::kernel(self.passes, self.sized, &fused.layouts, &roots).ok()?;
        let stores = |input: &Layout| joined.outputs.iter().any(|output| output.buffer == input.buffer);
        let fits = joined.program.ops.len() <= LONG && !joined.inputs.iter().any(stores);
        fits.then_some(joined)
    }

    /// Makes one pass of two, where the first one stores something for the second one alone; whether there were any.
    pub(super) fn unite(&self, fused: &Fused, groups: &mut FusionGroups) -> bool {
        let (before, mut place) = (groups.all.len(), 0);
        let mut readers = Readers::of(&groups.all);
        while place < groups.all.len() {
            match self.united(fused, groups, &readers, place) {
                Some((with, pass)) => {
                    groups.unite(with, place, pass);
                    readers = Readers::of(&groups.all);
                }
                None => place += 1,
            }
        }
        groups.all.len() < before
    }

    /// The pass that a pass waits for, if both can be one, and that one.
    fn united(
        &self,
        fused: &Fused,
        groups: &FusionGroups,
        readers: &Readers,
        place: usize,
    ) -> Option<(usize, Kernel)> {
        let FusionGroup::Pass(second) = &groups.all[place] else { return None };
        let with = groups.earliest(second);
        let FusionGroup::Pass(first) = &groups.all[with] else { return None };
        let private = |root: &Root| {
            let own = fused.layouts.get(&root.node) == Some(&root.layout) && !self.sized.is_output(root.node);
            let reads = second.inputs.iter().any(|input| input.buffer == root.layout.buffer);
            own && reads && readers.is_only(place, root.layout.buffer)
        };
        let since = scope::since(self.sized.graph, &second.nodes);
        let early = since.is_some_and(|since| first.roots[0].node < since);
        let few = first.roots.len() + second.roots.len() <= OUTPUTS;
        let helps = with < place && few && !early && first.roots.iter().any(private);
        Some((with, helps.then(|| self.joined(fused, first, &second.roots))??))
    }

    /// Takes away the buffers that no other part reads, and what goes nowhere.
    pub(super) fn drop_private(&self, fused: &mut Fused, groups: &mut FusionGroups) {
        let outputs: BTreeSet<Id> = self.sized.graph.outputs().iter().map(|(_, id)| *id).collect();
        let mut readers = Readers::of(&groups.all);
        for place in 0..groups.all.len() {
            let FusionGroup::Pass(pass) = &groups.all[place] else { continue };
            let private = |root: &Root| {
                let own = fused.layouts.get(&root.node) == Some(&root.layout);
                own && !outputs.contains(&root.node) && readers.is_only(place, root.layout.buffer)
            };
            let (gone, roots): (Vec<Root>, Vec<Root>) = pass.roots.iter().cloned().partition(private);
            if gone.is_empty() || roots.is_empty() {
                continue;
            }
            if let Some(less) = self.without(fused, gone, &roots) {
                readers.forget(place, &groups.all[place]);
                groups.all[place] = FusionGroup::Pass(less);
                readers.note(place, &groups.all[place]);
            }
        }
    }

    /// Takes away the buffers of what is computed again where every pass that reads one can compute it from what it
    /// reads anyway.
    pub(super) fn drop_repeated(&self, fused: &mut Fused, groups: &mut FusionGroups) {
        let mut readers = Readers::of(&groups.all);
        for place in 0..groups.all.len() {
            let FusionGroup::Pass(pass) = &groups.all[place] else { continue };
            let is_remat = |root: &&Root| {
                let own = fused.layouts.get(&root.node) == Some(&root.layout);
                own && scope::is_remat(self.sized.graph.node(root.node)) && !self.sized.is_output(root.node)
            };
            for root in pass.roots.iter().filter(is_remat).cloned().collect::<Vec<_>>() {
                let touch = readers.of_buffer(root.layout.buffer).chain([place]).collect();
                let Some(less) = self.without_buffer(fused, groups, &touch, &root) else { continue };
                fused.layouts.remove(&root.node);
                for (at, pass) in less {
                    groups.all[at] = FusionGroup::Pass(pass);
                }
                readers = Readers::of(&groups.all);
            }
        }
    }

    /// The passes at the places that touch a root's buffer without that buffer, if none of them reads anything more.
    fn without_buffer(
        &self,
        fused: &Fused,
        groups: &FusionGroups,
        touch: &BTreeSet<usize>,
        root: &Root,
    ) -> Option<Vec<(usize, Kernel)>> {
        let mut layouts = fused.layouts.clone();
        layouts.remove(&root.node);
        let less = |at: &usize| {
            let FusionGroup::Pass(old) = &groups.all[*at] else { return None };
            let roots: Vec<Root> = old.roots.iter().filter(|own| *own != root).cloned().collect();
            let new = emit::kernel(self.passes, self.sized, &layouts, &roots).ok()?;
            let is_less = new.inputs.iter().all(|input| old.inputs.contains(input));
            let is_same = !self.has_reduction(new.nodes.difference(&old.nodes));
            (!roots.is_empty() && is_less && is_same && new.program.ops.len() <= LONG).then_some((*at, new))
        };
        touch.iter().map(less).collect()
    }

    /// A pass for some roots without the buffers of others, which are gone then.
    fn without(&self, fused: &mut Fused, gone: Vec<Root>, roots: &[Root]) -> Option<Kernel> {
        for root in &gone {
            fused.layouts.remove(&root.node);
        }
        let less = emit::kernel(self.passes, self.sized, &fused.layouts, roots).ok();
        if less.is_none() {
            fused.layouts.extend(gone.into_iter().map(|root| (root.node, root.layout)));
        }
        less
    }
}

/// Whether a pass reads another element there in each of its lanes.
fn is_of_each(input: &Layout, pass: &Kernel) -> bool {
    pass.space.iter().zip(&input.strides).all(|(size, stride)| *size == 1 || *stride > 0)
}

/// Whether two passes have memory in common: what one stores or both read.
fn helps(kernel: &Kernel, alone: &Kernel) -> bool {
    let touched = |layout: &Layout| {
        kernel.outputs.iter().chain(&kernel.inputs).any(|other| other.buffer == layout.buffer)
    };
    alone.inputs.iter().chain(&alone.outputs).any(touched)
}
