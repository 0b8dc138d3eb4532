//! The graph with its masks.

use std::collections::BTreeMap;

use reference::graph::{Attention, Builder, Dim, Error, Graph, Id, Node, Op, Symbol, Tensor, Type};

use super::arrange::Arranged;
use super::attend::{bounded, bounds};
use super::layout::{Axis, Layout, Padding};
use super::neutral::Chosen;
use super::sizes::{Sizes, length_name};

struct Emitter<'a> {
    arranged: &'a Arranged,
    padding: &'a Padding,
    builder: &'a Builder,
    sizes: Option<Sizes<'a>>,
    place: Vec<Tensor>,
    set: BTreeMap<(Id, Layout, u64), Tensor>,
    selects: usize,
}

/// The graph, and how many selects it has more.
pub fn emit(arranged: &Arranged, padding: &Padding, chosen: &Chosen) -> Result<(Graph, usize), Error> {
    let graph = &arranged.graph;
    let builder = Builder::new(&graph.name);
    graph.known().iter().for_each(|(symbol, facts)| drop(builder.tape().symbol(symbol, *facts)));
    let (place, set) = (Vec::new(), BTreeMap::new());
    let mut emitter = Emitter { arranged, padding, builder: &builder, sizes: None, place, set, selects: 0 };
    for id in graph.ids() {
        emitter.node(id, chosen)?;
    }
    for (name, id) in graph.outputs() {
        builder.tape().output(name, &emitter.place[id.0 as usize]);
    }
    let selects = emitter.selects;
    Ok((builder.finish()?, selects))
}

impl<'a> Emitter<'a> {
    fn node(&mut self, id: Id, chosen: &Chosen) -> Result<(), Error> {
        let (graph, at) = (&self.arranged.graph, id.0 as usize);
        let node = graph.node(id);
        let mut inputs: Vec<Tensor> =
            node.inputs.iter().map(|input| self.place[input.0 as usize].clone()).collect();
        for demand in &chosen.own[at] {
            let input = node.inputs[demand.input];
            inputs[demand.input] = self.with(input, &demand.layout, demand.need.value());
        }
        let tape = self.builder.tape().clone();
        let here = if node.scope.is_empty() {
            self.apply(node, inputs)?
        } else {
            tape.within(&node.scope, || self.apply(node, inputs))?
        };
        self.place.push(here);
        if chosen.masked.contains(&id) {
            let layout = self.arranged.layouts[at].clone();
            self.place[at] = self.with(id, &layout, 0.0);
        }
        Ok(())
    }

    fn apply(&mut self, node: &Node, mut inputs: Vec<Tensor>) -> Result<Tensor, Error> {
        let op = match &node.op {
            Op::Attention(attention) => {
                Op::Attention(Box::new(self.attention(node, attention, &mut inputs, 0)?))
            }
            Op::AttentionGrad { attention, wrt } => {
                let attention = Box::new(self.attention(node, attention, &mut inputs, 1)?);
                Op::AttentionGrad { attention, wrt: *wrt }
            }
            Op::AttentionLse(attention) => {
                Op::AttentionLse(Box::new(self.attention(node, attention, &mut inputs, 0)?))
            }
            Op::AttentionLseGrad { .. } => node.op.clone(), // opened before
            Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } | Op::Dequantize { .. } => {
                node.op.clone()
            }
            Op::Cast | Op::Detach | Op::Unary(_) | Op::Binary(_) | Op::Compare(_) => node.op.clone(),
            Op::Select | Op::Reduce(..) | Op::Matmul | Op::Gather | Op::ScatterAdd => node.op.clone(),
            Op::Reshape | Op::Transpose { .. } | Op::Broadcast | Op::Slice { .. } => node.op.clone(),
            Op::Concat { .. } | Op::RandomMask { .. } | Op::Collective { .. } => node.op.clone(),
        };
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        let ty = op.takes_type().then(|| node.ty.clone());
        Ok(self.builder.tape().apply(op, &inputs, ty))
    }

    /// The attention of real places; the extras that it needs go before the `after` last inputs.
    fn attention(
        &mut self,
        node: &Node,
        attention: &Attention,
        inputs: &mut Vec<Tensor>,
        trailing: usize,
    ) -> Result<Attention, Error> {
        let arranged = self.arranged;
        let axis = |input: usize, dim: usize| -> (&Axis, &Dim) {
            let id = node.inputs[input];
            (&arranged.layouts[id.0 as usize][dim], &arranged.graph.ty(id).shape[dim])
        };
        let either = |a: (&'a Axis, &'a Dim), b: (&'a Axis, &'a Dim)| if a.0.is_some() { a } else { b };
        let last = node.inputs.len() - 1;
        let queries = if trailing == 1 { either(axis(0, 2), axis(last, 2)) } else { axis(0, 2) };
        let batch = either(either(axis(0, 0), axis(1, 0)), axis(2, 0));
        let axes = [batch, axis(0, 1), queries, either(axis(1, 2), axis(2, 2))];
        let padding = self.padding;
        let bounds = bounds(self.sizes(), padding, axes);
        if bounds.is_empty() {
            return Ok(attention.clone());
        }
        let end = inputs.len() - trailing;
        let extras: Vec<Type> = inputs[3..end].iter().map(|extra| extra.ty().clone()).collect();
        inputs.splice(end..end, bounds.iter().map(|bound| bound.extra.clone()));
        bounded(attention, &extras, &bounds)
    }

    fn sizes(&mut self) -> &mut Sizes<'a> {
        let (builder, padding, graph) = (self.builder, self.padding, &self.arranged.graph);
        let place = &self.place;
        self.sizes.get_or_insert_with(|| {
            let length = |symbol: &Symbol| {
                let id = graph.find_input(&length_name(symbol)).expect("every padded symbol has a length");
                (symbol.clone(), place[id.0 as usize].clone())
            };
            Sizes::new(builder, padding, padding.0.iter().map(length).collect())
        })
    }

    /// A node with a value in its padding.
    fn with(&mut self, id: Id, layout: &Layout, value: f64) -> Tensor {
        let key = (id, layout.clone(), value.to_bits());
        if let Some(set) = self.set.get(&key) {
            return set.clone();
        }
        let x = self.place[id.0 as usize].clone();
        let mask = self.sizes().mask(layout, x.shape());
        let set = self.builder.tape().within("padding", || mask.select(&x, &x.like(value)));
        self.selects += 1;
        self.set.insert(key, set.clone());
        set
    }
}
