//! Which rows belong together: a row's seed asks for the values of its group and of no other row.
//!
//! A loss of sequences and pairs couples rows: the seed of a token of DPO asks for the log-probabilities of all tokens
//! of both answers, and of no other pair. Nobody declares that. It is read from the graph of the seeds, by running it
//! on rows in the place of numbers: an element is a row whose value it is made of, and rows that meet in one element
//! belong together. What is made of labels, counts and constants is made of no row, so a mean over pairs couples none.
//!
//! ```text
//! log_p (4)        0 1 2 3     rows
//! sum of pairs     0 2         0 and 1 meet, 2 and 3 meet
//! spread to rows   0 0 2 2     the seeds: groups {0, 1} and {2, 3}
//! ```
//!
//! The answer never says that rows are independent if they are not: a product with 0 still counts as made of its
//! factors, and an operation that is not followed element by element couples everything it reads. A chunk of whole
//! groups then knows its seeds while its logits are there, and needs no second pass: [`by_groups`] is that chunk's
//! graph.
//!
//! ```text
//! hidden, weight -> logits -> values (N) -> scatter to all rows (R) -> seeds (R) -> gather (N) -> gradients
//! ```
//!
//! The seeds are those of the attempt's own graph for all rows, with values of 0 where the chunk has no row. By what
//! was read above, no seed of the chunk's rows is made of those.

use std::collections::BTreeMap;

use reference::graph::{Builder, Dim, Dtype, Error, Facts, Graph, Id, Op, Type};

use super::Problem;
use super::problem::{LARGEST, ROWS};

/// The input of a chunk's graph that says which rows it has, i32 (N).
pub const ROWS_OF_CHUNK: &str = "chunk.rows";

/// What an input of the seeds' graph, for all rows, is called in a chunk's graph.
pub const OF_WHOLE: &str = "whole.";

/// The groups of all rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    of_row: Vec<usize>, // the first row of its group
}

impl Groups {
    /// Those of a seeds' graph, if its sizes are numbers; `None` for a loss of any number of rows.
    pub fn of(problem: &Problem, seeds: &Graph) -> Option<Self> {
        let rows = rows_of_whole(problem)?;
        let seeds = seeds.substitute(&BTreeMap::from([(ROWS.into(), rows.into())])).ok()?;
        let mut reader =
            Reader { problem, graph: &seeds, together: (0..rows).collect(), made_of: BTreeMap::new() };
        let outputs: Vec<Id> = seeds.outputs().iter().map(|(_, id)| *id).collect();
        for id in seeds.ancestors(outputs.iter().copied()) {
            let made_of = reader.read(id)?;
            reader.made_of.insert(id, made_of);
        }
        for id in outputs {
            let seeds = reader.made_of.get(&id).filter(|seeds| seeds.len() == rows)?.clone();
            for (row, of) in seeds.into_iter().enumerate() {
                reader.meet(Some(row), of);
            }
        }
        Some(Self { of_row: (0..rows).map(|row| reader.first(row)).collect() })
    }

    /// The rows that there are.
    pub fn rows(&self) -> usize {
        self.of_row.len()
    }

    /// The first row of a row's group.
    pub fn first(&self, row: usize) -> usize {
        self.of_row[row]
    }

    /// The rows of the longest group, whether they count or not.
    pub fn longest(&self) -> usize {
        self.lists((0..self.rows()).collect()).iter().map(Vec::len).max().unwrap_or(0)
    }

    /// The same rows in chunks that split no group: groups in the order of their first rows, as many as `size` rows
    /// hold, and a longer one in a chunk of its own. Rows of a chunk are in order.
    pub fn cut(&self, mut rows: Vec<usize>, size: usize) -> Vec<Vec<usize>> {
        rows.sort_unstable();
        let mut chunks: Vec<Vec<usize>> = Vec::new();
        for group in self.lists(rows) {
            match chunks.last_mut() {
                Some(chunk) if chunk.len() + group.len() <= size => chunk.extend(group),
                _ => chunks.push(group),
            }
        }
        for chunk in &mut chunks {
            chunk.sort_unstable();
        }
        chunks
    }

    /// Rows by their groups.
    fn lists(&self, rows: Vec<usize>) -> Vec<Vec<usize>> {
        let mut lists: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for row in rows {
            lists.entry(self.of_row[row]).or_default().push(row);
        }
        lists.into_values().collect()
    }
}

/// The rows of a loss whose `whole` is for a given number of them.
fn rows_of_whole(problem: &Problem) -> Option<usize> {
    let whole = &problem.loss.whole;
    let of_value = |name| whole.find_input(name).map(|id| whole.ty(id));
    let ty = problem.loss.values().find_map(of_value)?;
    (ty.rank() == 1).then(|| ty.shape[0].as_fixed())?.and_then(|rows| usize::try_from(rows).ok())
}

/// A row whose value an element is made of, if it is made of any: one that stands for all that met it.
type Of = Option<usize>;

/// A graph that is run on rows.
struct Reader<'a> {
    problem: &'a Problem,
    graph: &'a Graph,
    together: Vec<usize>, // a row of its group that comes before it, or itself
    made_of: BTreeMap<Id, Vec<Of>>,
}

impl Reader<'_> {
    /// The first row of a group.
    fn first(&mut self, row: usize) -> usize {
        let mut first = row;
        while self.together[first] != first {
            first = self.together[first];
        }
        self.together[row] = first;
        first
    }

    /// What is made of both.
    fn meet(&mut self, a: Of, b: Of) -> Of {
        let (Some(a), Some(b)) = (a, b) else { return a.or(b) };
        let (a, b) = (self.first(a), self.first(b));
        self.together[a.max(b)] = a.min(b);
        Some(a.min(b))
    }

    /// Whether an input is a value of all rows.
    fn is_value(&self, name: &str, count: usize) -> bool {
        count == self.together.len() && self.problem.loss.values().any(|value| value == name)
    }

    /// What each element of a node is made of; `None` if a size is no number.
    fn read(&mut self, id: Id) -> Option<Vec<Of>> {
        let graph = self.graph;
        let node = graph.node(id);
        let shape = sizes(&node.ty)?;
        let count: usize = shape.iter().product();
        let given: Vec<Vec<Of>> = node.inputs.iter().map(|id| self.made_of[id].clone()).collect();
        let from = |input: usize| sizes(graph.ty(node.inputs[input]));
        Some(match &node.op {
            Op::Input { name } if self.is_value(name, count) => (0..count).map(Some).collect(),
            Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } => vec![None; count],
            Op::Cast | Op::Detach | Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select => {
                let meet = |at: usize| given.iter().fold(None, |of, input| self.meet(of, input[at]));
                (0..count).map(meet).collect()
            }
            Op::Reshape => given[0].clone(),
            Op::Broadcast => {
                let from = from(0)?;
                let place =
                    |at: &[usize]| flat(&from, at.iter().zip(&from).map(|(at, size)| at % size.max(&1)));
                each_place(&shape).map(|at| given[0][place(&at)]).collect()
            }
            Op::Transpose { order } => {
                let from = from(0)?;
                let mut moved = vec![0; order.len()];
                let mut place = |at: Vec<usize>| {
                    order.iter().zip(at).for_each(|(dim, at)| moved[*dim] = at);
                    flat(&from, moved.iter().copied())
                };
                each_place(&shape).map(|at| given[0][place(at)]).collect()
            }
            Op::Slice { dim, start, .. } => {
                let (from, start) = (from(0)?, usize::try_from(start.as_fixed()?).ok()?);
                let place = |mut at: Vec<usize>| {
                    at[*dim] += start;
                    flat(&from, at.into_iter())
                };
                each_place(&shape).map(|at| given[0][place(at)]).collect()
            }
            Op::Concat { dim } => {
                let parts = (0..given.len()).map(from).collect::<Option<Vec<_>>>()?;
                let find = |mut at: Vec<usize>| {
                    let mut part = 0;
                    while at[*dim] >= parts[part][*dim] {
                        at[*dim] -= parts[part][*dim];
                        part += 1;
                    }
                    given[part][flat(&parts[part], at.into_iter())]
                };
                each_place(&shape).map(find).collect()
            }
            Op::Reduce(_, dim) => {
                let mut sums = vec![None; count];
                for (at, of) in each_place(&from(0)?).zip(&given[0]) {
                    let places = at.iter().enumerate().map(|(d, at)| if d == *dim { 0 } else { *at });
                    let place = flat(&shape, places);
                    sums[place] = self.meet(sums[place], *of);
                }
                sums
            }
            Op::Matmul
            | Op::Gather
            | Op::ScatterAdd
            | Op::Dequantize { .. }
            | Op::Attention(_)
            | Op::AttentionGrad { .. }
            | Op::AttentionLse(_)
            | Op::AttentionLseGrad { .. }
            | Op::RandomMask { .. }
            | Op::Collective { .. } => {
                let all = given.iter().flatten().fold(None, |of, one| self.meet(of, *one));
                vec![all; count]
            }
        })
    }
}

/// The sizes of a type, if they are numbers.
fn sizes(ty: &Type) -> Option<Vec<usize>> {
    ty.shape.iter().map(|dim| usize::try_from(dim.as_fixed()?).ok()).collect()
}

/// Every place of a tensor, the last dimension first.
fn each_place(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> + use<> {
    let (shape, count) = (shape.to_vec(), shape.iter().product::<usize>());
    (0..count).map(move |mut flat| {
        let mut at = vec![0; shape.len()];
        for (at, size) in at.iter_mut().zip(&shape).rev() {
            (*at, flat) = (flat % size, flat / size);
        }
        at
    })
}

/// The element at a place.
fn flat(shape: &[usize], at: impl Iterator<Item = usize>) -> usize {
    shape.iter().zip(at).fold(0, |flat, (size, at)| flat * size + at)
}

/// A chunk of whole groups with its gradient: the attempt's `each` and, between its values and its gradients, its
/// `seeds`. Inputs: those of `each` but the seeds, [`ROWS_OF_CHUNK`], and those of `seeds` but the values, their names
/// after [`OF_WHOLE`]. Outputs: those of `each`. `None` if there is nothing to put between: a value is computed from a
/// seed, a seed is missing, or an input has one of these names already.
///
/// # Errors
/// If a graph is not sound.
pub fn by_groups(
    problem: &Problem,
    each: &Graph,
    seeds: &Graph,
    rows: usize,
) -> Result<Option<Graph>, Error> {
    let is_reserved = |name: &str| name == ROWS_OF_CHUNK || name.starts_with(OF_WHOLE);
    if each.inputs().any(|(name, _)| is_reserved(name)) {
        return Ok(None);
    }
    let seeds = seeds.substitute(&BTreeMap::from([(ROWS.into(), rows.into())]))?;
    let names: Vec<&str> = problem.loss.values().collect();
    let all = Type::new(Dtype::F32, [rows]);
    let seed = |name: &&str| seeds.find_output(&format!("seed.{name}")).filter(|id| *seeds.ty(*id) == all);
    let Some(of_values) = names.iter().map(seed).collect::<Option<Vec<Id>>>() else { return Ok(None) };
    let Some(values) = names.iter().map(|name| each.find_output(name)).collect::<Option<Vec<Id>>>() else {
        return Ok(None);
    };
    let first = each.ancestors(values.iter().copied());
    let inputs: Vec<Id> = names.iter().filter_map(|name| each.find_input(&format!("seed.{name}"))).collect();
    let of_rows = Type::new(Dtype::F32, [Dim::symbol(ROWS)]);
    let is_number = |id: &Id| *each.ty(*id) == of_rows;
    if !values.iter().chain(&inputs).all(is_number) || inputs.iter().any(|id| first.contains(id)) {
        return Ok(None);
    }

    let mut graph = Graph::new("by_groups");
    for (symbol, facts) in each.known().iter().chain(seeds.known()) {
        graph.know(symbol, *facts);
    }
    graph.know(ROWS, Facts::range(1, LARGEST));
    let mut moved: BTreeMap<Id, Id> = BTreeMap::new();
    copy(&mut graph, each, &mut moved, |id| first.contains(&id))?;

    // The values at their places among all rows.
    let builder = Builder::onto(graph);
    let at = builder.tape().input(ROWS_OF_CHUNK, Dtype::I32, [Dim::symbol(ROWS)]);
    let mut given: BTreeMap<&str, Id> = BTreeMap::new();
    for (name, id) in seeds.inputs() {
        let ty = seeds.ty(id);
        let tensor = match names.iter().position(|value| *value == name) {
            Some(value) => builder.tensor(moved[&values[value]]).scatter_add(&at, rows),
            None => builder.tape().input(&format!("{OF_WHOLE}{name}"), ty.dtype, &ty.shape),
        };
        given.insert(name, builder.id(&tensor)?);
    }
    let mut graph = builder.finish()?;

    // The seeds of all rows, then those of the chunk's.
    let found = graph.inline(&seeds, &given)?;
    let at = graph.find_input(ROWS_OF_CHUNK).into_iter().collect::<Vec<Id>>();
    for (name, id) in names.iter().zip(of_values) {
        let Some(input) = each.find_input(&format!("seed.{name}")) else { continue };
        moved.insert(input, graph.push(Op::Gather, &[&[found[&id]], &at[..]].concat())?);
    }
    copy(&mut graph, each, &mut moved, |_| true)?;
    for (name, id) in each.outputs() {
        graph.output(name, moved[id]);
    }
    graph.check()?;
    Ok(Some(graph))
}

/// Adds the nodes that are wanted and not there yet.
fn copy(
    graph: &mut Graph,
    from: &Graph,
    moved: &mut BTreeMap<Id, Id>,
    is_wanted: impl Fn(Id) -> bool,
) -> Result<(), Error> {
    for id in from.ids().filter(|id| is_wanted(*id)) {
        if moved.contains_key(&id) {
            continue;
        }
        let node = from.node(id);
        let inputs: Vec<Id> = node.inputs.iter().map(|id| moved[id]).collect();
        let ty = node.chosen_type();
        moved.insert(id, graph.add(node.op.clone(), &inputs, ty, &node.scope)?);
    }
    Ok(())
}
