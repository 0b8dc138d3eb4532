//! Templates and conversations written for the project: what transformers renders of them, and what reads it back.
//!
//! Each template writes calls in the wire format of one model, which its first line names, in as few lines as show it.
//! The texts are embedded, so that a program that grades with them needs no file.
//!
//! | file | holds |
//! |---|---|
//! | `NAME.jinja` | a template |
//! | `responses.json` | for each template its special tokens, what ends a turn, and the response template that reads it |
//! | `conversations.json` | tools, and conversations that name them |
//! | `expected.jsonl` | a line for a template and a conversation: the text and the assistant's spans, or the error's kind |
//!
//! `expected.jsonl` is written by `tests/peers/chat_own.py`, at the moment [`MOMENT`]. A template that refuses several
//! conversations with the same words has a line for the first of them only.

use std::ops::Range;
use std::sync::LazyLock;

use serde_json::{Map, Value as Json};

use crate::jinja::{Clock, Conversation, Moment};
use crate::render::Options;

/// The time at which the expected texts were rendered.
pub const MOMENT: Moment = Moment { year: 2026, month: 1, day: 5, hour: 9, minute: 7, second: 3 };

/// What the templates are compiled with to write the expected texts.
pub fn options() -> Options {
    Options { clock: Clock::Fixed(MOMENT), ..Options::default() }
}

/// A template, and what belongs to it.
#[derive(Clone, Debug)]
pub struct Own {
    /// Its name, by the family of the model that writes calls so.
    pub name: &'static str,
    /// The source.
    pub template: &'static str,
    /// The special tokens that it asks for, by their names.
    pub tokens: Map<String, Json>,
    /// What ends the assistant's turn.
    pub stops: Vec<String>,
    /// Reads a message out of what the template writes as the assistant's.
    pub response: Json,
}

/// A conversation by its name.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it is about.
    pub name: String,
    /// Without special tokens.
    pub conversation: Conversation,
}

/// What transformers makes of a template and a conversation.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The template's name.
    pub template: String,
    /// The conversation's name.
    pub conversation: String,
    /// The text, or the name of the error's [`super::Kind`].
    pub text: Result<String, String>,
    /// The assistant's spans in characters; `None`: not to be had of a text that is continued.
    pub spans: Option<Vec<Range<usize>>>,
}

impl Own {
    /// The conversation of a case, with the special tokens of this template.
    pub fn conversation(&self, case: &Case) -> Conversation {
        let mut conversation = case.conversation.clone();
        let tokens = self.tokens.iter().map(|(name, token)| (name.clone(), token.clone()));
        conversation.variables = tokens.chain(conversation.variables).collect();
        conversation
    }
}

macro_rules! templates {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!($name, ".jinja")))),*]
    };
}

const TEMPLATES: [(&str, &str); 12] = templates![
    "llama", "hermes", "coder", "mistral", "deepseek", "glm", "cohere", "lfm", "gemma", "nemotron", "gptoss",
    "chatml",
];

/// All templates.
pub fn all() -> &'static [Own] {
    static ALL: LazyLock<Vec<Own>> = LazyLock::new(|| {
        let formats = embedded(include_str!("responses.json"));
        TEMPLATES.iter().map(|(name, template)| own(name, template, &formats[*name])).collect()
    });
    &ALL
}

/// The template of this name.
pub fn find(name: &str) -> Option<&'static Own> {
    all().iter().find(|own| own.name == name)
}

fn own(name: &'static str, template: &'static str, format: &Json) -> Own {
    let stops = items(&format["stops"]).iter().map(text).collect();
    Own { name, template, tokens: map(&format["tokens"]), stops, response: format["response"].clone() }
}

/// All conversations.
pub fn conversations() -> &'static [Case] {
    static ALL: LazyLock<Vec<Case>> = LazyLock::new(|| {
        let given = embedded(include_str!("conversations.json"));
        items(&given["conversations"]).iter().map(|row| case(row, items(&given["tools"]))).collect()
    });
    &ALL
}

fn case(row: &Json, tools: &[Json]) -> Case {
    let named = items(&row["tools"]);
    let tool = |name: &Json| tools.iter().find(|tool| tool["function"]["name"] == *name).cloned();
    let conversation = Conversation {
        messages: items(&row["messages"]).to_vec(),
        tools: (!named.is_empty()).then(|| named.iter().filter_map(tool).collect()),
        documents: row.get("documents").cloned(),
        add_generation_prompt: row["add_generation_prompt"] == true,
        continue_final_message: row["continue_final_message"] == true,
        variables: map(&row["variables"]).into_iter().collect(),
    };
    Case { name: text(&row["name"]), conversation }
}

/// All lines of `expected.jsonl`.
pub fn expected() -> &'static [Expected] {
    static ALL: LazyLock<Vec<Expected>> = LazyLock::new(|| {
        include_str!("expected.jsonl").lines().map(|line| line_of(&embedded(line))).collect()
    });
    &ALL
}

fn line_of(row: &Json) -> Expected {
    let error = row.get("error").map(text);
    let spans = row.get("spans").map(|spans| items(spans).iter().map(span).collect());
    Expected {
        template: text(&row["template"]),
        conversation: text(&row["conversation"]),
        text: error.map_or_else(|| Ok(text(&row["text"])), Err),
        spans,
    }
}

fn span(pair: &Json) -> Range<usize> {
    let end = |at: usize| pair[at].as_u64().unwrap_or_default() as usize;
    end(0)..end(1)
}

/// JSON that only this project can have broken.
fn embedded(text: &str) -> Json {
    serde_json::from_str(text).expect("what is embedded is JSON")
}

fn items(list: &Json) -> &[Json] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn map(object: &Json) -> Map<String, Json> {
    object.as_object().cloned().unwrap_or_default()
}

fn text(value: &Json) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
