//! Products of few columns that share a factor, as one product.
//!
//! A product with an adapter's A or B reads or writes a tensor of the activation's size for a handful of operations an
//! element: it takes as long as its bytes do. Two kinds of them read or write the same bytes once each:
//!
//! - *One factor*: `x A1^T`, `x A2^T`, `x A3^T` of the projections that read one x, and backward `x^T U1`, ... for the
//!   gradients of the A's. As `x [A1; A2; A3]^T` they read x once, and each result is a slice.
//! - *One sum*: `U1 A1 + U2 A2 + U3 A3`, the adapters' part of the gradient of that x. As `[U1 U2 U3] [A1; A2; A3]` they
//!   write the sum once.
//!
//! What is concatenated for it is small, and a product writes its result there itself
//! ([`concat`](crate::fuse::concat)). A product with one factor adds up what it added up before; a sum of products
//! becomes one sum, which is rounded once.
//!
//! Such products need not be neighbours: what stands between them comes after the last one, in the order in which it
//! was. Nothing is merged that would wait for itself, exchange what ranks do together, or lies in two layers, of which
//! one may be computed again.
//!
//! XLA merges products with one factor in its pass `DotMerger`, up to a size that the back end sets.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use reference::graph::{Binary, Class, Dim, Error, Graph, Id, Op, Rewrite};

use crate::ir::scope::layer;

/// The most columns of a product that is merged with others: the rank of most adapters.
const NARROW: i64 = 64;

/// How many times as wide the tensor is that products share, or add up to.
const WIDER: i64 = 4;

/// The most columns of a merged product, with which it is not yet bound by its operations.
const WIDEST: i64 = 256;

/// The same graph, in which narrow products with one left factor, and narrow products that are added up, are one.
///
/// Fails only where the graph itself is not sound.
pub fn merge_products(graph: &Graph) -> Result<Graph, Error> {
    merge_columns(&merge_terms(graph)?)
}

/// Narrow products with one left factor, as one product.
fn merge_columns(graph: &Graph) -> Result<Graph, Error> {
    let Some((groups, order)) = schedule(graph, columns(graph)) else { return Ok(graph.clone()) };
    let group: BTreeMap<Id, &Vec<Id>> =
        groups.iter().flat_map(|group| group.iter().map(move |id| (*id, group))).collect();
    let mut written: BTreeMap<Id, Id> = BTreeMap::new();
    let rewritten = graph.rewrite_in(&order, |rewrite, id| {
        let Some(group) = group.get(&id) else { return rewrite.copy(id).map(Some) };
        if !written.contains_key(&id) {
            let parts = merged_columns(rewrite, group)?;
            written.extend(group.iter().copied().zip(parts));
        }
        Ok(Some(written[&id]))
    })?;
    Ok(rewritten.graph)
}

/// The groups of narrow products of a layer that have one left factor, which is computed.
///
/// What shares a factor that is given - chunks of tokens and the head's weight - lies apart on purpose.
fn columns(graph: &Graph) -> Vec<Vec<Id>> {
    let mut of_left: BTreeMap<(Id, Option<usize>), Vec<Id>> = BTreeMap::new();
    for id in graph.live().into_iter().filter(|id| width(graph, *id).is_some()) {
        let node = graph.node(id);
        of_left.entry((node.inputs[0], layer(&node.scope))).or_default().push(id);
    }
    let shared = of_left.into_iter().filter(|((left, _), _)| !is_given(graph, *left));
    let groups = shared.flat_map(|(_, products)| chunk_by_width(graph, &products));
    groups.map(|group| as_it_lies(graph, group)).collect()
}

/// A group in the order in which its right factors lie side by side already, if they do: then they are there once.
fn as_it_lies(graph: &Graph, mut group: Vec<Id>) -> Vec<Id> {
    let right = |id: &Id| strip_transposes(graph, graph.node(*id).inputs[1]).0;
    let all: BTreeSet<Id> = group.iter().map(right).collect();
    let is_of_all =
        |parts: &&Vec<Id>| parts.len() == all.len() && parts.iter().all(|part| all.contains(part));
    let concatenated = graph.nodes().iter().filter(|node| matches!(node.op, Op::Concat { .. }));
    if let Some(parts) = concatenated.map(|node| &node.inputs).find(is_of_all) {
        group.sort_by_key(|id| parts.iter().position(|part| *part == right(id)));
    }
    group
}

/// A product's number of columns, if it is a product of two matrices and they are few beside those of its left factor.
fn width(graph: &Graph, id: Id) -> Option<i64> {
    let node = graph.node(id);
    if node.op != Op::Matmul || node.ty.rank() != 2 {
        return None;
    }
    let columns = node.ty.shape[1].as_fixed()?;
    is_narrow(columns, &graph.ty(node.inputs[0]).shape).then_some(columns)
}

/// Whether a number of columns or of terms is small by itself and beside a tensor's dimensions, as far as they are
/// numbers.
fn is_narrow(size: i64, beside: &[Dim]) -> bool {
    let widest = beside.iter().filter_map(Dim::as_fixed).max();
    (1..=NARROW).contains(&size) && widest.is_none_or(|widest| widest >= WIDER * size)
}

/// Whether a node is an input, or a view or cast of one.
fn is_given(graph: &Graph, mut id: Id) -> bool {
    while graph.node(id).op == Op::Cast || graph.node(id).op.is_view() {
        id = graph.node(id).inputs[0];
    }
    let op = &graph.node(id).op;
    op.class() == Class::Source || matches!(op, Op::Dequantize { .. })
}

/// Stretches of the products, each of at least two that are not too wide together.
fn chunk_by_width(graph: &Graph, products: &[Id]) -> Vec<Vec<Id>> {
    let mut groups: Vec<(i64, Vec<Id>)> = Vec::new();
    for id in products {
        let columns = width(graph, *id).unwrap_or(0);
        match groups.last_mut().filter(|(wide, _)| wide + columns <= WIDEST) {
            Some((wide, group)) => {
                *wide += columns;
                group.push(*id);
            }
            None => groups.push((columns, vec![*id])),
        }
    }
    groups.into_iter().map(|(_, group)| group).filter(|group| group.len() > 1).collect()
}

/// The slices of one product that stand for the products of a group, in its order.
fn merged_columns(rewrite: &mut Rewrite<'_>, group: &[Id]) -> Result<Vec<Id>, Error> {
    let scope = common_scope(rewrite.from(), group);
    let left = rewrite.input(group[0], 0)?;
    let rights: Vec<Id> = group.iter().map(|id| rewrite.input(*id, 1)).collect::<Result<_, _>>()?;
    let right = concatenate(rewrite, &rights, 1, &scope)?;
    let merged = rewrite.add(Op::Matmul, &[left, right], None, &scope)?;
    let mut start = 0;
    let slices = group.iter().map(|id| {
        let end = start + width(rewrite.from(), *id).unwrap_or(0);
        let slice = Op::Slice { dim: 1, start: Dim::fixed(start), end: Dim::fixed(end) };
        start = end;
        rewrite.add(slice, &[merged], None, &rewrite.node(*id).scope)
    });
    slices.collect()
}

/// Matrices side by side along a dimension; transposed ones side by side before they are transposed, so that a matrix
/// that is read both ways is there once.
fn concatenate(rewrite: &mut Rewrite<'_>, matrices: &[Id], dim: usize, scope: &str) -> Result<Id, Error> {
    let straight: Vec<(Id, bool)> = matrices.iter().map(|id| strip_transposes(rewrite.to(), *id)).collect();
    let parts: Vec<Id> = straight.iter().map(|(id, _)| *id).collect();
    if straight.iter().all(|(_, is_transposed)| *is_transposed) {
        let all = rewrite.add(Op::Concat { dim: 1 - dim }, &parts, None, scope)?;
        return rewrite.add(Op::Transpose { order: vec![1, 0] }, &[all], None, scope);
    }
    let is_straight = straight.iter().all(|(_, is_transposed)| !is_transposed);
    rewrite.add(Op::Concat { dim }, if is_straight { &parts } else { matrices }, None, scope)
}

/// The matrix that was transposed, and reshaped to what it was, and whether it is transposed in the end.
fn strip_transposes(graph: &Graph, id: Id) -> (Id, bool) {
    let of = strip_reshapes(graph, id);
    let node = graph.node(of);
    let Op::Transpose { order } = &node.op else { return (of, false) };
    let (inner, is_transposed) = strip_transposes(graph, node.inputs[0]);
    (inner, is_transposed != (order[..] == [1, 0]))
}

/// What was reshaped to what it is, if anything was.
fn strip_reshapes(graph: &Graph, id: Id) -> Id {
    let (mut of, mut unshaped) = (id, id);
    while graph.node(of).op == Op::Reshape {
        of = graph.node(of).inputs[0];
        unshaped = if graph.ty(of) == graph.ty(id) { of } else { unshaped };
    }
    unshaped
}

/// The part of the model that all nodes belong to.
fn common_scope(graph: &Graph, ids: &[Id]) -> String {
    let parts = |id: &Id| graph.node(*id).scope.split('.').collect::<Vec<_>>();
    let common = ids.iter().map(parts).reduce(|common, other| {
        let same = common.iter().zip(&other).take_while(|(a, b)| a == b);
        same.map(|(part, _)| *part).collect()
    });
    common.unwrap_or_default().join(".")
}

/// Those groups that can be computed at once, and an order of all nodes in which each group's are neighbours; nothing
/// if there are none.
fn schedule(graph: &Graph, groups: Vec<Vec<Id>>) -> Option<(Vec<Vec<Id>>, Vec<Id>)> {
    if groups.is_empty() {
        return None;
    }
    if let Some(order) = together(graph, &groups) {
        return Some((groups, order));
    }
    let mut accepted: Option<(Vec<Vec<Id>>, Vec<Id>)> = None;
    for group in groups {
        let mut more = accepted.as_ref().map(|(groups, _)| groups.clone()).unwrap_or_default();
        more.push(group);
        if let Some(order) = together(graph, &more) {
            accepted = Some((more, order));
        }
    }
    accepted
}

/// The nodes in an order in which each comes after its inputs and each group's are neighbours, as near to the graph's
/// as that allows; nothing if a group waits for itself, or what ranks do together changes its order.
fn together(graph: &Graph, groups: &[Vec<Id>]) -> Option<Vec<Id>> {
    let units = Units::new(graph, groups);
    let mut missing: Vec<usize> = units.inputs.iter().map(BTreeSet::len).collect();
    let is_ready = |unit: &usize| missing[*unit] == 0 && !units.nodes[*unit].is_empty();
    let mut ready: BinaryHeap<Reverse<usize>> = (0..missing.len()).filter(is_ready).map(Reverse).collect();
    let mut order = Vec::new();
    while let Some(Reverse(unit)) = ready.pop() {
        order.extend(&units.nodes[unit]);
        for user in &units.users[unit] {
            missing[*user] -= 1;
            ready.extend((missing[*user] == 0).then_some(Reverse(*user)));
        }
    }
    let exchanged = order.iter().filter(|id| graph.node(**id).op.class() == Class::Collective);
    (order.len() == graph.nodes().len() && exchanged.is_sorted()).then_some(order)
}

/// What is computed at once: a group, at the place of its last node, or a node by itself, at its own.
struct Units {
    nodes: Vec<Vec<Id>>, // empty where a node belongs to a unit further on
    inputs: Vec<BTreeSet<usize>>,
    users: Vec<BTreeSet<usize>>,
}

impl Units {
    fn new(graph: &Graph, groups: &[Vec<Id>]) -> Self {
        let number = |id: Id| id.0 as usize;
        let mut unit: Vec<usize> = graph.ids().map(number).collect();
        for group in groups {
            let last = group.iter().copied().map(number).max().unwrap_or(0);
            for id in group {
                unit[number(*id)] = last;
            }
        }
        let mut units = Self {
            nodes: vec![Vec::new(); unit.len()],
            inputs: vec![BTreeSet::new(); unit.len()],
            users: vec![BTreeSet::new(); unit.len()],
        };
        for id in graph.ids() {
            let here = unit[number(id)];
            units.nodes[here].push(id);
            for input in &graph.node(id).inputs {
                units.inputs[here].insert(unit[number(*input)]);
                units.users[unit[number(*input)]].insert(here);
            }
        }
        units
    }
}

/// Narrow products that are added up, as one product.
fn merge_terms(graph: &Graph) -> Result<Graph, Error> {
    let users = users(graph);
    let rewritten = graph.rewrite(|rewrite, id| {
        let sum = Sum::of(graph, &users, id).filter(|sum| sum.narrow.len() > 1);
        let here = match sum {
            Some(sum) => sum.write(rewrite, id)?,
            None => rewrite.copy(id)?,
        };
        Ok(Some(here))
    })?;
    Ok(rewritten.graph)
}

fn users(graph: &Graph) -> Vec<Vec<Id>> {
    let mut users = vec![Vec::new(); graph.nodes().len()];
    for id in graph.ids() {
        graph.node(id).inputs.iter().for_each(|input| users[input.0 as usize].push(id));
    }
    graph.outputs().iter().for_each(|(_, id)| users[id.0 as usize].push(*id));
    users
}

/// What a node is the sum of.
#[derive(Default)]
struct Sum {
    narrow: Vec<(Id, Id)>, // products, each with the view of it that is added
    others: Vec<Id>,
}

impl Sum {
    /// The terms of an addition that is no term itself.
    fn of(graph: &Graph, users: &[Vec<Id>], id: Id) -> Option<Self> {
        let adds = |id: Id| graph.node(id).op == Op::Binary(Binary::Add) && graph.ty(id).dtype.is_float();
        let is_term = matches!(users[id.0 as usize][..], [user] if user != id && adds(user));
        let mut sum = Self::default();
        if adds(id) && !is_term {
            graph.node(id).inputs.iter().for_each(|input| sum.collect(graph, users, *input));
        }
        (!sum.narrow.is_empty()).then_some(sum)
    }

    fn collect(&mut self, graph: &Graph, users: &[Vec<Id>], id: Id) {
        let (node, is_own) = (graph.node(id), users[id.0 as usize].len() == 1);
        if node.op == Op::Binary(Binary::Add) && is_own {
            return node.inputs.iter().for_each(|input| self.collect(graph, users, *input));
        }
        match narrow(graph, users, id).filter(|product| self.fits(graph, *product, id)) {
            Some(product) => self.narrow.push((product, id)),
            None => self.others.push(id),
        }
    }

    /// Whether a product has the shape and the layer of those that are there, and is not too wide with them.
    fn fits(&self, graph: &Graph, product: Id, seen: Id) -> bool {
        let terms = |id: Id| graph.ty(graph.node(id).inputs[0]).shape[1].as_fixed().unwrap_or(WIDEST);
        let wide: i64 = self.narrow.iter().map(|(id, _)| terms(*id)).sum();
        let one =
            |(id, view): &(Id, Id)| graph.ty(*id) == graph.ty(product) && graph.ty(*view) == graph.ty(seen);
        self.narrow.first().is_none_or(one) && wide + terms(product) <= WIDEST
    }

    /// The sum of the others and of one product.
    fn write(&self, rewrite: &mut Rewrite<'_>, id: Id) -> Result<Id, Error> {
        let scope = &rewrite.node(id).scope;
        let factor = |rewrite: &Rewrite<'_>, i: usize| {
            self.narrow.iter().map(|(id, _)| rewrite.input(*id, i)).collect::<Result<Vec<_>, _>>()
        };
        let (lefts, rights) = (factor(rewrite, 0)?, factor(rewrite, 1)?);
        let (left, right) =
            (concatenate(rewrite, &lefts, 1, scope)?, concatenate(rewrite, &rights, 0, scope)?);
        let product = rewrite.add(Op::Matmul, &[left, right], None, scope)?;
        let ty = rewrite.node(id).ty.clone();
        let mut sum = product;
        if rewrite.to().ty(product).shape != ty.shape {
            sum = rewrite.add(Op::Reshape, &[product], Some(ty), scope)?;
        }
        for other in &self.others {
            sum = rewrite.add(Op::Binary(Binary::Add), &[rewrite.at(*other)?, sum], None, scope)?;
        }
        Ok(sum)
    }
}

/// The product of two matrices over few terms that a node is, or a reshape of, if nothing else reads it.
fn narrow(graph: &Graph, users: &[Vec<Id>], mut id: Id) -> Option<Id> {
    let is_own = |id: Id| users[id.0 as usize].len() == 1;
    while graph.node(id).op == Op::Reshape && is_own(id) {
        id = graph.node(id).inputs[0];
    }
    let node = graph.node(id);
    let is_product = node.op == Op::Matmul && node.ty.rank() == 2 && is_own(id);
    let terms = is_product.then(|| graph.ty(node.inputs[0]).shape[1].as_fixed()).flatten()?;
    is_narrow(terms, &node.ty.shape).then_some(id)
}
