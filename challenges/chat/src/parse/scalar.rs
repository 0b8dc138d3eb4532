//! Numbers and white space as Python reads them.

use serde_json::Value;

use super::entry::Entry;
use super::error::TemplateError;
use super::json;

/// Whether white space around a text goes.
#[derive(Clone, Copy, Debug)]
pub struct Strip(bool);

impl Strip {
    pub(super) fn new(args: &Entry) -> Result<Self, TemplateError> {
        Ok(Self(args.flag("strip", true)?))
    }

    pub(super) fn apply(self, text: &str) -> &str {
        if self.0 { strip(text) } else { text }
    }
}

/// What Python takes for white space: Unicode's, and four separators.
pub(super) fn strip(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}'))
}

/// Digits, each pair with at most one `_` between, and a sign.
pub(super) fn int(text: &str) -> Option<Value> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sound = digits.split('_').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    let plain = text.replace('_', "");
    sound.then(|| json::integer(plain.strip_prefix('+').unwrap_or(&plain)))?
}

/// A number as Python's `float` reads it; `None` if it is not finite.
pub(super) fn float(text: &str) -> Option<Value> {
    let bytes = text.as_bytes();
    let between = |at: usize| {
        let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
        at > 0 && digit(at - 1) && digit(at + 1)
    };
    let sound = bytes.iter().enumerate().all(|(at, &byte)| byte != b'_' || between(at));
    sound.then(|| json::float(&text.replace('_', "")))?
}
