//! Attention that no launch computes, by its definition.
//!
//! A score or mask program that challenge C's step `flex` turns into elementwise operations over blocks runs inside the
//! attention's own launch. Every other attention is decomposed here into products and a softmax.

use reference::graph::{self, Error, Graph, Id, Op, Rewrite, Type};

use crate::contract::Compile;
use crate::fuse::attend::{flex, of};
use crate::ir::sized::Sized;

/// The same graph, where every attention that has no such form is computed by its definition; without passes, each.
///
/// Fails only where the graph itself is not sound.
pub fn decompose_unsupported_attention(passes: Option<&dyn Compile>, sized: &Sized) -> Result<Graph, Error> {
    let rewritten = sized.graph.rewrite(|rewrite, id| {
        let is_attention = of(&rewrite.node(id).op).is_some();
        let decomposes = is_attention && !passes.is_some_and(|passes| has_form(passes, sized, id));
        let here = if decomposes { by_definition(rewrite, id)? } else { rewrite.copy(id)? };
        Ok(Some(here))
    })?;
    Ok(rewritten.graph)
}

/// Whether an attention, or its gradient, is one launch.
fn has_form(passes: &dyn Compile, sized: &Sized, id: Id) -> bool {
    let op = &sized.graph.node(id).op;
    let of_extra = matches!(op, Op::AttentionGrad { wrt, .. } if *wrt > 2);
    let of_lse = matches!(op, Op::AttentionLseGrad { .. });
    !of_extra && !of_lse && flex(passes, sized, id).is_some()
}

fn by_definition(rewrite: &mut Rewrite<'_>, id: Id) -> Result<Id, Error> {
    let inputs = rewrite.inputs(id)?;
    let types: Vec<Type> = inputs.iter().map(|input| rewrite.to().ty(*input).clone()).collect();
    let definition = graph::expand(&rewrite.node(id).op, &types)?;
    Ok(rewrite.inline(&definition, &inputs, None)?[0])
}
