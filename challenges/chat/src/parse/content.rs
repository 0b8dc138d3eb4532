//! From a region's text to its content: one small parser a kind.

use serde_json::{Map, Value};

use super::dialect::Dialect;
use super::entry::Entry;
use super::error::{Problem, TemplateError};
use super::literal;
use super::pattern::Pattern;
use super::scalar::{Strip, float, int, strip};
use super::search::{Known, Reach, Search};

/// How a region's text is read.
#[derive(Debug)]
pub enum Content {
    /// As it is, or without the white space around it.
    Text(Strip),
    /// An integer.
    Int,
    /// A float.
    Float,
    /// Whether it is `true` or `1`, in capitals or not.
    Bool(Strip),
    /// JSON, or a dialect of it.
    Json(Dialect),
    /// Tags with a key and a value each, at one level.
    XmlInline(Box<Tags>),
    /// Lines with a key and a value each.
    KvLines(Lines),
    /// A list of calls as Python writes them.
    PythonCalls,
}

/// What is found by a pattern with the groups `key` and `value`.
#[derive(Debug)]
pub struct Tags {
    pattern: Pattern,
    value: Option<Box<Content>>,
    merge: bool,
}

/// What stands before and after a separator, in each line.
#[derive(Debug)]
pub struct Lines {
    line_sep: String,
    kv_sep: String,
    value: Option<Box<Content>>,
    strip: Strip,
}

impl Content {
    /// A parser by its name and arguments.
    pub fn new(name: &str, args: &Entry) -> Result<Self, TemplateError> {
        Ok(match name {
            "text" => Self::Text(Strip::new(args)?),
            "int" => Self::Int,
            "float" => Self::Float,
            "bool" => Self::Bool(Strip::new(args)?),
            "json" => Self::Json(Dialect::new(args)?),
            "xml-inline" => Self::XmlInline(Box::new(Tags::new(args)?)),
            "kv-lines" => Self::KvLines(Lines::new(args)?),
            "python-calls" => Self::PythonCalls,
            _ => {
                let kinds = "text, int, float, bool, json, xml-inline, kv-lines or python-calls";
                return Err(TemplateError::new(args.path(), format!("{name:?}"), kinds));
            }
        })
    }

    /// Reads a region's text.
    pub fn parse(&self, text: &str) -> Result<Value, Problem> {
        match self {
            Self::Text(strip) => Ok(strip.apply(text).into()),
            Self::Int => int(strip(text)).ok_or(Problem::Number { needed: "integer" }),
            Self::Float => float(strip(text)).ok_or(Problem::Number { needed: "finite float" }),
            Self::Bool(strip) => Ok(matches!(strip.apply(text).to_lowercase().as_str(), "true" | "1").into()),
            Self::Json(dialect) => dialect.parse(text),
            Self::XmlInline(tags) => tags.parse(text),
            Self::KvLines(lines) => lines.parse(text),
            Self::PythonCalls => literal::calls(text),
        }
    }
}

/// The parser of values, if there is one: `{"name": ..., "args": ...}`.
fn value_parser(args: &Entry) -> Result<Option<Box<Content>>, TemplateError> {
    let Some(parser) = args.child("value_parser")? else { return Ok(None) };
    parser.only(&["name", "args"])?;
    let name = parser.text("name")?.unwrap_or("text");
    let args = parser.child("args")?.unwrap_or_else(|| parser.empty("args"));
    Content::new(name, &args).map(|content| Some(Box::new(content)))
}

fn sub_parse(value: Option<&Content>, text: &str) -> Result<Value, Problem> {
    value.map_or_else(|| Ok(text.into()), |content| content.parse(text))
}

impl Tags {
    fn new(args: &Entry) -> Result<Self, TemplateError> {
        let at = format!("{}.tag_pattern", args.path());
        let pattern = args.text("tag_pattern")?;
        let pattern =
            pattern.ok_or_else(|| TemplateError::new(&at, "nothing", "a pattern with a group named key"))?;
        let compiled = Pattern::regex(&at, pattern)?;
        if compiled.slot("key").is_none() {
            return Err(TemplateError::new(at, format!("{pattern:?}"), "a group named key"));
        }
        Ok(Self {
            pattern: compiled,
            value: value_parser(args)?,
            merge: args.flag("merge_duplicates", false)?,
        })
    }

    fn parse(&self, text: &str) -> Result<Value, Problem> {
        let mut out = Map::new();
        let mut search = Search::new(&self.pattern);
        let key = self.pattern.slot("key").unwrap_or_default();
        while search.advance(&self.pattern, text, true, Reach::ALL) == Known::Match {
            let found = search.found();
            let name =
                found.group(key).and_then(|range| text.get(range)).ok_or(Problem::Tag { group: "key" })?;
            let value = match self
                .pattern
                .slot("value")
                .map(|slot| found.group(slot).and_then(|range| text.get(range)))
            {
                Some(None) if self.value.is_none() => Value::Null,
                Some(None) => return Err(Problem::Tag { group: "value" }),
                inner => sub_parse(self.value.as_deref(), inner.flatten().unwrap_or_default())?,
            };
            self.insert(&mut out, name, value);
            let Some(next) = after(text, found.start, found.end) else { break };
            search.seek(next);
        }
        Ok(Value::Object(out))
    }

    /// A key that is there already gets the later value, or a list of all.
    fn insert(&self, out: &mut Map<String, Value>, name: &str, value: Value) {
        match out.get_mut(name) {
            Some(Value::Array(values)) if self.merge => values.push(value),
            Some(old) if self.merge => *old = Value::Array(vec![old.take(), value]),
            Some(old) => *old = value,
            None => drop(out.insert(name.to_owned(), value)),
        }
    }
}

/// Where to look for the match after this one; after an empty one, a character farther.
pub(super) fn after(text: &str, start: usize, end: usize) -> Option<usize> {
    if end > start { Some(end) } else { text[end..].chars().next().map(|c| end + c.len_utf8()) }
}

impl Lines {
    fn new(args: &Entry) -> Result<Self, TemplateError> {
        Ok(Self {
            line_sep: args.separator("line_sep", "\n")?,
            kv_sep: args.separator("kv_sep", ":")?,
            value: value_parser(args)?,
            strip: Strip::new(args)?,
        })
    }

    fn parse(&self, text: &str) -> Result<Value, Problem> {
        let mut out = Map::new();
        for line in text.split(&self.line_sep) {
            let Some((key, value)) = self.strip.apply(line).split_once(&self.kv_sep) else { continue };
            let value = sub_parse(self.value.as_deref(), self.strip.apply(value))?;
            out.insert(self.strip.apply(key).to_owned(), value);
        }
        Ok(Value::Object(out))
    }
}
