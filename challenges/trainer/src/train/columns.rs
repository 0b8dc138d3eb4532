//! The columns of a line: messages, tools and variables of the template.

use std::borrow::Cow;

use challenges::issues::chat::Conversation;
use reference::exact;
use reference::json::reason;
use serde_json::{Map, Value as Json};

use crate::messages::{self, from_sharegpt, is_sharegpt, kind};

/// Messages with the key that they have in their line.
type Turns<'l> = (&'static str, Cow<'l, [Json]>);

/// The messages of a line with their key, as role and content; `None` if the line has none.
pub(super) fn turns(object: &Map<String, Json>) -> Result<Option<Turns<'_>>, String> {
    let conversations = given(object, "conversations");
    let (key, value) = match (given(object, "messages"), conversations) {
        (Some(messages), other) if !other.is_some_and(is_sharegpt) => ("messages", messages),
        (_, Some(conversations)) => ("conversations", conversations),
        (_, None) => return Ok(None),
    };
    let Json::Array(list) = value else {
        return Err(format!("{key}: expected a list of messages, found {}", kind(value)));
    };
    let list = if key == "conversations" { from_sharegpt(list, key)?.into() } else { Cow::from(list) };
    messages::check(&list, key)?;
    Ok(Some((key, list)))
}

/// An error that a line has none of the expected keys, with those that it has.
pub(super) fn unknown(object: &Map<String, Json>) -> String {
    const SHOWN: usize = 12;
    let keys: Vec<String> = object.keys().take(SHOWN).map(|key| format!("{key:?}")).collect();
    let more = if object.len() > SHOWN { ", .." } else { "" };
    let is_pair = ["chosen", "rejected"].iter().all(|key| given(object, key).is_some());
    let hint = if is_pair { "; pairs need objective = \"dpo\", \"orpo\" or \"simpo\"" } else { "" };
    let found = if keys.is_empty() { "no key".to_owned() } else { keys.join(", ") + more };
    format!("expected the key messages, or prompt and completion, or text, found {found}{hint}")
}

/// Returns the value of a key; `None` if it is null, because lines made of a table have every key.
pub(super) fn given<'a>(object: &'a Map<String, Json>, key: &str) -> Option<&'a Json> {
    object.get(key).filter(|value| !value.is_null())
}

/// Returns messages with the tools and variables of their line.
pub(super) fn conversation(messages: Vec<Json>, object: &Map<String, Json>) -> Result<Conversation, String> {
    let tools = match given(object, "tools") {
        Some(Json::String(text)) => {
            Some(exact::from_str(text).map_err(|error| format!("tools: invalid JSON: {}", reason(&error)))?)
        }
        tools => tools.cloned(),
    };
    if tools.as_ref().is_some_and(|tools| !tools.is_array()) {
        return Err("tools: expected a list, or its JSON as a text".into());
    }
    let variables = match given(object, "chat_template_kwargs") {
        None => Vec::new(),
        Some(Json::Object(all)) => all.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        Some(_) => return Err("chat_template_kwargs: expected an object".into()),
    };
    if let Some((name, _)) = variables.iter().find(|(name, _)| OWN.contains(&name.as_str())) {
        return Err(format!("chat_template_kwargs: expected variables of the template, found {name}"));
    }
    Ok(Conversation { messages, tools, variables, ..Conversation::default() })
}

/// Variables of a template that no line sets.
const OWN: [&str; 6] =
    ["messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template"];
