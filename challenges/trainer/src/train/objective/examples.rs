//! Lines of preferences and of completions with rewards, as rows.
//!
//! ```text
//! {"prompt", "chosen", "rejected"}         two rows; without a prompt, or with a text next to answers that are messages,
//!                                          it is what both answers begin with
//! {"prompt", "completion", "label"}        a row; label is true or false
//! {"prompt", "completions", "rewards"}     a row a completion; old_logps, a list a completion, where they are known
//! {"prompt"}                               a row that is the prompt: completions are generated
//! ```
//!
//! Prompts and answers are texts or messages, as in [`data`](crate::train::data). Both answers of a pair begin at the
//! same token: the first that either has otherwise than the prompt alone. An example of which an answer has no token
//! left is left out as a whole.
//!
//! Source: "Dataset formats and types" in the documentation of the `trl` library, 1.16; its `DPOTrainer` and
//! `KTOTrainer` (`_prepare_dataset`) and `extract_prompt`.

use std::path::Path;

use serde_json::{Map, Value as Json};

use super::super::columns::given;
use super::super::config::Config;
use super::super::data::Encoder;
use super::super::dataset::{Dataset, Judgement};
use super::super::row::Row;
use super::{Goal, Grpo};
use crate::decoder::stops;
use crate::messages;
use crate::output::Failure;

type Object = Map<String, Json>;

impl Encoder<'_> {
    /// Every line of a file, as examples of an objective, cut to `most` tokens.
    ///
    /// Fails at the first line that is none, with its number.
    pub(in crate::train) fn examples(
        &self,
        file: &Path,
        goal: &Goal,
        config: &Config,
        most: Option<usize>,
    ) -> Result<Dataset, Failure> {
        let is_logged = matches!(goal, Goal::Grpo(_)) && config.reward_program.is_none();
        let stops = if is_logged { self.needed_stops(config)? } else { Vec::new() };
        self.read(file, |data, object| {
            no_conversations(&object)?;
            self.check_images(&object)?;
            match goal {
                Goal::Dpo(_) | Goal::Orpo(_) | Goal::Simpo(..) => self.pair(data, &object, most),
                Goal::Kto(_) => self.judged(data, &object, most),
                Goal::Grpo(_) if config.reward_program.is_some() => self.alone(data, object),
                Goal::Grpo(grpo) => self.logged(data, &object, grpo, config, &stops),
            }
        })
    }

    /// A chosen and a rejected answer.
    fn pair(&self, data: &mut Dataset, object: &Object, most: Option<usize>) -> Result<(), String> {
        let [chosen, rejected] = ["chosen", "rejected"].map(|key| needed(object, key));
        let answers = [chosen?.clone(), rejected?.clone()];
        check(&answers[0], "chosen")?;
        check(&answers[1], "rejected")?;
        let prompt = given(object, "prompt");
        let (prompt, [chosen, rejected]) = match prompt.filter(|prompt| !is_within(prompt, &answers)) {
            Some(prompt) => {
                check(prompt, "prompt")?;
                (prompt.clone(), answers)
            }
            None => without_prompt(&answers)?,
        };
        let answer = |key: &str, answer: &Json| self.answer(&prompt, answer, key, object);
        let mut rows = vec![answer("chosen", &chosen)?, answer("rejected", &rejected)?];
        let begin = rows.iter().map(prompt_of).min().unwrap_or(0);
        for row in &mut rows {
            row.trained[begin..].fill(true);
        }
        data.group = 2;
        add(data, rows, Vec::new(), most);
        Ok(())
    }

    /// An answer that is good or bad.
    fn judged(&self, data: &mut Dataset, object: &Object, most: Option<usize>) -> Result<(), String> {
        let [prompt, completion, label] = ["prompt", "completion", "label"].map(|key| needed(object, key));
        let (prompt, completion) = (prompt?, completion?);
        check(prompt, "prompt")?;
        check(completion, "completion")?;
        let row = self.answer(prompt, completion, "completion", object)?;
        let desirable = label?;
        let desirable =
            desirable.as_bool().ok_or_else(|| format!("label: expected true or false, found {desirable}"))?;
        data.group = 1;
        add(data, vec![row], vec![Judgement { desirable, ..Judgement::default() }], most);
        Ok(())
    }

    /// A group of completions with their rewards.
    fn logged(
        &self,
        data: &mut Dataset,
        object: &Object,
        grpo: &Grpo,
        config: &Config,
        stops: &[i32],
    ) -> Result<(), String> {
        let prompt = needed(object, "prompt")?;
        check(prompt, "prompt")?;
        let group = Group::of(object)?;
        group.check(data, config.num_generations)?;
        data.group = group.completions.len();
        for i in 0..group.completions.len() {
            let key = format!("completions[{i}]");
            check(&group.completions[i], &key)?;
            let mut row = self.answer(prompt, &group.completions[i], &key, object)?;
            end_at_stop(&mut row, stops);
            let mut judgement = group.judgement(i, row.counted())?;
            judgement.is_truncated = row.cut(prompt_of(&row) + grpo.most);
            if row.counted() == 0 {
                return Err(format!("{key}: expected a token at least, behind a prompt of one at least"));
            }
            judgement.old.iter_mut().for_each(|old| old.truncate(row.counted()));
            data.cut += usize::from(judgement.is_truncated);
            data.rows.push(row);
            data.judged.push(judgement);
        }
        Ok(())
    }

    /// A prompt that is answered while it is trained.
    fn alone(&self, data: &mut Dataset, object: Object) -> Result<(), String> {
        for key in ["completions", "rewards"] {
            if given(&object, key).is_some() {
                return Err(format!("{key}: expected a prompt alone beside reward_program"));
            }
        }
        let ids = self.prompt(needed(&object, "prompt")?, &object)?;
        if ids.is_empty() {
            return Err("prompt: expected a token at least".to_owned());
        }
        let trained = vec![false; ids.len()];
        data.group = 1;
        data.rows.push(Row { documents: vec![ids.len()], ids, trained, ..Row::default() });
        data.judged.push(Judgement { line: object, ..Judgement::default() });
        Ok(())
    }

    /// The tokens that end a completion: the model's and the tokenizer's.
    ///
    /// Fails where there is none.
    pub(super) fn needed_stops(&self, config: &Config) -> Result<Vec<i32>, Failure> {
        let stops = stops(&config.model_folder()?, self.end)?;
        match self.no_end().filter(|_| stops.is_empty()) {
            Some(reason) => Err(Failure::Usage(format!("no token ends a completion of grpo: {reason}"))),
            None => Ok(stops),
        }
    }

    /// A prompt and an answer, both of them texts or messages.
    fn answer(&self, prompt: &Json, answer: &Json, key: &str, object: &Object) -> Result<Row, String> {
        match (prompt, answer) {
            (Json::String(prompt), Json::String(answer)) => self.completion(prompt, answer),
            (Json::Array(prompt), Json::Array(answer)) => self.answered(prompt, answer, object),
            (Json::String(_), _) => Err(format!("{key}: expected a text, as prompt is one")),
            (Json::Array(_), _) => Err(format!("{key}: expected a list of messages, as prompt is one")),
            _ => Err("prompt: expected a text or a list of messages".to_owned()),
        }
    }
}

/// Leaves out what a template writes after the end of an answer: no generated completion has it.
fn end_at_stop(row: &mut Row, stops: &[i32]) {
    let answer = prompt_of(row)..row.ids.len();
    let stop = answer.into_iter().find(|token| stops.contains(&row.ids[*token]));
    stop.map(|stop| row.cut(stop + 1));
}

/// Checks the messages of a prompt or an answer that is a list.
fn check(value: &Json, key: &str) -> Result<(), String> {
    value.as_array().map_or(Ok(()), |messages| messages::check(messages, key))
}

/// Refuses a line whose prompt is only in `conversations`, which examples are not made of.
fn no_conversations(object: &Object) -> Result<(), String> {
    match (given(object, "prompt"), given(object, "conversations")) {
        (None, Some(_)) => {
            Err("conversations: expected the key prompt, a text or a list of messages with role and \
                                content"
                .to_owned())
        }
        _ => Ok(()),
    }
}

/// Returns true if a prompt is a text next to answers that are conversations, which begin with it.
///
/// Source: `maybe_extract_prompt` of the `trl` library, 1.16.
fn is_within(prompt: &Json, answers: &[Json; 2]) -> bool {
    prompt.is_string() && answers.iter().all(Json::is_array)
}

/// The completions of a line.
struct Group<'a> {
    completions: &'a [Json],
    rewards: &'a [Json],
    old: Option<&'a [Json]>,
}

impl<'a> Group<'a> {
    fn of(object: &'a Object) -> Result<Self, String> {
        if given(object, "completions").is_none() {
            let need = "the keys completions and rewards, or a reward_program that judges what is generated";
            return Err(format!("expected {need}"));
        }
        let old = given(object, "old_logps").map(|_| list(object, "old_logps")).transpose()?;
        Ok(Self { completions: list(object, "completions")?, rewards: list(object, "rewards")?, old })
    }

    /// Checks that a line has the same fields as the lines before it.
    fn check(&self, data: &Dataset, asked: Option<u64>) -> Result<(), String> {
        let found = self.completions.len();
        let (need, why) = match asked {
            Some(asked) => (asked as usize, "as num_generations says"),
            None if data.group > 0 => (data.group, "as the lines before have"),
            None => (found.max(2), "to compare them"),
        };
        if found != need {
            return Err(format!("completions: expected {need}, {why}, found {found}"));
        }
        let counts = [("rewards", Some(self.rewards.len())), ("old_logps", self.old.map(<[Json]>::len))];
        if let Some((key, Some(count))) =
            counts.iter().find(|(_, count)| count.is_some_and(|count| count != need))
        {
            return Err(format!("{key}: expected one for each of {need} completions, found {count}"));
        }
        match data.judged.first() {
            Some(first) if first.old.is_some() != self.old.is_some() => {
                Err("old_logps: expected on every line or on none".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// The judgement of a completion of `tokens` tokens.
    fn judgement(&self, i: usize, tokens: usize) -> Result<Judgement, String> {
        let reward = finite(&self.rewards[i]).map_err(|error| format!("rewards[{i}]: {error}"))?;
        let old = self.old.map(|old| numbers(&old[i], tokens)).transpose();
        let old = old.map_err(|error| format!("old_logps[{i}]: {error}"))?;
        Ok(Judgement { reward, old, ..Judgement::default() })
    }
}

/// The tokens before the first that is trained.
pub(super) fn prompt_of(row: &Row) -> usize {
    row.trained.iter().position(|trained| *trained).unwrap_or(row.ids.len())
}

/// Adds an example of whose rows each has a loss when it is cut.
fn add(data: &mut Dataset, mut rows: Vec<Row>, judged: Vec<Judgement>, most: Option<usize>) {
    let cut = rows.iter_mut().filter_map(|row| most.filter(|most| row.cut(*most))).count();
    if rows.iter().any(|row| row.counted() == 0) {
        data.left_out += 1;
        return;
    }
    data.cut += cut;
    data.rows.extend(rows);
    data.judged.extend(judged);
}

fn needed<'a>(object: &'a Object, key: &str) -> Result<&'a Json, String> {
    given(object, key).ok_or_else(|| format!("expected the key {key}"))
}

fn list<'a>(object: &'a Object, key: &str) -> Result<&'a [Json], String> {
    let value = needed(object, key)?;
    value.as_array().map(Vec::as_slice).ok_or_else(|| format!("{key}: expected a list"))
}

fn finite(value: &Json) -> Result<f64, String> {
    value.as_f64().ok_or_else(|| format!("expected a number, found {value}"))
}

/// Reads `count` log-probabilities.
fn numbers(value: &Json, count: usize) -> Result<Vec<f32>, String> {
    let all = value.as_array().ok_or("expected a list of numbers")?;
    if all.len() != count {
        return Err(format!("expected a number for each of {count} tokens, found {}", all.len()));
    }
    let number = |value: &Json| match finite(value)? {
        log_p if log_p <= 0.0 && (log_p as f32).is_finite() => Ok(log_p as f32),
        log_p => Err(format!("expected finite numbers of at most 0, found {log_p}")),
    };
    all.iter().map(number).collect()
}

/// Splits two answers into their common beginning and what follows it: messages, or a text without the space at its
/// end.
fn without_prompt(answers: &[Json; 2]) -> Result<(Json, [Json; 2]), String> {
    let common = |first: usize, second: usize, is_same: &dyn Fn(usize) -> bool| {
        let shorter = first.min(second);
        (0..shorter).find(|at| !is_same(*at)).unwrap_or(shorter.saturating_sub(1))
    };
    match answers {
        [Json::Array(chosen), Json::Array(rejected)] => {
            let begin = common(chosen.len(), rejected.len(), &|at| chosen[at] == rejected[at]);
            let rest = |all: &[Json]| Json::from(all[begin.min(all.len())..].to_vec());
            Ok((chosen[..begin].to_vec().into(), [rest(chosen), rest(rejected)]))
        }
        [Json::String(chosen), Json::String(rejected)] => {
            let [chosen, rejected] = [chosen, rejected].map(|text| text.chars().collect::<Vec<char>>());
            let mut begin = common(chosen.len(), rejected.len(), &|at| chosen[at] == rejected[at]);
            begin -= usize::from(begin > 0 && chosen[begin - 1] == ' ');
            let text = |all: &[char]| Json::from(all.iter().collect::<String>());
            Ok((text(&chosen[..begin]), [text(&chosen[begin..]), text(&rejected[begin..])]))
        }
        _ => Err("chosen, rejected: expected two texts or two lists of messages".to_owned()),
    }
}
