//! From a region's content to the shape that a message needs.

use serde_json::{Map, Value};

use super::error::{Problem, TemplateError};

/// A shape, its placeholders read.
#[derive(Debug)]
pub enum Shape {
    /// An object of these.
    Object(Vec<(String, Shape)>),
    /// A list of these.
    List(Vec<Shape>),
    /// `{name.key.key}`, as its names.
    Placeholder(Vec<String>),
    /// What stays as it is.
    Plain(Value),
}

impl Shape {
    /// Reads a transform; refuses a string that mixes a placeholder with other text.
    pub fn new(at: &str, transform: &Value) -> Result<Self, TemplateError> {
        Ok(match transform {
            Value::Object(map) => {
                let entry = |(name, value): (&String, &Value)| {
                    Ok((name.clone(), Self::new(&format!("{at}.{name}"), value)?))
                };
                Self::Object(map.iter().map(entry).collect::<Result<_, _>>()?)
            }
            Value::Array(items) => {
                Self::List(items.iter().map(|value| Self::new(at, value)).collect::<Result<_, _>>()?)
            }
            Value::String(text) => match placeholder(text) {
                Some(names) => Self::Placeholder(names),
                None if holds_placeholder(text) => {
                    return Err(TemplateError::new(at, transform, "a placeholder alone, or none"));
                }
                None => Self::Plain(transform.clone()),
            },
            _ => Self::Plain(transform.clone()),
        })
    }

    /// How often it asks for a name.
    pub fn uses(&self, name: &str) -> usize {
        match self {
            Self::Object(entries) => entries.iter().map(|(_, shape)| shape.uses(name)).sum(),
            Self::List(items) => items.iter().map(|shape| shape.uses(name)).sum(),
            Self::Placeholder(names) => usize::from(names.first().is_some_and(|first| first == name)),
            Self::Plain(_) => 0,
        }
    }

    /// Puts what `scope` has in the places of the placeholders.
    pub fn apply(&self, scope: &mut dyn FnMut(&str) -> Option<Value>) -> Result<Value, Problem> {
        match self {
            Self::Object(entries) => {
                let mut map = Map::with_capacity(entries.len());
                for (name, shape) in entries {
                    map.insert(name.clone(), shape.apply(scope)?);
                }
                Ok(Value::Object(map))
            }
            Self::List(items) => items.iter().map(|shape| shape.apply(scope)).collect(),
            Self::Placeholder(names) => {
                look_up(names, scope).ok_or_else(|| Problem::Placeholder { name: names.join(".") })
            }
            Self::Plain(value) => Ok(value.clone()),
        }
    }
}

/// The names of a placeholder `{name.key.key}`, if that is all of the text.
fn placeholder(text: &str) -> Option<Vec<String>> {
    let names: Vec<&str> = text.strip_prefix('{')?.strip_suffix('}')?.split('.').collect();
    let sound = names.iter().all(|name| is_word(name));
    sound.then(|| names.into_iter().map(str::to_owned).collect())
}

fn look_up(names: &[String], scope: &mut dyn FnMut(&str) -> Option<Value>) -> Option<Value> {
    let (first, keys) = names.split_first()?;
    keys.iter().try_fold(scope(first)?, |value, key| match value {
        Value::Object(mut map) => map.remove(key),
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
