//! (D) `issues`, part `chat`: conversations as text, and text as calls.

use std::fmt::Write as _;
use std::ops::Range;

use challenges::issues::chat::lint::Criterion;
use challenges::issues::chat::tools::{ArgumentType, Signature};
use challenges::issues::chat::{Chat, Find, Function, MarkerState, Match, Next, Rendered, Tool, is_word};
use serde_json::{Map, Value, json};

/// The attempt.
pub struct Solution;

impl Chat for Solution {
    // ANCHOR: chat-step-1
    // why: most of a text needs no escape, so whole stretches of it are copied. With `ensure_ascii`
    // Python keeps only the space to `~`: U+007F, although it is ASCII, is escaped, and what is outside of ASCII as UTF-16,
    // so a character beyond the first 65,536 is two escapes.
    // step D.1: write a text as Python's json does
    fn json_string(&self, text: &str, ensure_ascii: bool, out: &mut String) {
        out.push('"');
        let mut from = 0;
        for (at, c) in text.char_indices() {
            if c < ' ' || c == '"' || c == '\\' || ensure_ascii && c > '~' {
                out.push_str(&text[from..at]);
                escape(c, out);
                from = at + c.len_utf8();
            }
        }
        out.push_str(&text[from..]);
        out.push('"');
    }

    // why: both languages know the shortest digits that read back as the same number; they differ in when an exponent is
    // written and in how. Rounding to the places that these digits need gives the same digits with a point.
    // step D.1: write a float as Python's repr does
    fn float(&self, value: f64) -> String {
        let text = shortest(value);
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        if (-4..16).contains(&exponent) {
            let places = count_digits(digits) as i32 - 1 - exponent;
            return format!("{value:.*}", places.max(1) as usize);
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.abs())
    }
    // ANCHOR_END: chat-step-1

    // ANCHOR: chat-step-2
    // why: a token belongs to whoever wrote any of its characters: one that reaches over the end of a span was still
    // chosen by the assistant. A token of no text, such as one that only marks a place, is nobody's. Only spans that begin
    // before the token's end are looked at: of empty ones there may be many behind one another.
    // step D.2: find the tokens that share a character with a span
    fn token_mask(&self, offsets: &[Range<usize>], spans: &[Range<usize>]) -> Vec<bool> {
        let shares = |token: &Range<usize>| {
            let first = spans.partition_point(|span| span.end <= token.start);
            spans[first..].iter().take_while(|span| span.start < token.end).any(|span| !span.is_empty())
        };
        offsets.iter().map(|token| token.start < token.end && shares(token)).collect()
    }
    // ANCHOR_END: chat-step-2

    // ANCHOR: chat-step-3
    // why: a token can begin inside another one, so every place is looked at, also those within a token that is broken
    // already. The shortest one decides only whether the character alone is a token: then nothing of it may stay. A
    // vocabulary may have 100,000 special tokens, so they are searched in order and not one after the other: of tokens none
    // of which begins another, only the last one that is not after the text can begin it.
    // step D.3: break every special token in a text
    fn defuse(&self, text: &str, special: &[&str], mark: char) -> String {
        let mut tokens: Vec<&str> = special.iter().copied().filter(|token| !token.is_empty()).collect();
        tokens.sort_unstable();
        tokens.dedup_by(|token, before| token.starts_with(*before));
        let mut out = String::with_capacity(text.len());
        for (at, c) in text.char_indices() {
            let rest = &text[at..];
            let last = tokens[..tokens.partition_point(|token| *token <= rest)].last();
            match last.filter(|token| rest.starts_with(**token)).map(|token| token.len()) {
                Some(length) if length == c.len_utf8() => out.push(mark),
                Some(_) => out.extend([c, mark]),
                None => out.push(c),
            }
        }
        out
    }
    // ANCHOR_END: chat-step-3

    // ANCHOR: chat-step-4
    // step D.4: write the schema of an argument
    fn schema(&self, kind: &ArgumentType) -> Value {
        match kind {
            ArgumentType::Any => json!({}),
            ArgumentType::Null => json!({ "type": "null" }),
            ArgumentType::Boolean => json!({ "type": "boolean" }),
            ArgumentType::Integer => json!({ "type": "integer" }),
            ArgumentType::Number => json!({ "type": "number" }),
            ArgumentType::Text => json!({ "type": "string" }),
            ArgumentType::Choice(texts) => json!({ "type": "string", "enum": texts }),
            ArgumentType::Nullable(inner) => {
                let mut schema = self.schema(inner);
                schema["nullable"] = json!(true);
                schema
            }
            ArgumentType::List(inner) => json!({ "type": "array", "items": self.schema(inner) }),
            ArgumentType::Tuple(inner) => {
                let each: Vec<Value> = inner.iter().map(|kind| self.schema(kind)).collect();
                json!({ "type": "array", "prefixItems": each })
            }
            ArgumentType::Map(inner) => {
                json!({ "type": "object", "additionalProperties": self.schema(inner) })
            }
        }
    }

    // why: `required` is what must be there, so an argument with a default is not in it; whether it may be null is
    // another question. A list of nothing is left out, since that is what the templates' authors saw when they wrote
    // `if required`.
    // step D.4: write a function as a tool
    fn tool(&self, signature: &Signature) -> Tool {
        let mut properties = Map::new();
        for argument in &signature.arguments {
            let mut schema = self.schema(&argument.kind);
            schema["description"] = json!(argument.description);
            properties.insert(argument.name.clone(), schema);
        }
        let needed = signature.arguments.iter().filter(|argument| !argument.optional);
        let required: Vec<&str> = needed.map(|argument| argument.name.as_str()).collect();
        let mut parameters = json!({ "type": "object", "properties": properties });
        if !required.is_empty() {
            parameters["required"] = json!(required);
        }
        let (name, description) = (signature.name.clone(), signature.description.clone());
        Tool::of(Function { name, description, parameters })
    }
    // ANCHOR_END: chat-step-4

    // ANCHOR: chat-step-5
    // why: of a text that ends within a marker nobody can say yet what it is. Only the longest end that is a beginning of
    // the marker is held back, so a reader sees everything else at once. Bytes may be compared: no text ends within a
    // character.
    // step D.5: find a marker in a text that may grow
    fn find(&self, text: &str, marker: &str) -> Find {
        if let Some(place) = text.find(marker) {
            return Find::Found(place);
        }
        let begun = |&length: &usize| text.as_bytes().ends_with(&marker.as_bytes()[..length]);
        let held = (1..marker.len()).rev().find(begun).unwrap_or(0);
        Find::Pending(text.len() - held)
    }
    // ANCHOR_END: chat-step-5

    // ANCHOR: chat-step-6
    // why: the first one wins only if none that is still undecided can begin before it or where it does: the other one
    // could come first, or be longer. Waiting is what makes the answer the same for every cut.
    // step D.6: decide which marker wins
    fn decide(&self, markers: &[MarkerState], end: usize) -> Next {
        let undecided = markers.iter().filter_map(|marker| match marker.found {
            Match::Pending(place) => Some(place),
            _ => None,
        });
        let hold = undecided.fold(end, usize::min);
        let found = markers.iter().enumerate().filter_map(|(index, marker)| match &marker.found {
            Match::At(range) => {
                let (length, name) = (range.end - range.start, marker.field);
                Some(((range.start, usize::MAX - length, !marker.opens, name), index))
            }
            _ => None,
        });
        match found.min() {
            Some(((start, ..), index)) if start < hold => Next::Take(index),
            _ => Next::Pending(hold),
        }
    }
    // ANCHOR_END: chat-step-6

    // ANCHOR: chat-step-7
    // why: a string may hold whatever the dialect has a rule for. So the text is cut into strings and what is between them,
    // and rules are for what is between. A text of this kind that put signs in the strings' places, to rewrite the whole by
    // one pattern, would have no answer to a string that holds such a sign.
    // step D.7: rewrite a dialect to JSON
    fn json_of(&self, text: &str, strings: &[(String, String)], unquoted_keys: bool) -> String {
        let mut pieces = vec![Piece::Between(text)];
        for (open, close) in strings {
            pieces = pieces.into_iter().flat_map(|piece| piece.cut(open, close)).collect();
        }
        let write = |piece| match piece {
            Piece::Text(text) => json!(text).to_string(),
            Piece::Between(text) if unquoted_keys => quote_names(text),
            Piece::Between(text) => text.to_owned(),
        };
        pieces.into_iter().map(write).collect()
    }
    // ANCHOR_END: chat-step-7

    // ANCHOR: chat-step-8
    // why: a part that is lost leaves no error, only a text without it. So each part gets a word of its own, and the word is
    // looked for. What lies across the border of a mark is neither inside nor outside, so each piece is searched by itself.
    // step D.8: find out whether a word shows in a text as it should
    fn shows(&self, rendered: &Rendered, word: &str, criterion: Criterion) -> bool {
        let (text, marks) = (&rendered.text, marks(rendered));
        match criterion {
            Criterion::Written => text.contains(word),
            Criterion::Unwritten => !text.contains(word),
            Criterion::Any => !marks.is_empty(),
            Criterion::Marked => {
                marks.is_empty() || !outside(text, &marks).iter().any(|piece| piece.contains(word))
            }
            Criterion::Unmarked => !marks.iter().any(|mark| text[mark.clone()].contains(word)),
            Criterion::Closed => is_closed(text, &marks, word),
            _ => true,
        }
    }
    // ANCHOR_END: chat-step-8
}

/// The escape of one character.
// step D.1: write the escape of one character
fn escape(c: char, out: &mut String) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        c => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
}

/// A float as `1.5e22`: the fewest digits that read back as it; of several with as few, the nearest to it.
// why: `{:e}` has as few digits as Python's `repr`, but of two that are equally near it takes the larger and Python the
// even one, which is how `{:.16e}` rounds. Above a power of two floats are twice as far apart as below, so what is
// nearest to it may read back as its neighbour; then `{:e}` has the digits of Python. None of these powers lies where no
// exponent is written.
// step D.1: find the shortest digits of a float
fn shortest(value: f64) -> String {
    let fewest = format!("{value:e}");
    let nearest = format!("{value:.*e}", count_digits(&fewest).saturating_sub(1));
    if nearest.parse() == Ok(value) { nearest } else { fewest }
}

/// How many digits a number has in front of its exponent.
fn count_digits(number: &str) -> usize {
    number.chars().take_while(|c| *c != 'e').filter(char::is_ascii_digit).count()
}

/// A part of a text in a dialect of JSON.
enum Piece<'t> {
    /// What a string says.
    Text(&'t str),
    /// What is between strings.
    Between(&'t str),
}

impl<'t> Piece<'t> {
    /// Cuts the strings out that begin with `open` and end with `close`; one that does not end is none.
    // step D.7: cut strings out of what is between
    fn cut(self, open: &str, close: &str) -> Vec<Piece<'t>> {
        let Piece::Between(mut rest) = self else { return vec![self] };
        let mut pieces = Vec::new();
        while let Some((before, inner)) = rest.split_once(open)
            && let Some((text, after)) = inner.split_once(close)
        {
            pieces.extend([Piece::Between(before), Piece::Text(text)]);
            rest = after;
        }
        pieces.push(Piece::Between(rest));
        pieces
    }
}

/// Quotes each word between `{` or `,` and `:`.
// step D.7: quote names
fn quote_names(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find(['{', ',']) {
        out.push_str(&rest[..=at]);
        rest = &rest[at + 1..];
        let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        if end > 0 && rest[end..].starts_with(':') {
            let _ = write!(out, "\"{}\"", &rest[..end]);
            rest = &rest[end..];
        }
    }
    out + rest
}

/// The marks that hold something, in bytes.
fn marks(rendered: &Rendered) -> Vec<Range<usize>> {
    let length = rendered.text.len();
    let mut characters = rendered.text.char_indices().enumerate().peekable();
    let mut byte = |at: usize| {
        while characters.next_if(|(character, _)| *character < at).is_some() {}
        characters.peek().map_or(length, |(_, (byte, _))| *byte)
    };
    let marks = rendered.spans.iter().filter(|span| !span.is_empty());
    marks.map(|span| byte(span.start)..byte(span.end)).collect()
}

/// What is between the marks, before the first and after the last.
// step D.8: cut what is outside of the marks
fn outside<'t>(text: &'t str, marks: &[Range<usize>]) -> Vec<&'t str> {
    let starts = [0].into_iter().chain(marks.iter().map(|mark| mark.end));
    let ends = marks.iter().map(|mark| mark.start).chain([text.len()]);
    starts.zip(ends).map(|(start, end)| &text[start..end]).collect()
}

/// Whether the last mark with the word goes on after it, or ends the text.
// step D.8: look at the end of the last mark with the word
fn is_closed(text: &str, marks: &[Range<usize>], word: &str) -> bool {
    let last = marks.iter().rev().find(|mark| text[(*mark).clone()].contains(word));
    last.is_none_or(|mark| {
        let goes_on = !text[mark.clone()].trim_end().ends_with(word);
        goes_on || text[mark.end..].trim().is_empty()
    })
}
