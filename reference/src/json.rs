//! JSON as files hold it: with or without a byte order mark, and with an error that says what the file is instead.

use std::cell::RefCell;
use std::io::{self, Read};
use std::{error, fmt};

use serde::Deserialize;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IgnoredAny, SeqAccess, Visitor,
};
use serde_json::Value;

use crate::exact;
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
    serde_json::from_slice(without_bom(bytes)).map_err(|error| named(bytes, error))
}

/// Parses the content of a file, with whole numbers of any size as [`exact`] has them.
pub fn parse_exact(bytes: &[u8]) -> Result<Value, Error> {
    exact::from_slice(without_bom(bytes)).map_err(|error| named(bytes, error))
}

/// The kind of the file, or else the parser's error.
fn named(bytes: &[u8], error: serde_json::Error) -> Error {
    FileKind::of(bytes).map_or(Error::Invalid(error), Error::Foreign)
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
    match reason {
        "invalid unicode code point" => "text that is not UTF-8; `iconv` converts it".to_owned(),
        reason => reason.to_owned(),
    }
}

/// Calls `item` with the text of each item of an array that a reader holds, so that one item at a time is in memory.
///
/// Fails with the error of `item`, where an item has more than `longest` bytes, and where something follows the array.
pub fn items(reader: impl Read, longest: usize, item: &mut OnItem<'_>) -> Result<(), String> {
    let record = RefCell::new(Record { at: Position { line: 1, column: 0 }, text: Vec::new(), longest });
    let mut deserializer = serde_json::Deserializer::from_reader(Recorded { reader, record: &record });
    let mut refused = None;
    let visited = deserializer.deserialize_seq(Items { item, record: &record, refused: &mut refused });
    let ended = visited.and_then(|()| deserializer.end());
    match (refused, ended) {
        (Some(reason), _) => Err(reason),
        (None, Err(error)) if error.is_io() => {
            Err(format!("line {}: {}", record.borrow().at.line, reason(&error)))
        }
        (None, ended) => ended.map_err(|error| {
            format!("line {}, column {}: invalid JSON: {}", error.line(), error.column(), reason(&error))
        }),
    }
}

/// A function that gets the text of an item and the place where it begins.
pub type OnItem<'f> = dyn FnMut(&[u8], Position) -> Result<(), String> + 'f;

/// A place in a file, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The byte of the line.
    pub column: usize,
}

impl Position {
    /// The place of an error in a text that begins here.
    #[must_use]
    pub fn of(self, error: &serde_json::Error) -> Self {
        match error.line() {
            0 => self,
            1 => Self { line: self.line, column: self.column + error.column() - 1 },
            line => Self { line: self.line + line - 1, column: error.column() },
        }
    }
}

/// The bytes of an item that were read.
struct Record {
    at: Position, // of the byte that was read last
    text: Vec<u8>,
    longest: usize,
}

/// A reader whose bytes are recorded.
struct Recorded<'r, R> {
    reader: R,
    record: &'r RefCell<Record>,
}

impl<R: Read> Read for Recorded<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let to = if to.is_empty() { to } else { &mut to[..1] }; // so that the last byte is the parser's
        let count = self.reader.read(to)?;
        let mut record = self.record.borrow_mut();
        for byte in &to[..count] {
            record.at.column += 1;
            record.text.push(*byte);
            if *byte == b'\n' {
                record.at = Position { line: record.at.line + 1, column: 0 };
            }
        }
        if record.text.len() > record.longest {
            return Err(io::Error::other(format!("an item is longer than {} MiB", record.longest >> 20)));
        }
        Ok(count)
    }
}

/// The visitor of an array.
struct Items<'a, 'f> {
    item: &'a mut OnItem<'f>,
    record: &'a RefCell<Record>,
    refused: &'a mut Option<String>,
}

impl<'de> Visitor<'de> for Items<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        while let Some(begin) = array.next_element_seed(Begin(self.record))? {
            let text = std::mem::take(&mut self.record.borrow_mut().text);
            // after a number the parser has read one byte more
            let is_closed = matches!(text.first(), Some(b'{' | b'[' | b'"'));
            let own = if is_closed { &text[..] } else { scalar(&text) };
            if let Err(reason) = (self.item)(own, begin) {
                *self.refused = Some(reason);
                return Err(A::Error::custom("refused"));
            }
        }
        Ok(())
    }
}

/// A number or a word without the byte after it.
fn scalar(text: &[u8]) -> &[u8] {
    let is_own = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let end = text.iter().position(|byte| !is_own(byte)).unwrap_or(text.len());
    &text[..end]
}

/// The begin of an item.
struct Begin<'r>(&'r RefCell<Record>);

impl<'de> DeserializeSeed<'de> for Begin<'_> {
    type Value = Position;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Position, D::Error> {
        let begin = {
            let mut record = self.0.borrow_mut();
            let before = record.text.len().saturating_sub(1);
            record.text.drain(..before); // the parser has read the item's first byte
            record.at
        };
        IgnoredAny::deserialize(from).map(|_| begin)
    }
}

/// The errors of `serde_json` for one half of a surrogate pair.
const LONE_SURROGATE: [&str; 2] = ["lone leading surrogate in hex escape", "unexpected end of hex escape"];

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign(kind) => write!(f, "expected JSON, found {kind}"),
            Self::Invalid(error) => {
                write!(f, "{}{}", if error.is_data() { "" } else { "invalid JSON: " }, reason(error))?;
                match error.line() {
                    0 => Ok(()),
                    line => write!(f, " at line {line} column {}", error.column()),
                }
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
            (&br#"["\ud83d"]"#[..], "invalid JSON: a lone surrogate"),
            (br#"["\ude00"]"#, "a lone surrogate"),
            (br#"["\ud83d\u0041"]"#, "a lone surrogate"),
            (br#"["\ud83dx"]"#, "a lone surrogate"),
            (b"[1,\n2", "invalid JSON: EOF while parsing a list at line 2 column 1"),
            (b"<html></html>", "expected JSON, found a web page (HTML)"),
        ] {
            let error = parse::<Value>(text).expect_err("the text is invalid").to_string();
            assert!(error.contains(want), "{}: {error}", String::from_utf8_lossy(text));
            assert!(error.matches(" at line ").count() <= 1, "{error}");
        }
    }

    #[test]
    fn items_of_an_array_have_texts_and_places() {
        let read = |text: &str| {
            let mut all = Vec::new();
            let mut add = |text: &[u8], Position { line, column }: Position| {
                if text == b"7" {
                    return Err(format!("line {line}, column {column}: refused"));
                }
                all.push(String::from_utf8_lossy(text).into_owned());
                Ok(())
            };
            items(text.as_bytes(), 20, &mut add).map(|()| all)
        };
        let all = ["{\"a\":\n 1}", "2", "[3]", "\"]\"", "-4.5e1", "null"].map(str::to_owned);
        assert_eq!(read("[\n {\"a\":\n 1} ,2 , [3],\"]\",-4.5e1,null\n]\n\n"), Ok(all.to_vec()));
        assert_eq!(read("[2]"), Ok(vec!["2".to_owned()]));
        assert_eq!(read("[]"), Ok(vec![]));
        for (text, want) in [
            ("[1,\n\n 7]", "line 3, column 2: refused"),
            ("[1,\n2", "line 2, column 1: invalid JSON: EOF while parsing a list"),
            ("[1]\n[2]", "line 2, column 1: invalid JSON: trailing characters"),
            ("[1, 2,]", "line 1, column 7: invalid JSON: trailing comma"),
            ("[1,\n\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"]", "line 2: an item is longer than 0 MiB"),
        ] {
            assert_eq!(read(text), Err(want.to_owned()), "{text}");
        }
    }
}
