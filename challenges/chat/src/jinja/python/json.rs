//! JSON as Python's `json.dumps` writes it.

use std::fmt::Write;

use super::super::context::Context;
use super::super::error::{Error, Kind};
use super::big;
use super::compare::{order, sorted};
use super::number::float_text;
use super::text::push_huge;
use super::value::{SeqKind, Value, View, type_name, view};

/// How JSON is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Whether every character beyond `~` is escaped: U+007F and all outside ASCII.
    pub ensure_ascii: bool,
    /// What one level is indented by; without it everything stays on one line.
    pub indent: Option<String>,
    /// What stands between items, and between a key and its value.
    pub separators: (String, String),
    /// Whether keys are sorted.
    pub sort_keys: bool,
}

impl Default for Layout {
    fn default() -> Layout {
        Layout { ensure_ascii: false, indent: None, separators: (", ".into(), ": ".into()), sort_keys: false }
    }
}

/// Appends the JSON text of `value` to `out`; values that JSON has no text for are a `TypeError`.
pub(crate) fn write(cx: &Context, value: &Value, layout: &Layout, out: &mut String) -> Result<(), Error> {
    Writer { cx, out, layout, level: 0 }.value(value)
}

/// The JSON text of `value`.
pub(crate) fn dumps(cx: &Context, value: &Value, layout: &Layout) -> Result<String, Error> {
    let mut out = String::new();
    write(cx, value, layout, &mut out)?;
    Ok(out)
}

/// Texts below so many bytes are paid for by their length, whatever their escapes: at most six times as much.
const SHORT: usize = 1 << 16;

struct Writer<'a> {
    cx: &'a Context<'a>,
    out: &'a mut String,
    layout: &'a Layout,
    level: usize,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value) -> Result<(), Error> {
        self.cx.grow(self.out, 8)?;
        match view(value) {
            View::None => self.out.push_str("null"),
            View::Bool(true) => self.out.push_str("true"),
            View::Bool(false) => self.out.push_str("false"),
            View::Int(int) => {
                let _ = write!(self.out, "{int}");
            }
            View::Huge(huge) => push_huge(self.cx, huge, self.out)?,
            View::Float(float) => self.out.push_str(&float_json(self.cx, float)),
            View::Str(text) => self.text(text)?,
            View::Seq(seq) if matches!(seq.kind, SeqKind::List | SeqKind::Tuple) => {
                self.nested(('[', ']'), &seq.items, Self::value)?;
            }
            View::Dict(dict) => {
                if let Some((key, _)) = dict.entries.iter().find(|(key, _)| !is_key(key)) {
                    return Err(no_key(key));
                }
                if !self.layout.sort_keys {
                    return self
                        .nested(('{', '}'), &dict.entries, |writer, (key, value)| writer.pair(key, value));
                }
                let entries: Vec<&(Value, Value)> = dict.entries.iter().collect();
                self.cx.charge(size_of_val(entries.as_slice()))?;
                // by the keys themselves, not by their texts
                let entries = sorted(entries, &mut |(left, _), (right, _)| order(self.cx, left, right))?;
                self.nested(('{', '}'), &entries, |writer, (key, value)| writer.pair(key, value))?;
            }
            _ => {
                let message = format!("Object of type {} is not JSON serializable", type_name(value));
                return Err(Error::new(Kind::Type, message));
            }
        }
        Ok(())
    }

    fn pair(&mut self, key: &Value, value: &Value) -> Result<(), Error> {
        match key.as_str() {
            Some(key) => self.text(key)?,
            None => self.text(&key_text(self.cx, key)?)?,
        }
        self.cx.grow(self.out, self.layout.separators.1.len())?;
        self.out.push_str(&self.layout.separators.1);
        self.value(value)
    }

    fn nested<T>(
        &mut self,
        marks: (char, char),
        items: &[T],
        mut write: impl FnMut(&mut Self, &T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(marks.0);
        self.level += 1;
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.cx.grow(self.out, self.layout.separators.0.len())?;
                self.out.push_str(&self.layout.separators.0);
            }
            self.newline()?;
            write(self, item)?;
        }
        self.level -= 1;
        if !items.is_empty() {
            self.newline()?;
        }
        self.out.push(marks.1);
        Ok(())
    }

    fn newline(&mut self) -> Result<(), Error> {
        let Some(indent) = &self.layout.indent else { return Ok(()) };
        self.cx.grow(self.out, 1 + indent.len().saturating_mul(self.level))?;
        self.out.push('\n');
        (0..self.level).for_each(|_| self.out.push_str(indent));
        Ok(())
    }

    /// The bytes that `text` takes in JSON.
    fn escaped_bytes(&self, text: &str) -> usize {
        let bytes = |c: char| match c {
            '"' | '\\' => 2,
            ' '..='~' => 1,
            c if c < ' ' || self.layout.ensure_ascii => 6 * c.len_utf16(),
            c => c.len_utf8(),
        };
        2 + text.chars().map(bytes).sum::<usize>()
    }

    fn text(&mut self, text: &str) -> Result<(), Error> {
        self.cx.grow(self.out, if text.len() < SHORT { text.len() } else { self.escaped_bytes(text) })?;
        self.cx.host.json_string(text, self.layout.ensure_ascii, self.out);
        Ok(())
    }
}

/// A float in JSON: as Python's `repr`, with its own words for what is no number.
pub(crate) fn float_json(cx: &Context, value: f64) -> String {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity".into() } else { "-Infinity".into() }
    } else {
        float_text(cx, value)
    }
}

fn key_text(cx: &Context, key: &Value) -> Result<String, Error> {
    Ok(match view(key) {
        View::Str(text) => text.to_string(),
        View::Int(int) => int.to_string(),
        View::Huge(huge) => big::decimal(huge)?,
        View::Float(float) => float_json(cx, float),
        View::Bool(true) => "true".into(),
        View::Bool(false) => "false".into(),
        View::None => "null".into(),
        _ => return Err(no_key(key)),
    })
}

/// Whether JSON has a key for `key`.
fn is_key(key: &Value) -> bool {
    use View::{Bool, Float, Huge, Int, None, Str};
    matches!(view(key), Str(_) | Int(_) | Huge(_) | Float(_) | Bool(_) | None)
}

fn no_key(key: &Value) -> Error {
    let message = format!("keys must be str, int, float, bool or None, not {}", type_name(key));
    Error::new(Kind::Type, message)
}
