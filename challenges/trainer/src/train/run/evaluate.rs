//! Evaluations: when one is due, and what is logged of it.

use std::time::Instant;

use challenges::train::{Evaluated, Logged, Microbatch};
use reference::issues::classify::Problem;
use reference::llama::Classifier;
use serde_json::{Map, Value as Json, json};

use super::{Job, Run, add_to};
use crate::output::Failure;
use crate::train::answers::Answers;
use crate::train::config::Evaluation;
use crate::train::layout::side_by_side;
use crate::train::row::Row;

impl<'a> Run<'a, '_, '_> {
    /// An evaluation, and its line of the metrics, if the step is one after which there is one and it was not made yet.
    pub(super) fn evaluate_if_due(&mut self) -> Result<(), Failure> {
        let (step, is_last) = (self.at.step, self.at.step == self.job.batches.steps);
        let is_due = match self.job.config.eval_strategy {
            Evaluation::No => false,
            Evaluation::Steps => is_last || step.is_multiple_of(self.job.config.eval_steps()),
            Evaluation::Epoch => is_last || step.is_multiple_of(self.job.batches.steps_of_epoch()),
        };
        if step == 0 || !is_due || self.is_evaluated {
            return Ok(());
        }
        let line = self.evaluation()?;
        self.is_evaluated = true;
        self.first.iter().for_each(|first| first.progress.evaluation(step, &line));
        self.log(&line)
    }

    /// The losses of batches, each the mean over its tokens, in the mean over rows; accuracy and entropy in the mean
    /// over batches.
    ///
    /// Source: `evaluation_loop` of `transformers.Trainer`, 5.23, which repeats a batch's loss once for each of its
    /// rows; `SFTTrainer.log` of `trl`, 1.16.
    fn evaluation(&mut self) -> Result<Json, Failure> {
        let begin = Instant::now();
        let Job { data: [_, evaluated], config, batches, goal, .. } = self.job;
        if let Some(goal) = goal {
            let (loss, metrics) = goal.evaluation(config, &mut self.engine, &self.peers, evaluated)?;
            let mut line = json!({
                "step": self.at.step,
                "epoch": batches.epochs(self.at.step),
                "eval_loss": loss,
                "eval_num_tokens": self.at.tokens,
            });
            add_to(&mut line, metrics.into_iter().map(|(name, value)| (format!("eval_{name}"), value)));
            line["eval_runtime"] = begin.elapsed().as_secs_f64().into();
            return Ok(line);
        }
        let rows: Vec<&Row> = evaluated.rows.iter().collect();
        let parts: Vec<&[&Row]> = rows.chunks(config.per_device_eval_batch_size as usize).collect();
        let results = self.evaluated(&parts)?;
        let logged: Vec<Logged> = results.iter().map(|result| result.logged).collect();
        let metrics = match &self.job.spec.config.classifier {
            Some(classifier) => answers(classifier, &parts, &results),
            None => Map::new(),
        };
        let loss: f64 = logged.iter().zip(&parts).map(|(part, rows)| part.loss * rows.len() as f64).sum();
        let mut line = json!({
            "step": self.at.step,
            "epoch": batches.epochs(self.at.step),
            "eval_loss": loss / rows.len() as f64,
            "eval_num_tokens": self.at.tokens,
            "eval_runtime": begin.elapsed().as_secs_f64(),
        });
        add_to(&mut line, self.predicted(&logged, "eval_").into_iter().chain(metrics));
        Ok(line)
    }

    /// The accuracy and the entropy of predictions, in the mean over micro-batches; of a classifier the share of
    /// right answers, if answers can be right.
    pub(super) fn predicted(&self, logged: &[Logged], before: &str) -> Map<String, Json> {
        let classifier = self.job.spec.config.classifier.as_ref();
        let right = |name: &str| (format!("{before}{name}"), mean(logged, accuracy).into());
        match classifier.map(Classifier::problem) {
            None => {
                let entropy = mean(logged, |part| part.entropy / part.counted).into();
                Map::from_iter([right("mean_token_accuracy"), (format!("{before}entropy"), entropy)])
            }
            Some(Problem::SingleLabel | Problem::MultiLabel) => Map::from_iter([right("accuracy")]),
            Some(Problem::Regression) => Map::new(),
        }
    }

    /// The results of rows that are only read. Where a micro-batch is large, no more are made at a time than ranks
    /// compute at a time; else all of them, so that those of about the same size are computed together.
    fn evaluated(&mut self, parts: &[&[&'a Row]]) -> Result<Vec<Evaluated>, Failure> {
        let lanes = self.engine.lanes();
        let most = if lanes == 1 || self.seer.is_some() { lanes } else { parts.len().max(1) };
        let is_classifier = self.job.spec.config.classifier.is_some();
        let layout = &self.job.layout;
        let mut all = Vec::new();
        for parts in parts.chunks(most) {
            let batch = |rows: &&[&Row]| {
                let items = rows.iter().map(|row| row.counted()).sum::<usize>() as u64;
                // each row has one answer of a classifier, so its rows are not joined
                (if is_classifier { side_by_side(rows) } else { layout.microbatch(rows) }, items)
            };
            let mut batches: Vec<(Microbatch, u64)> = parts.iter().map(batch).collect();
            self.see(parts, &mut batches)?;
            all.extend(self.engine.evaluate(&batches)?);
        }
        Ok(all)
    }
}

/// The metrics of what a classifier answers.
fn answers(classifier: &Classifier, parts: &[&[&Row]], results: &[Evaluated]) -> Map<String, Json> {
    let outputs = classifier.labels.len();
    let mut answers = Answers::new(classifier.problem(), outputs);
    for (rows, result) in parts.iter().zip(results) {
        let given = rows.iter().flat_map(|row| row.answers());
        for ((_, target), logits) in given.zip(result.logits.chunks(outputs)) {
            answers.add(logits, target);
        }
    }
    answers.metrics()
}

/// The share of right answers of a micro-batch; NaN if a logit was not a number, as the largest of them is none then.
fn accuracy(part: &Logged) -> f64 {
    let has_numbers = part.loss.is_finite() && part.entropy.is_finite();
    if has_numbers { part.correct / part.counted } else { f64::NAN }
}

/// The mean over micro-batches.
fn mean(logged: &[Logged], of: fn(&Logged) -> f64) -> f64 {
    logged.iter().map(of).sum::<f64>() / logged.len() as f64
}
