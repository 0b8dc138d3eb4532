//! The one loop that carries every pass.
//!
//! A pass goes through a graph node by node and says of each what stands for it in a new graph: a copy, another node,
//! several, or nothing. [`Graph::rewrite`] does what all passes have in common: it maps the inputs, keeps the symbols'
//! facts, the scopes, the inputs' and outputs' names and order, and remembers which old node each new one was written
//! for. A pass is then the part that is its own:
//!
//! ```
//! use reference::graph::{Error, Graph, Op, Rewrite};
//!
//! /// The same graph, without what stops gradients.
//! fn without_detach(graph: &Graph) -> Result<Graph, Error> {
//!     let rewritten = graph.rewrite(|rewrite, id| {
//!         let detaches = rewrite.node(id).op == Op::Detach;
//!         let here = if detaches { rewrite.input(id, 0)? } else { rewrite.copy(id)? };
//!         Ok(Some(here))
//!     })?;
//!     Ok(rewritten.graph)
//! }
//! # let graph = Graph::parse(r#"graph "g" { %0 = input "x" : f32[2] %1 = detach %0 : f32[2] return "y" %1 }"#)?;
//! # assert_eq!(without_detach(&graph)?.nodes().len(), 1);
//! # Ok::<(), Error>(())
//! ```
//!
//! What computes with a graph instead of writing another one - values, handles - is a [`Graph::fold`].

use super::{Error, Fault, Graph, Id, Node, Op, Type};

/// A graph on its way to another one.
pub struct Rewrite<'a> {
    from: &'a Graph,
    to: Graph,
    place: Vec<Option<Id>>, // of the old nodes that were written
    origin: Vec<Id>,        // of the new nodes
    current: Id,
}

/// A graph, and how it came from another one.
#[derive(Clone, Debug)]
pub struct Rewritten {
    /// The new graph.
    pub graph: Graph,
    /// What stands for each old node, by its number; `None` if nothing does.
    pub place: Vec<Option<Id>>,
    /// For which old node each new one was written, by its number.
    pub origin: Vec<Id>,
}

impl Graph {
    /// Writes a graph anew. `write` is asked for every node in order, and says what stands for it; `None` if nothing
    /// does, which is right if nobody reads it.
    ///
    /// Fails where `write` does, something reads a node for which nothing stands, or a name is used twice.
    pub fn rewrite<W>(&self, write: W) -> Result<Rewritten, Error>
    where
        W: FnMut(&mut Rewrite<'_>, Id) -> Result<Option<Id>, Error>,
    {
        self.rewrite_onto(self.empty(), write)
    }

    /// [`rewrite`](Self::rewrite) in another order, of every node once, in which each comes after its inputs.
    ///
    /// Fails as that does, and where a node comes before its inputs.
    pub fn rewrite_in<W>(&self, order: &[Id], write: W) -> Result<Rewritten, Error>
    where
        W: FnMut(&mut Rewrite<'_>, Id) -> Result<Option<Id>, Error>,
    {
        self.rewrite_each(self.empty(), order.iter().copied(), write)
    }

    /// A graph of that name and those facts, and nothing else.
    fn empty(&self) -> Graph {
        let mut empty = Graph::new(&self.name);
        empty.known.clone_from(&self.known);
        empty
    }

    /// [`rewrite`](Self::rewrite) onto a graph that is there: its nodes, outputs and facts stay.
    pub fn rewrite_onto<W>(&self, to: Graph, write: W) -> Result<Rewritten, Error>
    where
        W: FnMut(&mut Rewrite<'_>, Id) -> Result<Option<Id>, Error>,
    {
        self.rewrite_each(to, self.ids(), write)
    }

    fn rewrite_each<W>(
        &self,
        to: Graph,
        order: impl Iterator<Item = Id>,
        mut write: W,
    ) -> Result<Rewritten, Error>
    where
        W: FnMut(&mut Rewrite<'_>, Id) -> Result<Option<Id>, Error>,
    {
        let mut rewrite = Rewrite::new(self, to);
        for id in order {
            rewrite.current = id;
            rewrite.place[id.0 as usize] = write(&mut rewrite, id)?;
        }
        rewrite.finish()
    }

    /// Goes through a graph with anything that can stand for a node, such as handles: `step` makes it for each node
    /// from what stands for the node's inputs. What stands for every node, in order.
    ///
    /// Fails where `step` does.
    pub fn fold<T: Clone, E>(
        &self,
        mut step: impl FnMut(Id, &Node, Vec<T>) -> Result<T, E>,
    ) -> Result<Vec<T>, E> {
        let mut values: Vec<T> = Vec::with_capacity(self.nodes.len());
        for id in self.ids() {
            let node = self.node(id);
            let inputs = node.inputs.iter().map(|input| values[input.0 as usize].clone()).collect();
            values.push(step(id, node, inputs)?);
        }
        Ok(values)
    }
}

impl<'a> Rewrite<'a> {
    fn new(from: &'a Graph, to: Graph) -> Self {
        let origin = vec![Id(0); to.nodes.len()];
        Self { from, place: vec![None; from.nodes.len()], to, origin, current: Id(0) }
    }

    /// The graph that is rewritten.
    pub fn from(&self) -> &'a Graph {
        self.from
    }

    /// The new graph, as far as it is written.
    pub fn to(&self) -> &Graph {
        &self.to
    }

    /// A node of the old graph.
    pub fn node(&self, id: Id) -> &'a Node {
        self.from.node(id)
    }

    /// What stands for an old node; `None` if nothing does yet.
    pub fn find(&self, id: Id) -> Option<Id> {
        self.place.get(id.0 as usize).copied().flatten()
    }

    /// What stands for an old node.
    ///
    /// Fails if nothing does.
    pub fn at(&self, id: Id) -> Result<Id, Error> {
        self.find(id).ok_or_else(|| Fault::NoSuchNode { id }.of(&self.from.name))
    }

    /// What stands for an input of an old node, by the input's number.
    ///
    /// Fails if nothing does, or the node has no such input.
    pub fn input(&self, id: Id, input: usize) -> Result<Id, Error> {
        let inputs = &self.node(id).inputs;
        let got = inputs.len();
        let id =
            inputs.get(input).ok_or_else(|| Fault::Arity { got, need: "more" }.of(&self.from.site(id)))?;
        self.at(*id)
    }

    /// What stands for each input of an old node.
    ///
    /// Fails if nothing does.
    pub fn inputs(&self, id: Id) -> Result<Vec<Id>, Error> {
        self.node(id).inputs.iter().map(|input| self.at(*input)).collect()
    }

    /// Writes an old node as it is, to what stands for its inputs.
    pub fn copy(&mut self, id: Id) -> Result<Id, Error> {
        let inputs = self.inputs(id)?;
        self.copy_to(id, &inputs)
    }

    /// Writes an old node as it is, to other inputs (nodes of the new graph).
    pub fn copy_to(&mut self, id: Id, inputs: &[Id]) -> Result<Id, Error> {
        let node = self.node(id);
        self.copy_as(id, inputs, &node.scope)
    }

    /// [`copy_to`](Self::copy_to) in another part of the model.
    pub fn copy_as(&mut self, id: Id, inputs: &[Id], scope: &str) -> Result<Id, Error> {
        let node = self.node(id);
        self.add(node.op.clone(), inputs, Some(node.ty.clone()), scope)
    }

    /// Writes a new node.
    ///
    /// Fails as [`Graph::add`] does.
    pub fn add(&mut self, op: Op, inputs: &[Id], ty: Option<Type>, scope: &str) -> Result<Id, Error> {
        let id = self.to.add(op, inputs, ty, scope)?;
        self.origin.push(self.current);
        Ok(id)
    }

    /// Writes every node of another graph, its inputs, in order, replaced by nodes of the new graph; what stands for
    /// its outputs. All of it belongs to the part of the model given, or to that of each node where none is.
    ///
    /// Fails where there are fewer nodes than inputs, or one does not fit.
    pub fn inline(&mut self, other: &Graph, inputs: &[Id], scope: Option<&str>) -> Result<Vec<Id>, Error> {
        let mut given = inputs.iter();
        let place = other.fold(|_, node, inputs: Vec<Id>| {
            if let Op::Input { name } = &node.op {
                let missing = || Fault::NotGiven { name: name.clone() }.of(&other.name);
                return given.next().copied().ok_or_else(missing);
            }
            self.add(node.op.clone(), &inputs, node.chosen_type(), scope.unwrap_or(&node.scope))
        })?;
        Ok(other.outputs.iter().map(|(_, id)| place[id.0 as usize]).collect())
    }

    /// Names the outputs, and holds what the loop alone can spoil: names, and outputs that nothing stands for. Every
    /// node was typed when it was written.
    fn finish(mut self) -> Result<Rewritten, Error> {
        for (name, id) in &self.from.outputs {
            let here = self.find(*id).ok_or_else(|| Fault::NoSuchNode { id: *id }.of(name))?;
            self.to.output(name, here);
        }
        self.to.check_names()?;
        Ok(Rewritten { graph: self.to, place: self.place, origin: self.origin })
    }
}
