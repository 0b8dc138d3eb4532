//! Conversations: messages, the tools that a model may call, and its calls.
//!
//! The form is that of the chat APIs, which templates read: a message has a role, text or parts, and what belongs to
//! its role. Fields that a model has beside these are kept in `more`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`, or what else the template knows.
    pub role: String,
    /// What is said, if anything is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// What an assistant thought before it spoke.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// What an assistant calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Call>,
    /// Which call a tool answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The tool that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whatever else there is.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Message {
    /// A message of text.
    pub fn of(role: &str, text: &str) -> Message {
        let content = Some(Content::Text(text.into()));
        Message { role: role.into(), content, ..Message::default() }
    }
}

/// Text, or parts of several kinds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// A text.
    Text(String),
    /// Parts, each an object with a `type`: `{"type": "text", "text": ...}`, `{"type": "image"}`.
    Parts(Vec<Value>),
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// By which the answer names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `function`.
    #[serde(rename = "type", default = "function")]
    pub kind: String,
    /// What is called.
    pub function: Called,
}

/// The function of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Called {
    /// The tool's name.
    pub name: String,
    /// The arguments: an object, or its JSON text.
    pub arguments: Value,
}

/// A tool that a model may call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// `function`.
    #[serde(rename = "type", default = "function")]
    pub kind: String,
    /// The function.
    pub function: Function,
}

impl Tool {
    /// A tool that is a function.
    pub fn of(function: Function) -> Tool {
        Tool { kind: self::function(), function }
    }
}

/// A function as a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub description: String,
    /// The JSON schema of its arguments: an object with `properties`.
    #[serde(default)]
    pub parameters: Value,
}

fn function() -> String {
    "function".into()
}
