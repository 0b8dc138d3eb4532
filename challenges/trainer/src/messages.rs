//! The keys of messages: what every message must have, and the form that `ShareGPT` has.
//!
//! ```text
//! {"role": "user", "content": ".."}                                           a text, or a list of parts
//! {"role": "assistant", "content": null, "tool_calls": [..]}                  calls may stand alone
//! "conversations": [{"from": "human", "value": ".."}, ..]                     as role and content; roles keep their names
//! ```
//!
//! A template renders a key that is missing as an empty text, so a misspelt key would train empty turns without a word.
//!
//! Source: `maybe_convert_to_chatml` of the `trl` library, 1.16.

use reference::exact;
use serde_json::{Map, Value as Json};

type Object = Map<String, Json>;

/// Keys that an assistant's message may have instead of `content`.
const INSTEAD: [&str; 6] =
    ["tool_calls", "function_call", "reasoning_content", "reasoning", "thinking", "refusal"];

/// Checks that every message has a role and a content; `key` names the list in errors.
pub(crate) fn check(messages: &[Json], key: &str) -> Result<(), String> {
    if messages.is_empty() {
        return Err(format!("{key}: expected at least one message, found an empty list"));
    }
    messages.iter().enumerate().try_for_each(|(at, message)| {
        let name = format!("{key}[{at}]");
        let Json::Object(message) = message else {
            return Err(format!("{name}: expected an object with role and content, found {}", kind(message)));
        };
        check_role(message, &name)?;
        check_content(message, &name)
    })
}

fn check_role(message: &Object, name: &str) -> Result<(), String> {
    match message.get("role") {
        Some(Json::String(role)) if !role.trim().is_empty() => Ok(()),
        Some(Json::String(_)) => {
            Err(format!("{name}.role: expected the name of a role, found an empty text"))
        }
        Some(other) => Err(format!("{name}.role: expected a text, found {}", kind(other))),
        None => Err(missing(message, name, "role")),
    }
}

fn check_content(message: &Object, name: &str) -> Result<(), String> {
    let is_given = |key: &&str| match message.get(*key) {
        None | Some(Json::Null) => false,
        Some(Json::Array(all)) => !all.is_empty(),
        Some(_) => true,
    };
    let may_lack = || message["role"] == "assistant" && INSTEAD.iter().any(is_given);
    match message.get("content") {
        Some(Json::String(_)) => Ok(()),
        Some(Json::Array(parts)) => parts
            .iter()
            .enumerate()
            .try_for_each(|(at, part)| check_part(part, &format!("{name}.content[{at}]"))),
        None | Some(Json::Null) if may_lack() => Ok(()),
        None => Err(missing(message, name, "content")),
        Some(Json::Null) => Err(format!("{name}.content: expected a text or a list of parts, found null")),
        Some(_) if message["role"] == "tool" => Ok(()), // a result may be any value
        Some(number) if number.is_number() || exact::digits(number).is_some() => Ok(()), // a template writes it
        Some(other) => {
            Err(format!("{name}.content: expected a text or a list of parts, found {}", kind(other)))
        }
    }
}

/// Checks that a part of a content is a text, or an object that says what it is.
fn check_part(part: &Json, name: &str) -> Result<(), String> {
    match part {
        Json::String(_) => Ok(()),
        Json::Object(part) => match (part.get("type"), part.get("text")) {
            (Some(Json::String(of)), Some(Json::String(_))) if of == "text" => Ok(()),
            (Some(Json::String(of)), Some(other)) if of == "text" => {
                Err(format!("{name}.text: expected a text, found {}", kind(other)))
            }
            (Some(Json::String(of)), None) if of == "text" => Err(missing(part, name, "text")),
            (Some(Json::String(_)), _) => Ok(()),
            (Some(other), _) => Err(format!("{name}.type: expected a text, found {}", kind(other))),
            (None, _) => Err(missing(part, name, "type")),
        },
        other => Err(format!("{name}: expected a text or an object with type, found {}", kind(other))),
    }
}

/// Writes the error for a missing key, with the object's keys and the one that may be misspelt.
fn missing(object: &Object, name: &str, key: &str) -> String {
    let found: Vec<&str> = object.keys().map(String::as_str).collect();
    let listed = match found.len() {
        0 => "no key".to_owned(),
        1 => format!("the key {:?}", found[0]),
        _ => {
            format!("the keys {}", found.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(", "))
        }
    };
    let hint = if ["from", "value"].iter().all(|key| object.contains_key(*key)) {
        "; messages of from and value are read under the key \"conversations\"".to_owned()
    } else {
        let lowercase: Vec<String> = found.iter().map(|found| found.to_lowercase()).collect();
        let lowercase: Vec<&str> = lowercase.iter().map(String::as_str).collect();
        let nearest = similar::get_close_matches(key, &lowercase, 1, 0.6);
        let meant = nearest.first().and_then(|near| lowercase.iter().position(|found| found == near));
        meant.map(|at| format!("; {:?} may be misspelt", found[at])).unwrap_or_default()
    };
    format!("{name}: expected the key {key:?}, found {listed}{hint}")
}

/// Messages of `from` and `value` as messages of role and content; `key` names the list in errors.
///
/// The other keys stay, and so do the names of roles, as in TRL. Fails where a message has both forms of a key.
pub(crate) fn from_sharegpt(messages: &[Json], key: &str) -> Result<Vec<Json>, String> {
    let converted = |(at, message): (usize, &Json)| {
        let Json::Object(message) = message else { return Ok(message.clone()) };
        let mut own = Object::new();
        for (key_of, value) in message {
            let name = match key_of.as_str() {
                "from" => "role",
                "value" => "content",
                other => other,
            };
            if own.insert(name.to_owned(), value.clone()).is_some() {
                let twin = if name == "role" { "from" } else { "value" };
                return Err(format!("{key}[{at}]: expected {name:?} or {twin:?}, found both"));
            }
        }
        Ok(Json::Object(own))
    };
    messages.iter().enumerate().map(converted).collect()
}

/// Returns true if the first message has the keys `from` and `value`.
pub(crate) fn is_sharegpt(messages: &Json) -> bool {
    let first = messages.as_array().and_then(|all| all.first());
    first.is_some_and(|message| ["from", "value"].iter().all(|key| message.get(key).is_some()))
}

/// The kind of a value, as errors name it.
pub(crate) fn kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "true or false",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn error(messages: &Json) -> String {
        check(messages.as_array().expect("a list"), "messages").expect_err("it is refused")
    }

    #[test]
    fn missing_and_misspelt_keys_are_named() {
        for (message, want) in [
            (
                json!({"from": "human", "value": "a"}),
                "messages[0]: expected the key \"role\", found the keys \"from\", \"value\"; messages of from and value \
                 are read under the key \"conversations\"",
            ),
            (
                json!({"rol": "user", "content": "a"}),
                "expected the key \"role\", found the keys \"rol\", \"content\"; \"rol\" may be misspelt",
            ),
            (json!({"Role": "user", "content": "a"}), "\"Role\" may be misspelt"),
            (
                json!({"role": "user", "contents": "a"}),
                "messages[0]: expected the key \"content\", found the keys \"role\", \"contents\"; \"contents\" may",
            ),
            (json!({"role": "user"}), "expected the key \"content\", found the key \"role\""),
            (json!({}), "expected the key \"role\", found no key"),
            (json!({"role": null, "content": "a"}), "messages[0].role: expected a text, found null"),
            (json!({"role": 3, "content": "a"}), "messages[0].role: expected a text, found a number"),
            (json!({"role": "", "content": "a"}), "messages[0].role: expected the name of a role"),
            (
                json!({"role": "user", "content": null}),
                "messages[0].content: expected a text or a list of parts",
            ),
            (
                json!({"role": "user", "content": true}),
                "messages[0].content: expected a text or a list of parts",
            ),
            (
                json!({"role": "assistant", "content": null, "tool_calls": []}),
                "messages[0].content: expected",
            ),
            (json!({"role": "user", "content": null, "tool_calls": [1]}), "messages[0].content: expected"),
            (
                json!({"role": "user", "content": [{"type": "text", "txt": "a"}]}),
                "messages[0].content[0]: expected the key \"text\", found the keys \"type\", \"txt\"",
            ),
            (json!({"role": "user", "content": [{"text": "a"}]}), "content[0]: expected the key \"type\""),
            (json!("hello"), "messages[0]: expected an object with role and content, found a text"),
        ] {
            let got = error(&json!([message]));
            assert!(got.contains(want), "{message}: {got}");
        }
        assert_eq!(error(&json!([])), "messages: expected at least one message, found an empty list");
    }

    #[test]
    fn calls_parts_and_results_are_contents() {
        let messages = json!([
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a"}, "b"]},
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
            {"role": "tool", "content": {"sum": 3}},
            {"role": "assistant", "content": null, "reasoning_content": "so"},
            {"role": "assistant", "content": ""},
        ]);
        assert_eq!(check(messages.as_array().expect("a list"), "messages"), Ok(()));
    }

    #[test]
    fn sharegpt_keys_are_renamed() {
        let given = json!([{"from": "human", "value": "a", "weight": 1}, {"role": "gpt", "content": "b"}]);
        let want =
            [json!({"role": "human", "content": "a", "weight": 1}), json!({"role": "gpt", "content": "b"})];
        assert!(is_sharegpt(&given));
        assert_eq!(from_sharegpt(given.as_array().expect("a list"), "conversations"), Ok(want.to_vec()));
        let both = [json!({"from": "human", "role": "user", "value": "a"})];
        let error = from_sharegpt(&both, "conversations");
        assert_eq!(error, Err("conversations[0]: expected \"role\" or \"from\", found both".to_owned()));
    }
}
