//! Packing: several rows as the documents of one.

use std::collections::{BTreeMap, VecDeque};

use super::row::Row;

/// Packs rows into rows of at most `most` tokens, none of them cut: the longest first, each into the fullest row that
/// has place for it. Source: "best fit decreasing", the `packing_strategy` "bfd" of the `trl` library; Ding et al.,
/// "Fewer Truncations Improve Language Modeling" (2024), section 3.
pub fn packed(rows: Vec<&Row>, most: usize) -> Vec<Row> {
    let mut order = rows;
    order.sort_by_key(|row| std::cmp::Reverse(row.ids.len()));
    let mut bins: Vec<Vec<&Row>> = Vec::new();
    let mut by_place: BTreeMap<usize, VecDeque<usize>> = BTreeMap::new(); // bins by the tokens that they have place for
    for row in order {
        let fits = by_place.range(row.ids.len()..).next().map(|(place, _)| *place);
        let (bin, place) = match fits {
            None => {
                bins.push(Vec::new());
                (bins.len() - 1, most)
            }
            Some(place) => {
                let waiting = by_place.get_mut(&place);
                let bin = waiting.and_then(VecDeque::pop_front).expect("a place without a bin is taken away");
                by_place.retain(|_, waiting| !waiting.is_empty());
                (bin, place)
            }
        };
        bins[bin].push(row);
        by_place.entry(place - row.ids.len()).or_default().push_back(bin);
    }
    bins.iter().map(|rows| Row::joined(rows)).collect()
}
