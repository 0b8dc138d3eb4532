//! A conversation as transformers hands it to a template.

use serde_json::Value as Json;

use super::error::{Error, Kind};
use super::python::text::is_space;
use super::render::{Environment, Rendered, Template, Variables};

/// What is rendered. Messages, tools and documents are any JSON: templates differ in what they read.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    /// The messages, each an object.
    pub messages: Vec<Json>,
    /// The tools' schemas, if there are some.
    pub tools: Option<Json>,
    /// The documents to answer from, each an object.
    pub documents: Option<Json>,
    /// Whether the text ends with the beginning of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Whether the text ends where the last message does, for a model to go on.
    pub continue_final_message: bool,
    /// Whatever else the template may ask for: the special tokens, switches for thinking and the like.
    pub variables: Vec<(String, Json)>,
}

/// The names under which a message's reasoning is given; the first is the one that templates read.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// Written after the message that is to be continued, so that its end is found in the text.
const TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

impl Template {
    /// Renders a conversation.
    ///
    /// Keys of messages that are null are left out; reasoning is given under each name that templates read it by.
    pub fn chat(&self, conversation: &Conversation, environment: Environment) -> Result<Rendered, Error> {
        if conversation.messages.is_empty() {
            let message =
                "Cannot apply chat template to an empty conversation. Provide at least one message.";
            return Err(Error::new(Kind::Value, message));
        }
        let mut messages = conversation.messages.iter().map(normalized).collect::<Result<Vec<_>, _>>()?;
        let continued = conversation.continue_final_message;
        let last = if continued { Some(self.tagged(conversation, &mut messages)?) } else { None };
        let messages = Json::Array(messages);
        let (null, prompt) = (Json::Null, Json::Bool(conversation.add_generation_prompt));
        let fixed = [
            ("messages", &messages),
            ("tools", conversation.tools.as_ref().unwrap_or(&null)),
            ("documents", conversation.documents.as_ref().unwrap_or(&null)),
            ("add_generation_prompt", &prompt),
        ];
        let more = conversation.variables.iter().map(|(name, value)| (name.as_str(), value));
        let variables = Variables::new(fixed.into_iter().chain(more), environment.limits)?;
        let mut rendered = self.render(&variables, environment)?;
        if let Some(last) = last {
            cut(&mut rendered.text, &last)?;
        }
        Ok(rendered)
    }

    /// Marks the end of the last message; answers its text.
    fn tagged(&self, conversation: &Conversation, messages: &mut [Json]) -> Result<String, Error> {
        let fail = |message: &str| Err(Error::new(Kind::Value, message));
        if conversation.add_generation_prompt {
            return fail("continue_final_message and add_generation_prompt are not compatible");
        }
        if !self.mentions_content() {
            return fail(
                "continue_final_message is set but the template does not read the messages' content",
            );
        }
        let content = messages.last_mut().and_then(|last| last.get_mut("content"));
        let text = match content {
            None => {
                return fail(
                    "continue_final_message is set but the final message has no content to continue",
                );
            }
            Some(Json::Array(parts)) => match parts.iter_mut().rev().find_map(|part| part.get_mut("text")) {
                Some(text) => text,
                None => {
                    return fail("continue_final_message is set but no part of the final message has a text");
                }
            },
            Some(content) => content,
        };
        let Json::String(text) = text else {
            return Err(Error::new(Kind::Type, "the content of the final message is no text"));
        };
        let before = text.clone();
        text.push_str(TAG);
        Ok(before)
    }
}

/// A message without what is null, and with its reasoning under each name.
fn normalized(message: &Json) -> Result<Json, Error> {
    let Json::Object(fields) = message else {
        return Err(Error::new(Kind::Type, "a message that is no object"));
    };
    let mut out = serde_json::Map::new();
    let reasoning = REASONING.iter().find_map(|name| fields.get(*name).filter(|value| !value.is_null()));
    if let Some(reasoning) = reasoning {
        out.insert("thinking".into(), reasoning.clone());
    }
    let kept = fields.iter().filter(|(_, value)| !value.is_null());
    out.extend(kept.map(|(name, value)| (name.clone(), value.clone())));
    if let Some(reasoning) = reasoning {
        out.insert("reasoning_content".into(), reasoning.clone());
    }
    Ok(Json::Object(out))
}

/// Cuts the text where the last message ends. `message` is its text; the tag follows it.
///
/// Where the template has trimmed the message, and the tag's own space with it, space before the tag goes too.
pub fn cut(rendered: &mut String, message: &str) -> Result<(), Error> {
    let bare = trimmed(message);
    let found = rendered.rfind(TAG.trim_end()).filter(|_| rendered.contains(bare));
    let Some(at) = found else {
        let message = "continue_final_message is set but the final message does not appear in the chat after applying \
                       the chat template: the template drops or changes it";
        return Err(Error::new(Kind::Value, format!("{message}: {bare:?}")));
    };
    let whole = rendered[at..].starts_with(TAG);
    rendered.truncate(at);
    if !whole {
        rendered.truncate(trimmed_end(rendered).len());
    }
    Ok(())
}

/// `text` without white space around it, as Python's `strip` takes it away.
fn trimmed(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// `text` without white space at its end.
fn trimmed_end(text: &str) -> &str {
    text.trim_end_matches(is_space)
}
