//! How the rows of a micro-batch lie in it.
//!
//! ```text
//! side by side    a a a a a     joined    a a a a a b b b c c
//!                 b b b . .
//!                 c c . . .
//! ```
//!
//! Rows of one length lie side by side. Rows of unequal lengths are joined, as the documents of longer rows, so that
//! little is computed for padding: a document's tokens see each other alone, and have the losses and gradients that they
//! have in a row of their own. Source: `padding_free` of the `trl` library.

use challenges::train::Microbatch;
use reference::llama::{self, Spec};
use reference::loss::IGNORED;

use super::Config;
use super::data::{Dataset, Row, packed};

/// How rows lie in micro-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Filled up at their ends.
    SideBySide,
    /// Filled up at their ends, and of several documents each.
    Packed,
    /// One after the other, in rows of at most so many tokens.
    Joined(usize),
}

/// A row that rows are joined to has so many tokens, or as many as the longest of them: attention looks at every pair of
/// blocks in a row, if only to leave it out.
const JOINED: usize = 1024;

impl Layout {
    /// That of a run over this data and these rows of evaluations.
    pub fn of(config: &Config, [data, evaluated]: [&Dataset; 2]) -> Self {
        let batches = [config.per_device_train_batch_size, config.per_device_eval_batch_size];
        let batches = [data, evaluated].into_iter().zip(batches.map(|rows| rows as usize));
        if config.packing {
            return Self::Packed;
        }
        let joined = batches.filter(|(data, batch)| *batch > 1 && !data.is_even());
        let most = joined.map(|(data, batch)| data.longest().saturating_mul(batch).min(JOINED)).max();
        most.map_or(Self::SideBySide, |most| Self::Joined(most.max(data.longest()).max(evaluated.longest())))
    }

    /// The model for such rows: its context is as long as a row can be.
    pub fn spec(self, spec: Spec) -> Spec {
        match self {
            Self::SideBySide => Spec { rows: llama::Rows::default(), ..spec },
            Self::Packed => Spec { rows: llama::Rows::PACKED, ..spec },
            Self::Joined(most) => Spec {
                rows: llama::Rows::PACKED,
                config: llama::Config { positions: most, ..spec.config },
                ..spec
            },
        }
    }

    /// A micro-batch of rows.
    pub fn microbatch(self, rows: &[&Row]) -> Microbatch {
        match self {
            Self::SideBySide | Self::Packed => side_by_side(rows),
            Self::Joined(most) => {
                let rows = packed(rows.to_vec(), most);
                side_by_side(&rows.iter().collect::<Vec<_>>())
            }
        }
    }

    /// Rows and tokens of the largest micro-batch: that of the longest rows.
    pub fn largest(self, data: &Dataset, batch: usize) -> [usize; 2] {
        let mut rows: Vec<&Row> = data.rows.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.ids.len()));
        rows.truncate(batch);
        self.microbatch(&rows).shape
    }
}

/// The number of each token's document, from 1 on.
fn numbers(row: &Row) -> Vec<i32> {
    let lengths = row.documents.iter().zip(1..);
    lengths.flat_map(|(length, number)| std::iter::repeat_n(number, *length)).collect()
}

/// Rows side by side, filled up at their ends.
fn side_by_side(rows: &[&Row]) -> Microbatch {
    let length = rows.iter().map(|row| row.ids.len()).max().unwrap_or(0);
    let filled = |of: &dyn Fn(&Row) -> Vec<i32>, with: i32| -> Vec<i32> {
        let padded = |row: &&Row| {
            let mut values = of(row);
            values.resize(length, with);
            values
        };
        rows.iter().flat_map(padded).collect()
    };
    Microbatch {
        shape: [rows.len(), length],
        ids: filled(&|row| row.ids.clone(), 0),
        labels: filled(&Row::labels, IGNORED),
        positions: filled(&|row| row.documents.iter().flat_map(|length| 0..*length as i32).collect(), 0),
        documents: filled(&numbers, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(lengths: &[usize]) -> Dataset {
        let row = |(first, length): (usize, &usize)| Row {
            ids: (0..*length as i32).map(|token| 100 * first as i32 + token).collect(),
            trained: vec![true; *length],
            documents: vec![*length],
        };
        Dataset { rows: lengths.iter().enumerate().map(row).collect(), ..Dataset::default() }
    }

    fn layout(batch: u64, lengths: &[usize]) -> Layout {
        let config = Config { per_device_train_batch_size: batch, ..Config::default() };
        Layout::of(&config, [&data(lengths), &Dataset::default()])
    }

    #[test]
    fn rows_are_joined_where_they_are_unequal_and_together() {
        assert_eq!(layout(4, &[5, 5, 5]), Layout::SideBySide);
        assert_eq!(layout(1, &[5, 3, 5]), Layout::SideBySide);
        assert_eq!(layout(4, &[5, 3, 5]), Layout::Joined(20));
        assert_eq!(layout(4, &[600, 3]), Layout::Joined(1024));
        assert_eq!(layout(4, &[3000, 3]), Layout::Joined(3000));
    }

    #[test]
    fn a_joined_batch_has_every_token_once_with_its_label_and_position() {
        let all = data(&[5, 2, 3, 4]);
        let batch = Layout::Joined(9).microbatch(&all.rows.iter().collect::<Vec<_>>());
        assert_eq!(batch.shape, [2, 7]);
        assert_eq!(batch.ids, [0, 1, 2, 3, 4, 100, 101, 300, 301, 302, 303, 200, 201, 202]);
        assert_eq!(
            batch.labels,
            batch.ids.iter().map(|id| if id % 100 == 0 { -100 } else { *id }).collect::<Vec<_>>()
        );
        assert_eq!(batch.positions, [0, 1, 2, 3, 4, 0, 1, 0, 1, 2, 3, 0, 1, 2]);
        assert_eq!(batch.documents, [1, 1, 1, 1, 1, 2, 2, 1, 1, 1, 1, 2, 2, 2]);
    }

    #[test]
    fn the_largest_batch_is_of_the_longest_rows() {
        let all = data(&[1, 6, 2, 5]);
        assert_eq!(Layout::SideBySide.largest(&all, 2), [2, 6]);
        assert_eq!(Layout::Joined(20).largest(&all, 3), [1, 13]);
        assert_eq!(Layout::Joined(11).largest(&all, 8), [2, 9]);
    }
}
