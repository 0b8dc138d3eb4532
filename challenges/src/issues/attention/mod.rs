//! (D) `attention`: one interface over the ways in which attention is computed.
//!
//! A library has many attentions: a naive one, one in tiles, one for documents without padding, one for decoding. Each
//! has features that others lack, and conventions of its own: a window of 4096 keeps 4096 keys in one and 4097 in the
//! next. Whoever switches between them should get the same numbers or an error, and nothing in between.
//!
//! **What is given.** A [`Request`]: what is wanted, feature by feature; the [`BackEnd`]s, each with the features that
//! it claims; and [`backends::write`], which writes a request as a graph in the way of a back end, for any device.
//! **What comes out.** A [`Part`]: the output and the logarithm of each query's sum; and a [`Verdict`] on each back
//! end.
//!
//! What attention means is in `reference::issues::attention`. What all back ends have in common, and what tells them
//! apart, is small, and is what a reader writes: the steps of [`Attend`].

use std::ops::Range;

use reference::graph::Tensor;
use reference::graph::programs::ScoreEntry;

use linked::{Linked, counted, linked};

pub use runtime::attention::{
    Attend, BACK_ENDS, BackEnd, Body, Feature, Packing, Part, Problem, Request, Rules, Sizes, Verdict, Way,
    backends, explain, follow,
};

linked!(warpbook_attention -> Linked<dyn Attend>);

counted! {
    Attend, warpbook_attention;

    fn sees(&self, at: &ScoreEntry, rules: &Rules) -> Tensor;
    fn choose(&self, wanted: &[Feature], back_ends: &[BackEnd]) -> Vec<Verdict>;
    fn pack(&self, documents: &[i32], row: usize) -> Packing;
    fn merge(&self, parts: &[Part]) -> Part;
    fn pieces(
        &self,
        queries: Range<usize>,
        keys: usize,
        rules: &Rules,
        most: usize,
        least: usize,
    ) -> Vec<Range<usize>>;
    fn sink(&self, part: &Part, sinks: &Tensor) -> Tensor;
}

/// The solution's text: what an exercise is derived from, and the last page of the lesson.
pub fn solution_text() -> &'static str {
    warpbook_attention().text
}

/// Hints from small to large, chosen by the step that failed.
pub const HINTS: &str = include_str!("hints.toml");
