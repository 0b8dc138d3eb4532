//! From a region's content to the shape that a message needs.

use serde_json::{Map, Value};

use super::error::{Problem, TemplateError};

/// The names of a placeholder `{name.key.key}`, if that is all of the text.
pub fn placeholder(text: &str) -> Option<Vec<&str>> {
    let names: Vec<&str> = text.strip_prefix('{')?.strip_suffix('}')?.split('.').collect();
    names.iter().all(|name| is_word(name)).then_some(names)
}

/// Refuses a string that mixes a placeholder with other text.
pub fn check(at: &str, transform: &Value) -> Result<(), TemplateError> {
    match transform {
        Value::Object(map) => map.iter().try_for_each(|(name, value)| check(&format!("{at}.{name}"), value)),
        Value::Array(items) => items.iter().try_for_each(|value| check(at, value)),
        Value::String(text) if placeholder(text).is_none() && holds_placeholder(text) => {
            Err(TemplateError::new(at, transform, "a placeholder alone, or none"))
        }
        _ => Ok(()),
    }
}

/// How often a transform asks for a name.
pub fn uses(transform: &Value, name: &str) -> usize {
    match transform {
        Value::Object(map) => map.values().map(|value| uses(value, name)).sum(),
        Value::Array(items) => items.iter().map(|value| uses(value, name)).sum(),
        Value::String(text) => usize::from(placeholder(text).is_some_and(|names| names[0] == name)),
        _ => 0,
    }
}

/// Puts what `scope` has in the places of the placeholders.
pub fn apply(transform: &Value, scope: &mut dyn FnMut(&str) -> Option<Value>) -> Result<Value, Problem> {
    match transform {
        Value::Object(map) => {
            let entries = map.iter().map(|(name, value)| Ok((name.clone(), apply(value, scope)?)));
            Ok(Value::Object(entries.collect::<Result<Map<_, _>, _>>()?))
        }
        Value::Array(items) => items.iter().map(|value| apply(value, scope)).collect(),
        Value::String(text) => match placeholder(text) {
            Some(names) => {
                look_up(&names, scope).ok_or_else(|| Problem::Placeholder { name: names.join(".") })
            }
            None => Ok(transform.clone()),
        },
        _ => Ok(transform.clone()),
    }
}

fn look_up(names: &[&str], scope: &mut dyn FnMut(&str) -> Option<Value>) -> Option<Value> {
    let (first, keys) = names.split_first()?;
    keys.iter().try_fold(scope(first)?, |value, key| match value {
        Value::Object(mut map) => map.remove(*key),
        _ => None,
    })
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

fn holds_placeholder(text: &str) -> bool {
    let tails = text.match_indices('{').map(|(at, _)| &text[at + 1..]);
    tails.filter_map(|tail| tail.split_once('}')).any(|(inner, _)| inner.split('.').all(is_word))
}
