//! A response template: where the regions of a message begin and end, and what is made of them.
//!
//! The language is that of transformers' response parser. An entry that it does not know, or of the wrong kind, is
//! refused when the template is read, not when a text is.

use serde_json::{Map, Value};

use super::content::{Content, after};
use super::entry::Entry;
use super::error::TemplateError;
use super::pattern::Pattern;
use super::search::{Known, Reach, Search};
use super::transform::Shape;
use crate::steps::Steps;

/// A response template, checked, its patterns compiled.
#[derive(Debug)]
pub struct ResponseTemplate {
    pub(super) defaults: Map<String, Value>,
    pub(super) fields: Vec<Field>,
    /// The field of all text that is in no other region: the one without an opening.
    pub(super) implicit: Option<usize>,
    pub(super) steps: Steps,
    start: Pattern,
}

/// A field of the message, and its region in the text.
#[derive(Debug)]
pub struct Field {
    pub(super) name: String,
    pub(super) open: Option<Pattern>,
    pub(super) close: Option<Pattern>,
    pub(super) content: Content,
    pub(super) repeats: bool,
    pub(super) join: Option<String>,
    pub(super) optional: bool,
    pub(super) transform: Option<Shape>,
    pub(super) transform_each: bool,
}

impl ResponseTemplate {
    /// Checks and compiles a template.
    pub fn new(template: &Value) -> Result<Self, TemplateError> {
        Self::with(template, Steps::default())
    }

    /// The same, for parsers that take the steps of `steps`.
    pub fn with(template: &Value, steps: Steps) -> Result<Self, TemplateError> {
        let entry = Entry::new(String::new(), template, &steps)?;
        entry.only(&["version", "defaults", "fields", "start_anchor", "start_anchor_pattern"])?;
        if entry.map.get("version").is_some_and(|version| version.as_f64() != Some(1.0)) {
            return Err(TemplateError::new("version", &entry.map["version"], "1"));
        }
        let start = entry.anchor("start_anchor")?;
        let start = start
            .ok_or_else(|| TemplateError::new("start_anchor", "nothing", "a text or start_anchor_pattern"))?;
        let defaults = entry.child("defaults")?.map(|defaults| defaults.map.into_owned()).unwrap_or_default();
        let fields = entry.child("fields")?.filter(|fields| !fields.map.is_empty());
        let fields = fields.ok_or_else(|| TemplateError::new("fields", "nothing", "a field"))?;
        let names = fields.map.iter();
        let fields =
            names.map(|(name, value)| Field::new(name, value, &steps)).collect::<Result<Vec<_>, _>>()?;
        let implicit = implicit(&fields)?;
        let template = Self { defaults, fields, implicit, steps, start };
        template.check_defaults()?;
        Ok(template)
    }

    /// What follows the last start of a message, or all if there is none.
    pub fn after_start<'t>(&self, text: &'t str) -> &'t str {
        let mut search = Search::new(&self.start);
        let mut last = 0;
        while search.advance(&self.start, text, true, Reach::ALL) == Known::Match {
            let found = search.found();
            last = found.end;
            let Some(next) = after(text, found.start, found.end) else { break };
            search.seek(next);
        }
        &text[last..]
    }

    /// What repeats adds to a list, and what is joined adds to a text.
    fn check_defaults(&self) -> Result<(), TemplateError> {
        for field in &self.fields {
            let Some(default) = self.defaults.get(&field.name) else { continue };
            let at = || format!("defaults.{}", field.name);
            if field.join.is_some() && !default.is_string() && !default.is_null() {
                return Err(TemplateError::new(at(), default, "a text, to join others to it"));
            }
            if field.join.is_none() && field.repeats && !default.is_array() {
                return Err(TemplateError::new(at(), default, "a list, to add to it"));
            }
        }
        Ok(())
    }
}

/// The one field without an opening.
fn implicit(fields: &[Field]) -> Result<Option<usize>, TemplateError> {
    let mut without = fields.iter().enumerate().filter(|(_, field)| field.open.is_none());
    let first = without.next();
    if let Some((_, second)) = without.next() {
        let at = format!("fields.{}", second.name);
        return Err(TemplateError::new(at, "a second field without an opening", "at most one"));
    }
    Ok(first.map(|(index, _)| index))
}

const FIELD: [&str; 11] = [
    "open",
    "open_pattern",
    "close",
    "close_pattern",
    "content",
    "content_args",
    "repeats",
    "join",
    "optional",
    "transform",
    "transform_each",
];

impl Field {
    fn new(name: &str, value: &Value, steps: &Steps) -> Result<Self, TemplateError> {
        let entry = Entry::new(format!("fields.{name}"), value, steps)?;
        entry.only(&FIELD)?;
        let args = entry.child("content_args")?;
        let args = args.unwrap_or_else(|| entry.empty("content_args"));
        let transform = entry.map.get("transform").filter(|transform| !transform.is_null());
        let field = Self {
            name: name.to_owned(),
            open: entry.anchor("open")?,
            close: entry.anchor("close")?,
            content: Content::new(entry.text("content")?.unwrap_or("text"), &args)?,
            repeats: entry.flag("repeats", false)?,
            join: entry.text("join")?.map(str::to_owned),
            optional: entry.flag("optional", true)?,
            transform: transform.map(|value| Shape::new(&entry.at("transform"), value)).transpose()?,
            transform_each: entry.flag("transform_each", false)?,
        };
        field.check(&entry)?;
        Ok(field)
    }

    fn check(&self, entry: &Entry) -> Result<(), TemplateError> {
        if self.join.is_some() && !self.repeats {
            return Err(TemplateError::new(entry.at("join"), "a text", "repeats: true beside it"));
        }
        if self.transform.is_some() {
            return Ok(());
        }
        if self.transform_each {
            return Err(TemplateError::new(entry.at("transform_each"), "true", "a transform beside it"));
        }
        let mut names = self.open.iter().chain(&self.close).flat_map(|pattern| &pattern.names);
        match names.next() {
            Some((name, _)) => {
                Err(TemplateError::new(entry.path(), format!("the group {name}"), "a transform for it"))
            }
            None => Ok(()),
        }
    }
}
