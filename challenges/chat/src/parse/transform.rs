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
    /// `{name.key.key}`.
    Placeholder(Placeholder),
    /// What stays as it is.
    Plain(Value),
}

/// What a placeholder stands for.
#[derive(Debug)]
pub struct Placeholder {
    names: Vec<String>,
    /// Whether no other placeholder asks for any of it, so that it need not be copied.
    alone: bool,
}

/// What there is to put in the places of the placeholders.
pub struct Scope<'v, 'c> {
    /// What was parsed.
    pub root: Root<'v>,
    /// The groups of the opening marker.
    pub captured: &'v dyn Fn(&str) -> Option<&'c str>,
}

/// What was parsed, by its name or by its names.
pub enum Root<'v> {
    /// A region's content, called `content`.
    Content(&'v mut Value),
    /// An item of a list, each key of it a name.
    Item(&'v mut Map<String, Value>),
}

impl Shape {
    /// Reads a transform; refuses a string that mixes a placeholder with other text.
    pub fn new(at: &str, transform: &Value) -> Result<Self, TemplateError> {
        let mut shape = Self::read(at, transform)?;
        let mut all = Vec::new();
        shape.each_place(&mut |place| all.push(place.names.clone()));
        shape.each_place(&mut |place| place.alone = place.is_alone(&all));
        Ok(shape)
    }

    fn read(at: &str, transform: &Value) -> Result<Self, TemplateError> {
        Ok(match transform {
            Value::Object(map) => {
                let entry = |(name, value): (&String, &Value)| {
                    Ok((name.clone(), Self::read(&format!("{at}.{name}"), value)?))
                };
                Self::Object(map.iter().map(entry).collect::<Result<_, _>>()?)
            }
            Value::Array(items) => {
                Self::List(items.iter().map(|value| Self::read(at, value)).collect::<Result<_, _>>()?)
            }
            Value::String(text) => match placeholder(text) {
                Some(names) => Self::Placeholder(Placeholder { names, alone: false }),
                None if holds_placeholder(text) => {
                    return Err(TemplateError::new(at, transform, "a placeholder alone, or none"));
                }
                None => Self::Plain(transform.clone()),
            },
            _ => Self::Plain(transform.clone()),
        })
    }

    fn each_place(&mut self, visit: &mut dyn FnMut(&mut Placeholder)) {
        match self {
            Self::Object(entries) => entries.iter_mut().for_each(|(_, shape)| shape.each_place(visit)),
            Self::List(items) => items.iter_mut().for_each(|shape| shape.each_place(visit)),
            Self::Placeholder(place) => visit(place),
            Self::Plain(_) => {}
        }
    }

    /// Puts what `scope` has in the places of the placeholders.
    pub fn apply(&self, scope: &mut Scope) -> Result<Value, Problem> {
        match self {
            Self::Object(entries) => {
                let mut map = Map::with_capacity(entries.len());
                for (name, shape) in entries {
                    map.insert(name.clone(), shape.apply(scope)?);
                }
                Ok(Value::Object(map))
            }
            Self::List(items) => items.iter().map(|shape| shape.apply(scope)).collect(),
            Self::Placeholder(place) => {
                let value = place.of(scope);
                value.ok_or_else(|| Problem::Placeholder { name: place.names.join(".") })
            }
            Self::Plain(value) => Ok(value.clone()),
        }
    }
}

impl Placeholder {
    fn is_alone(&self, all: &[Vec<String>]) -> bool {
        let meets = |names: &&Vec<String>| names.iter().zip(&self.names).all(|(one, other)| one == other);
        all.iter().filter(meets).count() == 1
    }

    fn of(&self, scope: &mut Scope) -> Option<Value> {
        let (first, keys) = self.names.split_first()?;
        let Some(root) = scope.root.get(first) else {
            return (scope.captured)(first).filter(|_| keys.is_empty()).map(Value::from);
        };
        let value = keys.iter().try_fold(root, |value, key| value.as_object_mut()?.get_mut(key))?;
        Some(if self.alone { value.take() } else { value.clone() })
    }
}

impl Root<'_> {
    fn get(&mut self, name: &str) -> Option<&mut Value> {
        match self {
            Root::Content(value) => (name == "content").then_some(value),
            Root::Item(item) => item.get_mut(name),
        }
    }
}

/// The names of a placeholder `{name.key.key}`, if that is all of the text.
fn placeholder(text: &str) -> Option<Vec<String>> {
    let names: Vec<&str> = text.strip_prefix('{')?.strip_suffix('}')?.split('.').collect();
    let sound = names.iter().all(|name| is_word(name));
    sound.then(|| names.into_iter().map(str::to_owned).collect())
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

fn holds_placeholder(text: &str) -> bool {
    let before_ends = text.split_inclusive('}').filter_map(|part| part.strip_suffix('}'));
    before_ends.filter_map(|part| part.rsplit_once('{')).any(|(_, inner)| inner.split('.').all(is_word))
}
