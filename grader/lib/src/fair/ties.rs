//! Comparisons that rounding decides: two numbers, computed in two ways, that are nearer to each other than the fair
//! tolerance tells apart.
//!
//! A compiled sum may be taken in another order. Which of two such sums is less can turn with it, and a bit of a mask,
//! a chosen row or a truncated integer turns as a whole. Values of which this is true say nothing about a compiler, so
//! others are drawn. Elements of one computed tensor are compared exactly, wherever they stand and however they were
//! chosen: a gradient finds the largest of a row by `x == max(x)`.

use std::collections::BTreeSet;

use reference::graph::{Array, Binary, Graph, Id, Op, Reduce, Unary};

use super::{rounding, slack};

/// What a graph decides by floats that rounding reaches.
pub struct Ties {
    probe: Graph, // whose outputs are the two sides of each decision, one after the other
    decisions: Vec<Decision>,
}

/// A comparison of floats, or a float that is cut to an integer.
struct Decision {
    node: Id,
    rounding: f64,
    truncates: bool,
}

/// What the sides of all decisions are: in f64, and in f32 as plainly computed.
pub struct Sides<'a> {
    /// In f64.
    pub truth: &'a [Array<f64>],
    /// In f32.
    pub naive: &'a [Array<f32>],
}

impl Ties {
    /// The decisions of a graph; `None` where it has none.
    pub fn of(graph: &Graph) -> Option<Self> {
        let origins = origins(graph);
        let mut probe = graph.clone();
        probe.clear_outputs();
        let mut decisions = Vec::new();
        for node in graph.live() {
            let Some(sides) = sides(graph, &origins, node) else { continue };
            let rounding = sides.map(|side| rounding(graph, side)).into_iter().fold(0.0, f64::max);
            decisions.push(Decision { node, rounding, truncates: graph.node(node).op == Op::Cast });
            sides.into_iter().enumerate().for_each(|(i, side)| probe.output(format!("{node:?}.{i}"), side));
        }
        (!decisions.is_empty()).then_some(Self { probe, decisions })
    }

    /// The graph whose outputs are the sides.
    pub fn probe(&self) -> &Graph {
        &self.probe
    }

    /// The first node that rounding decides.
    pub fn first(&self, sides: &Sides<'_>) -> Option<Id> {
        let each = self.decisions.iter().zip(sides.truth.chunks(2).zip(sides.naive.chunks(2)));
        each.filter(|(decision, (truth, naive))| decision.is_open(truth, naive))
            .map(|(decision, _)| decision.node)
            .next()
    }
}

impl Decision {
    fn is_open(&self, truth: &[Array<f64>], naive: &[Array<f32>]) -> bool {
        let [a, b] = [0, 1].map(|side| truth[side].wide());
        let off = [0, 1].map(|side| {
            let errors = naive[side].wide().into_iter().zip(truth[side].wide());
            errors.map(|(naive, truth)| 3.0 * (naive - truth).abs()).collect::<Vec<_>>()
        });
        let slack = slack(a.iter().chain(&b), self.rounding);
        (0..a.len()).any(|i| {
            let other = if self.truncates { a[i].round() } else { b[i] };
            (a[i] - other).abs() <= off[0][i] + off[1][i] + slack
        })
    }
}

/// What a node decides between: the two floats that it compares, or the one that it cuts to an integer, twice; `None`
/// where rounding does not come into it.
fn sides(graph: &Graph, origins: &[BTreeSet<Id>], id: Id) -> Option<[Id; 2]> {
    let node = graph.node(id);
    let of = |id: Id| &origins[id.0 as usize];
    let &a = node.inputs.first().filter(|input| graph.ty(**input).dtype.is_float())?;
    if matches!(node.op, Op::Compare(_)) {
        let b = node.inputs[1];
        return (of(a) != of(b)).then_some([a, b]);
    }
    let truncates = node.op == Op::Cast && !node.ty.dtype.is_float();
    (truncates && !of(a).is_empty()).then_some([a, a])
}

/// For each node the computed tensors that its elements are taken from, unchanged but for their sign; none where they
/// are inputs or constants.
fn origins(graph: &Graph) -> Vec<BTreeSet<Id>> {
    let mut origins: Vec<BTreeSet<Id>> = Vec::with_capacity(graph.nodes().len());
    for id in graph.ids() {
        let own = match taken_from(graph, id) {
            Some(inputs) => inputs.iter().flat_map(|input| origins[input.0 as usize].clone()).collect(),
            None => [id].into(),
        };
        origins.push(own);
    }
    origins
}

/// The inputs whose elements a node hands on; `None` where it computes others.
fn taken_from(graph: &Graph, id: Id) -> Option<&[Id]> {
    let node = graph.node(id);
    let is_whole = |input: &Id| !graph.ty(*input).dtype.is_float();
    match &node.op {
        Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } | Op::RandomMask { .. } => Some(&[]),
        Op::Compare(_) | Op::Dequantize { .. } => Some(&[]), // to the bit
        Op::Select => Some(&node.inputs[1..]),
        Op::Gather => Some(&node.inputs[..1]),
        Op::Unary(Unary::Neg) | Op::Binary(Binary::Min | Binary::Max) => Some(&node.inputs),
        Op::Reduce(Reduce::Max, _) | Op::Concat { .. } => Some(&node.inputs),
        Op::Detach | Op::Reshape | Op::Transpose { .. } | Op::Broadcast | Op::Slice { .. } => {
            Some(&node.inputs)
        }
        Op::Cast => node.inputs.iter().all(is_whole).then_some(&[]),
        Op::Unary(_) | Op::Binary(_) | Op::Reduce(Reduce::Sum, _) | Op::Matmul | Op::ScatterAdd => None,
        Op::Attention(_) | Op::AttentionGrad { .. } | Op::AttentionLse(_) => None,
        Op::AttentionLseGrad { .. } | Op::Collective { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use reference::graph::interpret::Values;
    use reference::graph::{Builder, Dtype, Tensor, interpret};

    use super::*;

    /// Whether rounding decides something of `(1, 3)` floats, and of others that are computed with them.
    fn is_tied(x: [f64; 3], program: impl Fn(&Tensor) -> Tensor) -> bool {
        let builder = Builder::new("ties");
        let tape = builder.tape();
        tape.output("y", &program(&tape.input("x", Dtype::F32, [1, 3])));
        let graph = builder.finish().expect("a graph");
        let Some(ties) = Ties::of(&graph) else { return false };
        let wide: Values<f64> = [("x".to_owned(), Array::floats(Dtype::F32, &[1, 3], x))].into();
        let narrow: Values<f32> = [("x".to_owned(), Array::floats(Dtype::F32, &[1, 3], x))].into();
        let truth = interpret(ties.probe(), &wide).expect("runs");
        let naive = interpret(ties.probe(), &narrow).expect("runs");
        ties.first(&Sides { truth: &truth, naive: &naive }).is_some()
    }

    #[test]
    fn rounding_decides_between_two_sums_of_the_same() {
        let turned = |x: &Tensor| x.t().sum(0).less(&x.sum(1));
        assert!(is_tied([0.1, 0.2, 0.3], turned));
        assert!(is_tied([0.1, 0.2, 0.7], |x| (&x.sum(1) * 3.0).cast(Dtype::I32)));
        assert!(is_tied([1.0, 2.0, 4.0], |x| x.mean(1).less(&x.sum(1).like(7.0 / 3.0))));
    }

    #[test]
    fn what_is_apart_or_taken_from_one_tensor_is_exact() {
        assert!(!is_tied([0.1, 0.2, 0.3], |x| x.less(&x.sum(1).spread(x.shape()))));
        assert!(!is_tied([0.1, 0.2, 0.7], |x| (&x.sum(1) * 3.4).cast(Dtype::I32)));
        assert!(!is_tied([0.1, 0.1, 0.2], |x| x.equal(&x.reduce_max(1).spread(x.shape()))));
        let chosen = |x: &Tensor| {
            let x = x.exp();
            x.equal(&x.reduce_max(1).spread(x.shape()))
        };
        assert!(!is_tied([0.1, 0.1, 0.2], chosen));
        assert!(!is_tied([f64::NAN, f64::INFINITY, 1.0], |x| (&x.exp() * 1.5).less(&x.exp())));
    }
}
