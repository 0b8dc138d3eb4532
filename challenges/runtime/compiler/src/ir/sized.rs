//! A graph whose sizes are numbers.

use std::collections::BTreeMap;

use reference::graph::{Dim, Error, Fault, Graph, Id, Op, Symbol};

/// A graph and the shape of each node.
pub struct Sized<'a> {
    /// The graph.
    pub graph: &'a Graph,
    sizes: BTreeMap<Symbol, i64>,
    shapes: Vec<Vec<usize>>,
    starts: BTreeMap<Id, usize>, // of slices
    users: Vec<Vec<Id>>,
}

impl<'a> Sized<'a> {
    /// Binds every symbol.
    ///
    /// Fails where a size is not what is known of its symbol, a symbol has none, a size is negative, or a
    /// node has more bytes than a process has addresses.
    pub fn new(graph: &'a Graph, sizes: &BTreeMap<Symbol, i64>) -> Result<Self, Error> {
        sizes.iter().try_for_each(|(symbol, size)| holds(graph, symbol, *size))?;
        let mut users = vec![Vec::new(); graph.nodes().len()];
        for id in graph.ids() {
            graph.node(id).inputs.iter().for_each(|input| users[input.0 as usize].push(id));
        }
        let shapes = graph.ids().map(|id| shape(graph, id, sizes)).collect::<Result<_, _>>()?;
        let mut starts = BTreeMap::new();
        for id in graph.ids() {
            if let Op::Slice { start, .. } = &graph.node(id).op {
                starts.insert(id, numbers(graph, id, std::slice::from_ref(start), sizes)?[0]);
            }
        }
        Ok(Self { graph, sizes: sizes.clone(), shapes, starts, users })
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

    /// Where a slice starts; 0 of any other node.
    pub fn start(&self, id: Id) -> usize {
        self.starts.get(&id).copied().unwrap_or(0)
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
        self.graph.node(id).op.is_view()
    }
}

/// That a size is what is known of its symbol.
fn holds(graph: &Graph, symbol: &Symbol, got: i64) -> Result<(), Error> {
    let Some(facts) = graph.known().get(symbol).filter(|facts| !facts.hold(got)) else { return Ok(()) };
    let fault = Fault::Bound { symbol: symbol.clone(), got, need: facts.to_string() };
    Err(Error { at: format!("`{}`", graph.name), fault, source: None })
}

/// A node's shape in numbers, of which a memory has as many bytes.
pub(crate) fn shape(graph: &Graph, id: Id, sizes: &BTreeMap<Symbol, i64>) -> Result<Vec<usize>, Error> {
    let shape = numbers(graph, id, &graph.ty(id).shape, sizes)?;
    let elements = shape.iter().try_fold(1_usize, |product, size| product.checked_mul((*size).max(1)));
    if elements.is_some_and(|elements| elements <= MOST) {
        return Ok(shape);
    }
    let shape = shape.into_iter().map(|size| size as i64).collect();
    Err(Error { at: graph.site(id), fault: Fault::TooLarge { shape }, source: None })
}

/// Elements of a node: 4 bytes of each fill the 47 bits of a process's addresses.
const MOST: usize = 1 << 45;

/// Sizes of a node in numbers, none of them negative.
pub(crate) fn numbers(
    graph: &Graph,
    id: Id,
    dims: &[Dim],
    sizes: &BTreeMap<Symbol, i64>,
) -> Result<Vec<usize>, Error> {
    let fail = |fault| Error { at: graph.site(id), fault, source: None };
    let values = dims.iter().map(|dim| dim.value(sizes)).collect::<Result<Vec<i64>, Symbol>>();
    let values = values.map_err(|symbol| fail(Fault::Unbound { symbol }))?;
    let numbers = values.iter().map(|value| usize::try_from(*value).ok()).collect::<Option<_>>();
    numbers.ok_or_else(|| fail(Fault::TooLarge { shape: values }))
}
