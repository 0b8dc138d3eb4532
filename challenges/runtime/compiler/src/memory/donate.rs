//! Tensors that are donated: inputs that an output of the same name and type updates.
//!
//! The result of such an output lies, after a run, where its input lay. Where the update can be made there, it is: by
//! products that add to it ([`sums`](crate::fuse::sums)), or by a pass in place, if nobody reads the old values
//! afterwards ([`reuse`](crate::memory::reuse)). Otherwise it is computed apart, and the plan's last step moves it.

use kernels::plan::contiguous;
use kernels::tile::{Index, Op as Tile, Program, Store};
use reference::graph::{Error, Graph, Id, Op};

use crate::fuse::emit::{Kernel, Layout, Root};
use crate::fuse::{Fused, Part};
use crate::ir::code::element;
use crate::ir::sized::Sized;
use crate::memory::reuse::Reuse;

/// The inputs that are donated, each with the output that it becomes.
pub fn pairs(graph: &Graph) -> Vec<(Id, Id)> {
    graph.outputs().iter().filter_map(|(name, id)| Some((donated_input(graph, name, *id)?, *id))).collect()
}

/// The input that an output updates, if there is one.
fn donated_input(graph: &Graph, name: &str, output: Id) -> Option<Id> {
    graph.find_input(name).filter(|input| graph.ty(*input) == graph.ty(output))
}

/// The same graph, where a donated output is a node that no other output is, and what goes out of a donated input under
/// another name is a copy.
pub fn separate_outputs(graph: &Graph) -> Result<Graph, Error> {
    let (mut to, pairs) = (graph.clone(), pairs(graph));
    to.clear_outputs();
    for (name, id) in graph.outputs() {
        let input = donated_input(graph, name, *id);
        let is_other = pairs.iter().any(|(other, _)| other == id && Some(*other) != input);
        let is_shared = graph.outputs().iter().filter(|(_, other)| other == id).count() > 1;
        let copy = is_other || (is_shared && input.is_some_and(|input| input != *id));
        let own = if copy { to.add(Op::Detach, &[*id], None, &graph.node(*id).scope)? } else { *id };
        to.output(name, own);
    }
    Ok(to)
}

/// Lets the donated outputs end where their inputs are: in place where that can be and is wanted, else by a copy.
pub fn alias_outputs(sized: &Sized, fused: &mut Fused, pairs: &[(Id, Id)], in_place: bool) {
    let mut reuse = Reuse::of(fused);
    let mut copies = Vec::new();
    for (input, output) in pairs {
        let [to, from] = [input, output].map(|id| fused.layouts[id].clone());
        fused.donated.insert(to.buffer, *output);
        if from.buffer == to.buffer || sized.elements(*input) == 0 {
            continue;
        }
        let own = !fused.given.contains_key(&from.buffer) && from.strides == to.strides;
        if in_place && own && reuse.may_replace(fused, from.buffer, to.buffer) {
            reuse.replace(from.buffer, to.buffer);
        } else {
            copies.push(Part::Kernel(copy(sized, *output, from, to)));
        }
    }
    reuse.finish(fused);
    fused.parts.append(&mut copies);
}

/// A pass that copies a node's elements.
fn copy(sized: &Sized, node: Id, from: Layout, to: Layout) -> Kernel {
    let shape = sized.shape(node);
    let space = if shape.is_empty() { vec![1] } else { shape.to_vec() };
    let over = |layout: Layout| Layout { strides: contiguous(&space), ..layout };
    let element = element(sized.graph.ty(node).dtype);
    let ops = vec![Tile::Load { input: 0, element, index: Index::View }];
    let stores = vec![Store { output: 0, element, index: Index::View, per_row: false, value: 0 }];
    Kernel {
        roots: vec![Root { node, layout: to.clone() }],
        nodes: [node].into(),
        program: Program { name: "alias".into(), ops, stores },
        inputs: vec![over(from)],
        outputs: vec![over(to)],
        space,
    }
}
