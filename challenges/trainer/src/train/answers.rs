//! What a classifier's answers to an evaluation are worth.
//!
//! | problem | |
//! |---|---|
//! | one of several classes | the share of right answers, and the mean F1 score of the classes that are there |
//! | any of several labels | the share of texts with all labels right, and the F1 score of all labels together |
//! | numbers | the mean squared error |
//!
//! Source: `accuracy_score`, `f1_score` (averages "macro" and "micro") and `mean_squared_error` of `scikit-learn`.

use challenges::issues::classify::{Answer, Classify as _, Problem, Solution};
use serde_json::{Map, Value as Json, json};

use super::labels::Target;

/// The answers to the texts of an evaluation.
pub struct Answers {
    problem: Problem,
    outputs: usize,
    given: Vec<(Answer, Target)>,
    has_nan: bool, // among the logits
}

impl Answers {
    /// None yet, of a classifier of so many outputs.
    pub fn new(problem: Problem, outputs: usize) -> Self {
        Self { problem, outputs, given: Vec::new(), has_nan: false }
    }

    /// Adds what logits answer to a text.
    pub fn add(&mut self, logits: &[f32], target: &Target) {
        self.has_nan |= logits.iter().any(|logit| logit.is_nan());
        self.given.push((Solution.answer(self.problem, logits), target.clone()));
    }

    /// The metrics by their names in a line of metrics: null if a logit was not a number.
    pub fn metrics(&self) -> Map<String, Json> {
        let metrics = match self.problem {
            Problem::SingleLabel => self.of_classes(),
            Problem::MultiLabel => self.of_labels(),
            Problem::Regression => json!({"eval_mse": self.squares()}),
        };
        let Json::Object(mut metrics) = metrics else { return Map::new() };
        if self.has_nan {
            metrics.values_mut().for_each(|value| *value = Json::Null);
        }
        metrics
    }

    fn of_classes(&self) -> Json {
        let pair = |(answer, target): &(Answer, Target)| match (answer, target) {
            (Answer::Class(answer), Target::Class(truth)) => Some((*truth as usize, *answer)),
            _ => None,
        };
        let (truth, answers): (Vec<usize>, Vec<usize>) = self.given.iter().filter_map(pair).unzip();
        let confusion = Solution.confusion(&truth, &answers, self.outputs);
        let right: u64 = confusion.iter().step_by(self.outputs + 1).sum();
        let scores: Vec<f64> = Solution.f1(&confusion, self.outputs).into_iter().flatten().collect();
        let rows: Vec<&[u64]> = confusion.chunks(self.outputs).collect();
        json!({
            "eval_accuracy": right as f64 / truth.len() as f64,
            "eval_f1": scores.iter().sum::<f64>() / scores.len() as f64,
            "eval_confusion": rows,
        })
    }

    /// Each label of a text is an answer of its own, yes or no.
    fn of_labels(&self) -> Json {
        let of_text = |(answer, target): &(Answer, Target)| -> Vec<(usize, usize)> {
            let (Answer::Labels(answer), Target::Numbers(truth)) = (answer, target) else {
                return Vec::new();
            };
            truth
                .iter()
                .zip(answer)
                .map(|(truth, yes)| (usize::from(*truth > 0.5), usize::from(*yes)))
                .collect()
        };
        let texts: Vec<Vec<(usize, usize)>> = self.given.iter().map(of_text).collect();
        let all_right =
            texts.iter().filter(|text| text.iter().all(|(truth, answer)| truth == answer)).count();
        let (truth, answers): (Vec<usize>, Vec<usize>) = texts.iter().flatten().copied().unzip();
        let confusion = Solution.confusion(&truth, &answers, 2);
        json!({
            "eval_accuracy": all_right as f64 / texts.len() as f64,
            "eval_f1": Solution.f1(&confusion, 2)[1].unwrap_or(0.0),
        })
    }

    fn squares(&self) -> f64 {
        let of_text = |(answer, target): &(Answer, Target)| -> Vec<f64> {
            let (Answer::Numbers(answer), Target::Numbers(truth)) = (answer, target) else {
                return Vec::new();
            };
            answer.iter().zip(truth).map(|(answer, truth)| f64::from(answer - truth).powi(2)).collect()
        };
        let all: Vec<f64> = self.given.iter().flat_map(of_text).collect();
        all.iter().sum::<f64>() / all.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(problem: Problem, rows: &[(&[f32], Target)]) -> Json {
        let mut answers = Answers::new(problem, rows[0].0.len());
        for (logits, target) in rows {
            answers.add(logits, target);
        }
        Json::Object(answers.metrics())
    }

    /// As scikit-learn has them.
    #[test]
    fn metrics_are_those_of_their_definitions() {
        let of = |class: i32| Target::Class(class);
        let rows: [(&[f32], Target); 4] = [
            (&[2.0, 1.0, 0.0], of(0)),
            (&[2.0, 1.0, 0.0], of(1)),
            (&[0.0, 1.0, 0.0], of(1)),
            (&[0.0, 1.0, 0.5], of(1)),
        ];
        let got = metrics(Problem::SingleLabel, &rows);
        assert_eq!(got["eval_accuracy"], 0.75);
        // classes 0 and 1 are there: 2/3 and 4/5
        assert!(
            (got["eval_f1"].as_f64().expect("a number") - f64::midpoint(2.0 / 3.0, 0.8)).abs() < 1e-12,
            "{got}"
        );
        assert_eq!(got["eval_confusion"], json!([[1, 0, 0], [1, 2, 0], [0, 0, 0]]));
        let of = |numbers: &[f32]| Target::Numbers(numbers.to_vec());
        let rows: [(&[f32], Target); 2] = [(&[1.0, -1.0], of(&[1.0, 0.0])), (&[1.0, 1.0], of(&[0.0, 1.0]))];
        // two labels found of three that were answered, none missed
        assert_eq!(metrics(Problem::MultiLabel, &rows), json!({"eval_accuracy": 0.5, "eval_f1": 0.8}));
        let rows: [(&[f32], Target); 2] = [(&[1.0], of(&[3.0])), (&[2.5], of(&[2.0]))];
        assert_eq!(metrics(Problem::Regression, &rows), json!({"eval_mse": f64::midpoint(4.0, 0.25)}));
    }
}
