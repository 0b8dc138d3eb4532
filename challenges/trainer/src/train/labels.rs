//! What a line of data is answered with, where a classifier is trained.
//!
//! ```text
//! {"text": "..", "label": 2}              a class by its number                    single_label_classification
//! {"text": "..", "label": "question"}     or by its name in `id2label`
//! {"text": "..", "label": [0, 1, 1]}      a number from 0 to 1 for each label      multi_label_classification
//! {"text": "..", "label": ["b", "c"]}     or the names of those that it has
//! {"text": "..", "label": 3.5}            a number, or a list of them              regression
//! ```
//!
//! The key is `label` or `labels`. Which of the three problems it is says `problem_type`, in the config or in the
//! model's; where neither does, one output is a regression, and of several a list in the first line means any number of
//! labels.
//!
//! Source: `ForSequenceClassificationLoss` of the `transformers` library, 5.24, where the type of the first batch's
//! labels decides.

use std::cell::Cell;

use reference::issues::classify::Problem;
use reference::llama::Classifier;
use serde_json::{Map, Value as Json};

/// What a text is held against.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A class.
    Class(i32),
    /// A number for each output.
    Numbers(Vec<f32>),
}

/// What labels mean to a classifier.
#[derive(Clone, Debug)]
pub struct Labels {
    names: Vec<String>,
    /// The token of padding: a text is answered from the last one that is another.
    pub pad: Option<i32>,
    problem: Cell<Option<Problem>>,
}

impl Labels {
    /// Those of a classifier.
    pub fn of(classifier: &Classifier) -> Self {
        let Classifier { labels, problem, pad, .. } = classifier;
        let by_outputs = (labels.len() == 1).then_some(Problem::Regression);
        Self { names: labels.clone(), pad: *pad, problem: Cell::new(problem.or(by_outputs)) }
    }

    /// The problem that is solved; `None` if no line has decided it.
    pub fn problem(&self) -> Option<Problem> {
        self.problem.get()
    }

    /// What a line is held against.
    ///
    /// Fails with what was expected.
    pub fn target(&self, line: &Map<String, Json>) -> Result<Target, String> {
        let given =
            |key: &str| line.get(key).filter(|value| !value.is_null()).map(|value| (key.to_owned(), value));
        let (key, label) = match (given("label"), given("labels")) {
            (Some(_), Some(_)) => return Err("expected label or labels, found both".into()),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => return Err("expected the key label, or labels, for a classifier".into()),
        };
        let by_label = if label.is_array() { Problem::MultiLabel } else { Problem::SingleLabel };
        let problem = self.problem.get().unwrap_or(by_label);
        self.problem.set(Some(problem));
        let target = match problem {
            Problem::SingleLabel => self.class(label).map(Target::Class),
            Problem::MultiLabel => self.labels(label).map(Target::Numbers),
            Problem::Regression => self.numbers(label).map(Target::Numbers),
        };
        target.ok_or_else(|| format!("{key}: expected {}, found {label}", self.need(problem)))
    }

    fn class(&self, label: &Json) -> Option<i32> {
        let number = match label {
            Json::String(name) => self.names.iter().position(|known| known == name),
            other => other.as_u64().map(|number| number as usize).filter(|number| *number < self.names.len()),
        };
        number.map(|number| number as i32)
    }

    /// 1 for each label that a text has, or how likely it is.
    fn labels(&self, label: &Json) -> Option<Vec<f32>> {
        let all = label.as_array()?;
        if all.iter().all(Json::is_string) {
            let of: Vec<usize> =
                all.iter().map(|name| Some(self.class(name)? as usize)).collect::<Option<_>>()?;
            return Some((0..self.names.len()).map(|one| f32::from(u8::from(of.contains(&one)))).collect());
        }
        self.numbers(label).filter(|numbers| numbers.iter().all(|number| (0.0..=1.0).contains(number)))
    }

    fn numbers(&self, label: &Json) -> Option<Vec<f32>> {
        let one =
            |value: &Json| value.as_f64().map(|number| number as f32).filter(|number| number.is_finite());
        let numbers: Vec<f32> = match label {
            Json::Array(all) => all.iter().map(one).collect::<Option<_>>()?,
            other => vec![one(other)?],
        };
        Some(numbers).filter(|numbers| numbers.len() == self.names.len())
    }

    fn need(&self, problem: Problem) -> String {
        let (count, names) = (self.names.len(), named(&self.names));
        match problem {
            Problem::SingleLabel => format!("a class below {count}, or one of {names}"),
            Problem::MultiLabel => format!("{count} numbers from 0 to 1, or a list of some of {names}"),
            Problem::Regression if count == 1 => "a number".into(),
            Problem::Regression => format!("{count} numbers"),
        }
    }
}

/// The first of some names.
fn named(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("{name:?}")).collect();
    let more = if names.len() > SHOWN { ", .." } else { "" };
    shown.join(", ") + more
}

#[cfg(test)]
mod tests {
    use reference::llama::unnamed;
    use serde_json::json;

    use super::*;

    fn labels(problem: Option<Problem>, names: &[&str]) -> Labels {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Labels::of(&Classifier { problem, ..Classifier::new(names) })
    }

    fn target(labels: &Labels, line: &Json) -> Result<Target, String> {
        labels.target(line.as_object().expect("an object"))
    }

    #[test]
    fn the_first_line_decides_the_problem_where_nothing_else_does() {
        let of = |count: usize, label: Json| {
            let labels = Labels::of(&Classifier::new(unnamed(count)));
            let target = target(&labels, &json!({ "label": label }));
            (labels.problem(), target)
        };
        assert_eq!(of(3, json!(2)), (Some(Problem::SingleLabel), Ok(Target::Class(2))));
        let several = Ok(Target::Numbers(vec![0.0, 1.0, 1.0]));
        assert_eq!(of(3, json!([0, 1, 1])), (Some(Problem::MultiLabel), several.clone()));
        assert_eq!(of(3, json!(["LABEL_2", "LABEL_1"])), (Some(Problem::MultiLabel), several));
        assert_eq!(of(1, json!(-3)), (Some(Problem::Regression), Ok(Target::Numbers(vec![-3.0]))));
    }

    #[test]
    fn a_label_that_does_not_fit_is_named() {
        let single = Some(Problem::SingleLabel);
        for (problem, label, words) in [
            (
                single,
                json!({"label": 3}),
                "label: expected a class below 3, or one of \"a\", \"b\", \"c\", found 3",
            ),
            (
                single,
                json!({"labels": "d"}),
                "labels: expected a class below 3, or one of \"a\", \"b\", \"c\", found \"d\"",
            ),
            (single, json!({"label": -1}), "found -1"),
            (single, json!({"label": 1.5}), "found 1.5"),
            (single, json!({"label": [1]}), "found [1]"),
            (single, json!({"label": null}), "expected the key label, or labels"),
            (single, json!({"label": 1, "labels": 1}), "expected label or labels, found both"),
            (
                Some(Problem::MultiLabel),
                json!({"label": [0, 1]}),
                "label: expected 3 numbers from 0 to 1, or a list of some of",
            ),
            (Some(Problem::MultiLabel), json!({"label": [0, 2, 1]}), "found [0,2,1]"),
            (Some(Problem::MultiLabel), json!({"label": ["a", 1, 1]}), "found [\"a\",1,1]"),
            (Some(Problem::MultiLabel), json!({"label": 1}), "found 1"),
            (Some(Problem::Regression), json!({"label": 1.0}), "label: expected 3 numbers, found 1.0"),
            (Some(Problem::Regression), json!({"label": [1e300, 0, 0]}), "expected 3 numbers, found [1e"),
        ] {
            let error = target(&labels(problem, &["a", "b", "c"]), &label).expect_err("it does not fit");
            assert!(error.contains(words), "{label}: {error}");
        }
    }

    #[test]
    fn names_and_numbers_are_the_same_labels() {
        let all = labels(Some(Problem::SingleLabel), &["a", "b", "c"]);
        assert_eq!(target(&all, &json!({"label": "b"})), target(&all, &json!({"labels": 1})));
        let all = labels(Some(Problem::MultiLabel), &["a", "b", "c"]);
        assert_eq!(target(&all, &json!({"label": ["c", "a"]})), target(&all, &json!({"label": [1, 0, 1]})));
        assert_eq!(target(&all, &json!({"label": []})), Ok(Target::Numbers(vec![0.0; 3])));
    }
}
