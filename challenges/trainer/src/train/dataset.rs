//! The rows of a file, and what is known of each.

use std::ops::Range;

use challenges::issues::classify::Problem;
use serde_json::{Map, Value as Json};

use super::row::Row;

/// The rows of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dataset {
    /// Those with a trained token, in the file's order.
    pub rows: Vec<Row>,
    /// How many were left out, for they have none.
    pub left_out: usize,
    /// How many were cut.
    pub cut: usize,
    /// Prompts whose tokens do not begin their row: they end within a token, or the template writes them otherwise
    /// alone.
    pub merged: usize,
    /// Rows of an example, which follow each other; 0 of rows by themselves.
    pub group: usize,
    /// What is known of each row of an example; none of pairs.
    pub judged: Vec<Judgement>,
    /// What a classifier answers; `None` of a model that predicts the next token.
    pub problem: Option<Problem>,
    /// Notices about the file, for the user.
    pub notices: Vec<String>,
}

/// What is known of a row beside its tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// Whether the answer is good.
    pub desirable: bool,
    /// What the completion is worth.
    pub reward: f64,
    /// The log-probabilities that its tokens were sampled with.
    pub old: Option<Vec<f32>>,
    /// Whether it was cut.
    pub is_truncated: bool,
    /// The line that it is of, for a program that judges what is generated.
    pub line: Map<String, Json>,
}

impl Dataset {
    /// How many examples there are.
    pub fn examples(&self) -> usize {
        self.rows.len() / self.group.max(1)
    }

    /// The numbers of an example's rows.
    pub fn rows_of(&self, example: usize) -> Range<usize> {
        let rows = self.group.max(1);
        example * rows..(example + 1) * rows
    }

    /// Whether all of its rows have as many tokens.
    pub fn is_even(&self) -> bool {
        self.rows.windows(2).all(|two| two[0].ids.len() == two[1].ids.len())
    }

    /// The tokens of its longest row.
    pub fn longest(&self) -> usize {
        self.rows.iter().map(|row| row.ids.len()).max().unwrap_or(0)
    }
}
