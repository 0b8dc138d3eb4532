//! A second right answer to the steps of tool calling, written from the trait's text by other means than the
//! solution's: a check that refuses it asks for more than the trait does.

use std::ops::Range;

use challenges::issues::chat::lint::Criterion;
use challenges::issues::chat::tools::{ArgumentType, Signature};
use challenges::issues::chat::{Chat, Find, Function, MarkerState, Match, Next, Rendered, Tool, is_word};
use serde_json::{Map, Value};

/// The answer.
pub(super) struct Second;

impl Chat for Second {
    fn json_string(&self, text: &str, ensure_ascii: bool, out: &mut String) {
        let escaped = |c: char| match c {
            '"' | '\\' => format!("\\{c}"),
            '\u{8}' => "\\b".into(),
            '\u{9}' => "\\t".into(),
            '\u{a}' => "\\n".into(),
            '\u{c}' => "\\f".into(),
            '\u{d}' => "\\r".into(),
            ' '..='~' => c.to_string(),
            _ if c > '~' && !ensure_ascii => c.to_string(),
            _ => {
                let units: Vec<String> =
                    c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
                units.concat()
            }
        };
        let escaped: String = text.chars().map(escaped).collect();
        out.extend(["\"", &escaped, "\""]);
    }

    /// By where the point lies among the digits.
    fn float(&self, value: f64) -> String {
        let sign = if value.is_sign_negative() { "-" } else { "" };
        let size = value.abs();
        let fewest = format!("{size:e}");
        let nearest = (0..17).map(|places| format!("{size:.places$e}")).find(|text| text.parse() == Ok(size));
        let written = nearest.filter(|text| text.len() <= fewest.len()).unwrap_or(fewest);
        let (mantissa, exponent) = written.split_once('e').expect("`{:e}` writes an exponent");
        let exponent: i32 = exponent.parse().expect("the exponent is a whole number");
        let digits = mantissa.replace('.', "");
        if !(-4..16).contains(&exponent) {
            let by = if exponent < 0 { "-" } else { "+" };
            return format!("{sign}{mantissa}e{by}{:0>2}", exponent.abs());
        }
        let places = digits.len() as i32;
        let before = exponent + 1;
        if before <= 0 {
            format!("{sign}0.{}{digits}", "0".repeat(-before as usize))
        } else if before >= places {
            format!("{sign}{digits}{}.0", "0".repeat((before - places) as usize))
        } else {
            let (whole, fraction) = digits.split_at(before as usize);
            format!("{sign}{whole}.{fraction}")
        }
    }

    /// The last span that begins before the token's end is the only one that can reach into it last.
    fn token_mask(&self, offsets: &[Range<usize>], spans: &[Range<usize>]) -> Vec<bool> {
        let spans: Vec<_> = spans.iter().filter(|span| !span.is_empty()).collect();
        let shares = |token: &Range<usize>| {
            let begun = spans.partition_point(|span| span.start < token.end);
            !token.is_empty() && begun > 0 && spans[begun - 1].end > token.start
        };
        offsets.iter().map(shares).collect()
    }

    /// Token by token: where each begins, and how short the shortest is.
    fn defuse(&self, text: &str, special: &[&str], mark: char) -> String {
        let mut shortest = vec![usize::MAX; text.len()];
        for token in special.iter().filter(|token| !token.is_empty()) {
            let first = token.chars().next().map_or(1, char::len_utf8);
            let mut from = 0;
            while let Some(at) = text[from..].find(token) {
                shortest[from + at] = shortest[from + at].min(token.len());
                from += at + first;
            }
        }
        let broken = |(at, c): (usize, char)| match shortest[at] {
            usize::MAX => c.to_string(),
            length if length == c.len_utf8() => mark.to_string(),
            _ => format!("{c}{mark}"),
        };
        text.char_indices().map(broken).collect()
    }

    fn schema(&self, kind: &ArgumentType) -> Value {
        let typed = |name: &str, rest: Option<(&str, Value)>| {
            let mut map = Map::from_iter([("type".to_owned(), Value::from(name))]);
            map.extend(rest.map(|(key, value)| (key.to_owned(), value)));
            Value::Object(map)
        };
        match kind {
            ArgumentType::Any => Value::Object(Map::new()),
            ArgumentType::Null => typed("null", None),
            ArgumentType::Boolean => typed("boolean", None),
            ArgumentType::Integer => typed("integer", None),
            ArgumentType::Number => typed("number", None),
            ArgumentType::Text => typed("string", None),
            ArgumentType::Choice(texts) => typed("string", Some(("enum", Value::from(texts.clone())))),
            ArgumentType::List(inner) => typed("array", Some(("items", self.schema(inner)))),
            ArgumentType::Tuple(inner) => {
                let all = inner.iter().map(|kind| self.schema(kind)).collect();
                typed("array", Some(("prefixItems", Value::Array(all))))
            }
            ArgumentType::Map(inner) => typed("object", Some(("additionalProperties", self.schema(inner)))),
            ArgumentType::Nullable(inner) => {
                let Value::Object(mut map) = self.schema(inner) else {
                    unreachable!("a schema is an object")
                };
                map.shift_remove("nullable");
                map.insert("nullable".into(), Value::Bool(true));
                Value::Object(map)
            }
        }
    }

    fn tool(&self, signature: &Signature) -> Tool {
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for argument in &signature.arguments {
            let Value::Object(mut property) = self.schema(&argument.kind) else { continue };
            property.insert("description".into(), argument.description.clone().into());
            properties.insert(argument.name.clone(), property.into());
            if !argument.optional {
                required.push(Value::from(argument.name.as_str()));
            }
        }
        let mut parameters = Map::new();
        parameters.insert("type".into(), "object".into());
        parameters.insert("properties".into(), properties.into());
        if !required.is_empty() {
            parameters.insert("required".into(), required.into());
        }
        Tool::of(Function {
            name: signature.name.clone(),
            description: signature.description.clone(),
            parameters: parameters.into(),
        })
    }

    fn find(&self, text: &str, marker: &str) -> Find {
        for at in text.char_indices().map(|(at, _)| at) {
            if text[at..].starts_with(marker) {
                return Find::Found(at);
            }
            if marker.starts_with(&text[at..]) {
                return Find::Pending(at);
            }
        }
        Find::Pending(text.len())
    }

    /// The winner by comparing one with the next, then what may still come before it.
    fn decide(&self, markers: &[MarkerState], end: usize) -> Next {
        let mut winner: Option<(usize, &Range<usize>)> = None;
        let mut hold = end;
        for (index, marker) in markers.iter().enumerate() {
            match &marker.found {
                Match::At(range) => {
                    let wins = winner.is_none_or(|(other, best)| {
                        let earlier = range.start.cmp(&best.start);
                        let longer = best.end.cmp(&range.end);
                        let opening = markers[other].opens.cmp(&marker.opens);
                        let name = marker.field.cmp(markers[other].field);
                        earlier.then(longer).then(opening).then(name).is_lt()
                    });
                    winner = if wins { Some((index, range)) } else { winner };
                }
                Match::Pending(place) => hold = hold.min(*place),
                Match::Never => (),
            }
        }
        match winner {
            Some((index, range)) if range.start < hold => Next::Take(index),
            _ => Next::Pending(hold),
        }
    }

    /// By the places of the strings in the whole text.
    fn json_of(&self, text: &str, strings: &[(String, String)], unquoted_keys: bool) -> String {
        let mut found: Vec<(Range<usize>, &str)> = Vec::new();
        for (open, close) in strings {
            for gap in gaps(&found, text.len()) {
                let mut from = gap.start;
                while let Some(at) = text[from..gap.end].find(open.as_str()) {
                    let inner = from + at + open.len();
                    let Some(length) = text[inner..gap.end].find(close.as_str()) else { break };
                    let end = inner + length + close.len();
                    found.push((from + at..end, &text[inner..inner + length]));
                    from = end;
                }
            }
            found.sort_by_key(|(place, _)| place.start);
        }
        let mut out = String::new();
        let mut inner = found.iter().map(|(_, inner)| *inner);
        for gap in gaps(&found, text.len()) {
            out += &if unquoted_keys { with_names(&text[gap]) } else { text[gap].to_owned() };
            out += &inner.next().map_or_else(String::new, |text| Value::from(text).to_string());
        }
        out
    }

    /// Character by character: which span it is in.
    fn shows(&self, rendered: &Rendered, word: &str, criterion: Criterion) -> bool {
        let text: Vec<char> = rendered.text.chars().collect();
        let word: Vec<char> = word.chars().collect();
        let places: Vec<_> = (0..=text.len()).filter(|&at| text[at..].starts_with(&word)).collect();
        let marks: Vec<_> = rendered.spans.iter().filter(|span| !span.is_empty()).collect();
        let holds = |mark: &Range<usize>, at: usize| mark.start <= at && at + word.len() <= mark.end;
        let apart = |at: usize| marks.iter().all(|mark| at + word.len() <= mark.start || mark.end <= at);
        match criterion {
            Criterion::Written => !places.is_empty(),
            Criterion::Unwritten => places.is_empty(),
            Criterion::Any => !marks.is_empty(),
            Criterion::Marked => marks.is_empty() || !places.iter().any(|&at| apart(at)),
            Criterion::Unmarked => !places.iter().any(|&at| marks.iter().any(|mark| holds(mark, at))),
            Criterion::Closed => {
                marks.iter().rfind(|mark| places.iter().any(|&at| holds(mark, at))).is_none_or(|mark| {
                    let last = places.iter().rfind(|&&at| holds(mark, at)).map_or(0, |at| at + word.len());
                    let blank = |part: &[char]| part.iter().all(|c| c.is_whitespace());
                    !blank(&text[last..mark.end]) || blank(&text[mark.end..])
                })
            }
            _ => true,
        }
    }
}

/// What is between ranges in order, before the first and after the last.
fn gaps(found: &[(Range<usize>, &str)], length: usize) -> Vec<Range<usize>> {
    let starts = [0].into_iter().chain(found.iter().map(|(place, _)| place.end));
    let ends = found.iter().map(|(place, _)| place.start).chain([length]);
    starts.zip(ends).map(|(start, end)| start..end).collect()
}

/// With quotes around each word that is directly between `{` or `,` and `:`.
fn with_names(text: &str) -> String {
    let all: Vec<char> = text.chars().collect();
    let mut out = String::new();
    let mut at = 0;
    while at < all.len() {
        let word = all[at..].iter().take_while(|c| is_word(**c)).count();
        let before = at > 0 && matches!(all[at - 1], '{' | ',');
        let taken: String = all[at..at + word.max(1)].iter().collect();
        let quote = if word > 0 && before && all.get(at + word) == Some(&':') { "\"" } else { "" };
        out.extend([quote, &taken, quote]);
        at += word.max(1);
    }
    out
}
