//! A graph whose sizes are numbers.

use std::collections::BTreeMap;

use reference::graph::{Dim, Graph, Id, Op, Symbol};

/// A graph and the shape of each node.
pub struct Sized<'a> {
    /// The graph.
    pub graph: &'a Graph,
    sizes: BTreeMap<Symbol, i64>,
    shapes: Vec<Vec<usize>>,
    users: Vec<Vec<Id>>,
}

impl<'a> Sized<'a> {
    /// Binds every symbol; the first one that is not bound, otherwise.
    pub fn new(graph: &'a Graph, sizes: &BTreeMap<Symbol, i64>) -> Result<Self, Symbol> {
        let size = |dim: &Dim| dim.value(sizes).map(|size| usize::try_from(size).unwrap_or(0));
        let shape = |id: Id| graph.ty(id).shape.iter().map(size).collect::<Result<Vec<_>, _>>();
        let mut users = vec![Vec::new(); graph.nodes().len()];
        for id in graph.ids() {
            graph.node(id).inputs.iter().for_each(|input| users[input.0 as usize].push(id));
        }
        Ok(Self {
            graph,
            sizes: sizes.clone(),
            shapes: graph.ids().map(shape).collect::<Result<_, _>>()?,
            users,
        })
    }

    /// A node's shape.
    pub fn shape(&self, id: Id) -> &[usize] {
        &self.shapes[id.0 as usize]
    }

    /// A node's number of elements.
    pub fn elements(&self, id: Id) -> usize {
        self.shape(id).iter().product()
    }

    /// What every symbol is bound to.
    pub fn sizes(&self) -> &BTreeMap<Symbol, i64> {
        &self.sizes
    }

    /// A size in numbers.
    pub fn size(&self, dim: &Dim) -> usize {
        dim.value(&self.sizes).map_or(0, |size| usize::try_from(size).unwrap_or(0))
    }

    /// The nodes that use a node, once for each use.
    pub fn users(&self, id: Id) -> &[Id] {
        &self.users[id.0 as usize]
    }

    /// Whether a node is an output.
    pub fn is_output(&self, id: Id) -> bool {
        self.graph.outputs().iter().any(|(_, output)| *output == id)
    }

    /// Whether a node is another one's elements in another arrangement.
    pub fn is_view(&self, id: Id) -> bool {
        let op = &self.graph.node(id).op;
        matches!(op, Op::Reshape | Op::Transpose { .. } | Op::Broadcast | Op::Slice { .. } | Op::Detach)
    }
}
