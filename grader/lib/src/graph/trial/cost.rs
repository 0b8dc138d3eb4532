//! What it takes to run a graph, known before anything runs: the bytes that the interpreter and the compiled graph
//! hold, and the multiplications that the interpreter makes one after the other.
//!
//! A text of a hundred bytes can ask for a broadcast of 2^40 elements. All arithmetic saturates.

use std::collections::BTreeMap;

use reference::graph::{Attention, Dim, Graph, Id, Op, Symbol};

/// Bytes that may be held.
pub const MOST_BYTES: u64 = 1 << 30;

/// Multiplications that may be made.
pub const MOST_WORK: u64 = 1 << 34;

/// Of either, as much is taken where sizes are drawn.
const CHEAP: u64 = 64;

/// What a graph takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Bytes that are alive at once while the graph is interpreted, in f64 and in f32.
    pub alive_bytes: u64,
    /// Bytes of all nodes in their own types, each with memory of its own.
    pub all_bytes: u64,
    /// Multiplications, or elements written.
    pub work: u64,
}

/// A value as the interpreter holds it while the truth is computed.
const WIDE: u64 = 8;

/// An input in f64 and in f32; an output, too.
const BOTH: u64 = 12;

impl Cost {
    /// The cost for given sizes.
    ///
    /// # Errors
    /// If a size is negative, or of no given symbol.
    pub fn of(graph: &Graph, sizes: &BTreeMap<Symbol, i64>) -> Result<Self, String> {
        let mut counts = Vec::new();
        for id in graph.ids() {
            counts.push(
                elements(&graph.ty(id).shape, sizes)
                    .map_err(|message| format!("{}: {message}", graph.site(id)))?,
            );
        }
        let count = |id: &Id| counts[id.0 as usize];
        let last = last_uses(graph);
        let (mut cost, mut alive) = (Self { alive_bytes: 0, all_bytes: 0, work: 0 }, 0_u64);
        for id in graph.ids() {
            let node = graph.node(id);
            let own = count(&id);
            let inputs: Vec<u64> = node.inputs.iter().map(count).collect();
            let (work, scratch) = effort(graph, id, own, &inputs, sizes)?;
            cost.work = cost.work.saturating_add(work);
            let bytes = own.saturating_mul(node.ty.dtype.bytes() as u64).saturating_add(64);
            cost.all_bytes = cost.all_bytes.saturating_add(bytes);
            let kept = if matches!(node.op, Op::Input { .. }) { BOTH } else { WIDE };
            alive = alive.saturating_add(own.saturating_mul(kept));
            let now = alive.saturating_add(scratch.saturating_add(own).saturating_mul(WIDE)); // places, or a definition
            cost.alive_bytes = cost.alive_bytes.max(now);
            for input in node.inputs.iter().filter(|input| last[input.0 as usize] == Some(id)) {
                alive = alive.saturating_sub(count(input).saturating_mul(WIDE));
            }
        }
        let outputs = graph.outputs().iter().map(|(_, id)| count(id));
        let outputs = outputs.fold(0_u64, |sum, count| sum.saturating_add(count.saturating_mul(BOTH)));
        cost.alive_bytes = cost.alive_bytes.saturating_add(outputs);
        Ok(cost)
    }

    /// Of as many ranks, each of which does the same.
    pub fn of_ranks(self, ranks: usize) -> Self {
        let times = |one: u64| one.saturating_mul(ranks as u64);
        Self {
            alive_bytes: times(self.alive_bytes),
            all_bytes: times(self.all_bytes),
            work: times(self.work),
        }
    }

    /// Whether it is done at once.
    pub fn is_cheap(&self) -> bool {
        self.alive_bytes.max(self.all_bytes) <= MOST_BYTES / CHEAP && self.work <= MOST_WORK / CHEAP
    }

    /// That it is no more than may be.
    ///
    /// # Errors
    /// What is too much.
    pub fn allowed(&self) -> Result<(), String> {
        let bytes = self.alive_bytes.max(self.all_bytes);
        if bytes > MOST_BYTES {
            return Err(format!(
                "expected values of at most {MOST_BYTES} bytes, found {bytes}; try smaller sizes"
            ));
        }
        if self.work > MOST_WORK {
            let work = self.work;
            return Err(format!(
                "expected at most {MOST_WORK} multiplications, found {work}; try smaller sizes"
            ));
        }
        Ok(())
    }
}

/// The elements of a shape.
fn elements(shape: &[Dim], sizes: &BTreeMap<Symbol, i64>) -> Result<u64, String> {
    shape.iter().try_fold(1_u64, |product, dim| Ok(product.saturating_mul(size(dim, sizes)?)))
}

fn size(dim: &Dim, sizes: &BTreeMap<Symbol, i64>) -> Result<u64, String> {
    let size = dim.value(sizes).map_err(|symbol| format!("no size is given for {symbol}"))?;
    u64::try_from(size).map_err(|_| format!("expected a size from 0 on, found {dim} = {size}"))
}

/// The multiplications of a node, and the elements that it holds meanwhile beside its inputs and its result.
fn effort(
    graph: &Graph,
    id: Id,
    own: u64,
    inputs: &[u64],
    sizes: &BTreeMap<Symbol, i64>,
) -> Result<(u64, u64), String> {
    let node = graph.node(id);
    let read = inputs.iter().fold(own, |sum, count| sum.saturating_add(*count));
    if let Op::Attention(of) = &node.op {
        return attention(graph, id, of, sizes);
    }
    if let Op::AttentionGrad { attention: of, .. } = &node.op {
        let (work, held) = attention(graph, id, of, sizes)?;
        return Ok((work.saturating_mul(4), held.saturating_mul(4)));
    }
    let last = if node.op == Op::Matmul { graph.ty(node.inputs[0]).shape.last() } else { None };
    let terms = last.map_or(Ok(0), |dim| size(dim, sizes))?;
    Ok((read.saturating_add(own.saturating_mul(terms)), 0))
}

/// An attention by its definition: a few matrices of scores, and one for each node of its programs.
fn attention(
    graph: &Graph,
    id: Id,
    of: &Attention,
    sizes: &BTreeMap<Symbol, i64>,
) -> Result<(u64, u64), String> {
    let shape = |input: usize| &graph.ty(graph.node(id).inputs[input]).shape;
    let [q, k, v] = [shape(0), shape(1), shape(2)];
    let scores = elements(&[&q[..3], &k[2..3]].concat(), sizes)?;
    let heads = elements(&[&q[..2], &k[2..3]].concat(), sizes)?;
    let width = size(&k[3], sizes)?.saturating_add(size(&v[3], sizes)?);
    let mut held = scores.saturating_mul(8).saturating_add(heads.saturating_mul(width));
    for (program, _) in of.programs() {
        for node in program.nodes() {
            let own = elements(&node.ty.shape, sizes)?;
            held = held.saturating_add(own).saturating_add(scores);
        }
    }
    Ok((scores.saturating_mul(width).saturating_add(held), held))
}

/// The last node that uses each; none for those that are outputs.
fn last_uses(graph: &Graph) -> Vec<Option<Id>> {
    let mut last = vec![None; graph.nodes().len()];
    for id in graph.ids() {
        graph.node(id).inputs.iter().for_each(|input| last[input.0 as usize] = Some(id));
    }
    graph.outputs().iter().for_each(|(_, id)| last[id.0 as usize] = None);
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(text: &str) -> Cost {
        Cost::of(&Graph::parse(text).expect("sound"), &BTreeMap::new()).expect("sizes")
    }

    #[test]
    fn what_is_large_is_known_before_it_runs() {
        let wide = "graph \"g\" { %0 = constant 1.0 : f32[1, 1] %1 = broadcast %0 : f32[1048576, 1048576] \
                    %2 = sum %1 dim 1 : f32[1048576, 1] return \"y\" %2 }";
        assert!(cost(wide).allowed().is_err_and(|message| message.contains("bytes")));
        let deep = "graph \"g\" { %0 = input \"a\" : f32[4096, 4096] %1 = matmul %0 %0 : f32[4096, 4096] \
                    return \"y\" %1 }";
        assert!(cost(deep).allowed().is_err_and(|message| message.contains("multiplications")));
        let vast = "graph \"g\" { %0 = input \"a\" : f32[9223372036854775807, 9223372036854775807] return \"y\" %0 }";
        assert!(cost(vast).allowed().is_err());
        let small =
            "graph \"g\" { %0 = input \"a\" : f32[64, 64] %1 = matmul %0 %0 : f32[64, 64] return \"y\" %1 }";
        assert!(cost(small).is_cheap() && cost(small).allowed().is_ok());
    }
}
