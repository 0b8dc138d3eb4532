//! JSON as files hold it: with or without a byte order mark, and with an error that says what the file is instead.

use std::cell::Cell;
use std::io::{self, Read};
use std::{error, fmt};

use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::Value;

use crate::file_kind::{FileKind, without_bom};

/// Why bytes are not the expected JSON.
#[derive(Debug)]
pub enum Error {
    /// They are a file of another kind.
    Foreign(FileKind),
    /// They do not parse, or do not have the expected form.
    Invalid(serde_json::Error),
}

/// Parses the content of a file.
///
/// A byte order mark of UTF-8 is skipped.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(without_bom(bytes)).map_err(|error| match FileKind::of(bytes) {
        Some(kind) => Error::Foreign(kind),
        None => Error::Invalid(error),
    })
}

/// Why JSON does not parse, without the position.
pub fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let at = format!(" at line {} column {}", error.line(), error.column());
    let reason = text.strip_suffix(&at).unwrap_or(&text);
    if LONE_SURROGATE.contains(&reason) {
        return "a lone surrogate, half of a character in \\u notation (\\ud83d without \\ude00 after it); \
                write both halves or remove it"
            .to_owned();
    }
    reason.to_owned()
}

/// Calls `item` with each item of an array that a reader holds, so that one item at a time is in memory.
///
/// Fails with the error of `item`, after the line that the item begins on. Fails where an item has more than `longest`
/// bytes, and where something follows the array.
pub fn items(
    reader: impl Read,
    longest: usize,
    item: &mut dyn FnMut(Value) -> Result<(), String>,
) -> Result<(), String> {
    let place = Place::default();
    let mut deserializer = serde_json::Deserializer::from_reader(Counted { reader, longest, place: &place });
    let mut refused = None;
    let visited = deserializer.deserialize_seq(Items { item, place: &place, refused: &mut refused });
    let ended = visited.and_then(|()| deserializer.end());
    match (refused, ended) {
        (Some(reason), _) => Err(reason),
        (None, Err(error)) if error.is_io() => Err(format!("line {}: {}", place.line(), reason(&error))),
        (None, ended) => ended.map_err(|error| Error::Invalid(error).to_string()),
    }
}

/// How far a reader has come.
#[derive(Default)]
struct Place {
    newlines: Cell<usize>,
    bytes: Cell<usize>, // since the item's begin
}

impl Place {
    fn line(&self) -> usize {
        self.newlines.get() + 1
    }
}

/// A reader that counts lines and limits the bytes of an item.
struct Counted<'p, R> {
    reader: R,
    longest: usize,
    place: &'p Place,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(to)?;
        let newlines = to[..count].iter().filter(|byte| **byte == b'\n').count();
        self.place.newlines.update(|all| all + newlines);
        self.place.bytes.update(|all| all + count);
        if self.place.bytes.get() > self.longest {
            return Err(io::Error::other(format!("an item is longer than {} MiB", self.longest >> 20)));
        }
        Ok(count)
    }
}

/// The visitor of an array.
struct Items<'a> {
    item: &'a mut dyn FnMut(Value) -> Result<(), String>,
    place: &'a Place,
    refused: &'a mut Option<String>,
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        while let Some((line, value)) = array.next_element_seed(Begin(self.place))? {
            if let Err(reason) = (self.item)(value) {
                *self.refused = Some(format!("line {line}: {reason}"));
                return Err(A::Error::custom("refused"));
            }
        }
        Ok(())
    }
}

/// The begin of an item.
struct Begin<'p>(&'p Place);

impl<'de> DeserializeSeed<'de> for Begin<'_> {
    type Value = (usize, Value);

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        let line = self.0.line();
        self.0.bytes.set(0);
        Value::deserialize(from).map(|value| (line, value))
    }
}

/// What `serde_json` reports for one half of a surrogate pair.
const LONE_SURROGATE: [&str; 2] = ["lone leading surrogate in hex escape", "unexpected end of hex escape"];

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign(kind) => write!(f, "expected JSON, found {kind}"),
            Self::Invalid(error) => {
                if error.line() > 0 {
                    write!(f, "line {}, column {}: ", error.line(), error.column())?;
                }
                write!(f, "{}{}", if error.is_data() { "" } else { "invalid JSON: " }, reason(error))
            }
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Foreign(_) => None,
            Self::Invalid(error) => Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn byte_order_marks_are_skipped() {
        assert_eq!(parse::<Value>(b"\xef\xbb\xbf[1]").expect("JSON"), json!([1]));
    }

    #[test]
    fn errors_have_one_position_and_name_surrogates() {
        for (text, want) in [
            (&br#"["\ud83d"]"#[..], "line 1, column 9: invalid JSON: a lone surrogate"),
            (br#"["\ude00"]"#, "a lone surrogate"),
            (br#"["\ud83d\u0041"]"#, "a lone surrogate"),
            (br#"["\ud83dx"]"#, "a lone surrogate"),
            (b"[1,\n2", "line 2, column 1: invalid JSON: EOF while parsing a list"),
            (b"<html></html>", "expected JSON, found a web page (HTML)"),
        ] {
            let error = parse::<Value>(text).expect_err("it is no JSON").to_string();
            assert!(error.contains(want), "{}: {error}", String::from_utf8_lossy(text));
            assert!(!error.contains(" at line "), "{error}");
        }
    }

    #[test]
    fn items_of_an_array_are_read_one_by_one() {
        let read = |text: &str| {
            let mut all = Vec::new();
            let mut add = |value: Value| {
                if value == json!(7) {
                    return Err("refused".to_owned());
                }
                all.push(value);
                Ok(())
            };
            items(text.as_bytes(), 20, &mut add).map(|()| all)
        };
        assert_eq!(read("[\n {\"a\": 1},\n 2\n]\n\n"), Ok(vec![json!({"a": 1}), json!(2)]));
        assert_eq!(read("[]"), Ok(vec![]));
        for (text, want) in [
            ("[1,\n\n 7]", "line 3: refused"),
            ("[1,\n2", "line 2, column 1: invalid JSON: EOF while parsing a list"),
            ("[1]\n[2]", "line 2, column 1: invalid JSON: trailing characters"),
            ("[1, 2,]", "line 1, column 7: invalid JSON: trailing comma"),
            ("[1,\n\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"]", "line 2: an item is longer than 0 MiB"),
        ] {
            assert_eq!(read(text), Err(want.to_owned()), "{text}");
        }
    }
}
