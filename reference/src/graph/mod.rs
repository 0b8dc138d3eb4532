//! The intermediate representation: what a model, a loss or an optimiser's step computes, and nothing about how.
//!
//! ```text
//! graph "twice" (T in 1..=4096) {
//!   %0 = input "x" : f32[T, 128]
//!   %1 = add %0 %0 : f32[T, 128]
//!   return "y" %1
//! }
//! ```
//!
//! A [`Graph`] is an arena: nodes in an order in which each uses earlier ones only, known by their index. A node is
//! an [`Op`], its inputs and the [`Type`] of its one output. Sizes may be symbols ([`Dim`]), of which the graph keeps
//! the facts. Every node is typed when it is made ([`Graph::push`]), and every transformation is followed by
//! [`Graph::check`], which types them all again. What a node *means* is what [`interpret`](mod@interpret) computes.
//! A graph prints as the text above, which [`Graph::parse`] reads back; its grammar is at the top of `graph/parse.rs`.
//!
//! ```text
//! op, class, dim, array           an operation, what kind it is; sizes with symbols; tensors of numbers
//! infer                           the type of every operation; error: what does not fit
//! build, record, eager            handles; what stands behind them: a builder, or what computes at once
//! interpret, attention            the meaning, and what attention stands for; programs: the usual masks and scores
//! collective, ranks               what ranks do together, and what it means
//! rewrite, substitute             the loop that carries every pass; other sizes for symbols
//! print, parse                    the text
//! ```
//!
//! Reading: Radul et al., "Autodidax" (the JAX documentation), for a representation whose rules are tables; Lattner et
//! al., "MLIR" (2021), for what an operation has to say about itself.

#![deny(clippy::wildcard_enum_match_arm)] // a new operation does not compile where it has to be known

mod array;
mod attention;
mod build;
mod class;
mod collective;
mod dim;
mod eager;
mod error;
mod infer;
pub mod interpret;
mod op;
mod parse;
mod print;
pub mod programs;
pub mod ranks;
mod record;
mod rewrite;
mod substitute;

use std::collections::{BTreeMap, BTreeSet};

pub use array::{Array, Data, Real};
pub use attention::{apply, expand};
pub use build::{Builder, Tape, Tensor};
pub use class::Class;
pub use collective::{Collective, Group};
pub use dim::{Dim, Facts, Known, Symbol, product};
pub use eager::Eager;
pub use error::{Error, Fault};
pub use interpret::interpret;
pub use op::{Attention, Binary, Compare, Dtype, Op, Reduce, Unary};
pub use record::{Foreign, Host, Record};
pub use rewrite::{Rewrite, Rewritten};

/// A node, by its place in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u32);

/// What a node's output is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    /// The type of each element.
    pub dtype: Dtype,
    /// Dimensions, row-major.
    pub shape: Vec<Dim>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it does.
    pub op: Op,
    /// To which nodes, all of them earlier.
    pub inputs: Vec<Id>,
    /// What comes out.
    pub ty: Type,
    /// The part of the model that it belongs to, such as `layers.3.mlp`; empty if none.
    pub scope: String,
}

impl Node {
    /// The type, where it is the writer's choice: what [`Graph::add`] has to be told.
    pub fn chosen_type(&self) -> Option<Type> {
        self.op.takes_type().then(|| self.ty.clone())
    }

    /// Whether it computes the same from the same nodes, to the bit, wherever it belongs to.
    pub fn is(&self, other: &Node) -> bool {
        self.op.is(&other.op) && (&self.inputs, &self.ty) == (&other.inputs, &other.ty)
    }
}

/// A computation: from named inputs to named outputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// What it is called.
    pub name: String,
    known: Known,
    nodes: Vec<Node>,
    outputs: Vec<(String, Id)>,
}

impl Type {
    /// A type with dimensions.
    pub fn new(dtype: Dtype, shape: impl IntoIterator<Item = impl Into<Dim>>) -> Self {
        Self { dtype, shape: shape.into_iter().map(Into::into).collect() }
    }

    /// A type without.
    pub fn scalar(dtype: Dtype) -> Self {
        Self { dtype, shape: Vec::new() }
    }

    /// The same shape with other elements.
    #[must_use]
    pub fn with(&self, dtype: Dtype) -> Self {
        Self { dtype, shape: self.shape.clone() }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }
}

impl Graph {
    /// One without nodes.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Declares what is known of a symbol; of one declared twice, the later word counts.
    pub fn know(&mut self, symbol: &str, facts: Facts) {
        self.known.insert(symbol.into(), facts);
    }

    /// The facts of every symbol declared.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// Adds a node whose type follows from its inputs.
    ///
    /// Fails where the inputs do not fit the operation, and says which fact failed.
    pub fn push(&mut self, op: Op, inputs: &[Id]) -> Result<Id, Error> {
        self.add(op, inputs, None, "")
    }

    /// Adds a node whose type is the writer's choice ([`Op::takes_type`]).
    pub fn push_as(&mut self, op: Op, inputs: &[Id], ty: Type) -> Result<Id, Error> {
        self.add(op, inputs, Some(ty), "")
    }

    /// Adds a node with everything about it. A type that the operation does not take must be the one that follows.
    pub fn add(&mut self, op: Op, inputs: &[Id], ty: Option<Type>, scope: &str) -> Result<Id, Error> {
        let ty = infer::infer(self, &op, inputs, ty).map_err(|fault| fault.at(self.nodes.len(), &op))?;
        self.nodes.push(Node { op, inputs: inputs.to_vec(), ty, scope: scope.to_owned() });
        Ok(Id(self.nodes.len() as u32 - 1))
    }

    /// Names an output.
    pub fn output(&mut self, name: impl Into<String>, id: Id) {
        self.outputs.push((name.into(), id));
    }

    /// Names no output any more.
    pub fn clear_outputs(&mut self) {
        self.outputs.clear();
    }

    /// The outputs, in the order in which they were named.
    pub fn outputs(&self) -> &[(String, Id)] {
        &self.outputs
    }

    /// The output of that name.
    pub fn find_output(&self, name: &str) -> Option<Id> {
        self.outputs.iter().find(|(one, _)| one == name).map(|(_, id)| *id)
    }

    /// The inputs with their names, in order.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, Id)> {
        self.ids().filter_map(|id| {
            let Op::Input { name } = &self.node(id).op else { return None };
            Some((name.as_str(), id))
        })
    }

    /// The input of that name.
    pub fn find_input(&self, name: &str) -> Option<Id> {
        self.inputs().find(|(one, _)| *one == name).map(|(_, id)| id)
    }

    /// Every node, in order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The name of every node, in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = Id> + use<> {
        (0..self.nodes.len() as u32).map(Id)
    }

    /// A node.
    ///
    /// # Panics
    /// If it is another graph's.
    pub fn node(&self, id: Id) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// What a node gives.
    pub fn ty(&self, id: Id) -> &Type {
        &self.node(id).ty
    }

    /// The nodes that the given ones are computed from, themselves included.
    pub fn ancestors(&self, of: impl IntoIterator<Item = Id>) -> BTreeSet<Id> {
        let mut found: BTreeSet<Id> = of.into_iter().collect();
        for id in self.ids().rev() {
            if found.contains(&id) {
                found.extend(&self.node(id).inputs);
            }
        }
        found
    }

    /// The nodes that an output needs, and every input, so that callers may go on giving it.
    pub fn live(&self) -> BTreeSet<Id> {
        let inputs = self.inputs().map(|(_, id)| id);
        self.ancestors(self.outputs.iter().map(|(_, id)| *id)).into_iter().chain(inputs).collect()
    }

    /// Adds every node of another graph, its inputs replaced by nodes of this one, and returns where its nodes went.
    ///
    /// Fails where an input is not given, or has another type.
    pub fn inline(&mut self, other: &Graph, inputs: &BTreeMap<&str, Id>) -> Result<BTreeMap<Id, Id>, Error> {
        let place = other.fold(|_, node, moved: Vec<Id>| {
            if let Op::Input { name } = &node.op {
                return self.given(name, &node.ty, inputs);
            }
            self.add(node.op.clone(), &moved, node.chosen_type(), &node.scope)
        })?;
        Ok(other.ids().zip(place).collect())
    }

    /// The node that stands for another graph's input.
    fn given(&self, name: &str, need: &Type, inputs: &BTreeMap<&str, Id>) -> Result<Id, Error> {
        let id =
            inputs.get(name).copied().ok_or_else(|| Fault::NotGiven { name: name.to_owned() }.of(name))?;
        let got = self.ty(id);
        if got == need {
            return Ok(id);
        }
        Err(Fault::Type { got: got.clone(), need: need.clone() }.of(name))
    }

    /// Whether every node has the type that its operation gives it, every name is used once, every fact makes sense
    /// and every output exists: what must hold after each transformation.
    pub fn check(&self) -> Result<(), Error> {
        for (symbol, facts) in &self.known {
            if !facts.make_sense() {
                return Err(Fault::Facts { facts: *facts }.of(symbol));
            }
        }
        self.check_names()?;
        self.ids().try_for_each(|id| {
            infer::verify(self, id).map_err(|fault| fault.at(id.0 as usize, &self.node(id).op))
        })
    }

    /// Whether it is the same graph, names and all; of constants to the bit.
    pub(crate) fn is(&self, other: &Graph) -> bool {
        let same = |(a, b): (&Node, &Node)| a.is(b) && a.scope == b.scope;
        self.nodes.len() == other.nodes.len()
            && self.nodes.iter().zip(&other.nodes).all(same)
            && (&self.name, &self.known, &self.outputs) == (&other.name, &other.known, &other.outputs)
    }

    /// That no two inputs and no two outputs have one name, and every output is a node.
    fn check_names(&self) -> Result<(), Error> {
        let mut inputs = BTreeSet::new();
        let mut outputs = BTreeSet::new();
        let twice = |name: &str| Fault::Twice.of(name);
        if let Some((name, _)) = self.inputs().find(|(name, _)| !inputs.insert(name.to_owned())) {
            return Err(twice(name));
        }
        for (name, id) in &self.outputs {
            if !outputs.insert(name) {
                return Err(twice(name));
            }
            if id.0 as usize >= self.nodes.len() {
                return Err(Fault::NoSuchNode { id: *id }.of(name));
            }
        }
        Ok(())
    }
}
