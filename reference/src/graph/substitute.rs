//! Other sizes in the place of symbols.

use std::collections::BTreeMap;

use super::{Attention, Dim, Error, Graph, Group, Op, Symbol, Type};

/// What stands for each symbol; one that is not there stays.
type By = BTreeMap<Symbol, Dim>;

impl Graph {
    /// The same graph with sizes in the place of symbols, in the programs of its attentions too. What was known of
    /// these symbols is left out.
    ///
    /// Fails where something does not fit any more, such as a slice that is longer than the new size.
    pub fn substitute(&self, by: &BTreeMap<Symbol, Dim>) -> Result<Graph, Error> {
        let mut graph = Graph::new(self.name.clone());
        graph.known = self.known.clone();
        graph.known.retain(|symbol, _| !by.contains_key(symbol));
        let rewritten = self.rewrite_onto(graph, |rewrite, id| {
            let (node, inputs) = (rewrite.node(id), rewrite.inputs(id)?);
            rewrite.add(node.op.substitute(by)?, &inputs, Some(node.ty.substitute(by)), &node.scope).map(Some)
        })?;
        Ok(rewritten.graph)
    }
}

impl Type {
    /// The same type with sizes in the place of symbols.
    fn substitute(&self, by: &By) -> Type {
        Type { dtype: self.dtype, shape: self.shape.iter().map(|dim| dim.substitute(by)).collect() }
    }
}

impl Op {
    /// The same operation with sizes in the place of symbols.
    pub(super) fn substitute(&self, by: &By) -> Result<Op, Error> {
        Ok(match self {
            Op::Slice { dim, start, end } => {
                Op::Slice { dim: *dim, start: start.substitute(by), end: end.substitute(by) }
            }
            Op::Attention(attention) => Op::Attention(Box::new(attention.substitute(by)?)),
            Op::AttentionGrad { attention, wrt } => {
                Op::AttentionGrad { attention: Box::new(attention.substitute(by)?), wrt: *wrt }
            }
            Op::AttentionLse(attention) => Op::AttentionLse(Box::new(attention.substitute(by)?)),
            Op::AttentionLseGrad { attention, wrt } => {
                Op::AttentionLseGrad { attention: Box::new(attention.substitute(by)?), wrt: *wrt }
            }
            Op::Collective { kind, group } => {
                let group = Group { axis: group.axis.clone(), size: group.size.substitute(by) };
                Op::Collective { kind: *kind, group }
            }
            Op::RandomMask { .. } => self.clone(),
            Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } | Op::Dequantize { .. } => self.clone(),
            Op::Cast | Op::Detach | Op::Unary(_) | Op::Binary(_) | Op::Compare(_) => self.clone(),
            Op::Select | Op::Reduce(..) | Op::Matmul | Op::Gather | Op::ScatterAdd => self.clone(),
            Op::Reshape | Op::Transpose { .. } | Op::Broadcast | Op::Concat { .. } => self.clone(),
        })
    }
}

impl Attention {
    fn substitute(&self, by: &By) -> Result<Attention, Error> {
        let program = |graph: &Option<Graph>| graph.as_ref().map(|graph| graph.substitute(by)).transpose();
        Ok(Attention { scale: self.scale, score: program(&self.score)?, mask: program(&self.mask)? })
    }
}
