//! The first node that differs.
//!
//! Every node is interpreted once. Then all of them are made outputs: nothing is fused any more, and the first that
//! differs is computed wrongly from right operands. A mistake that needs neighbours - a fused launch, a buffer used too
//! early - does not show so. For it the graph is cut off after one node after another, and what the rest would have
//! used are its outputs; halving finds the first cut with which something is wrong.

use reference::graph::interpret::Values;
use reference::graph::ranks::interpret_ranks;
use reference::graph::{Array, Error, Graph, Id, Op};

use super::cost::Cost;
use super::{Attempt, Trial, all_narrowed, world};
use crate::fair::{self, Difference};
use crate::gather::{Unwound, caught};

/// What every node is.
struct Nodes {
    graph: Graph,
    truth: Vec<Vec<Array<f64>>>, // of each rank
    naive: Vec<Vec<Array<f32>>>,
    values: Vec<Values<f32>>,
}

/// What is wrong with the results of a graph.
enum Wrong {
    /// This node on this rank, and how.
    Differs(Id, usize, Difference),
    /// It is not compiled, or does not run.
    Fails(String),
}

/// The first node that is wrong, in words.
pub(super) fn first(trial: &Trial, attempt: &Attempt<'_>) -> Result<String, String> {
    let nodes = Nodes::new(trial)?;
    if let Some(Wrong::Differs(id, rank, difference)) = nodes.wrong(trial, attempt, &nodes.graph) {
        return Ok(nodes.site(trial, id, rank, &difference, ""));
    }
    let cuts: Vec<Id> = nodes.graph.outputs().iter().map(|(_, id)| *id).collect();
    let at = |cut: usize| nodes.wrong(trial, attempt, &prefix(&trial.graph, cuts[cut]).ok()?);
    let Some(mut found) = cuts.len().checked_sub(1).and_then(at) else {
        return Err("with other outputs every node is right".into());
    };
    let (mut right, mut wrong) = (0, cuts.len() - 1); // before `right` nothing is known to be wrong
    while right < wrong {
        let middle = usize::midpoint(right, wrong);
        match at(middle) {
            Some(earlier) => (wrong, found) = (middle, earlier),
            None => right = middle + 1,
        }
    }
    Ok(match found {
        Wrong::Differs(id, rank, difference) => {
            let cut = trial.graph.site(cuts[wrong]);
            let with =
                format!("\n  with every node an output it is right; the graph that ends with {cut} shows it");
            nodes.site(trial, id, rank, &difference, &with)
        }
        Wrong::Fails(message) => {
            format!("the first node with which it fails is {}\n  {message}", trial.line(cuts[wrong]))
        }
    })
}

impl Nodes {
    fn new(trial: &Trial) -> Result<Self, String> {
        let mut graph = trial.graph.clone();
        let needed = graph.ancestors(graph.outputs().iter().map(|(_, id)| *id));
        graph.clear_outputs();
        for id in needed.into_iter().filter(|id| is_computed(&trial.graph, *id)) {
            graph.output(name(id), id);
        }
        Cost::of(&graph, &trial.sizes)?.of_ranks(trial.mesh.ranks()).allowed()?;
        let values = all_narrowed(&trial.values);
        let describe = |error: Error| error.to_string();
        let truth = interpret_ranks(&[&graph], &trial.mesh, &trial.values).map_err(describe)?;
        let naive = interpret_ranks(&[&graph], &trial.mesh, &values).map_err(describe)?;
        Ok(Self { graph, truth, naive, values })
    }

    /// The first output of a graph that is wrong; its outputs are called as all nodes are here.
    fn wrong(&self, trial: &Trial, attempt: &Attempt<'_>, graph: &Graph) -> Option<Wrong> {
        let ran = match caught(|| attempt.run(graph, &trial.sizes, &trial.mesh, &self.values)) {
            Ok(Ok(ran)) => ran,
            Ok(Err(message)) | Err(Unwound::Panic(message) | Unwound::Hole(message)) => {
                return Some(Wrong::Fails(message));
            }
        };
        graph.outputs().iter().enumerate().find_map(|(i, (_, id))| {
            let (place, rounding) = (self.place(*id)?, fair::rounding(&trial.graph, *id));
            ran.iter().enumerate().find_map(|(rank, ran)| {
                let (naive, truth) = (&self.naive[rank][place], &self.truth[rank][place]);
                let difference = fair::difference(&ran.results[i], naive, truth, rounding)?;
                Some(Wrong::Differs(*id, rank, difference))
            })
        })
    }

    /// Where a node stands among the outputs.
    fn place(&self, id: Id) -> Option<usize> {
        self.graph.outputs().binary_search_by_key(&id, |(_, id)| *id).ok()
    }

    fn site(&self, trial: &Trial, id: Id, rank: usize, difference: &Difference, with: &str) -> String {
        let message =
            self.place(id).map(|place| describe(&trial.graph, id, &self.naive[rank][place], difference));
        let message = world::of_rank(&trial.mesh, rank, &message.unwrap_or_default());
        format!("the first node that differs is {}\n  {message}{with}", trial.line(id))
    }
}

/// Whether a node has to be computed.
fn is_computed(graph: &Graph, id: Id) -> bool {
    !matches!(graph.node(id).op, Op::Input { .. })
}

fn name(id: Id) -> String {
    format!("%{}", id.0)
}

/// The graph up to a node. Its outputs are the graph's own, what later nodes use, and that node.
fn prefix(graph: &Graph, last: Id) -> Result<Graph, Error> {
    let mut to = Graph::new(&graph.name);
    graph.known().iter().for_each(|(symbol, facts)| to.know(symbol, *facts));
    let needed = graph.ancestors(graph.outputs().iter().map(|(_, id)| *id));
    for id in graph.ids().filter(|id| *id <= last) {
        let node = graph.node(id);
        to.add(node.op.clone(), &node.inputs, Some(node.ty.clone()), &node.scope)?;
    }
    let later = graph.ids().filter(|id| *id > last && needed.contains(id));
    let mut open: Vec<Id> = later.flat_map(|id| graph.node(id).inputs.clone()).collect();
    open.extend(graph.outputs().iter().map(|(_, id)| *id).chain([last]));
    open.retain(|id| *id <= last && is_computed(graph, *id));
    open.sort_unstable();
    open.dedup();
    for id in open {
        to.output(name(id), id);
    }
    Ok(to)
}

/// A difference with the element's place, and how far it is off.
pub(super) fn describe(graph: &Graph, id: Id, naive: &Array<f32>, difference: &Difference) -> String {
    let Some(element) = difference.element() else { return difference.to_string() };
    let at = coordinates(&naive.shape, element);
    let Difference::Value { got, naive, truth, allowed, .. } = difference else {
        return format!("{difference}, at {at:?}");
    };
    let dtype = graph.ty(id).dtype;
    let (off, fair) = ((got - truth).abs(), *allowed);
    let [short_got, short_naive] = [got, naive].map(|x| *x as f32); // which they are
    let ulps = fair::ulp(dtype, *naive).map_or(String::new(), |ulp| {
        format!(", {} ulp of {} from the plain value", short((got - naive).abs() / ulp), dtype.name())
    });
    format!(
        "element {at:?}: got {short_got:e}, want {short_naive:e} (plain {}), the truth is {truth:e}; off by {off:.1e}, fair is \
         {fair:.1e}{ulps}",
        dtype.name()
    )
}

fn short(x: f64) -> String {
    if x < 1e6 { format!("{}", x.round()) } else { format!("{x:.1e}") }
}

/// The place of an element, row-major.
fn coordinates(shape: &[usize], element: usize) -> Vec<usize> {
    let mut rest = element;
    let mut at: Vec<usize> =
        shape.iter().rev().map(|size| (rest % size.max(&1), rest /= size.max(&1)).0).collect();
    at.reverse();
    at
}

impl Trial {
    /// A node with the line of the text that it begins on.
    fn line(&self, id: Id) -> String {
        let line = self.lines.get(id.0 as usize).map_or(String::new(), |line| format!("on line {line}:"));
        let written = self.graph.line(id);
        format!("{line}\n  {}", written.lines().next().unwrap_or_default())
    }
}
