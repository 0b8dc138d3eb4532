//! Which nodes get a buffer, and which of them one kernel computes.
//!
//! A node without a buffer is computed where it is used: fused into its consumers. Buffers are given to what comes from
//! outside or goes there, to the results and operands of products, and to what several kernels would otherwise compute
//! again at a price. Then kernels over one space are joined where nothing between them stands in the way, so that one
//! pass stores several results; and a buffer that in the end no other kernel reads is taken away again.

pub mod attend;
pub mod collective;
pub mod concat;
pub mod emit;
mod group;
mod joined;
pub mod overlap;
mod producer;
pub mod sums;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kernels::plan::contiguous;
use kernels::tile::Element;
use reference::graph::{Dtype, Id, Op};

use crate::contract::Compile;
use crate::ir::code;
use crate::ir::scope;
use crate::ir::sized::Sized;
use attend::Flex;
use collective::Transfer;
use emit::{Kernel, Layout, LowerError, Root};
use group::{FusionGroup, FusionGroups};
use producer::{producer, seen};
use sums::{Sums, Term};

/// A part of the work, with buffers' numbers for memory.
#[derive(Clone, Debug)]
pub enum Part {
    /// One pass.
    Kernel(Kernel),
    /// A product of matrices: the node, both factors and the result over (batch.., rows, columns).
    Product {
        /// The node.
        node: Id,
        /// The left factor.
        a: Layout,
        /// The right factor.
        b: Layout,
        /// What factors and result are made of.
        elements: [Element; 3],
        /// The result.
        to: Layout,
        /// What the product is multiplied with.
        scale: f32,
        /// Whether it is added to what is there.
        add: bool,
    },
    /// An attention.
    Attention(Attend),
    /// The gradients of an attention.
    AttentionGrad {
        /// What it differentiates.
        of: Attend,
        /// The gradient of the output.
        grad: Layout,
        /// Where the gradients of q, k and v go, as far as they are asked for.
        wrt: [Option<Layout>; 3],
    },
    /// Rows added up in a table: the node, the rows, their indices, the table.
    Scatter {
        /// The node.
        node: Id,
        /// The rows.
        rows: Layout,
        /// Their indices.
        index: Layout,
        /// The table.
        to: Layout,
    },
    /// A dequantisation: the node, the buffers of its parts, and where it goes.
    Dequantize {
        /// The node.
        node: Id,
        /// Its parts.
        inputs: Vec<Layout>,
        /// The weight.
        to: Layout,
    },
    /// An operation between ranks begins.
    Start(Transfer),
    /// An operation between ranks is done after this part.
    Wait(Transfer),
}

/// An attention with its memory.
#[derive(Clone, Debug)]
pub struct Attend {
    /// A node that says what is attended to: the attention or a gradient of it.
    pub node: Id,
    /// Over (batch, heads or key heads, rows, columns).
    pub qkv: [Layout; 3],
    /// The programs; the buffers of their extras.
    pub flex: Flex,
    /// The result.
    pub output: Layout,
    /// The logarithm of each query's sum, over (batch, heads, queries), if a gradient needs it.
    pub lse: Option<Layout>,
}

/// All of the work, in order.
#[derive(Clone, Debug, Default)]
pub struct Fused {
    /// In order.
    pub parts: Vec<Part>,
    /// Where every node is kept that has a buffer.
    pub layouts: BTreeMap<Id, Layout>,
    /// Bytes of each buffer.
    pub bytes: Vec<usize>,
    /// The input that is each buffer that comes from outside.
    pub given: BTreeMap<usize, Id>,
    /// Those of them that are donated, each with the output that it holds in the end.
    pub donated: BTreeMap<usize, Id>,
}

/// An operation that has no kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct NoKernel {
    /// The node.
    pub node: Id,
    /// What stood in the way.
    pub stop: LowerError,
}

/// Fuses a graph whose attentions have a form of their own.
///
/// With `unfused`, every operation but a view is a kernel of its own. `donated` are inputs, each with what it becomes.
pub fn fuse(
    passes: &dyn Compile,
    sized: &Sized,
    unfused: bool,
    donated: &[(Id, Id)],
) -> Result<Fused, NoKernel> {
    let Sums { terms, onto } = if unfused { Sums::default() } else { sums::find(sized, donated) };
    let mut wanted = must_have(sized);
    wanted.retain(|id| !terms.contains_key(id));
    wanted.extend(terms.values().map(|term| term.sum));
    let kept = if unfused { every(sized) } else { passes.keep(sized, &wanted) };
    wanted.extend(kept.into_iter().filter(|id| (id.0 as usize) < sized.graph.nodes().len()));
    wanted.retain(|id| !terms.contains_key(id) && !onto.contains_key(id));
    let job = Fusion { passes, sized, terms: &terms, unfused };
    let (mut fused, mut alone) = (place(sized, &wanted), HashMap::new());
    for (sum, input) in onto {
        fused.layouts.insert(sum, fused.layouts[&input].clone());
    }
    let mut pieces = if unfused { BTreeSet::new() } else { concat::place_pieces(sized, &terms, &mut fused) };
    loop {
        let missing = match job.arrange(&fused, &mut alone) {
            Ok(fused) => return Ok(fused),
            Err(missing) => missing,
        };
        let mut more = BTreeSet::new();
        for (node, stop) in missing {
            match stop {
                LowerError::NeedsBuffer(id) if pieces.contains(&id) => _ = more.insert(id), // in one piece
                LowerError::NeedsBuffer(id) if fused.layouts.contains_key(&id) => {
                    return Err(NoKernel { node, stop });
                }
                LowerError::NeedsBuffer(id) => _ = more.insert(id),
                _ => return Err(NoKernel { node, stop }),
            }
        }
        if pieces.is_disjoint(&more) {
            alone.retain(|_, pass| pass.nodes.is_disjoint(&more));
        } else {
            alone.clear(); // a pass may read where a piece was
        }
        for id in more {
            pieces.remove(&id);
            fused.place(sized, id);
        }
    }
}

/// Whether an operation's result is a buffer by its nature.
fn is_anchor(op: &Op) -> bool {
    match op {
        Op::Input { .. } | Op::Dequantize { .. } | Op::Concat { .. } | Op::ScatterAdd | Op::Matmul => true,
        Op::Attention(_) | Op::AttentionGrad { .. } => true,
        Op::AttentionLse(_) | Op::AttentionLseGrad { .. } | Op::Collective { .. } => true,
        Op::RandomMask { .. } => false,
        Op::Constant { .. } | Op::Iota { .. } | Op::Cast | Op::Detach | Op::Unary(_) => false,
        Op::Binary(_) | Op::Compare(_) | Op::Select | Op::Reduce(..) | Op::Gather => false,
        Op::Reshape | Op::Transpose { .. } | Op::Broadcast | Op::Slice { .. } => false,
    }
}

/// What has to have a buffer: what comes from outside and goes there, products and their factors.
fn must_have(sized: &Sized) -> BTreeSet<Id> {
    let graph = sized.graph;
    let mut wanted: BTreeSet<Id> = graph.ids().filter(|id| is_anchor(&graph.node(*id).op)).collect();
    wanted.extend(graph.outputs().iter().map(|(_, id)| *id));
    for id in graph.ids().filter(|id| graph.node(*id).op == Op::Matmul) {
        for factor in &graph.node(id).inputs {
            wanted.insert(producer(sized, *factor).node);
        }
    }
    let whole = |id: &Id| matches!(graph.node(*id).op, Op::Dequantize { .. } | Op::ScatterAdd);
    wanted.extend(graph.ids().filter(whole).flat_map(|id| graph.node(id).inputs.clone()));
    for id in graph.ids().filter(|id| attend::of(&graph.node(*id).op).is_some()) {
        let (inputs, extras) = (&graph.node(id).inputs, &attend::inputs(sized, id)[3..]);
        let viewed = inputs.iter().filter(|input| !extras.contains(input));
        wanted.extend(viewed.map(|input| seen(sized, *input).map_or(*input, |seen| seen.node)));
        wanted.extend(extras);
    }
    wanted.extend(graph.ids().filter_map(|id| collective::must_have(sized, id)));
    wanted.extend(graph.ids().filter_map(|id| reduced_again(sized, id)));
    wanted
}

/// Every node that is no view and no constant.
fn every(sized: &Sized) -> BTreeSet<Id> {
    let idle = |id: &Id| {
        sized.is_view(*id) || matches!(sized.graph.node(*id).op, Op::Constant { .. } | Op::Iota { .. })
    };
    sized.graph.ids().filter(|id| !idle(id)).collect()
}

/// The reduction that another one reduces further, along another dimension: no kernel does both.
fn reduced_again(sized: &Sized, id: Id) -> Option<Id> {
    let reduces = |id: Id| {
        let node = sized.graph.node(id);
        matches!(node.op, Op::Reduce(_, dim) if sized.shape(node.inputs[0])[dim] > 1)
    };
    let producer = |id: Id| sized.graph.node(id).inputs[0];
    let mut inner = reduces(id).then(|| producer(id))?;
    while sized.is_view(inner) {
        inner = producer(inner);
    }
    reduces(inner).then_some(inner)
}

/// The pass that writes one node and nothing else.
type Alone = HashMap<Root, Kernel>;

/// What is fused, and by which passes.
struct Fusion<'a> {
    passes: &'a dyn Compile,
    sized: &'a Sized<'a>,
    terms: &'a BTreeMap<Id, Term>,
    unfused: bool,
}

impl Fusion<'_> {
    /// Writes every part, given the nodes that get a buffer; or says of all that cannot be written what is missing.
    fn arrange(&self, placed: &Fused, alone: &mut Alone) -> Result<Fused, Vec<(Id, LowerError)>> {
        let own = self.own(placed);
        let roots = own.iter().flat_map(|id| self.roots(placed, *id));
        let missing: Vec<(Id, LowerError)> =
            roots.filter_map(|root| self.alone(placed, alone, &root).err()).collect();
        if !missing.is_empty() {
            return Err(missing); // before anything is joined
        }
        let (mut fused, mut groups, mut missing) = (placed.clone(), FusionGroups::default(), Vec::new());
        for id in self.sized.graph.ids().filter(|id| self.sized.elements(*id) > 0) {
            let of_sum = self.terms.get(&id).map(|term| self.term(&fused, &mut groups, id, term));
            let own = own.contains(&id).then(|| self.part(&mut fused, alone, &mut groups, id));
            missing.extend([of_sum, own].into_iter().flatten().filter_map(Result::err));
        }
        if !missing.is_empty() {
            return Err(missing);
        }
        if !self.unfused {
            self.drop_private(&mut fused, &mut groups);
            if self.unite(&fused, &mut groups) {
                self.drop_private(&mut fused, &mut groups);
            }
            self.drop_repeated(&mut fused, &mut groups);
        }
        fused.parts = groups.all.into_iter().map(FusionGroup::finish).collect();
        let waits = collective::last_waits(self.sized, &fused.parts);
        fused.parts.extend(waits);
        Ok(fused)
    }

    /// The nodes that a part of their own writes: those with a buffer, but for sums of products.
    fn own(&self, placed: &Fused) -> BTreeSet<Id> {
        let sums: BTreeSet<Id> = self.terms.values().map(|term| term.sum).collect();
        let own = |id: &Id| !sums.contains(id) && self.sized.elements(*id) > 0;
        placed.layouts.keys().copied().filter(own).collect()
    }

    /// What passes have to store for a node; nothing, if it is no pass that writes it.
    fn roots(&self, placed: &Fused, id: Id) -> Vec<Root> {
        let layout = placed.layouts[&id].clone();
        let op = &self.sized.graph.node(id).op;
        if let Op::Concat { dim } = op {
            let lies_there = |root: &Root| placed.layouts.get(&root.node) == Some(&root.layout);
            let pieces = concat::pieces(self.sized, id, *dim, &layout).into_iter();
            return pieces.filter(|root| !lies_there(root)).collect();
        }
        if is_anchor(op) { Vec::new() } else { vec![Root { node: id, layout }] }
    }

    /// Writes the pass for one node alone, unless it is there.
    fn alone(&self, placed: &Fused, alone: &mut Alone, root: &Root) -> Result<(), (Id, LowerError)> {
        if !alone.contains_key(root) {
            let pass = emit::kernel(self.passes, self.sized, &placed.layouts, std::slice::from_ref(root));
            alone.insert(root.clone(), pass.map_err(|stop| (root.node, stop))?);
        }
        Ok(())
    }

    /// A product that is part of a sum.
    fn term(
        &self,
        fused: &Fused,
        groups: &mut FusionGroups,
        id: Id,
        term: &Term,
    ) -> Result<(), (Id, LowerError)> {
        let mut to = fused.layouts[&term.sum].clone();
        if !concat::is_whole(self.sized, id, term) {
            to.strides.clone_from(&term.strides); // a sum that lies in a concatenation has whole terms
        }
        groups.push(FusionGroup::Whole(product(self.sized, fused, id, to, Some(term))?));
        Ok(())
    }

    /// What writes a node that has a buffer.
    fn part(
        &self,
        fused: &mut Fused,
        alone: &mut Alone,
        groups: &mut FusionGroups,
        id: Id,
    ) -> Result<(), (Id, LowerError)> {
        let sized = self.sized;
        for root in self.roots(fused, id) {
            let pass = alone.remove(&root).ok_or((id, LowerError::Unsupported))?;
            self.join(fused, groups, &root, pass);
        }
        let node = sized.graph.node(id);
        let to = fused.layouts[&id].clone();
        let whole = match &node.op {
            Op::Matmul => product(sized, fused, id, to, None)?,
            Op::Attention(_) | Op::AttentionLse(_) => return self.attended(fused, groups, id),
            Op::Dequantize { .. } => {
                let inputs = node.inputs.iter().map(|input| fused.layouts[input].clone()).collect();
                Part::Dequantize { node: id, inputs, to }
            }
            Op::ScatterAdd => {
                let [rows, index] = [0, 1].map(|i| fused.layouts[&node.inputs[i]].clone());
                Part::Scatter { node: id, rows, index, to }
            }
            Op::AttentionGrad { .. } => return self.gradients(fused, groups, id),
            Op::AttentionLseGrad { .. } => return Err((id, LowerError::Unsupported)), // opened before
            Op::Collective { .. } => return self.exchanged(fused, groups, id),
            Op::RandomMask { .. } => return Ok(()), // a pass
            Op::Input { .. } => return Ok(()),      // given
            Op::Constant { .. } | Op::Iota { .. } | Op::Cast | Op::Detach => return Ok(()), // a pass, as what follows
            Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select | Op::Reduce(..) => return Ok(()),
            Op::Gather | Op::Reshape | Op::Transpose { .. } | Op::Broadcast => return Ok(()),
            Op::Slice { .. } | Op::Concat { .. } => return Ok(()),
        };
        groups.push(FusionGroup::Whole(whole));
        Ok(())
    }

    /// What ranks do together.
    fn exchanged(&self, fused: &Fused, groups: &mut FusionGroups, id: Id) -> Result<(), (Id, LowerError)> {
        let transfer = collective::transfer(self.sized, fused, id)?;
        groups.push(FusionGroup::Whole(Part::Start(transfer.clone())));
        if !collective::waits_at_the_end(self.sized, id) {
            groups.push(FusionGroup::Whole(Part::Wait(transfer)));
        }
        Ok(())
    }

    /// An attention and its logarithmic sums: one launch, at the first of the two.
    fn attended(&self, fused: &mut Fused, groups: &mut FusionGroups, id: Id) -> Result<(), (Id, LowerError)> {
        let sized = self.sized;
        let first = |is: fn(&Op) -> bool| self.siblings(id).find(|other| is(&sized.graph.node(*other).op));
        let values = first(|op| matches!(op, Op::Attention(_)));
        let sums = first(|op| matches!(op, Op::AttentionLse(_)));
        let pair = [values, sums];
        let (output, lse) = if pair.contains(&Some(id)) {
            if pair.iter().flatten().min() != Some(&id) {
                return Ok(()); // it is in that launch
            }
            (values, sums)
        } else if matches!(sized.graph.node(id).op, Op::Attention(_)) {
            (Some(id), None) // a second one of the same
        } else {
            (None, Some(id))
        };
        let [q, v] = [0, 2].map(|i| sized.shape(attend::inputs(sized, id)[i]));
        let output = match output {
            Some(id) => fused.layouts[&id].clone(),
            None => fused.fresh(&[q[0], q[1], q[2], v[3]], of_attention(sized, id)),
        };
        let mut attend = attend(self.passes, sized, fused, id, output)?;
        attend.lse = lse.map(|id| fused.layouts[&id].clone());
        groups.push(FusionGroup::Whole(Part::Attention(attend)));
        Ok(())
    }

    /// The nodes that attend to the same by the same programs, itself among them: all of the forward part, or all of
    /// what is computed again.
    fn siblings(&self, id: Id) -> impl Iterator<Item = Id> {
        let (sized, graph) = (self.sized, self.sized.graph);
        let is_sibling = move |other: &Id| {
            let (a, b) = (graph.node(id), graph.node(*other));
            let forward = matches!(b.op, Op::Attention(_) | Op::AttentionLse(_));
            let same = attend::is_of_same(&a.op, &b.op) && a.inputs == b.inputs;
            forward && same && scope::is_remat(a) == scope::is_remat(b) && sized.elements(*other) > 0
        };
        sized.users(graph.node(id).inputs[0]).iter().copied().filter(is_sibling)
    }

    /// The gradients of an attention together, at the first of them.
    fn gradients(
        &self,
        fused: &mut Fused,
        groups: &mut FusionGroups,
        id: Id,
    ) -> Result<(), (Id, LowerError)> {
        let sized = self.sized;
        let node = sized.graph.node(id);
        let grad = *node.inputs.last().ok_or((id, LowerError::Unsupported))?;
        let alike = |user: &&Id| {
            let other = sized.graph.node(**user);
            let differentiates = matches!(other.op, Op::AttentionGrad { .. });
            differentiates && other.inputs == node.inputs && attend::is_of_same(&other.op, &node.op)
        };
        let together: Vec<Id> = sized.users(grad).iter().filter(alike).copied().collect();
        if together.iter().min() != Some(&id) {
            return Ok(()); // it is in that part
        }
        let mut wrt = [None, None, None];
        for other in together {
            if let Op::AttentionGrad { wrt: input, .. } = sized.graph.node(other).op {
                wrt[input] = Some(fused.layouts[&other].clone());
            }
        }
        let of = self.differentiated(fused, groups, id)?;
        let grad = viewed(sized, fused, grad)?;
        groups.push(FusionGroup::Whole(Part::AttentionGrad { of, grad, wrt }));
        Ok(())
    }

    /// The attention that a gradient is of, which from now on keeps its sums; computed again, if the graph does not.
    fn differentiated(
        &self,
        fused: &mut Fused,
        groups: &mut FusionGroups,
        id: Id,
    ) -> Result<Attend, (Id, LowerError)> {
        let sized = self.sized;
        let op = |id: Id| &sized.graph.node(id).op;
        let is_twin = |other: Id| {
            attend::is_of_same(op(other), op(id)) && attend::inputs(sized, other) == attend::inputs(sized, id)
        };
        let twin = |group: &FusionGroup| match group {
            FusionGroup::Whole(Part::Attention(attend)) => is_twin(attend.node),
            FusionGroup::Whole(_) | FusionGroup::Pass(_) => false,
        };
        let [q, v] = [0, 2].map(|i| sized.shape(attend::inputs(sized, id)[i]));
        let shape = [q[0], q[1], q[2], v[3]];
        let place = if let Some(place) = groups.all.iter().position(twin) {
            place
        } else {
            let output = fused.fresh(&shape, of_attention(sized, id));
            groups.push(FusionGroup::Whole(Part::Attention(attend(self.passes, sized, fused, id, output)?)));
            groups.all.len() - 1
        };
        let FusionGroup::Whole(Part::Attention(attend)) = &mut groups.all[place] else {
            return Err((id, LowerError::Unsupported));
        };
        attend.lse.get_or_insert_with(|| fused.fresh(&shape[..3], Dtype::F32));
        let attend = attend.clone();
        groups.note(place);
        Ok(attend)
    }
}

impl Part {
    /// The nodes that it computes.
    pub fn nodes(&self) -> BTreeSet<Id> {
        match self {
            Part::Kernel(kernel) => kernel.nodes.clone(),
            Part::Attention(of) | Part::AttentionGrad { of, .. } => BTreeSet::from([of.node]),
            Part::Product { node, .. } | Part::Dequantize { node, .. } | Part::Scatter { node, .. } => {
                BTreeSet::from([*node])
            }
            Part::Start(transfer) | Part::Wait(transfer) => BTreeSet::from([transfer.node]),
        }
    }

    /// The buffers that it writes.
    pub fn writes(&self) -> Vec<usize> {
        let layouts: Vec<&Layout> = match self {
            Part::Kernel(kernel) => kernel.outputs.iter().collect(),
            Part::Product { to, .. } | Part::Dequantize { to, .. } | Part::Scatter { to, .. } => vec![to],
            Part::Attention(attend) => {
                [Some(&attend.output), attend.lse.as_ref()].into_iter().flatten().collect()
            }
            Part::AttentionGrad { wrt, .. } => wrt.iter().flatten().collect(),
            Part::Start(transfer) | Part::Wait(transfer) => transfer.output.iter().collect(),
        };
        layouts.into_iter().map(|layout| layout.buffer).collect()
    }

    /// The buffers that it reads.
    pub fn reads(&self) -> Vec<usize> {
        let layouts: Vec<&Layout> = match self {
            Part::Kernel(kernel) => kernel.inputs.iter().collect(),
            Part::Product { a, b, .. } => vec![a, b],
            Part::Dequantize { inputs, .. } => inputs.iter().collect(),
            Part::Scatter { rows, index, .. } => vec![rows, index],
            Part::Attention(attend) => attend.reads().collect(),
            Part::AttentionGrad { of, grad, .. } => {
                of.reads().chain([&of.output, grad]).chain(&of.lse).collect()
            }
            Part::Start(transfer) | Part::Wait(transfer) => transfer.input.iter().collect(),
        };
        layouts.into_iter().map(|layout| layout.buffer).collect()
    }
}

impl Part {
    /// Does something to every layout that it has.
    pub fn each_layout(&mut self, visit: &mut dyn FnMut(&mut Layout)) {
        match self {
            Part::Kernel(kernel) => {
                kernel.roots.iter_mut().for_each(|root| visit(&mut root.layout));
                kernel.inputs.iter_mut().chain(&mut kernel.outputs).for_each(visit);
            }
            Part::Product { a, b, to, .. } => [a, b, to].into_iter().for_each(visit),
            Part::Dequantize { inputs, to, .. } => inputs.iter_mut().chain([to]).for_each(visit),
            Part::Scatter { rows, index, to, .. } => [rows, index, to].into_iter().for_each(visit),
            Part::Attention(attend) => attend.layouts().for_each(visit),
            Part::AttentionGrad { of, grad, wrt } => {
                of.layouts().chain([grad]).chain(wrt.iter_mut().flatten()).for_each(visit);
            }
            Part::Start(transfer) | Part::Wait(transfer) => transfer.layouts().for_each(visit),
        }
    }
}

impl Attend {
    fn layouts(&mut self) -> impl Iterator<Item = &mut Layout> {
        self.qkv.iter_mut().chain(&mut self.flex.extras).chain([&mut self.output]).chain(&mut self.lse)
    }

    fn reads(&self) -> impl Iterator<Item = &Layout> {
        self.qkv.iter().chain(&self.flex.extras)
    }
}

/// Buffers for the wanted nodes.
fn place(sized: &Sized, wanted: &BTreeSet<Id>) -> Fused {
    let mut fused = Fused::default();
    for id in wanted {
        fused.place(sized, *id);
    }
    fused
}

/// A product, an attention or a concatenation that is only used transposed, in one way, its gradient aside, is written
/// the way that it is used. Concatenated matrices are not: products read them either way, and the order in which a
/// product adds up depends on how its factors lie, so it would depend on who else reads them.
fn strides(sized: &Sized, id: Id) -> Vec<usize> {
    let shape = sized.shape(id);
    let op = &sized.graph.node(id).op;
    let is_matrix = shape.len() == 2 && matches!(op, Op::Concat { .. });
    let is_free = matches!(op, Op::Matmul | Op::Concat { .. }) && !is_matrix || attend::of(op).is_some();
    if !is_free || sized.is_output(id) {
        return contiguous(shape);
    }
    let is_grad = |user: &&Id| matches!(sized.graph.node(**user).op, Op::AttentionGrad { .. });
    let mut users = sized.users(id).iter().filter(|user| !is_grad(user));
    let Some(user) = users.next() else { return contiguous(shape) };
    let of_first = &sized.graph.node(*user).op;
    let Op::Transpose { order } = of_first else { return contiguous(shape) };
    if users.any(|user| sized.graph.node(*user).op != *of_first) {
        return contiguous(shape);
    }
    let transposed = contiguous(sized.shape(*user));
    let mut strides = vec![0; shape.len()];
    order.iter().zip(transposed).for_each(|(dim, stride)| strides[*dim] = stride);
    strides
}

fn product(
    sized: &Sized,
    fused: &Fused,
    id: Id,
    to: Layout,
    term: Option<&Term>,
) -> Result<Part, (Id, LowerError)> {
    let of = |id: Id| code::element(sized.graph.ty(id).dtype);
    let factor = |input: Id| {
        if let Some(own) = fused.layouts.get(&input) {
            return Ok((own.clone(), 1.0, of(input)));
        }
        let producer = producer(sized, input);
        let node = producer.node;
        let layout = fused.layouts.get(&node).ok_or((id, LowerError::NeedsBuffer(node)))?;
        Ok((producer.place(layout, sized.shape(input)), producer.scale, of(node)))
    };
    let inputs = &sized.graph.node(id).inputs;
    let ((a, scale_a, of_a), (b, scale_b, of_b)) = (factor(inputs[0])?, factor(inputs[1])?);
    let (scale, add) = term.map_or((1.0, false), |term| (term.scale, !term.first));
    let scale = scale * scale_a * scale_b;
    let of_to = of(term.map_or(id, |term| term.sum));
    Ok(Part::Product { node: id, a, b, elements: [of_a, of_b, of_to], to, scale, add })
}

/// An attention that writes `output`, given the buffers of what it reads.
fn attend(
    passes: &dyn Compile,
    sized: &Sized,
    fused: &Fused,
    id: Id,
    output: Layout,
) -> Result<Attend, (Id, LowerError)> {
    let inputs = attend::inputs(sized, id);
    let mut flex = attend::flex(passes, sized, id).ok_or((id, LowerError::Unsupported))?;
    for extra in &mut flex.extras {
        extra.buffer = fused.layouts[&inputs[3 + extra.buffer]].buffer;
    }
    let [q, k, v] = [0, 1, 2].map(|i| viewed(sized, fused, inputs[i]));
    Ok(Attend { node: id, qkv: [q?, k?, v?], flex, output, lse: None })
}

/// The type that an attention, or the one that a gradient is of, reads and writes.
fn of_attention(sized: &Sized, id: Id) -> Dtype {
    sized.graph.ty(attend::inputs(sized, id)[0]).dtype
}

/// Where a tensor's elements are, through views.
fn viewed(sized: &Sized, fused: &Fused, tensor: Id) -> Result<Layout, (Id, LowerError)> {
    if let Some(own) = fused.layouts.get(&tensor) {
        return Ok(own.clone());
    }
    let seen = seen(sized, tensor).ok_or((tensor, LowerError::NeedsBuffer(tensor)))?;
    let layout = fused.layouts.get(&seen.node).ok_or((tensor, LowerError::NeedsBuffer(seen.node)))?;
    Ok(seen.place(layout, sized.shape(tensor)))
}

impl Fused {
    /// A buffer for a node.
    fn place(&mut self, sized: &Sized, id: Id) {
        let buffer = self.bytes.len();
        self.bytes.push(sized.elements(id) * sized.graph.ty(id).dtype.bytes());
        if matches!(sized.graph.node(id).op, Op::Input { .. }) {
            self.given.insert(buffer, id);
        }
        self.layouts.insert(id, Layout { buffer, offset: 0, strides: strides(sized, id) });
    }

    /// A buffer that is no node's.
    fn fresh(&mut self, shape: &[usize], dtype: Dtype) -> Layout {
        self.bytes.push(shape.iter().product::<usize>() * dtype.bytes());
        Layout { buffer: self.bytes.len() - 1, offset: 0, strides: contiguous(shape) }
    }
}

/// Operations that one pass may have.
pub const LONG: usize = 96;
