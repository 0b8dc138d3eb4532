//! What a `config.json` says about a sequence classifier: its labels, what it answers, and its token of padding.
//!
//! ```text
//! architectures   ["LlamaForSequenceClassification"]
//! id2label        {"0": "negative", "1": "positive"}      missing: `num_labels` of them, or two
//! problem_type    "single_label_classification", ..       null: one output is a regression
//! pad_token_id    0
//! ```
//!
//! Source: `PreTrainedConfig` of the `transformers` library, 5.24.

use super::Error;
use super::fields::Fields;
use crate::issues::classify::Problem;

/// What a Llama has in the place of its output layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Classifier {
    /// The names of its outputs, in their order.
    pub labels: Vec<String>,
    /// What it answers; `None` if the file leaves it to the labels of the data.
    pub problem: Option<Problem>,
    /// The token of padding.
    pub pad: Option<i32>,
    /// The standard deviation of the numbers that a new head begins as.
    pub initializer_range: f64,
}

/// The most outputs that make sense.
const MOST_LABELS: usize = 1 << 16;

impl Classifier {
    /// One with these labels, and for the rest what a file has that says nothing.
    pub fn new(labels: Vec<String>) -> Self {
        Self { labels, problem: None, pad: None, initializer_range: 0.02 }
    }

    pub(super) fn of(fields: &Fields) -> Result<Self, Error> {
        let labels = labels(fields)?;
        let classifier = Self {
            problem: problem(fields)?,
            pad: pad(fields)?,
            initializer_range: fields.positive("initializer_range")?.unwrap_or(0.02),
            ..Self::new(labels)
        };
        classifier.check().map_err(|need| fields.wrong("problem_type", &need))?;
        Ok(classifier)
    }

    /// That there is a question with as many answers.
    ///
    /// Fails with what was expected.
    pub fn check(&self) -> Result<(), String> {
        match (self.problem, self.labels.len()) {
            (Some(Problem::SingleLabel), 1) => {
                Err("regression, or multi_label_classification, for a classifier of 1 label".into())
            }
            _ => Ok(()),
        }
    }

    /// What it answers where nothing but whole numbers label its data.
    pub fn problem(&self) -> Problem {
        let by_labels = if self.labels.len() == 1 { Problem::Regression } else { Problem::SingleLabel };
        self.problem.unwrap_or(by_labels)
    }
}

/// As many names as there are outputs.
pub fn unnamed(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("LABEL_{number}")).collect()
}

fn labels(fields: &Fields) -> Result<Vec<String>, Error> {
    let count = fields.size("num_labels", MOST_LABELS)?;
    let Some(named) = fields.object("id2label")? else { return Ok(unnamed(count.unwrap_or(2))) };
    let names = named.names().count();
    if names == 0 || names > MOST_LABELS {
        return Err(fields.wrong("id2label", &format!("1 to {MOST_LABELS} names")));
    }
    if count.is_some_and(|count| count != names) {
        return Err(fields.wrong("num_labels", &format!("{names}, the names of id2label")));
    }
    let name = |number: usize| {
        let key = number.to_string();
        named.text(&key)?.ok_or_else(|| named.wrong(&key, "the name of a label"))
    };
    (0..names).map(name).collect()
}

fn problem(fields: &Fields) -> Result<Option<Problem>, Error> {
    let Some(name) = fields.text("problem_type")? else { return Ok(None) };
    let names = Problem::NAMES.map(|(_, name)| format!("\"{name}\"")).join(" or ");
    Problem::called(&name).map(Some).ok_or_else(|| fields.wrong("problem_type", &names))
}

fn pad(fields: &Fields) -> Result<Option<i32>, Error> {
    let Some(value) = fields.get("pad_token_id") else { return Ok(None) };
    let token = value.as_i64().and_then(|token| i32::try_from(token).ok());
    token.map(Some).ok_or_else(|| fields.wrong("pad_token_id", "a token or null"))
}
