//! (D) `issues`, part `attention`: one interface over the ways in which attention is computed.

use std::ops::Range;

use challenges::issues::attention::{Attend, BackEnd, Feature, Packing, Part, Rules, Verdict};
use reference::graph::programs::ScoreEntry;
use reference::graph::{Dtype, Tensor, Type};

/// The attempt.
pub struct Solution;

impl Attend for Solution {
    // ANCHOR: attention-step-9
    // why: places are whole numbers, and a < b is what there is; `key <= query` is `key < query + 1`. The distance that
    // a window allows is `window - 1`: a query's own key is one of those that it keeps. A prefix is an exception from
    // one rule, so it is joined to that rule before the others are.
    // step D.9: say whether a query sees a key
    fn sees(&self, at: &ScoreEntry, rules: &Rules) -> Tensor {
        let number = |value: u32| at.key.like(f64::from(value.min(i32::MAX as u32))); // no place is beyond
        let mut all = at.key.equal(&at.key);
        if rules.causal {
            let before = at.key.less(&(&at.query + 1.0));
            let hidden_by_none = rules.prefix.map(|prefix| at.key.less(&number(prefix)));
            all = all.min(&hidden_by_none.map_or(before.clone(), |prefix| before.max(&prefix)));
        }
        if let Some(window) = rules.window {
            let (behind, ahead) = (&at.query - &at.key, &at.key - &at.query);
            all = all.min(&behind.max(&ahead).less(&number(window)));
        }
        if let (true, [documents, row, ..]) = (rules.documents, &at.extras[..]) {
            let of = |place: &Tensor| documents.gather(&(&(&at.batch * row) + place));
            let (query, key) = (of(&at.query), of(&at.key));
            all = all.min(&query.equal(&key)).min(&number(0).less(&key));
        }
        all
    }
    // ANCHOR_END: attention-step-9

    // ANCHOR: attention-step-10
    // why: a feature that a back end lacks must never be dropped on the way to it. So the question is put to each of
    // them, and what is refused has a name. The order of the back ends says which is faster; the first that can, does.
    // step D.10: choose a back end, and say what becomes of the others
    fn choose(&self, wanted: &[Feature], back_ends: &[BackEnd]) -> Vec<Verdict> {
        let mut taken = false;
        let verdict = |back_end: &BackEnd| {
            if !back_end.of.is_empty() && !back_end.of.iter().any(|feature| wanted.contains(feature)) {
                return Verdict::MeantFor(back_end.of);
            }
            if let Some(lacking) = wanted.iter().find(|feature| !back_end.has.contains(feature)) {
                return Verdict::Lacks(*lacking);
            }
            if std::mem::replace(&mut taken, true) { Verdict::Slower } else { Verdict::Taken }
        };
        back_ends.iter().map(verdict).collect()
    }
    // ANCHOR_END: attention-step-10

    // ANCHOR: attention-step-11
    // why: where a token lies says all about it: its row, and what stood before it. A new document begins where the
    // number changes, where a row begins, and after padding. Positions are not kept: inside a document they differ from
    // those in the row by a constant, and causal masks, windows and slopes look at differences alone.
    // step D.11: put documents end to end
    fn pack(&self, documents: &[i32], row: usize) -> Packing {
        let mut packing = Packing::default();
        let mut last = None; // the document before, and its row
        for (token, document) in documents.iter().enumerate() {
            let own = (*document > 0).then_some((*document, token / row));
            if own.is_some() {
                if own != last {
                    packing.starts.push(packing.tokens.len() as i32);
                }
                packing.tokens.push(token as i32);
                packing.documents.push(packing.starts.len() as i32);
            }
            last = own;
        }
        packing.starts.push(packing.tokens.len() as i32);
        packing
    }
    // ANCHOR_END: attention-step-11

    // ANCHOR: attention-step-12
    // why: a part has divided by its own sum, and ln of that sum is what it hands on. So e^(lse - largest) is its share
    // of the whole, and no share is larger than 1. A part that saw nothing has the share e^-inf = 0; only where all saw
    // nothing is there no largest to take away, and 0 is taken instead of -inf, for -inf - -inf is no number.
    // step D.12: merge attention to parts of the keys
    fn merge(&self, parts: &[Part]) -> Part {
        let largest = parts.iter().map(|part| part.lse.clone()).reduce(|a, b| a.max(&b));
        let largest = largest.expect("at least one part");
        let blind = largest.equal(&largest.like(f64::NEG_INFINITY));
        let shift = blind.select(&largest.like(0.0), &largest);
        let shares: Vec<Tensor> = parts.iter().map(|part| (&part.lse - &shift).exp()).collect();
        let sum = shares.iter().cloned().reduce(|a, b| &a + &b).expect("at least one part");
        let counted = blind.select(&sum.like(1.0), &sum);
        let weighted = parts.iter().zip(&shares).map(|(part, share)| {
            let output = part.output.cast(Dtype::F32);
            &column(&(share / &counted), &output) * &output
        });
        let output = weighted.reduce(|a, b| &a + &b).expect("at least one part");
        let lse = blind.select(&sum.like(f64::NEG_INFINITY), &(&counted.log() + &shift));
        Part { output: output.cast(parts[0].output.ty().dtype), lse }
    }
    // ANCHOR_END: attention-step-12

    // ANCHOR: attention-step-13
    // why: what no query sees need not be read, and reading is all that decoding costs. The first query sees furthest
    // back, the last one furthest ahead. What is left is cut so evenly that no thread waits for another's key.
    // step D.13: cut the keys that are seen into pieces
    fn pieces(
        &self,
        queries: Range<usize>,
        keys: usize,
        rules: &Rules,
        most: usize,
        least: usize,
    ) -> Vec<Range<usize>> {
        if queries.is_empty() {
            return Vec::new();
        }
        let (mut from, mut to) = (0, keys);
        if rules.causal {
            to = to.min(queries.end.max(rules.prefix.map_or(0, |prefix| prefix as usize)));
        }
        if let Some(window) = rules.window.map(|window| window as usize) {
            from = (queries.start + 1).saturating_sub(window);
            to = to.min((queries.end - 1 + window).min(keys));
            if window == 0 {
                return Vec::new();
            }
        }
        let seen = to.saturating_sub(from);
        if seen == 0 {
            return Vec::new();
        }
        let count = (seen / least).clamp(1, most);
        let (length, longer) = (seen / count, seen % count);
        let start = |piece: usize| from + piece * length + piece.min(longer);
        (0..count).map(|piece| start(piece)..start(piece + 1)).collect()
    }
    // ANCHOR_END: attention-step-13

    // ANCHOR: attention-step-14
    // why: the softmax without the sink is divided by e^lse, with it by e^lse + e^sink. The quotient of the two is
    // 1 / (1 + e^(sink - lse)): a sigmoid, which is right for all numbers, and 0 where a query sees nothing.
    // step D.14: let a sink take its share
    fn sink(&self, part: &Part, sinks: &Tensor) -> Tensor {
        let of_head = sinks.reshape([1.into(), sinks.dim(0), 1.into()]);
        let kept = (&part.lse - &of_head).sigmoid();
        let output = part.output.cast(Dtype::F32);
        (&column(&kept, &output) * &output).cast(part.output.ty().dtype)
    }
    // ANCHOR_END: attention-step-14
}

/// A number for each query (batch, heads, queries), as wide as the output of it.
fn column(x: &Tensor, output: &Tensor) -> Tensor {
    let one = Type::new(Dtype::F32, [x.dim(0), x.dim(1), x.dim(2), 1.into()]);
    x.reshape(&one.shape).spread(output.shape())
}
