//! How many requests end in the right call: asked, parsed, checked, run.
//!
//! ```text
//! request -> chat template -> tokens -> Text, greedy -> response template -> call -> check -> execute
//! ```
//!
//! Nothing holds the model to a grammar: what it writes is what it has learnt. A call is **valid** if the answer is one
//! call and nothing else, of a tool that there is, with arguments of its schema; it is **right** if it also runs and
//! returns what the asked-for call returns.

use std::path::Path;

use challenges::decode::Decoder;
use challenges::issues::chat::Conversation;
use challenges::issues::chat::parse::{ResponseTemplate, parse};
use kernels::Cpu;
use reference::llama::Llama;
use reference::lora::Adapter;
use serde_json::{Map, Value as Json, json};

use super::functions::{check, execute, tools};
use super::requests::Request;
use crate::generate::{Limit, Text, Weights, decoder};
use crate::output::Failure;
use crate::train::data::Encoder;

/// Requests, and the model that answers them.
pub struct Scorer {
    cpu: Cpu,
    model: Llama,
    encoder: Encoder<'static>,
    responses: ResponseTemplate,
    tools: Json,
    requests: Vec<Request>,
}

/// What an answer is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is no valid call.
    Invalid,
    /// It is one, of something else than was asked for.
    Wrong,
    /// It runs and returns what was asked for.
    Right,
}

/// What was counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// Requests.
    pub asked: usize,
    /// Answers that are a valid call.
    pub valid: usize,
    /// Answers whose call runs and returns what was asked for.
    pub right: usize,
    /// The first request and its answer.
    pub sample: [String; 2],
}

/// Tokens that an answer may have: a call has some 60.
const LONGEST_ANSWER: usize = 80;

/// The end of a turn.
const END: &str = "<|end|>";

impl Scorer {
    /// One that asks the model of a folder.
    pub fn open(folder: &Path, requests: Vec<Request>) -> Result<Self, Failure> {
        let model = Llama::open(&folder.display().to_string()).map_err(Failure::usage)?;
        let encoder = Encoder::open(folder, model.config.vocab, true)?;
        let responses = ResponseTemplate::new(&response_template()).map_err(Failure::bug)?;
        Ok(Self { cpu: Cpu::new(), model, encoder, responses, tools: tools(), requests })
    }

    /// The model in 4 bits, with an adapter or without.
    pub fn score(&self, adapter: Option<&Path>) -> Result<Score, Failure> {
        let adapter = adapter.map(|folder| Adapter::open(folder, &self.model.config));
        let adapter = adapter.transpose().map_err(Failure::usage)?;
        let weights = Weights::Nf4 { nested: false };
        let slots = self.model.config.positions;
        let mut decoder = decoder(&self.cpu, &self.model, weights, adapter.as_ref(), slots)?;
        let mut score =
            Score { asked: self.requests.len(), valid: 0, right: 0, sample: [String::new(), String::new()] };
        for (number, request) in self.requests.iter().enumerate() {
            let answer = self.answer(&mut decoder, request)?;
            let verdict = self.judge(request, &answer);
            score.valid += usize::from(verdict != Verdict::Invalid);
            score.right += usize::from(verdict == Verdict::Right);
            if number == 0 {
                score.sample = [request.text.clone(), answer];
            }
        }
        Ok(score)
    }

    /// What the model says, its end included.
    fn answer(&self, decoder: &mut Decoder<'_>, request: &Request) -> Result<String, Failure> {
        let conversation = Conversation {
            messages: request.asked(),
            tools: Some(self.tools.clone()),
            add_generation_prompt: true,
            ..Conversation::default()
        };
        let rendered = self.encoder.render(&conversation).map_err(Failure::bug)?;
        let prompt = self.encoder.encode(&rendered.text, false).map_err(Failure::bug)?;
        let limit = Limit { tokens: LONGEST_ANSWER, stops: self.encoder.end.into_iter().collect() };
        let made = Text::begin(decoder, &prompt)?.all(&limit, None)?;
        let ids: Vec<i32> = made.iter().map(|made| made.id).collect();
        self.encoder.decode(&ids).map_err(Failure::bug)
    }

    /// What an answer to a request is worth: its text with the token that ends it.
    pub fn judge(&self, request: &Request, answer: &str) -> Verdict {
        match self.call(answer) {
            None => Verdict::Invalid,
            Some((name, arguments)) if is_right(request, &name, &arguments) => Verdict::Right,
            Some(_) => Verdict::Wrong,
        }
    }

    /// The one valid call that an answer is.
    fn call(&self, answer: &str) -> Option<(String, Map<String, Json>)> {
        let message = parse(&self.responses, "", answer).ok()?; // an answer that cannot be parsed is no call
        let [call] = message.get("tool_calls")?.as_array()?.as_slice() else { return None };
        let (name, arguments) =
            (call["function"]["name"].as_str()?, call["function"]["arguments"].as_object()?);
        let is_alone = message.get("content").is_none() && answer.ends_with(END);
        let is_valid = is_alone && check(&self.tools, name, arguments).is_ok();
        is_valid.then(|| (name.to_owned(), arguments.clone()))
    }
}

/// Whether a call returns what the asked-for one returns. A sum is right in either order; of the other tool with the
/// same answer it is not.
fn is_right(request: &Request, name: &str, arguments: &Map<String, Json>) -> bool {
    let wanted = execute(request.name, &request.arguments);
    request.name == name && wanted.is_ok() && execute(name, arguments) == wanted
}

/// Where calls are in the model's answers.
fn response_template() -> Json {
    json!({
        "defaults": {"role": "assistant"},
        "start_anchor": "<|assistant|>",
        "fields": {
            "tool_calls": {
                "open": "<tool_call>",
                "close": "</tool_call>",
                "repeats": true,
                "content": "json",
                "transform": {"type": "function", "function": "{content}"},
            },
            "content": {"close": END},
        },
    })
}
