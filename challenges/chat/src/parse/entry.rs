//! An entry of a response template as it is read: what is missing, of the wrong kind or unknown is an error that names
//! its path.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::error::TemplateError;
use super::pattern::Pattern;
use crate::steps::Steps;

/// A part of a template that has entries, its path, and whose steps read what it describes.
#[derive(Debug)]
pub struct Entry<'v> {
    path: String,
    pub(super) map: Cow<'v, Map<String, Value>>,
    steps: &'v Steps,
}

impl<'v> Entry<'v> {
    pub(super) fn new(path: String, value: &'v Value, steps: &'v Steps) -> Result<Self, TemplateError> {
        match value {
            Value::Object(map) => Ok(Self { path, map: Cow::Borrowed(map), steps }),
            _ => Err(TemplateError::new(path, value, "an object")),
        }
    }

    /// What stands for a part of this one that is not there.
    pub(super) fn empty(&self, name: &str) -> Entry<'v> {
        Entry { path: self.at(name), map: Cow::Owned(Map::new()), steps: self.steps }
    }

    pub(super) fn steps(&self) -> &'v Steps {
        self.steps
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn wrong(&self, name: &str, needed: &str) -> TemplateError {
        TemplateError::new(self.at(name), &self.map[name], needed)
    }

    /// Refuses other names.
    pub(super) fn only(&self, names: &[&str]) -> Result<(), TemplateError> {
        match self.map.keys().find(|key| !names.contains(&key.as_str())) {
            Some(key) => Err(TemplateError::new(
                self.at(key),
                "an unknown entry",
                format!("one of {}", names.join(", ")),
            )),
            None => Ok(()),
        }
    }

    pub(super) fn child(&self, name: &str) -> Result<Option<Entry<'_>>, TemplateError> {
        let value = self.map.get(name).filter(|value| !value.is_null());
        value.map(|value| Entry::new(self.at(name), value, self.steps)).transpose()
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, TemplateError> {
        match self.map.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_str().map(Some).ok_or_else(|| self.wrong(name, "a text")),
        }
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool, TemplateError> {
        match self.map.get(name) {
            None => Ok(default),
            Some(value) => value.as_bool().ok_or_else(|| self.wrong(name, "true or false")),
        }
    }

    pub(super) fn separator(&self, name: &str, default: &str) -> Result<String, TemplateError> {
        match self.text(name)?.unwrap_or(default) {
            "" => Err(self.wrong(name, "a text that is not empty")),
            text => Ok(text.to_owned()),
        }
    }

    /// A list of pairs of texts, none of them empty.
    pub(super) fn pairs(&self, name: &str) -> Result<Vec<(String, String)>, TemplateError> {
        let Some(value) = self.map.get(name) else { return Ok(Vec::new()) };
        let pair = |value: &Value| match value.as_array()?.as_slice() {
            [Value::String(open), Value::String(close)] if !open.is_empty() && !close.is_empty() => {
                Some((open.clone(), close.clone()))
            }
            _ => None,
        };
        let pairs = value.as_array().and_then(|pairs| pairs.iter().map(pair).collect());
        pairs.ok_or_else(|| self.wrong(name, "a list of pairs of texts"))
    }

    /// `NAME`, a text or a list of texts, or `NAME_pattern`.
    pub(super) fn anchor(&self, name: &str) -> Result<Option<Pattern>, TemplateError> {
        let pattern = format!("{name}_pattern");
        match (self.map.get(name), self.text(&pattern)?) {
            (Some(_), Some(_)) => Err(self.wrong(name, &format!("only one of {name} and {pattern}"))),
            (Some(value), None) => self.literals(name, value).map(Some),
            (None, Some(text)) => Pattern::regex(&self.at(&pattern), text).map(Some),
            (None, None) => Ok(None),
        }
    }

    fn literals(&self, name: &str, value: &Value) -> Result<Pattern, TemplateError> {
        let texts: Option<Vec<&str>> = match value {
            Value::Array(texts) => texts.iter().map(Value::as_str).collect(),
            text => text.as_str().map(|text| vec![text]),
        };
        let sound = texts.filter(|texts| !texts.is_empty() && texts.iter().all(|text| !text.is_empty()));
        let texts = sound.ok_or_else(|| self.wrong(name, "a text or a list of texts, none of them empty"))?;
        Pattern::literals(&self.at(name), &texts, self.steps)
    }
}
