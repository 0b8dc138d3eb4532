//! Computing again what is not worth keeping.
//!
//! What the backward pass reads of the forward pass lies in memory from the one to the other, most of it for most of
//! the step. Whatever can be computed from what lies there anyway need not lie there: it is computed again, right
//! before the backward pass first reads it. Two prices are paid for that:
//!
//! - *Cheap*: views, casts and operations on single elements, whose inputs are kept. Which ones is a minimum cut: the
//!   fewest bytes to keep between what cannot be computed again cheaply and what the backward pass reads
//!   ([`cut`]). Of a Llama's layer these are the norms' results and what lies between the MLP's projections.
//! - *A layer*: only its input is kept, and all of it that the backward pass needs is computed again, products,
//!   dequantisations and attention included: a third more work, and of all the layers one at a time in memory.
//!
//! What is forward and what is backward is not a matter of names: forward is what the graph's first output is computed
//! from, the loss; everything else comes after it. What is computed again is a copy of its nodes, under the scope
//! `remat`, which is never merged with the originals, and which no pass of the forward part computes on the side
//! ([`since`]).
//!
//! Sources: Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016), for the layers; Jain et al.,
//! "Checkmate" (2020), and `PyTorch`'s min-cut partitioner (`min_cut_rematerialization_partition`), for the choice
//! among the cheap ones.

mod cut;

use std::collections::{BTreeMap, BTreeSet};

use reference::graph::{Class, Collective, Error, Graph, Id, Op, Rewrite};

use crate::fuse::attend;
use crate::fuse::emit;
use crate::fuse::sums;
use crate::ir::scope::{REMAT, layer};
use crate::ir::sized::Sized;
use crate::rewrite::decompose;

/// What is rematerialised: computed again for the backward part instead of kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RematPolicy {
    /// What costs next to nothing.
    pub cheap: bool,
    /// Whole layers, by their number.
    pub layers: BTreeSet<usize>,
}

/// What a policy comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rematerialised {
    /// The policy.
    pub policy: RematPolicy,
    /// Nodes that are there twice.
    pub nodes: usize,
    /// Bytes of the forward part's results that the backward part would read.
    pub needed: usize,
    /// Those of them that are kept for it.
    pub kept: usize,
}

impl RematPolicy {
    /// Nothing.
    pub fn none() -> Self {
        Self::default()
    }

    /// What costs next to nothing.
    pub fn cheap() -> Self {
        Self { cheap: true, layers: BTreeSet::new() }
    }

    /// Whole layers, and nothing else.
    pub fn layers(layers: impl IntoIterator<Item = usize>) -> Self {
        Self { cheap: false, layers: layers.into_iter().collect() }
    }

    /// Every layer of a graph, and what costs next to nothing.
    pub fn every_layer(graph: &Graph) -> Self {
        let layers = graph.nodes().iter().filter_map(|node| layer(&node.scope));
        Self { cheap: true, layers: layers.collect() }
    }

    fn is_none(&self) -> bool {
        !self.cheap && self.layers.is_empty()
    }
}

/// The same graph, in which what was chosen is computed again for the backward part. Layers that the graph does not
/// have are nothing to compute again.
///
/// Fails only where the graph itself is not sound.
pub fn rematerialise(sized: &Sized, policy: &RematPolicy) -> Result<(Graph, Rematerialised), Error> {
    if policy.is_none() {
        return Ok((sized.graph.clone(), Rematerialised::default()));
    }
    let split = ForwardBackward::new(sized);
    let remat = split.remat(policy);
    let mut copies = Copies { remat: &remat, second: BTreeMap::new() };
    let rewritten = sized.graph.rewrite(|rewrite, id| {
        let is_forward = split.forward.contains(&id);
        let here = if is_forward { rewrite.copy(id)? } else { copies.backward(rewrite, id)? };
        Ok(Some(here))
    })?;
    let (policy, nodes) = (policy.clone(), copies.second.len());
    let [needed, kept] = [&BTreeSet::new(), &remat].map(|remat| split.bytes(&split.kept(remat)));
    Ok((rewritten.graph, Rematerialised { policy, nodes, needed, kept }))
}

/// The choices in the order of their price: nothing, what is cheap, and with it one layer more at a time: the one first
/// that keeps the most bytes, among equals the one whose bytes lie the longest.
pub fn policies(sized: &Sized) -> Vec<RematPolicy> {
    let split = ForwardBackward::new(sized);
    let kept = split.kept(&split.remat(&RematPolicy::cheap()));
    let mut layers: BTreeMap<usize, usize> = BTreeMap::new();
    for id in kept {
        if let Some(layer) = layer(&sized.graph.node(id).scope) {
            *layers.entry(layer).or_default() += bytes(sized, id);
        }
    }
    let mut order: Vec<usize> = layers.keys().copied().collect();
    order.sort_by_key(|layer| std::cmp::Reverse(layers[layer])); // of equals, the first layer is kept the longest
    let more =
        (1..=order.len()).map(|n| RematPolicy { cheap: true, ..RematPolicy::layers(order[..n].to_vec()) });
    [RematPolicy::none(), RematPolicy::cheap()].into_iter().chain(more).collect()
}

/// Of `count` choices in the order of their price, the least that fits: by halving, since more layers take less memory.
/// Where the dearest does not fit, every one is tried.
pub fn cheapest<E>(count: usize, fits: &mut dyn FnMut(usize) -> Result<bool, E>) -> Result<Option<usize>, E> {
    let (mut short, mut enough) = (0, count - 1);
    if fits(short)? {
        return Ok(Some(short));
    }
    if !fits(enough)? {
        let found = (1..enough).find_map(|number| match fits(number) {
            Ok(fits) => fits.then_some(Ok(number)),
            Err(error) => Some(Err(error)),
        });
        return found.transpose();
    }
    while enough - short > 1 {
        let middle = if short == 0 { 1 } else { usize::midpoint(short, enough) }; // what is cheap first
        if fits(middle)? { enough = middle } else { short = middle }
    }
    Ok(Some(enough))
}

/// The part of what would be kept up to which a node is not worth computing again.
const SMALL_PART: usize = 1024;

fn bytes(sized: &Sized, id: Id) -> usize {
    sized.elements(id) * sized.graph.ty(id).dtype.bytes()
}

/// What the loss is computed from, and what the rest reads of it.
pub(super) struct ForwardBackward<'a> {
    sized: &'a Sized<'a>,
    forward: BTreeSet<Id>,
    given: BTreeSet<Id>, // there without being kept: inputs, constants, quantised weights
    read: BTreeSet<Id>,
}

impl<'a> ForwardBackward<'a> {
    pub(super) fn new(sized: &'a Sized<'a>) -> Self {
        let graph = sized.graph;
        let mut forward = graph.ancestors(graph.outputs().iter().take(1).map(|(_, loss)| *loss));
        let sent =
            |id: &Id| matches!(graph.node(*id).op, Op::Collective { kind: Collective::Send { .. }, .. });
        let sends = graph.ids().filter(|id| sent(id) && forward.contains(&graph.node(*id).inputs[0]));
        let sends: Vec<Id> = sends.collect();
        forward.extend(sends); // nobody reads what they give, and they give it from where it is
        let mut given = decompose::rematerialisable(graph);
        given.extend(graph.ids().filter(|id| graph.node(*id).op.class() == Class::Source));
        let backward = graph.ids().filter(|id| !forward.contains(id));
        let inputs = backward.flat_map(|id| graph.node(id).inputs.iter().copied());
        let read = inputs.filter(|input| forward.contains(input)).collect();
        Self { sized, forward, given, read }
    }

    /// The forward nodes to be computed again.
    fn remat(&self, policy: &RematPolicy) -> BTreeSet<Id> {
        let mut remat = if policy.cheap { cut::cheap(self, &self.cheap()) } else { BTreeSet::new() };
        remat.extend(policy.layers.iter().flat_map(|layer| self.inside(*layer)));
        remat
    }

    /// What lies inside a layer: nothing outside of it is computed from it. What ranks do together is done once: doing
    /// it again would take all of them, at the same time.
    fn inside(&self, number: usize) -> impl Iterator<Item = Id> {
        let sized = self.sized;
        let of = move |id: Id| layer(&sized.graph.node(id).scope) == Some(number);
        let leaves =
            move |id: &Id| sized.users(*id).iter().any(|user| self.forward.contains(user) && !of(*user));
        let nodes = self.forward.iter().copied().filter(move |id| of(*id));
        let alone = nodes.filter(move |id| sized.graph.node(*id).op.class() != Class::Collective);
        alone.filter(move |id| !self.given.contains(id) && !sized.is_output(*id) && !leaves(id))
    }

    /// What costs next to nothing to compute from its inputs: operations on single elements of whole rows, in the
    /// layers if there are layers. Not what the machine writes in one piece: what an attention reads, sums of products.
    /// Nor what is next to nothing to keep, such as an adapter in bf16: computing it again is a launch all the same.
    fn cheap(&self) -> BTreeSet<Id> {
        let least = self.bytes(&self.kept(&BTreeSet::new())) / SMALL_PART;
        let (sized, graph) = (self.sized, self.sized.graph);
        let layered = self.forward.iter().any(|id| layer(&graph.node(*id).scope).is_some());
        let mut whole: BTreeSet<Id> = sums::find(sized, &[]).terms.values().map(|term| term.sum).collect();
        for id in graph.ids().filter(|id| attend::of(&graph.node(*id).op).is_some()) {
            whole.extend(graph.node(id).inputs.iter().map(|input| self.producer(*input)));
        }
        let cheap = |id: &Id| {
            let node = graph.node(*id);
            let is_row = sized.shape(*id).last().is_some_and(|last| *last > 1);
            let inside = !layered || layer(&node.scope).is_some();
            let is_large = bytes(sized, *id) > least;
            inside && is_row && is_large && emit::is_pointwise(&node.op) && !whole.contains(id)
        };
        self.forward.iter().copied().filter(|id| sized.is_view(*id) || cheap(id)).collect()
    }

    /// The node after views.
    fn producer(&self, mut id: Id) -> Id {
        while self.sized.is_view(id) {
            id = self.sized.graph.node(id).inputs[0];
        }
        id
    }

    /// What has to be kept for the backward part, if some nodes are computed again.
    pub(super) fn kept(&self, remat: &BTreeSet<Id>) -> BTreeSet<Id> {
        let (mut kept, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut open: Vec<Id> = self.read.iter().copied().collect();
        while let Some(id) = open.pop() {
            if self.given.contains(&id) || !seen.insert(id) {
                continue;
            }
            if self.sized.is_view(id) || remat.contains(&id) {
                open.extend(&self.sized.graph.node(id).inputs);
            } else {
                kept.insert(id);
            }
        }
        kept
    }

    fn bytes(&self, nodes: &BTreeSet<Id>) -> usize {
        nodes.iter().map(|id| bytes(self.sized, *id)).sum()
    }
}

/// What the backward part reads in the place of the nodes that are computed again.
struct Copies<'a> {
    remat: &'a BTreeSet<Id>,
    second: BTreeMap<Id, Id>,
}

impl Copies<'_> {
    /// Writes a node of the backward part, and first the copies that it reads.
    fn backward(&mut self, rewrite: &mut Rewrite<'_>, id: Id) -> Result<Id, Error> {
        rewrite.node(id).inputs.iter().try_for_each(|input| self.copy(rewrite, *input))?;
        let inputs = self.latest(rewrite, id)?;
        rewrite.copy_to(id, &inputs)
    }

    /// What a node reads: copies, where there are some.
    fn latest(&self, rewrite: &Rewrite<'_>, id: Id) -> Result<Vec<Id>, Error> {
        let latest = |input: &Id| self.second.get(input).map_or_else(|| rewrite.at(*input), |copy| Ok(*copy));
        rewrite.node(id).inputs.iter().map(latest).collect()
    }

    /// Copies a node and what it is computed from, as far as that is computed again and not copied yet.
    fn copy(&mut self, rewrite: &mut Rewrite<'_>, id: Id) -> Result<(), Error> {
        let (mut open, mut missing) = (vec![id], BTreeSet::new());
        while let Some(id) = open.pop() {
            let is_missing = self.remat.contains(&id) && !self.second.contains_key(&id);
            if is_missing && missing.insert(id) {
                open.extend(&rewrite.node(id).inputs);
            }
        }
        missing.into_iter().try_for_each(|id| self.copy_one(rewrite, id))
    }

    /// Copies a node whose inputs are copied; a view of what is not copied is the view that is there.
    fn copy_one(&mut self, rewrite: &mut Rewrite<'_>, id: Id) -> Result<(), Error> {
        let node = rewrite.node(id);
        if node.op.is_view() && !self.second.contains_key(&node.inputs[0]) {
            return Ok(());
        }
        let inputs = self.latest(rewrite, id)?;
        let dot = if node.scope.is_empty() { "" } else { "." };
        let here = rewrite.copy_as(id, &inputs, &format!("{REMAT}{dot}{}", node.scope))?;
        self.second.insert(id, here);
        Ok(())
    }
}
