//! (D) `issues`, part `attention`: one interface over the ways in which attention is computed.

use std::ops::Range;

use challenges::issues::attention::{Attend, BackEnd, Feature, Packing, Part, Rules, Verdict};
use reference::graph::programs::ScoreEntry;
use reference::graph::{Dtype, Tensor, Type};

/// The attempt.
pub struct Exercise;

impl Attend for Exercise {
    // ANCHOR: attention-step-9
    // step D.9: say whether a query sees a key
    fn sees(&self, at: &ScoreEntry, rules: &Rules) -> Tensor {
        todo!("D.9: say whether a query sees a key")
    }
    // ANCHOR_END: attention-step-9

    // ANCHOR: attention-step-10
    // step D.10: choose a back end, and say what becomes of the others
    fn choose(&self, wanted: &[Feature], back_ends: &[BackEnd]) -> Vec<Verdict> {
        todo!("D.10: choose a back end, and say what becomes of the others")
    }
    // ANCHOR_END: attention-step-10

    // ANCHOR: attention-step-11
    // step D.11: put documents end to end
    fn pack(&self, documents: &[i32], row: usize) -> Packing {
        todo!("D.11: put documents end to end")
    }
    // ANCHOR_END: attention-step-11

    // ANCHOR: attention-step-12
    // step D.12: merge attention to parts of the keys
    fn merge(&self, parts: &[Part]) -> Part {
        todo!("D.12: merge attention to parts of the keys")
    }
    // ANCHOR_END: attention-step-12

    // ANCHOR: attention-step-13
    // step D.13: cut the keys that are seen into pieces
    fn pieces(
        &self,
        queries: Range<usize>,
        keys: usize,
        rules: &Rules,
        most: usize,
        least: usize,
    ) -> Vec<Range<usize>> {
        todo!("D.13: cut the keys that are seen into pieces")
    }
    // ANCHOR_END: attention-step-13

    // ANCHOR: attention-step-14
    // step D.14: let a sink take its share
    fn sink(&self, part: &Part, sinks: &Tensor) -> Tensor {
        todo!("D.14: let a sink take its share")
    }
    // ANCHOR_END: attention-step-14
}

/// A number for each query (batch, heads, queries), as wide as the output of it.
fn column(x: &Tensor, output: &Tensor) -> Tensor {
    let one = Type::new(Dtype::F32, [x.dim(0), x.dim(1), x.dim(2), 1.into()]);
    x.reshape(&one.shape).spread(output.shape())
}
