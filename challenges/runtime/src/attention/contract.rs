//! The steps of one interface for attention: challenge D's contract of `attention`.

use std::ops::Range;

use reference::graph::Tensor;
use reference::graph::programs::ScoreEntry;
use reference::issues::attention::Rules;

use super::back_end::{BackEnd, Part};
use super::feature::Feature;

// ANCHOR: attention-trait
/// The steps of one interface for attention, from small to large.
pub trait Attend: Send + Sync {
    /// D.9 - whether the query of an entry may see its key, u8 without dimensions, by the rules on places: all that are
    /// set have to allow it. `at.query` is the query's place among the keys. A window keeps the query's own key and the
    /// `window - 1` before it; where the mask is not causal, as many after it. A window or a prefix may be longer than
    /// any row, and is below 2^31. A prefix takes back what `causal` hides, and nothing else. Where documents count,
    /// `at.extras` begins with their numbers i32 (batch * keys), row after row, and the keys of a row, i32 without
    /// dimensions; a number below 1 is padding, which sees nothing and is seen by nothing.
    fn sees(&self, at: &ScoreEntry, rules: &Rules) -> Tensor;

    /// D.10 - what becomes of each back end, in their order, where `wanted` are the features of a request, each once:
    /// the first that has all of them, and is meant for such requests, is [`Verdict::Taken`]; one that is meant for
    /// others is [`Verdict::MeantFor`] those, whatever it lacks; of one that lacks features the first of `wanted`, in
    /// its order, is what it [`Verdict::Lacks`]; one that could have been taken after the first is
    /// [`Verdict::Slower`]. None may be taken. A back end is meant for requests with any of the features in its `of`,
    /// and for all if there are none.
    fn choose(&self, wanted: &[Feature], back_ends: &[BackEnd]) -> Vec<Verdict>;

    /// D.11 - documents end to end: the tokens that are not padding, in their order, where `documents` has the numbers
    /// of all tokens, `row` tokens for each sequence; a number below 1 is padding. The tokens of a document follow each
    /// other in their row ([`follow`] has looked); another row may have a document of the same number.
    fn pack(&self, documents: &[i32], row: usize) -> Packing;

    /// D.12 - attention to all keys, from attention to some of them each, where no key is in two parts: outputs of any
    /// float type (batch, heads, queries, width), in which the result is, too, and f32 (batch, heads, queries) the
    /// logarithms of their sums. A part may see no key for a query: then its output there is 0 and its logarithm minus
    /// infinity; and so is the result if all parts do. There is at least one part.
    fn merge(&self, parts: &[Part]) -> Part;

    /// D.13 - pieces of the keys that some query may see by `causal`, `window` and `prefix`. The queries stand at the
    /// places `queries`, which may lie beyond the keys, or be none; the keys at those from 0 to `keys`. Documents are
    /// not looked at. Pieces follow each other, are at most `most` (1 or more), have at least `least` keys each (1 or
    /// more) unless there are fewer in all, and differ by at most one key, longer ones first; and there are as many as
    /// that allows. None, if no key can be seen.
    fn pieces(
        &self,
        queries: Range<usize>,
        keys: usize,
        rules: &Rules,
        most: usize,
        least: usize,
    ) -> Vec<Range<usize>>;

    /// D.14 - the output with attention sinks, in its type: `sinks` f32 (heads) are finite logits that take their share
    /// of the softmax and have no value.
    fn sink(&self, part: &Part, sinks: &Tensor) -> Tensor;
}
// ANCHOR_END: attention-trait

/// What becomes of a back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It computes the request.
    Taken,
    /// It would compute it too, and an earlier one is taken.
    Slower,
    /// It is meant for requests with one of these.
    MeantFor(&'static [Feature]),
    /// It cannot: the request wants this.
    Lacks(Feature),
}

/// Documents end to end, without padding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packing {
    /// Of each packed token its number among all tokens, row after row.
    pub tokens: Vec<i32>,
    /// Of each packed token the number of its document, from 1 on, one more for each document.
    pub documents: Vec<i32>,
    /// Where each document begins among the packed tokens, and where the last one ends: `cu_seqlens`.
    pub starts: Vec<i32>,
}

/// That the tokens of each document follow each other in their row: else a window, or a slope, would not reach as far
/// among packed tokens as it does in the row.
///
/// # Errors
/// Names the first document that begins twice.
pub fn follow(documents: &[i32], row: usize) -> Result<(), String> {
    for (number, tokens) in documents.chunks(row.max(1)).enumerate() {
        let mut begun = std::collections::BTreeSet::new();
        let mut last = 0;
        for (at, document) in tokens.iter().copied().enumerate() {
            if document > 0 && document != last && !begun.insert(document) {
                return Err(format!(
                    "row {number}: expected the tokens of document {document} side by side, found it again at {at}"
                ));
            }
            last = document;
        }
    }
    Ok(())
}
