//! A micro-batch of examples, and what their loss asks for beside labels.
//!
//! ```text
//! rows of the batch      chosen 0, chosen 1, .., rejected 0, rejected 1, ..       of pairs, else as they come
//! row n of the logits    what follows token t of row b, n = b T + t
//! ```
//!
//! Slots are those of [`challenges::loss::sequences`]: of a batch of fewer pairs than there may be the rejected answers
//! still begin in the middle.

use challenges::train::{self, Engine, Microbatch, Rows, Whose};
use reference::graph::Array;
use reference::graph::interpret::Values;
use reference::loss::kto_baseline;

use super::super::dataset::{Dataset, Judgement};
use super::super::layout::side_by_side;
use super::super::row::Row;
use super::examples::prompt_of;
use super::{Goal, Grpo, GrpoKind};
use crate::output::Failure;

/// Examples of a micro-batch.
pub struct Part<'d> {
    /// The rows, in the batch's order.
    pub rows: Vec<&'d Row>,
    /// The judgement of each row; empty for pairs.
    pub judged: Vec<&'d Judgement>,
    /// The advantage of each row, of GRPO.
    pub advantages: Vec<f64>,
}

/// The slots of a batch that is laid out.
pub(super) struct Slots {
    /// Rows of the padded batch, and tokens of each.
    pub shape: [usize; 2],
    /// The number of slots.
    pub count: usize,
}

/// The numbers of a whole step that a micro-batch needs.
#[derive(Clone, Copy, Debug)]
pub struct OfStep {
    /// The number of micro-batches.
    pub parts: usize,
    /// The tokens that count in all of them.
    pub tokens: usize,
    /// The slots of the loss.
    pub slots: usize,
    /// Tokens that a row may have.
    pub most: usize,
}

impl<'d> Part<'d> {
    /// Examples by their numbers.
    pub fn of(goal: &Goal, data: &'d Dataset, examples: &[usize]) -> Self {
        let rows: Vec<usize> = if goal.rows() == 2 {
            let side = |side: usize| examples.iter().map(move |example| data.rows_of(*example).start + side);
            side(0).chain(side(1)).collect()
        } else {
            examples.to_vec()
        };
        let judged = rows.iter().filter_map(|row| data.judged.get(*row)).collect();
        Self { rows: rows.iter().map(|row| &data.rows[*row]).collect(), judged, advantages: Vec::new() }
    }

    /// The tokens of its rows.
    pub fn tokens(&self) -> usize {
        self.rows.iter().map(|row| row.ids.len()).sum()
    }

    /// The tokens that have a loss.
    pub fn counted(&self) -> usize {
        self.rows.iter().map(|row| row.counted()).sum()
    }

    /// The rows with the labels that their loss reads: of ORPO's chosen texts the prompt's, too.
    fn labelled(&self, goal: &Goal) -> Vec<Row> {
        let chosen = if let Goal::Orpo(_) = goal { self.rows.len() / 2 } else { 0 };
        let row = |(number, row): (usize, &&Row)| {
            let trained = if number < chosen { vec![true; row.ids.len()] } else { row.trained.clone() };
            Row { trained, ..(*row).clone() }
        };
        self.rows.iter().enumerate().map(row).collect()
    }

    /// The inputs of the loss besides the labels.
    fn given(&self, goal: &Goal, slots: &Slots, step: &OfStep, reference: &[f32], z: f64) -> Values<f32> {
        let is_pair = goal.rows() == 2;
        let slot = |row: usize| self.slot(is_pair, row, slots.count);
        let mut given = Values::new();
        let mut put = |name: &str, values: Vec<f64>| {
            let shape = [values.len()];
            given.insert(name.to_owned(), Array::floats(reference::graph::Dtype::F32, &shape, values));
        };
        put("mask", slots.spread(&self.rows, |_| 1.0));
        if goal.has_reference() {
            put("reference", reference.iter().map(|log_p| f64::from(*log_p)).collect());
        }
        let of_slots = |of: &dyn Fn(usize, &Row) -> f64, empty: f64| {
            let mut all = vec![empty; slots.count];
            self.rows.iter().enumerate().for_each(|(b, row)| all[slot(b)] = of(b, row));
            all
        };
        let tokens = |_: usize, row: &Row| row.counted() as f64;
        let units = self.rows.len() / goal.rows();
        let of_units = |count: usize| {
            let mut all = vec![0.0; count];
            all[..units].fill(1.0 / units as f64);
            all
        };
        match goal {
            Goal::Dpo(_) => {
                let answers = |_: usize, row: &Row| (row.ids.len() - prompt_of(row)) as f64;
                put("tokens", of_slots(&answers, 1.0));
                put("shares", of_units(slots.count / 2));
            }
            Goal::Orpo(_) | Goal::Simpo(..) => {
                put("tokens", of_slots(&tokens, 0.0));
                put("shares", of_units(slots.count / 2));
                put("likelihood", self.likelihood(goal, slots));
            }
            Goal::Kto(_) => {
                let desirable = |b: usize, _: &Row| f64::from(u8::from(self.judged[b].desirable));
                put("desirable", of_slots(&desirable, 0.0));
                put("shares", of_units(slots.count));
                put("z", vec![z]);
            }
            Goal::Grpo(grpo) => {
                put("tokens", of_slots(&tokens, 1.0));
                put("advantages", slots.spread(&self.rows, |b| self.advantages[b]));
                put("shares", self.weights(grpo, slots, step));
                if grpo.old {
                    put("old", self.old(slots));
                }
            }
        }
        let answer = slots.answers(|row| if row < self.rows.len() { slot(row) as i32 } else { 0 });
        given.insert("answer".to_owned(), Array::integers(&[answer.len()], answer));
        given
    }

    /// The slot of a row.
    pub(super) fn slot(&self, is_pair: bool, row: usize, count: usize) -> usize {
        let pairs = self.rows.len() / 2;
        if is_pair && row >= pairs { count / 2 + row - pairs } else { row }
    }

    /// The weight of each row's -`log_p` in the likelihood of the chosen texts, prompts included, or of answers.
    fn likelihood(&self, goal: &Goal, slots: &Slots) -> Vec<f64> {
        let (alpha, labelled) = match goal {
            Goal::Simpo(_, alpha) => (*alpha, self.rows.iter().map(|row| (*row).clone()).collect()),
            _ => (1.0, self.labelled(goal)),
        };
        let chosen: Vec<&Row> = labelled[..self.rows.len() / 2].iter().collect();
        let all: usize = chosen.iter().map(|row| row.counted()).sum();
        slots.spread(&chosen, |_| alpha / all.max(1) as f64)
    }

    /// The weight of each sampled token.
    fn weights(&self, grpo: &Grpo, slots: &Slots, step: &OfStep) -> Vec<f64> {
        let rows = self.rows.len() as f64;
        let tokens = self.counted_by(grpo).max(1) as f64;
        slots.spread(&self.rows, |b| {
            if !self.counts(grpo, b) {
                return 0.0;
            }
            match grpo.kind {
                GrpoKind::Dapo => 1.0 / step.tokens.max(1) as f64,
                GrpoKind::Grpo => 1.0 / (rows * self.rows[b].counted() as f64),
                GrpoKind::Bnpo => 1.0 / tokens,
                GrpoKind::DrGrpo => 1.0 / (rows * grpo.most as f64),
            }
        })
    }

    /// Whether a completion has a loss.
    pub(super) fn counts(&self, grpo: &Grpo, b: usize) -> bool {
        !(grpo.masks_truncated && self.judged[b].is_truncated)
    }

    /// The tokens of completions that have a loss.
    pub fn counted_by(&self, grpo: &Grpo) -> usize {
        let rows = self.rows.iter().enumerate().filter(|(b, _)| self.counts(grpo, *b));
        rows.map(|(_, row)| row.counted()).sum()
    }

    /// The log-probabilities that tokens were sampled with.
    fn old(&self, slots: &Slots) -> Vec<f64> {
        let mut all = vec![0.0; slots.rows()];
        for (b, (row, own)) in self.rows.iter().zip(&self.judged).enumerate() {
            let places = slots.places(b, row).zip(own.old.iter().flatten());
            places.for_each(|(n, log_p)| all[n] = f64::from(*log_p));
        }
        all
    }
}

impl Goal {
    /// The weight of a micro-batch's loss in its step: equal for all, unless the loss is divided by the step's tokens
    /// already.
    pub(super) fn share(&self, step: &OfStep) -> f64 {
        match self {
            Self::Grpo(Grpo { kind: GrpoKind::Dapo, .. }) => 1.0,
            _ => 1.0 / step.parts as f64,
        }
    }
}

impl Slots {
    /// N
    pub fn rows(&self) -> usize {
        self.shape.iter().product()
    }

    /// The rows of the logits that predict a row's tokens that have a loss.
    pub fn places<'r>(&self, b: usize, row: &'r Row) -> impl Iterator<Item = usize> + use<'r> {
        let first = b * self.shape[1];
        let trained = row.trained.iter().enumerate().skip(1).filter(|(_, trained)| **trained);
        trained.map(move |(token, _)| first + token - 1)
    }

    /// The sum of a row's values.
    pub fn sum(&self, b: usize, row: &Row, values: &[f32]) -> f64 {
        self.places(b, row).map(|n| f64::from(values[n])).sum()
    }

    /// A number of each row at its tokens that have a loss, 0 elsewhere.
    fn spread(&self, rows: &[&Row], of: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut all = vec![0.0; self.rows()];
        for (b, row) in rows.iter().enumerate() {
            self.places(b, row).for_each(|n| all[n] = of(b));
        }
        all
    }

    /// A number of each row at all of its tokens.
    fn answers(&self, of: impl Fn(usize) -> i32) -> Vec<i32> {
        let row = |b: usize| std::iter::repeat_n(of(b), self.shape[1]);
        (0..self.shape[0]).flat_map(row).collect()
    }
}

/// A micro-batch that is ready to be learnt from.
pub(super) struct Ready {
    /// The rows, padded.
    pub batch: Microbatch,
    /// The inputs of the loss besides the labels.
    pub given: Values<f32>,
    /// The log-probability of each row under the reference model.
    pub reference: Vec<f32>,
}

/// Prepares micro-batches that are computed at the same time: scores them by the reference model, and collects the
/// inputs of their losses. `None` for those that other ranks compute.
pub(super) fn prepare(
    parts: &[Part<'_>],
    goal: &Goal,
    engine: &mut Engine<'_>,
    steps: &[OfStep],
) -> Result<(Vec<Microbatch>, Vec<Option<Ready>>), Failure> {
    let z = match goal {
        Goal::Kto(_) => baselines(parts, engine, steps[0].most)?,
        _ => vec![Some(0.0); parts.len()],
    };
    let batches = parts.iter().map(|part| {
        let labelled: Vec<Row> = part.labelled(goal);
        engine.padded(&side_by_side(&labelled.iter().collect::<Vec<_>>()))
    });
    let batches = batches.collect::<Result<Vec<Microbatch>, train::Error>>()?;
    let references = if goal.has_reference() {
        log_p(engine, &batches, Whose::Reference)?
    } else {
        let own = engine.own_of_group(batches.len());
        let zeros = |(batch, is_own): (&Microbatch, bool)| is_own.then(|| vec![0.0; batch.ids.len()]);
        batches.iter().zip(own).map(zeros).collect()
    };
    let own = references.into_iter().zip(z);
    let of_part = |(((part, batch), step), (reference, z)): (_, (Option<Vec<f32>>, Option<f64>))| {
        let (part, batch, step): (&Part<'_>, &Microbatch, &OfStep) = (part, batch, step);
        let (reference, z) = (reference?, z?);
        let slots = Slots { shape: batch.shape, count: step.slots };
        let given = part.given(goal, &slots, step, &reference, z);
        Some(Ready { batch: batch.clone(), given, reference })
    };
    let ready = parts.iter().zip(&batches).zip(steps).zip(own).map(of_part).collect();
    Ok((batches, ready))
}

/// z of KTO for each micro-batch: the distance of the policy from the reference over answers to other questions, each
/// prompt with the answer before it in the micro-batch, cut as rows are.
fn baselines(parts: &[Part<'_>], engine: &mut Engine<'_>, most: usize) -> Result<Vec<Option<f64>>, Failure> {
    let mismatched = |part: &Part<'_>| -> Vec<Row> {
        let others = part.rows.iter().cycle().skip(part.rows.len() - 1);
        part.rows.iter().zip(others).map(|(row, other)| mismatched(row, other, most)).collect()
    };
    let rows: Vec<Vec<Row>> = parts.iter().map(mismatched).collect();
    let batches = rows.iter().map(|rows| engine.padded(&side_by_side(&rows.iter().collect::<Vec<_>>())));
    let batches = batches.collect::<Result<Vec<Microbatch>, train::Error>>()?;
    let mut sums = |whose: Whose| {
        let of_part = |((batch, rows), log_p): ((&Microbatch, &Vec<Row>), Option<Vec<f32>>)| {
            let slots = Slots { shape: batch.shape, count: rows.len() };
            log_p.map(|log_p| {
                rows.iter().enumerate().map(|(b, row)| slots.sum(b, row, &log_p)).collect::<Vec<f64>>()
            })
        };
        let log_p = log_p(engine, &batches, whose)?;
        Ok::<_, Failure>(batches.iter().zip(&rows).zip(log_p).map(of_part).collect::<Vec<_>>())
    };
    let (reference, policy) = (sums(Whose::Reference)?, sums(Whose::Policy)?);
    let baseline = |(policy, reference): (Option<Vec<f64>>, Option<Vec<f64>>)| {
        policy.zip(reference).map(|(policy, reference)| kto_baseline(&policy, &reference)).transpose()
    };
    policy.into_iter().zip(reference).map(baseline).collect::<Result<_, _>>().map_err(Failure::bug)
}

/// The log-probability of each row's label; `None` of micro-batches that other ranks compute.
fn log_p(
    engine: &mut Engine<'_>,
    batches: &[Microbatch],
    whose: Whose,
) -> Result<Vec<Option<Vec<f32>>>, Failure> {
    let taken = |rows: Option<Rows>| {
        let mut rows = rows?;
        let taken = rows.remove(challenges::loss::sequences::LOG_P);
        Some(taken.ok_or_else(|| Failure::bug("no log-probabilities")))
    };
    engine.score(batches, whose)?.into_iter().map(|rows| taken(rows).transpose()).collect()
}

/// A row's prompt with another one's answer, cut to so many tokens.
fn mismatched(row: &Row, other: &Row, most: usize) -> Row {
    let (prompt, answer) = (&row.ids[..prompt_of(row)], &other.ids[prompt_of(other)..]);
    let ids = [prompt, answer].concat();
    let trained = (0..ids.len()).map(|token| token >= prompt.len()).collect();
    let mut both = Row { documents: vec![ids.len()], ids, trained, ..Row::default() };
    both.cut(most);
    both
}
