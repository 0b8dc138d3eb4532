//! One kernel: a tile program that computes some nodes of a graph from buffers.
//!
//! It is written backwards from what is to be stored. A node that has a buffer is loaded, a view changes the map, and
//! everything else becomes an operation of the program on what its inputs become: producers disappear into their
//! consumers, whatever lies between them. A reduction can disappear too, if what it reduces runs along the kernel's
//! rows and each row reduces once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::rc::Rc;

use kernels::tile::{self, Index, Op as Tile, Program, Store, Value};
use reference::graph::{Class, Dtype, Id, Op, Reduce};

use crate::contract::Compile;
use crate::ir::code::{Code, element};
use crate::ir::map::{self, Affine, Cut, Map};
use crate::ir::sized::Sized;

/// Where a node's elements are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Which buffer, by its number.
    pub buffer: usize,
    /// Elements before the first one.
    pub offset: usize,
    /// Elements between neighbours along each dimension of the node.
    pub strides: Vec<usize>,
}

/// A node to be stored, and where.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Root {
    /// The node.
    pub node: Id,
    /// Where its elements go.
    pub layout: Layout,
}

/// A program with its space and its views; memories are buffers' numbers until memory is planned.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// What is stored.
    pub roots: Vec<Root>,
    /// What is computed, what is stored among it.
    pub nodes: BTreeSet<Id>,
    /// Over which shape it runs.
    pub space: Vec<usize>,
    /// What it does.
    pub program: Program,
    /// What it reads, in the program's order.
    pub inputs: Vec<Layout>,
    /// What it writes, in the program's order.
    pub outputs: Vec<Layout>,
}

/// Why a kernel cannot be written.
#[derive(Clone, Debug, PartialEq)]
pub enum LowerError {
    /// This node needs a buffer of its own first.
    NeedsBuffer(Id),
    /// A dimension of the space has to be cut.
    SplitDim(Cut),
    /// The rows have to be as long as that.
    AddRowDim(usize),
    /// Places would be counted beyond what an i32 holds.
    TooFar {
        /// The largest one.
        place: usize,
    },
    /// There is no such kernel.
    Unsupported,
}

/// Writes a kernel for some roots, given the nodes that have buffers. The roots have one shape, but that some may have
/// one element where the others have a row.
///
/// Fails where a node needs a buffer first, or the roots do not fit into one kernel.
pub fn kernel(
    passes: &dyn Compile,
    sized: &Sized,
    buffers: &BTreeMap<Id, Layout>,
    roots: &[Root],
) -> Result<Kernel, LowerError> {
    let mut space = common_space(sized, roots).ok_or(LowerError::Unsupported)?;
    let mut maps: Vec<Rc<Map>> =
        roots.iter().map(|root| Rc::new(map::identity(sized.shape(root.node)))).collect();
    let mut with_row = false;
    let widest = space.iter().product();
    let has_one_a_row = roots.iter().any(|root| sized.elements(root.node) < widest);
    loop {
        let mut writer = Writer::new(passes, sized, buffers, space.clone(), with_row);
        match writer.write(roots, &maps) {
            Ok(()) => return Ok(writer.finish(roots, &maps)),
            Err(LowerError::SplitDim(cut)) if has_one_a_row && cut.dim + 1 == space.len() => {
                return Err(LowerError::Unsupported); // what is stored once a row would be stored once a part of it
            }
            Err(LowerError::SplitDim(cut)) => {
                maps = maps.iter().map(|map| Rc::new(map::after_cut(map, cut))).collect();
                space[cut.dim] /= cut.inner;
                space.insert(cut.dim + 1, cut.inner);
            }
            Err(LowerError::AddRowDim(length)) => {
                space.push(length); // along which the roots stay where they are
                with_row = true;
            }
            Err(stop) => return Err(stop),
        }
    }
}

/// The shape of all roots, where those with one element a row have the others' row, with a last dimension of 1 or
/// without.
fn common_space(sized: &Sized, roots: &[Root]) -> Option<Vec<usize>> {
    let widest = roots
        .iter()
        .map(|root| sized.shape(root.node))
        .max_by_key(|shape| shape.iter().product::<usize>())?;
    let fits = |shape: &[usize]| match (shape.split_last(), widest.split_last()) {
        (_, Some((_, lead))) if shape == lead => true,
        (Some((one, lead)), Some((row, widest))) => lead == widest && (one == row || *one == 1),
        (a, b) => a.is_none() && b.is_none(),
    };
    let all = roots.iter().all(|root| fits(sized.shape(root.node)));
    all.then(|| if widest.is_empty() { vec![1] } else { widest.to_vec() })
}

/// Whether an operation works on the elements of one place, each for itself.
pub fn is_pointwise(op: &Op) -> bool {
    let everywhere = matches!(op, Op::Constant { .. } | Op::Detach);
    everywhere || op.class() == Class::Pointwise
}

/// The scope with `*` for every number: equal layers have equal programs.
fn any_layer(scope: &str) -> String {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts = scope.split('.').map(|part| if is_number(part) { "*" } else { part });
    parts.collect::<Vec<_>>().join(".")
}

/// Nodes that may lead to each other in one program. Views cost no operations, so that a program's length does not
/// bound them, and the writer calls itself for each.
const DEEP: usize = 512;

/// A program being written.
struct Writer<'a> {
    passes: &'a dyn Compile,
    sized: &'a Sized<'a>,
    buffers: &'a BTreeMap<Id, Layout>,
    space: Vec<usize>,
    with_row: bool, // whether the last dimension was added for a reduction
    roots: Vec<Id>,
    code: Code,
    done: HashMap<Id, Vec<(Rc<Map>, Value)>>,
    depth: usize, // of the node that is being computed
    nodes: BTreeSet<Id>,
    inputs: Vec<Layout>,
    stored: Vec<Value>,
}

impl<'a> Writer<'a> {
    fn new(
        passes: &'a dyn Compile,
        sized: &'a Sized<'a>,
        buffers: &'a BTreeMap<Id, Layout>,
        space: Vec<usize>,
        with_row: bool,
    ) -> Self {
        let (code, done, nodes) = (Code::default(), HashMap::new(), BTreeSet::new());
        let (roots, inputs, stored) = (Vec::new(), Vec::new(), Vec::new());
        Self { passes, sized, buffers, space, with_row, roots, code, done, depth: 0, nodes, inputs, stored }
    }

    fn write(&mut self, roots: &[Root], maps: &[Rc<Map>]) -> Result<(), LowerError> {
        let own = |root: &&Root| self.buffers.get(&root.node).is_none_or(|layout| *layout == root.layout);
        self.roots = roots.iter().filter(own).map(|root| root.node).collect();
        for (root, map) in roots.iter().zip(maps) {
            let value = match self.buffers.get(&root.node) {
                Some(layout) if !self.roots.contains(&root.node) => {
                    self.load(root.node, &layout.clone(), map)
                } // a copy
                _ => self.compute(root.node, map)?,
            };
            self.stored.push(value);
        }
        Ok(())
    }

    fn finish(self, roots: &[Root], maps: &[Rc<Map>]) -> Kernel {
        let outputs = roots.iter().zip(maps).map(|(root, map)| {
            let Layout { buffer, offset, strides } = &root.layout;
            let (offset, strides) = map::place(map, strides, *offset, &self.space);
            Layout { buffer: *buffer, offset, strides }
        });
        let outputs: Vec<Layout> = outputs.collect();
        let row = self.space.last().copied().unwrap_or(1);
        let mut program = Program { name: self.name(), stores: Vec::new(), ops: self.code.ops };
        let per_row = program.per_row(&[]);
        let stored = roots.iter().zip(&self.stored).zip(&outputs).enumerate();
        let stores = stored.map(|(output, ((root, value), layout))| {
            let element = element(self.sized.graph.ty(root.node).dtype);
            let once = layout.strides.last() == Some(&0) && (row > 1 || per_row[*value]);
            Store { output, element, index: Index::View, per_row: once, value: *value }
        });
        program.stores = stores.collect();
        let (roots, nodes) = (roots.to_vec(), self.nodes);
        Kernel { roots, nodes, space: self.space, program, inputs: self.inputs, outputs }
    }

    /// The part of the model that the last root belongs to, and the operations that say most.
    fn name(&self) -> String {
        let mut names: Vec<String> = Vec::new();
        let telling = self.code.ops.iter().filter(|op| {
            matches!(op, Tile::Unary(..) | Tile::RowSum(_) | Tile::RowMax(_) | Tile::Gather { .. })
        });
        for op in telling {
            let word = op.to_string().split(" %").next().unwrap_or_default().replace(' ', "-");
            let word = if matches!(op, Tile::Gather { .. }) { "gather".to_owned() } else { word };
            if !names.contains(&word) {
                names.push(word);
            }
        }
        let scope =
            self.roots.last().map(|id| any_layer(&self.sized.graph.node(*id).scope)).unwrap_or_default();
        let what = if names.is_empty() { "pass".to_owned() } else { names.join("+") };
        if scope.is_empty() { what } else { format!("{scope}: {what}") }
    }

    fn push(&mut self, op: Tile) -> Value {
        self.code.push(op)
    }

    /// A node's value in this lane, loaded where it can be.
    fn value(&mut self, id: Id, map: &Rc<Map>) -> Result<Value, LowerError> {
        if let Some(value) = self.known(id, map) {
            return Ok(value);
        }
        let value = match self.buffers.get(&id) {
            Some(layout) if !self.roots.contains(&id) => self.load(id, &layout.clone(), map),
            Some(_) => return Err(LowerError::Unsupported), // another lane of this very kernel stores it
            None if self.depth == DEEP => return Err(LowerError::NeedsBuffer(id)),
            None => {
                self.depth += 1;
                let value = self.compute(id, map);
                self.depth -= 1;
                return value;
            }
        };
        Ok(self.note(id, map, value))
    }

    /// The value that a node is known to have there.
    fn known(&self, id: Id, map: &Rc<Map>) -> Option<Value> {
        let known = self.done.get(&id)?.iter().find(|(other, _)| Rc::ptr_eq(other, map) || other == map);
        known.map(|(_, value)| *value)
    }

    fn note(&mut self, id: Id, map: &Rc<Map>, value: Value) -> Value {
        self.done.entry(id).or_default().push((map.clone(), value));
        value
    }

    /// The layout of a node whose elements lie side by side in a buffer of another kernel's: reshaped, they lie there
    /// still.
    fn flat(&self, id: Id) -> Option<Layout> {
        let layout = self.buffers.get(&id).filter(|_| !self.roots.contains(&id))?;
        (layout.strides == kernels::plan::contiguous(self.sized.shape(id))).then(|| layout.clone())
    }

    fn load(&mut self, id: Id, layout: &Layout, map: &Map) -> Value {
        let (offset, strides) = map::place(map, &layout.strides, layout.offset, &self.space);
        let layout = Layout { buffer: layout.buffer, offset, strides };
        let known = self.inputs.iter().position(|input| *input == layout);
        let input = known.unwrap_or_else(|| {
            self.inputs.push(layout);
            self.inputs.len() - 1
        });
        self.push(Tile::Load { input, element: element(self.sized.graph.ty(id).dtype), index: Index::View })
    }

    /// A node's value from those of its inputs.
    fn compute(&mut self, id: Id, map: &Rc<Map>) -> Result<Value, LowerError> {
        if let Some(value) = self.known(id, map) {
            return Ok(value);
        }
        let node = self.sized.graph.node(id);
        self.nodes.insert(id);
        if let Some(result) = map::through(self.sized, id, map, &self.space) {
            let row = self.space.len() - 1;
            if let (Err(_), Some(layout)) = (&result, self.flat(node.inputs[0])) {
                let strides = kernels::plan::contiguous(self.sized.shape(id));
                return Ok(self.load(id, &Layout { strides, ..layout }, map));
            }
            let inner = result.map_err(|cut| match cut {
                Some(cut) if cut.dim == row && self.with_row => LowerError::NeedsBuffer(id), // a row stays whole
                Some(cut) => LowerError::SplitDim(cut),
                None => LowerError::NeedsBuffer(node.inputs[0]),
            })?;
            return self.value(node.inputs[0], &Rc::new(inner));
        }
        let value = match &node.op {
            Op::Iota { dim } => {
                countable(map[*dim].max(&self.space))?;
                self.coordinate(&map[*dim])
            }
            Op::Reduce(reduce, dim) => {
                let sum = self.reduce(id, *reduce, *dim, map)?;
                self.rounded(sum, node.ty.dtype)
            }
            Op::Gather => self.gather(id, map)?,
            Op::Constant { .. } | Op::Cast | Op::Detach | Op::Unary(_) => self.element(id, map)?,
            Op::Binary(_) | Op::Compare(_) | Op::Select => self.element(id, map)?,
            Op::RandomMask { .. } => self.element(id, map)?,
            // What only other steps can do, and views, which are no computation.
            Op::Input { .. } | Op::Dequantize { .. } | Op::Matmul => return Err(LowerError::NeedsBuffer(id)),
            Op::ScatterAdd | Op::Concat { .. } | Op::Reshape => return Err(LowerError::NeedsBuffer(id)),
            Op::Transpose { .. } | Op::Broadcast | Op::Slice { .. } => {
                return Err(LowerError::NeedsBuffer(id));
            }
            Op::Attention(_) | Op::AttentionGrad { .. } => return Err(LowerError::NeedsBuffer(id)),
            Op::AttentionLse(_) | Op::AttentionLseGrad { .. } => return Err(LowerError::NeedsBuffer(id)),
            Op::Collective { .. } => return Err(LowerError::NeedsBuffer(id)),
        };
        Ok(self.note(id, map, value))
    }

    /// An operation on the elements of one place: the pass that lowers it says how.
    fn element(&mut self, id: Id, map: &Rc<Map>) -> Result<Value, LowerError> {
        let node = self.sized.graph.node(id);
        let inputs =
            node.inputs.iter().map(|input| self.value(*input, map)).collect::<Result<Vec<_>, _>>()?;
        let from = node.inputs.first().map_or(node.ty.dtype, |input| self.sized.graph.ty(*input).dtype);
        let lowered = self.passes.lower(&node.op, from, node.ty.dtype, &inputs, &mut self.code);
        lowered.ok_or(LowerError::Unsupported)
    }

    /// An f32 rounded to the node's type.
    fn rounded(&mut self, value: Value, dtype: Dtype) -> Value {
        match dtype {
            Dtype::F16 | Dtype::Bf16 => self.push(Tile::Round(element(dtype), value)),
            _ => value,
        }
    }

    /// A coordinate as a whole number.
    fn coordinate(&mut self, affine: &Affine) -> Value {
        let mut sum = self.push(Tile::Whole(affine.offset as i32));
        for (dim, multiple) in &affine.terms {
            let lane = self.push(Tile::Coordinate(*dim));
            let factor = self.push(Tile::Whole(*multiple as i32));
            let term =
                if *multiple == 1 { lane } else { self.push(Tile::Binary(tile::Binary::Mul, lane, factor)) };
            sum = self.push(Tile::Binary(tile::Binary::Add, sum, term));
        }
        sum
    }

    /// A reduction along the rows of this kernel, if it is one: then it runs once a row.
    fn reduce(&mut self, id: Id, reduce: Reduce, dim: usize, map: &Rc<Map>) -> Result<Value, LowerError> {
        let input = self.sized.graph.node(id).inputs[0];
        let length = self.sized.shape(input)[dim];
        if length == 0 {
            let float = self.sized.graph.ty(id).dtype.is_float();
            let empty = if reduce == Reduce::Sum { 0.0 } else { f32::NEG_INFINITY };
            return Ok(self.push(if float { Tile::Float(empty) } else { Tile::Whole(0) }));
        }
        if length == 1 {
            return self.value(input, map); // the one element, as it is
        }
        let row = self.space.len() - 1;
        let rows: usize = self.space[..row].iter().product();
        let varies = |dim: usize| map.iter().any(|coordinate| coordinate.multiple(dim) > 0);
        let distinct =
            |dims: usize| (0..dims).filter(|dim| varies(*dim)).map(|dim| self.space[dim]).product::<usize>();
        let runs_along = !varies(row) && self.space[row] == length && distinct(row) == rows;
        if !runs_along {
            let one_a_row = |root: &Id| self.sized.shape(*root).last().is_none_or(|last| *last == 1);
            let may_add_rows = self.roots.iter().all(one_a_row) || self.roots == [id];
            let each_lane = distinct(row + 1) == rows * self.space[row];
            return Err(if may_add_rows && each_lane && !self.with_row {
                LowerError::AddRowDim(length)
            } else {
                LowerError::NeedsBuffer(id)
            });
        }
        let mut inner = Map::clone(map);
        inner[dim] = Affine::lane(row, length);
        let value = self.value(input, &Rc::new(inner))?;
        Ok(self.push(if reduce == Reduce::Sum { Tile::RowSum(value) } else { Tile::RowMax(value) }))
    }

    /// The first place of a row. The row is bounded before it is multiplied, so that one far outside does not come back
    /// inside by wrapping around.
    fn row_start(&mut self, row: Value, rows: usize, width: usize) -> Value {
        let [least, most, width] = [-1, rows as i32, width as i32].map(|bound| self.push(Tile::Whole(bound)));
        let raised = self.push(Tile::Binary(tile::Binary::Max, row, least));
        let bounded = self.push(Tile::Binary(tile::Binary::Min, raised, most));
        self.push(Tile::Binary(tile::Binary::Mul, bounded, width))
    }

    /// A row of a table: the table is a buffer, its elements side by side. An index outside the table leads to a place
    /// outside of it, which fails the launch.
    fn gather(&mut self, id: Id, map: &Rc<Map>) -> Result<Value, LowerError> {
        let node = self.sized.graph.node(id);
        let (table, index) = (node.inputs[0], node.inputs[1]);
        let shape = self.sized.shape(table);
        let Some(layout) = self.buffers.get(&table).filter(|_| !self.roots.contains(&table)) else {
            return Err(LowerError::NeedsBuffer(table));
        };
        if layout.strides != kernels::plan::contiguous(shape) || layout.offset != 0 {
            return Err(LowerError::Unsupported);
        }
        let layout = Layout { buffer: layout.buffer, offset: 0, strides: vec![0; self.space.len()] };
        let (outer, inner) = map.split_at(self.sized.shape(index).len());
        let row = self.value(index, &Rc::new(outer.to_vec()))?;
        let width: usize = shape[1..].iter().product();
        countable((shape[0] + 1) * width)?;
        let start = if width == 1 { row } else { self.row_start(row, shape[0], width) };
        let (offset, strides) =
            map::place(&inner.to_vec(), &kernels::plan::contiguous(&shape[1..]), 0, &self.space);
        let terms = strides.into_iter().enumerate().filter(|(_, stride)| *stride > 0).collect();
        let within = self.coordinate(&Affine { offset, terms });
        let at = self.push(Tile::Binary(tile::Binary::Add, start, within));
        let known = self.inputs.iter().position(|input| *input == layout);
        let input = known.unwrap_or_else(|| {
            self.inputs.push(layout);
            self.inputs.len() - 1
        });
        Ok(self.push(Tile::Gather { input, element: element(node.ty.dtype), at }))
    }
}

/// That a place can be counted in an i32.
fn countable(place: usize) -> Result<(), LowerError> {
    if i32::try_from(place).is_ok() { Ok(()) } else { Err(LowerError::TooFar { place }) }
}

impl fmt::Display for LowerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LowerError::NeedsBuffer(id) => write!(f, "%{} needs a buffer, and has none", id.0),
            LowerError::SplitDim(Cut { dim, inner }) => {
                write!(f, "dimension {dim} of its space has to be cut by {inner}, and is not")
            }
            LowerError::AddRowDim(length) => write!(f, "it needs rows of {length}, and has others"),
            LowerError::TooFar { place } => {
                write!(f, "expected places of at most {}, found {place}", i32::MAX)
            }
            LowerError::Unsupported => write!(f, "no kernel computes this"),
        }
    }
}
