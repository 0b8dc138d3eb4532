//! Where the first number that is not finite comes from.
//!
//! The graph of a micro-batch is run once more with one output for each of its nodes: its largest absolute element. The
//! first node that is not finite though all that it reads is finite is the one to look at. Nothing is kept of the nodes
//! but these numbers, so this takes as much memory as a micro-batch with all its logits; it is made when a run ends,
//! and costs nothing before.

use std::collections::BTreeMap;
use std::fmt;

use compiler::session::Io;
use reference::graph::{Builder, Dtype, Graph, Id, Op, Tensor};
use reference::llama::train;

use super::{Accumulate, Error, Replica};
use crate::step::Microbatch;

/// The first number that is not finite.
#[derive(Clone, Debug, PartialEq)]
pub struct NotFinite {
    /// The part of the model, as its weights are called: `model.layers.3.mlp`.
    pub layer: String,
    /// The operation, with its number in the graph: `%512 mul`.
    pub op: String,
    /// The type and the shape.
    pub ty: String,
    /// The largest absolute element of what it reads, if it reads floats.
    pub reads: Option<f64>,
}

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer, op, ty, reads } = self;
        let layer = if layer.is_empty() { "the model" } else { layer };
        write!(f, "in {layer}, `{op}` : {ty}")?;
        reads.map_or(Ok(()), |reads| write!(f, ", which reads numbers up to {reads:.3e}"))
    }
}

impl Replica<'_> {
    /// Where the first number that is not finite comes from in a micro-batch, forward and backward, with A and B as
    /// they are; `None` if all are finite.
    ///
    /// # Errors
    /// What the session says: memory that there is not.
    pub fn first_not_finite(
        &mut self,
        batch: &Microbatch,
        items: u64,
        key: [i32; 2],
    ) -> Result<Option<NotFinite>, Error> {
        self.fit(batch)?;
        self.put_batch(batch, items, key)?;
        let (spec, head) = match &self.accumulate {
            Accumulate::Chunked(states) => {
                let (spec, name, weight) = states.own_head(&self.spec);
                (spec, Some((name, weight)))
            }
            Accumulate::Whole(_) => (self.spec.clone(), None),
        };
        let graph = train::accumulate_graph(&spec).map_err(Error::Graph)?;
        let (probe, probed) = probe(&graph).map_err(Error::Graph)?;
        let program = self.session.load(&probe).map_err(Error::Session)?;
        let mut io = Io::from(&self.tables);
        io.inputs.extend(self.batch.iter().map(|(name, tensor)| (name.as_str(), tensor)));
        io.inputs.extend(head);
        let outputs = self.session.run(program, io).map_err(Error::Session)?;
        let mut largest = BTreeMap::new();
        for id in probed {
            let value = outputs.array(&name(id)).map_err(Error::Session)?;
            largest.insert(id, value.wide().first().copied().unwrap_or(0.0));
        }
        Ok(first(&graph, &largest))
    }
}

/// The graph whose outputs are the largest absolute elements of a graph's nodes of floats, and those nodes.
fn probe(graph: &Graph) -> Result<(Graph, Vec<Id>), reference::graph::Error> {
    let mut cleared = graph.clone();
    cleared.clear_outputs();
    "first_not_finite".clone_into(&mut cleared.name);
    let is_float = |id: &Id| graph.ty(*id).dtype.is_float();
    let probed: Vec<Id> = graph.live().into_iter().filter(is_float).collect();
    let builder = Builder::onto(cleared);
    for id in &probed {
        builder.tape().output(&name(*id), &largest(&builder.tensor(*id)));
    }
    Ok((builder.finish()?, probed))
}

fn name(id: Id) -> String {
    format!("%{}", id.0)
}

/// The largest absolute element, f32 (); NaN if one is.
fn largest(x: &Tensor) -> Tensor {
    let wide = x.cast(Dtype::F32);
    let absolute = wide.max(&-&wide);
    let rank = absolute.shape().len();
    (0..rank).fold(absolute, |x, dim| x.reduce_max(dim)).reshape([] as [i64; 0])
}

/// The first node that is not finite though all that it reads is.
fn first(graph: &Graph, largest: &BTreeMap<Id, f64>) -> Option<NotFinite> {
    let is_finite = |id: &Id| largest.get(id).is_none_or(|largest| largest.is_finite());
    for id in largest.keys().filter(|id| !is_finite(id)) {
        let node = graph.node(*id);
        if matches!(node.op, Op::Constant { .. }) || !node.inputs.iter().all(is_finite) {
            continue;
        }
        let reads = node.inputs.iter().filter_map(|input| largest.get(input));
        return Some(NotFinite {
            layer: node.scope.clone(),
            op: graph.site(*id),
            ty: node.ty.to_string(),
            reads: reads.copied().reduce(f64::max),
        });
    }
    None
}
