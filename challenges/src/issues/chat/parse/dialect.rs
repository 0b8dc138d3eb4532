//! JSON as models write it: strings between markers of their own, names without quotes.
//!
//! A dialect is rewritten to JSON, then read. Strings come first: each is put aside and a sign left in its place, so that
//! nothing within it is taken for a name.

use serde_json::Value;

use super::content::Strip;
use super::error::{Problem, TemplateError};
use super::json;
use super::pattern::is_word;
use super::template::Entry;

const OPEN: char = '\u{1}';
const CLOSE: char = '\u{2}';

/// What a dialect allows that JSON does not.
#[derive(Debug)]
pub struct Dialect {
    /// What begins and ends a string.
    delims: Vec<(String, String)>,
    unquoted_keys: bool,
    allow_non_json: bool,
    strip: Strip,
}

impl Dialect {
    /// From the arguments of a `json` parser.
    pub fn new(args: &Entry) -> Result<Self, TemplateError> {
        Ok(Self {
            delims: args.pairs("string_delims")?,
            unquoted_keys: args.flag("unquoted_keys", false)?,
            allow_non_json: args.flag("allow_non_json", false)?,
            strip: Strip::new(args)?,
        })
    }

    /// The value of a text.
    pub fn parse(&self, text: &str) -> Result<Value, Problem> {
        if !self.delims.is_empty() && text.contains([OPEN, CLOSE]) {
            return Err(Problem::Reserved);
        }
        match self.read(text) {
            Err(Problem::Json { .. }) if self.allow_non_json => Ok(self.strip.apply(text).into()),
            answer => answer,
        }
    }

    fn read(&self, text: &str) -> Result<Value, Problem> {
        if self.delims.is_empty() && !self.unquoted_keys {
            return json::read(text);
        }
        let mut strings = Vec::new();
        let mut text = text.to_owned();
        for (open, close) in &self.delims {
            text = put_aside(&text, open, close, &mut strings);
        }
        if self.unquoted_keys {
            text = quote_names(&text);
        }
        json::read(&put_back(&text, &strings))
    }
}

/// Replaces each string by its number between two signs.
fn put_aside(text: &str, open: &str, close: &str, strings: &mut Vec<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, string, behind)) = between(rest, open, close) {
        out.push_str(before);
        out.push(OPEN);
        out.push_str(&strings.len().to_string());
        out.push(CLOSE);
        strings.push(string.to_owned());
        rest = behind;
    }
    out + rest
}

/// What is before the first string, in it, and behind it.
fn between<'t>(text: &'t str, open: &str, close: &str) -> Option<(&'t str, &'t str, &'t str)> {
    let (before, inner) = text.split_once(open)?;
    let (string, behind) = inner.split_once(close)?;
    Some((before, string, behind))
}

/// Quotes each word between `{` or `,` and `:`.
fn quote_names(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find(['{', ',']) {
        out.push_str(&rest[..=at]);
        rest = &rest[at + 1..];
        let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        if end > 0 && rest[end..].starts_with(':') {
            out.push('"');
            out.push_str(&rest[..end]);
            out.push('"');
            rest = &rest[end..];
        }
    }
    out + rest
}

/// Writes the strings in the places of their numbers.
fn put_back(text: &str, strings: &[String]) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some((before, inner)) = rest.split_once(OPEN) {
        out.push_str(before);
        let number = inner.split_once(CLOSE);
        let string =
            number.and_then(|(number, behind)| Some((strings.get(number.parse::<usize>().ok()?)?, behind)));
        if let Some((string, behind)) = string {
            json::quoted(string, &mut out);
            rest = behind;
        } else {
            out.push(OPEN);
            rest = inner;
        }
    }
    out + rest
}
