//! What the padding of each node holds, and which nodes have to be told to hold zeros there.
//!
//! Of each node two things are known, if little: its values in the padding, and its real ones. From these follows
//! where an operation would let padding into a result ([`needs`]); the node that it comes from is then masked for all
//! who use it. Masks that others make needless are left out again.

use std::collections::BTreeSet;

use reference::graph::{Binary, Dtype, Graph, Id, Node, Op, Reduce, Unary};

use super::arrange::Arranged;
use super::layout::{Axis, Layout, Padding, leading};

/// What is known of some values.
#[derive(Clone, Copy, Debug)]
pub enum Class {
    /// Nothing.
    Any,
    /// They are finite.
    Finite,
    /// They are 0 or -0.
    Zero,
    /// They are this, to the bit.
    Exactly(f64),
}

use Class::{Any, Exactly, Finite, Zero};

/// What an operation needs of an input's padding.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    /// It is 0 or -0.
    Zero,
    /// It is finite.
    Finite,
    /// It is not 0.
    NotZero,
    /// It is this, to the bit.
    Value(f64),
}

/// A need: of which input, and where its real elements are.
pub struct Demand {
    /// The input's number.
    pub input: usize,
    /// What is needed.
    pub need: Need,
    /// Where the input's padding is.
    pub layout: Layout,
}

impl Class {
    fn is_zero(self) -> bool {
        match self {
            Zero => true,
            Exactly(value) => value == 0.0,
            _ => false,
        }
    }

    fn is_finite(self, dtype: Dtype) -> bool {
        !dtype.is_float()
            || self.is_zero()
            || matches!(self, Finite)
            || self.small().is_some()
            || self.moderate()
    }

    /// Whether it is a number that every type of floats holds as a finite one.
    fn moderate(self) -> bool {
        matches!(self, Exactly(value) if value.abs() <= 60_000.0)
    }

    /// A whole number that every type holds as it is.
    fn small(self) -> Option<f64> {
        match self {
            Exactly(value) if value.fract() == 0.0 && value.abs() <= 255.0 => Some(value),
            _ => None,
        }
    }

    fn is(self, other: Class) -> bool {
        match (self, other) {
            (Exactly(a), Exactly(b)) => a.to_bits() == b.to_bits(),
            (Any, Any) | (Finite, Finite) | (Zero, Zero) => true,
            _ => false,
        }
    }

    /// What is known of values of both kinds; `dtype` is the type of all.
    fn or(self, other: Class, dtype: Dtype) -> Class {
        if self.is(other) {
            self
        } else if self.is_zero() && other.is_zero() {
            Zero
        } else if self.is_finite(dtype) && other.is_finite(dtype) {
            Finite
        } else {
            Any
        }
    }

    /// Whether it is enough.
    pub fn meets(self, need: Need, dtype: Dtype) -> bool {
        match need {
            Need::Zero => self.is_zero(),
            Need::Finite => self.is_finite(dtype),
            Need::NotZero => self.small().is_some_and(|value| value != 0.0),
            Need::Value(value) => {
                self.is(Exactly(value)) || (!dtype.is_float() && value == 0.0 && self.is_zero())
            }
        }
    }
}

impl Need {
    /// A value that satisfies it.
    pub fn value(self) -> f64 {
        match self {
            Need::Zero | Need::Finite => 0.0,
            Need::NotZero => 1.0,
            Need::Value(value) => value,
        }
    }
}

/// What is known of a node's values: in the padding, and in real places.
#[derive(Clone, Copy, Debug)]
struct Known {
    pad: Class,
    real: Class,
}

/// A graph that is looked at.
struct Look<'a> {
    graph: &'a Graph,
    layouts: &'a [Layout],
    padding: &'a Padding,
    demands: Vec<Vec<Demand>>, // of each node
    padded: Vec<bool>,         // whether a node has padding
    free: Vec<bool>,           // whether a node has a padded dimension along which it does not vary
}

/// What is decided: the masked nodes, and of each node the demands that its input does not meet.
pub struct Chosen {
    /// Nodes whose padding is set to 0 for all their users.
    pub masked: BTreeSet<Id>,
    /// For each node the inputs whose padding is set for it alone.
    pub own: Vec<Vec<Demand>>,
}

/// Chooses what is masked.
pub fn choose(arranged: &Arranged, padding: &Padding) -> Chosen {
    let mut look = Look::new(arranged, padding);
    let mut masked: BTreeSet<Id> = look.float_inputs();
    while let Some(site) = look.missing(&masked) {
        masked.insert(site);
    }
    for id in masked.clone() {
        masked.remove(&id);
        if look.missing(&masked).is_some() {
            masked.insert(id);
        }
    }
    let known = look.known(&masked, &mut |_| true);
    let demands = std::mem::take(&mut look.demands);
    let unmet = |(node, demands): (&Node, Vec<Demand>)| {
        let unmet = |demand: &Demand| {
            let input = node.inputs[demand.input];
            !look.is_met(input, demand, known[input.0 as usize].pad, &masked)
        };
        demands.into_iter().filter(unmet).collect()
    };
    let own = look.graph.nodes().iter().zip(demands).map(unmet).collect();
    Chosen { masked, own }
}

impl<'a> Look<'a> {
    fn new(arranged: &'a Arranged, padding: &'a Padding) -> Self {
        let Arranged { graph, layouts, counting } = arranged;
        let padded = layouts.iter().map(|layout| padding.is_in(layout)).collect();
        let free = graph.ids().map(|id| {
            let mut axes = layouts[id.0 as usize].iter().zip(&graph.ty(id).shape);
            axes.any(|(axis, size)| axis.is_none() && padding.touches(size))
        });
        let free = free.collect();
        let mut look = Self { graph, layouts, padding, demands: Vec::new(), padded, free };
        look.demands =
            graph.ids().map(|id| if counting.contains(&id) { Vec::new() } else { look.needs(id) }).collect();
        look
    }

    fn float_inputs(&self) -> BTreeSet<Id> {
        let inputs = self.graph.inputs().map(|(_, id)| id);
        inputs.filter(|id| self.padded[id.0 as usize] && self.graph.ty(*id).dtype.is_float()).collect()
    }

    fn axis(&self, id: Id, dim: usize) -> &Axis {
        &self.layouts[id.0 as usize][dim]
    }

    /// The first node whose padding somebody needs otherwise than it is, and that can be masked for all.
    fn missing(&self, masked: &BTreeSet<Id>) -> Option<Id> {
        let mut missing = None;
        self.known(masked, &mut |site| {
            missing = Some(site);
            false
        });
        missing
    }

    /// What is known of every node where some are masked. `see` is told which node should be masked too, and whether
    /// to go on is what it answers.
    fn known(&self, masked: &BTreeSet<Id>, see: &mut dyn FnMut(Id) -> bool) -> Vec<Known> {
        let mut known: Vec<Known> = Vec::with_capacity(self.layouts.len());
        for id in self.graph.ids() {
            let node = self.graph.node(id);
            let mut inputs: Vec<Known> = node.inputs.iter().map(|input| known[input.0 as usize]).collect();
            for demand in &self.demands[id.0 as usize] {
                let input = node.inputs[demand.input];
                let met = self.is_met(input, demand, inputs[demand.input].pad, masked);
                let site = Some(self.site(input)).filter(|site| !masked.contains(site)).unwrap_or(input);
                if !met && self.is_shared(input, demand) && !see(site) {
                    return known;
                }
                if !met {
                    inputs[demand.input].pad = Exactly(demand.need.value());
                }
            }
            known.push(self.after(id, self.transfer(id, &inputs), masked));
        }
        known
    }

    /// Whether an input's padding is what is needed: a mask sets what its own layout calls padding, which is not all of
    /// it where the demand knows one more dimension to be padded.
    fn is_met(&self, input: Id, demand: &Demand, pad: Class, masked: &BTreeSet<Id>) -> bool {
        let is_set = masked.contains(&input) && demand.layout == self.layouts[input.0 as usize];
        let pad = if is_set { Exactly(0.0) } else { pad };
        pad.meets(demand.need, self.graph.ty(input).dtype)
    }

    /// Whether a demand is met by masking the node for all its users.
    fn is_shared(&self, input: Id, demand: &Demand) -> bool {
        demand.layout == self.layouts[input.0 as usize] && matches!(demand.need, Need::Zero | Need::Finite)
    }

    /// The node that a mask belongs to: where views of it begin.
    fn site(&self, id: Id) -> Id {
        let node = self.graph.node(id);
        let views = match node.op {
            Op::Reshape | Op::Transpose { .. } | Op::Detach | Op::Unary(Unary::Neg) => true,
            Op::Cast => self.graph.ty(node.inputs[0]).dtype.is_float() && node.ty.dtype.is_float(),
            Op::Broadcast => !self.free[id.0 as usize],
            Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } | Op::Dequantize { .. } => false,
            Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select | Op::Reduce(..) | Op::Matmul => false,
            Op::Gather | Op::ScatterAdd | Op::Slice { .. } | Op::Concat { .. } => false,
            Op::Attention(_) | Op::AttentionGrad { .. } => false,
            Op::AttentionLse(_)
            | Op::AttentionLseGrad { .. }
            | Op::RandomMask { .. }
            | Op::Collective { .. } => false,
        };
        let source = node.inputs.first().filter(|source| views && !self.free[source.0 as usize]);
        source.map_or(id, |source| self.site(*source))
    }

    /// What is known once masks and places are taken into account.
    fn after(&self, id: Id, mut known: Known, masked: &BTreeSet<Id>) -> Known {
        let (at, dtype) = (id.0 as usize, self.graph.ty(id).dtype);
        if !self.padded[at] {
            known.pad = known.real;
        }
        if masked.contains(&id) {
            known.pad = Exactly(0.0);
        }
        if self.free[at] {
            known.pad = known.pad.or(known.real, dtype); // padding of others may lie where this is real
        }
        known
    }

    fn transfer(&self, id: Id, inputs: &[Known]) -> Known {
        let node = self.graph.node(id);
        let dtype = |input: usize| self.graph.ty(node.inputs[input]).dtype;
        let both = |class: Class| Known { pad: class, real: class };
        let each = |f: &dyn Fn(&[Class]) -> Class| {
            let of = |pick: fn(&Known) -> Class| f(&inputs.iter().map(pick).collect::<Vec<_>>());
            Known { pad: of(|known| known.pad), real: of(|known| known.real) }
        };
        let joined = || each(&|all| all.iter().copied().reduce(|a, b| a.or(b, node.ty.dtype)).unwrap_or(Any));
        match &node.op {
            Op::Input { .. } if !self.padded[id.0 as usize] && node.ty.dtype.is_float() => both(Finite),
            Op::Dequantize { .. } => both(Finite),
            Op::Constant { value } => both(Exactly(*value)),
            Op::Cast => each(&|x| cast(x[0], dtype(0), node.ty.dtype)),
            Op::Unary(unary) => each(&|x| of_one(*unary, x[0], node.ty.dtype)),
            Op::Binary(binary) => each(&|x| of_two(*binary, x[0], x[1], node.ty.dtype)),
            Op::Compare(compare) => each(&|x| compared(*compare, x[0], x[1])),
            Op::Select => each(&|x| match x[0].small() {
                Some(condition) => x[if condition == 0.0 { 2 } else { 1 }],
                None => x[1].or(x[2], node.ty.dtype),
            }),
            Op::Detach | Op::Reshape | Op::Transpose { .. } | Op::Broadcast => inputs[0],
            Op::Reduce(reduce, dim) => each(&|x| match reduce {
                Reduce::Sum if x[0].is_zero() => Exactly(0.0),
                Reduce::Max
                    if self.graph.ty(node.inputs[0]).shape[*dim].as_fixed().is_some_and(|n| n > 0) =>
                {
                    x[0]
                }
                Reduce::Sum | Reduce::Max => Any,
            }),
            Op::Matmul => Known { pad: self.product(node, inputs), real: Any },
            Op::Gather => {
                let any = inputs[0].pad.or(inputs[0].real, node.ty.dtype);
                Known { pad: any, real: inputs[0].real }
            }
            Op::ScatterAdd => {
                Known { pad: if inputs[0].pad.is_zero() { Exactly(0.0) } else { Any }, real: Any }
            }
            Op::Slice { dim, end, .. } => {
                let whole = *end == self.graph.ty(node.inputs[0]).shape[*dim];
                let any = inputs[0].pad.or(inputs[0].real, node.ty.dtype);
                Known { pad: if whole { inputs[0].pad } else { any }, real: inputs[0].real }
            }
            Op::Concat { .. } => joined(),
            Op::Input { .. } | Op::Iota { .. } | Op::Attention(_) | Op::AttentionGrad { .. } => both(Any),
            Op::AttentionLse(_)
            | Op::AttentionLseGrad { .. }
            | Op::RandomMask { .. }
            | Op::Collective { .. } => both(Any),
        }
    }

    /// What is in the padding of a product: zero if every sum there has a zero in each term, and nothing infinite.
    fn product(&self, node: &Node, inputs: &[Known]) -> Class {
        let (rank, dtype) = (node.ty.rank(), node.ty.dtype);
        let finite = |class: Class| class.is_finite(dtype);
        let pads = |dim: usize| self.padding.touches(&node.ty.shape[dim]);
        let [a, b] = [&inputs[0], &inputs[1]];
        let rows = a.pad.is_zero() && finite(b.pad) && finite(b.real);
        let columns = b.pad.is_zero() && finite(a.pad) && finite(a.real);
        let both = (a.pad.is_zero() && finite(b.pad)) || (b.pad.is_zero() && finite(a.pad));
        let zero =
            (!pads(rank - 2) || rows) && (!pads(rank - 1) || columns) && (!(0..rank - 2).any(pads) || both);
        if zero { Exactly(0.0) } else { Any }
    }

    /// A demand on an input, along some of its dimensions: where it has no factors there, those of another one, or its
    /// own size.
    fn demand(&self, node: &Node, input: usize, need: Need, along: &[(usize, Option<&Axis>)]) -> Demand {
        let id = node.inputs[input];
        let mut layout = self.layouts[id.0 as usize].clone();
        for (dim, other) in along {
            let size = &self.graph.ty(id).shape[*dim];
            let other = other.cloned().flatten().or_else(|| leading(size));
            layout[*dim] = layout[*dim].clone().or(other);
        }
        Demand { input, need, layout }
    }

    fn touches(&self, id: Id, dim: usize) -> bool {
        self.padding.touches(&self.graph.ty(id).shape[dim])
    }

    /// What an operation needs of its inputs, so that nothing of their padding is in a real place of its output.
    fn needs(&self, id: Id) -> Vec<Demand> {
        let node = self.graph.node(id);
        let ins = &node.inputs;
        let pads = |input: usize| self.padded[ins[input].0 as usize];
        match &node.op {
            Op::Reduce(reduce, dim) if self.touches(ins[0], *dim) => {
                let need = if *reduce == Reduce::Sum { Need::Zero } else { Need::Value(f64::NEG_INFINITY) };
                vec![self.demand(node, 0, need, &[(*dim, None)])]
            }
            Op::Matmul => self.needs_of_product(node),
            Op::Gather if pads(1) => vec![self.demand(node, 1, Need::Zero, &[])],
            Op::ScatterAdd => self.needs_of_sums(node),
            Op::Binary(Binary::Div) if node.ty.dtype == Dtype::I32 && pads(1) => {
                vec![self.demand(node, 1, Need::NotZero, &[])]
            }
            Op::Concat { dim } => self.needs_of_parts(node, *dim),
            Op::Attention(_) | Op::AttentionLse(_) => self.needs_of_attention(node, false),
            Op::AttentionLseGrad { .. } => Vec::new(), // opened before
            Op::RandomMask { .. } | Op::Collective { .. } => Vec::new(), // each place for itself
            Op::AttentionGrad { .. } => self.needs_of_attention(node, true),
            Op::Reduce(..) | Op::Gather | Op::Binary(_) => Vec::new(), // without such padding
            Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } | Op::Dequantize { .. } => Vec::new(),
            Op::Cast | Op::Detach | Op::Unary(_) | Op::Compare(_) | Op::Select => Vec::new(),
            Op::Reshape | Op::Transpose { .. } | Op::Broadcast | Op::Slice { .. } => Vec::new(),
        }
    }

    fn needs_of_product(&self, node: &Node) -> Vec<Demand> {
        let rank = node.ty.rank();
        let (a, b) = ((node.inputs[0], rank - 1), (node.inputs[1], rank - 2));
        if !self.touches(a.0, a.1) {
            return Vec::new();
        }
        let of = |input, at: (Id, usize), other: (Id, usize)| {
            self.demand(node, input, Need::Zero, &[(at.1, Some(self.axis(other.0, other.1)))])
        };
        vec![of(0, a, b), of(1, b, a)]
    }

    fn needs_of_sums(&self, node: &Node) -> Vec<Demand> {
        let [_, index] = node.inputs[..] else { return Vec::new() };
        let dims: Vec<usize> =
            (0..self.graph.ty(index).rank()).filter(|dim| self.touches(index, *dim)).collect();
        let along: Vec<_> = dims.iter().map(|dim| (*dim, Some(self.axis(index, *dim)))).collect();
        let mut demands = Vec::new();
        if !dims.is_empty() {
            demands.push(self.demand(node, 0, Need::Zero, &along));
        }
        if self.padded[index.0 as usize] {
            demands.push(self.demand(node, 1, Need::Zero, &[]));
        }
        demands
    }

    /// What follows a padded part begins within its padding, in truth.
    fn needs_of_parts(&self, node: &Node, dim: usize) -> Vec<Demand> {
        let Some(part) = node.inputs.iter().position(|part| self.touches(*part, dim)) else {
            return Vec::new();
        };
        let after = node.inputs[part + 1..].first().map(|id| &self.graph.node(*id).op);
        let Some(Op::Constant { value }) = after else {
            return Vec::new(); // nothing follows, or the real places are gathered
        };
        vec![self.demand(node, part, Need::Value(*value), &[(dim, None)])]
    }

    /// The mask makes the weight of padded keys and queries 0, which is no help against what is not finite.
    fn needs_of_attention(&self, node: &Node, gradient: bool) -> Vec<Demand> {
        let [q, k, v, ..] = node.inputs[..] else { return Vec::new() };
        let g = node.inputs.len() - 1;
        let pads = |id: Id, dim: usize| self.touches(id, dim);
        let places = pads(q, 2) || pads(k, 2);
        let mut demands = Vec::new();
        let mut ask = |input: usize, need: Need, other: [Option<Id>; 2]| {
            let axis = |dim: usize, other: Option<Id>| other.map(|other| (dim, Some(self.axis(other, dim))));
            let along: Vec<_> = [axis(2, other[0]), axis(3, other[1])].into_iter().flatten().collect();
            demands.push(self.demand(node, input, need, &along));
        };
        if places {
            ask(2, if gradient { Need::Zero } else { Need::Finite }, [Some(k), None]);
        }
        if places && gradient {
            let last = node.inputs[g];
            ask(0, Need::Finite, [Some(last), None]);
            ask(1, Need::Finite, [Some(v), None]);
            ask(g, Need::Finite, [Some(q), None]);
        }
        if pads(q, 3) {
            ask(0, Need::Zero, [None, Some(k)]);
            ask(1, Need::Zero, [None, Some(q)]);
        }
        if pads(v, 3) && gradient {
            let last = node.inputs[g];
            ask(2, Need::Zero, [None, Some(last)]);
            ask(g, Need::Zero, [None, Some(v)]);
        }
        demands
    }
}

fn cast(x: Class, from: Dtype, to: Dtype) -> Class {
    match x {
        Exactly(_) if x.small().is_some_and(|value| value >= 0.0 || to != Dtype::U8) => x,
        Zero => Zero,
        Finite if from.is_float() && to.is_float() => Finite, // of a weight, which is finite in the type it is used in
        _ => Any,
    }
}

fn of_one(unary: Unary, x: Class, dtype: Dtype) -> Class {
    let finite = x.is_finite(dtype);
    if let (Unary::Neg, Exactly(value)) = (unary, x) {
        return Exactly(-value);
    }
    match unary {
        Unary::Exp | Unary::Cos if x.is_zero() => Exactly(1.0),
        Unary::Exp if x.is(Exactly(f64::NEG_INFINITY)) => Exactly(0.0),
        Unary::Neg | Unary::Sqrt | Unary::Tanh | Unary::Sin if x.is_zero() => Zero,
        Unary::Neg | Unary::Tanh | Unary::Sigmoid | Unary::Sin | Unary::Cos if finite => Finite,
        Unary::Neg | Unary::Exp | Unary::Log | Unary::Sqrt => Any,
        Unary::Tanh | Unary::Sigmoid | Unary::Sin | Unary::Cos => Any,
    }
}

#[allow(clippy::float_cmp)] // of equal numbers either is given, and zeros have two signs
fn of_two(binary: Binary, a: Class, b: Class, dtype: Dtype) -> Class {
    let small = |value: f64| Exactly(value).small().map(Exactly);
    if let (Some(x), Some(y)) = (a.small(), b.small()) {
        let value = match binary {
            Binary::Add => x + y,
            Binary::Sub => x - y,
            Binary::Mul => x * y,
            Binary::Div if y != 0.0 && dtype.is_float() => x / y,
            Binary::Min if x < y => x,
            Binary::Max if x > y => x,
            Binary::Min | Binary::Max if x != y => y,
            Binary::Div | Binary::Min | Binary::Max => f64::NAN, // not known
        };
        if let Some(value) = small(value) {
            return value;
        }
    }
    let (zeros, finite) = (a.is_zero() && b.is_zero(), a.is_finite(dtype) && b.is_finite(dtype));
    match binary {
        Binary::Mul if (a.is_zero() || b.is_zero()) && finite => Zero,
        Binary::Div if a.is_zero() && b.small().is_some_and(|value| value != 0.0) => Zero,
        Binary::Add if zeros && (a.is(Exactly(0.0)) || b.is(Exactly(0.0))) => Exactly(0.0),
        Binary::Add | Binary::Sub | Binary::Min | Binary::Max if zeros => Zero,
        Binary::Min if dtype == Dtype::U8 && (a.is_zero() || b.is_zero()) => Zero,
        Binary::Min | Binary::Max if finite => Finite,
        Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Min | Binary::Max => Any,
    }
}

fn compared(compare: reference::graph::Compare, a: Class, b: Class) -> Class {
    match (a.small(), b.small()) {
        (Some(a), Some(b)) => Exactly(f64::from(u8::from(match compare {
            reference::graph::Compare::Less => a < b,
            reference::graph::Compare::Equal => (a - b).abs() < 0.5,
        }))),
        _ => Any,
    }
}
