//! Sums of tensors padded with zeros, as one concatenation.
//!
//! Differentiation writes the gradient of a slice as that gradient with zeros before and after it, and adds up what it
//! has so of every slice. Where each part of one term meets zeros of the other, nothing has to be added: the parts lie
//! side by side. A rotary embedding, which slices heads into halves, is then as cheap backward as forward.
//!
//! Every element keeps its bits, but for the sign of a zero: -0 + 0 is 0, and what is not added stays -0.

use reference::graph::{Binary, Error, Graph, Id, Op};

/// The same graph, in which sums of two concatenations of which one has zeros wherever the other has not are
/// concatenations themselves.
///
/// Fails only where the graph itself is not sound.
pub fn join_padded(graph: &Graph) -> Result<Graph, Error> {
    let rewritten = graph.rewrite(|rewrite, id| {
        let (node, inputs) = (rewrite.node(id), rewrite.inputs(id)?);
        let is_sum = node.op == Op::Binary(Binary::Add);
        let here = match is_sum.then(|| joined(rewrite.to(), inputs[0], inputs[1])).flatten() {
            Some((dim, parts)) => {
                rewrite.add(Op::Concat { dim }, &parts, Some(node.ty.clone()), &node.scope)?
            }
            None => rewrite.copy(id)?,
        };
        Ok(Some(here))
    })?;
    Ok(rewritten.graph)
}

/// The dimension and the parts of a sum of two concatenations along it, where each part of the one meets zeros of the
/// other, as long as it is.
fn joined(graph: &Graph, a: Id, b: Id) -> Option<(usize, Vec<Id>)> {
    let (Op::Concat { dim }, Op::Concat { dim: other }) = (&graph.node(a).op, &graph.node(b).op) else {
        return None;
    };
    let (of_a, of_b) = (parts(graph, a, *dim)?, parts(graph, b, *dim)?);
    let is_aligned = dim == other && of_a.len() == of_b.len();
    let one = |((a, of_a), (b, of_b)): (&(Id, i64), &(Id, i64))| match [*a, *b].map(|id| is_zero(graph, id)) {
        [true, _] if of_a == of_b => Some(*b),
        [_, true] if of_a == of_b => Some(*a),
        _ => None,
    };
    let parts: Option<Vec<Id>> = of_a.iter().zip(&of_b).map(one).collect();
    Some((*dim, parts.filter(|parts| is_aligned && !parts.is_empty())?))
}

/// The parts of a concatenation that are not empty, with their lengths; nothing if a length is not known.
fn parts(graph: &Graph, id: Id, dim: usize) -> Option<Vec<(Id, i64)>> {
    let length = |part: Id| graph.ty(part).shape.get(dim)?.as_fixed();
    let parts: Option<Vec<(Id, i64)>> =
        graph.node(id).inputs.iter().map(|part| Some((*part, length(*part)?))).collect();
    Some(parts?.into_iter().filter(|(_, length)| *length > 0).collect())
}

fn is_zero(graph: &Graph, id: Id) -> bool {
    matches!(graph.node(id).op, Op::Constant { value } if value == 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_empty_concatenations_stay_sums() {
        let text = "graph \"empty\" {\n  %0 = input \"x\" : f32[0, 2]\n  %1 = concat %0 %0 dim 0 : f32[0, 2]\n  \
                    %2 = add %1 %1 : f32[0, 2]\n  return \"y\" %2\n}\n";
        let graph: Graph = text.parse().expect("a sound graph");
        let joined = join_padded(&graph).expect("a sound graph");
        joined.check().expect("a sound graph");
        assert!(joined.ids().any(|id| joined.node(id).op == Op::Binary(Binary::Add)));
    }
}
