//! What a chunked loss takes beside the same loss with all logits, read out of a challenge's measurements.

use crate::number::{quantity, ratio};
use scorecard::{Challenge, Measurement};

/// The columns, the first one's head empty.
pub const HEADS: [&str; 6] = ["", "all logits", "in chunks", "formula", "rows", "ratio [95 %]"];

/// A row: what, and the names of its numbers without the challenge's; one that does not exist leaves its cell empty.
#[derive(Clone, Debug)]
pub struct Row {
    /// The cells, as [`HEADS`] has them.
    pub cells: [String; 6],
    names: [&'static str; 5],
}

/// What is counted or timed: all logits, chunks, formula, rows, ratio.
const ROWS: [(&str, [&str; 5]); 6] = [
    ("cross entropy", ["bytes.whole", "bytes.chunked", "bytes.formula", "bytes.rows", ""]),
    (
        "policy",
        ["policy.bytes.whole", "policy.bytes.chunked", "policy.bytes.formula", "policy.bytes.rows", ""],
    ),
    ("timed", ["timed.whole.bytes", "timed.chunked.bytes", "", "timed.rows", ""]),
    ("its time", ["timed.whole", "timed.chunked", "", "", "over_whole"]),
    ("published size", ["published.logits", SOME, "published.planned", "published.rows", ""]),
    (
        "published size, all of it run",
        ["published.whole", "published.chunked", "published.planned", "published.rows", ""],
    ),
];

/// What was counted in a run of some of the tokens: only the formula is for all of them, as the logits are.
const SOME: &str = "published.counted";

/// What stands beneath the table.
pub const NOTE: &str = "Memory: bytes beyond inputs and returned gradients. Ratio: full logits / chunked (time: speed-up). \
                        Published size: 'all logits' is the logits tensor alone; 'formula', 'rows', 'ratio' are for \
                        all tokens, 'in chunks' was counted on a subset.";

/// The rows of which there is anything.
pub fn rows(challenge: &Challenge) -> Vec<Row> {
    ROWS.into_iter().filter_map(|(what, names)| row(challenge, what, names)).collect()
}

fn row(challenge: &Challenge, what: &str, names: [&'static str; 5]) -> Option<Row> {
    let get = |name: &str| challenge.measurements.get(&format!("{}.{name}", challenge.name));
    let chunked = get(names[1])?;
    let shown = |name: &str| get(name).map_or(String::new(), quantity);
    let planned = get(names[2]).filter(|_| names[1] == SOME).unwrap_or(chunked);
    let over = get(names[4]).cloned().or_else(|| quotient(get(names[0])?, planned));
    let [whole, chunked, formula, rows] = [0, 1, 2, 3].map(|i| shown(names[i]));
    let cells = [what.into(), whole, chunked, formula, rows, over.as_ref().map_or(String::new(), ratio)];
    Some(Row { cells, names })
}

/// How many times the other.
fn quotient(whole: &Measurement, chunked: &Measurement) -> Option<Measurement> {
    let value = whole.value / chunked.value;
    value.is_finite().then(|| Measurement { value, unit: "x".into(), interval: None, samples: Vec::new() })
}

impl Row {
    /// Whether a number stands in it, by its name without the challenge's.
    pub fn holds(&self, name: &str) -> bool {
        self.names.contains(&name)
    }
}
