//! Special tokens in what users wrote.
//!
//! A template writes `<|im_end|>` to end a message, and a tokenizer makes one token of these characters wherever they
//! stand. A user who writes them too ends the message and begins one of their own, as the system or the assistant. Two
//! ways out: [`marked`] texts stay what they are and say which of their characters are no token, for a tokenizer that
//! can be told; [`defused`] texts hold no special token any more, for one that cannot.

use serde_json::Value as Json;

use super::Steps;

/// Around a user's special token in a marked text: two characters that Unicode leaves to private use.
const MARKS: [char; 2] = ['\u{f0000}', '\u{f0001}'];
/// What breaks a special token, the first that no token holds: word joiner, non-joiner, joiner, space of no width.
const BREAKS: [char; 4] = ['\u{2060}', '\u{200c}', '\u{200d}', '\u{200b}'];
/// What breaks one where tokens hold all of these: a character for private use.
const LAST_BREAK: char = '\u{f0002}';

/// `value` with every special token in its texts marked; keys are left as they are.
///
/// Longer tokens come first, so one that holds another is marked as a whole. Marks that a user wrote are dropped. A text
/// that ends with a beginning of a token gets half a mark there: the rest may be in the next text.
pub fn marked(value: &Json, special: &[&str]) -> Json {
    each_text(value, &|text| {
        let text = text.replace(MARKS, "");
        let whole = replaced(&text, special, |token| format!("{}{token}{}", MARKS[0], MARKS[1]));
        broken_end(&whole, special, MARKS[1])
    })
}

/// A rendered text without its marks, and the pieces of it: those that are plain text, special tokens and all (`true`),
/// and those in which a special token is one (`false`).
///
/// A mark without its partner, which a template has cut, still ends a piece: what stands on its two sides cannot become
/// a token together.
pub fn pieces(rendered: &str, special: &[&str]) -> Vec<(String, bool)> {
    let mut out: Vec<(String, bool)> = Vec::new();
    for (at, part) in rendered.split(MARKS[0]).enumerate() {
        let (inside, after) = match part.split_once(MARKS[1]) {
            Some((inside, after)) if at > 0 && special.contains(&inside) => (Some(inside), after),
            _ => (None, part),
        };
        out.extend(inside.map(|token| (token.to_string(), true)));
        out.extend(after.split(MARKS[1]).map(|text| (text.to_string(), false)));
    }
    out.retain(|(text, _)| !text.is_empty());
    out
}

/// `value` with every special token in its texts broken by a character of no width ([`super::Chat::defuse`]); keys are left
/// as they are. The text reads the same, and no token of `special` is left in it or begins in it: two texts may be written
/// one behind the other.
pub fn defused(value: &Json, special: &[&str], steps: &Steps) -> Json {
    let free = BREAKS.iter().copied().find(|mark| !special.iter().any(|token| token.contains(*mark)));
    let mark = free.unwrap_or(LAST_BREAK);
    each_text(value, &|text| broken_end(&steps.chat().defuse(text, special, mark), special, mark))
}

/// `text` with `mark` behind the first character of every end of it that is a beginning of a token.
fn broken_end(text: &str, special: &[&str], mark: char) -> String {
    let longest = special.iter().map(|token| token.len()).max().unwrap_or(0);
    let from = text.floor_char_boundary(text.len().saturating_sub(longest));
    let mut out = text[..from].to_owned();
    for (at, c) in text[from..].char_indices() {
        let rest = &text[from + at..];
        let begins = |token: &&str| token.len() > rest.len() && token.starts_with(rest);
        out.push(c);
        out.extend(special.iter().any(begins).then_some(mark));
    }
    out
}

/// `value` with `work` done on its texts, whatever its depth.
fn each_text(value: &Json, work: &dyn Fn(&str) -> String) -> Json {
    match value {
        Json::String(text) => Json::String(work(text)),
        Json::Array(items) => items.iter().map(|item| each_text(item, work)).collect(),
        Json::Object(fields) => {
            Json::Object(fields.iter().map(|(name, value)| (name.clone(), each_text(value, work))).collect())
        }
        other => other.clone(),
    }
}

/// `text` with the longest token that begins at each place written by `write`.
fn replaced(text: &str, special: &[&str], write: impl Fn(&str) -> String) -> String {
    let mut tokens: Vec<&str> = special.iter().copied().filter(|token| !token.is_empty()).collect();
    tokens.sort_by_key(|token| std::cmp::Reverse(token.len()));
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let token = tokens.iter().find(|token| rest.starts_with(**token));
        match token {
            Some(token) => out.push_str(&write(token)),
            None => out.push(first),
        }
        rest = &rest[token.map_or(first.len_utf8(), |token| token.len())..];
    }
    out
}
