//! The objects of a data file: JSON lines, or one JSON array of objects.
//!
//! ```text
//! {"text": "a"}          [
//! {"text": "b"}            {"text": "a"}, {"text": "b"}
//!                        ]
//! ```
//!
//! A byte order mark, `\r\n` and empty lines at the end are skipped. A file of another kind is an error that names it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;

use reference::exact;
use reference::file_kind::{FileKind, without_bom};
use reference::json::{self, Position, reason};
use serde_json::{Map, Value as Json};

use crate::messages::kind;

/// Bytes that a line or an item of an array may have.
const LONGEST_LINE: usize = 64 << 20;

/// Keys whose values templates read, with whole numbers of any size.
const CONVERSATION: [&str; 9] = [
    "messages",
    "prompt",
    "completion",
    "chosen",
    "rejected",
    "conversations",
    "tools",
    "documents",
    "chat_template_kwargs",
];

type Object = Map<String, Json>;

/// Calls `add` with each object of a file; returns their number.
///
/// Fails where the file holds something else, and with the error of `add`, after the number of the line.
pub(super) fn objects(
    file: &Path,
    add: &mut dyn FnMut(Object) -> Result<(), String>,
) -> Result<usize, String> {
    let mut reader = BufReader::with_capacity(1 << 16, File::open(file).map_err(|error| error.to_string())?);
    let begin = reader.fill_buf().map_err(|error| error.to_string())?;
    if let Some(kind) = FileKind::of(begin) {
        return Err(format!("expected JSON lines, found {kind}"));
    }
    let text = without_bom(begin);
    let (is_array, mark) = (text.trim_ascii_start().starts_with(b"["), begin.len() - text.len());
    if !is_array {
        return lines(reader, add);
    }
    reader.consume(mark);
    let mut count = 0;
    json::items(reader, LONGEST_LINE, &mut |item, begin| {
        count += 1;
        each(item, begin, add)
    })?;
    Ok(count)
}

fn lines(
    mut reader: impl BufRead,
    add: &mut dyn FnMut(Object) -> Result<(), String>,
) -> Result<usize, String> {
    let (mut line, mut number, mut count, mut gap) = (Vec::new(), 0_usize, 0, None);
    loop {
        number += 1;
        line.clear();
        let mut limited = (&mut reader).take(LONGEST_LINE as u64 + 1);
        if limited.read_until(b'\n', &mut line).map_err(|error| format!("line {number}: {error}"))? == 0 {
            return Ok(count);
        }
        if line.len() > LONGEST_LINE {
            return Err(format!("line {number}: longer than {} MiB", LONGEST_LINE >> 20));
        }
        let text = without_bom(&line).trim_ascii_end();
        if text.is_empty() {
            gap.get_or_insert(number);
            continue;
        }
        if let Some(gap) = gap {
            return Err(format!("line {gap}: expected a JSON object, found an empty line"));
        }
        count += 1;
        each(text, Position { line: number, column: 1 }, add)?;
    }
}

/// Adds the object of a text that begins at a place.
fn each(
    text: &[u8],
    begin: Position,
    add: &mut dyn FnMut(Object) -> Result<(), String>,
) -> Result<(), String> {
    let json = exact::from_slice(text).map_err(|error| {
        let (reason, Position { line, column }) = (reason(&error), begin.of(&error));
        let is_one = text.starts_with(b"{") && !error.is_eof() && reason != "trailing characters";
        let hint = if is_one { "" } else { "; each line must hold one complete object" };
        format!("line {line}, column {column}: invalid JSON: {reason}{hint}")
    })?;
    object(json).and_then(add).map_err(|error| format!("line {}: {error}", begin.line))
}

fn object(json: Json) -> Result<Object, String> {
    match json {
        Json::Object(mut object) => {
            let others = object.iter_mut().filter(|(key, _)| !CONVERSATION.contains(&key.as_str()));
            others.for_each(|(_, value)| exact::round(value));
            Ok(object)
        }
        other => Err(format!("expected a JSON object, found {}", kind(&other))),
    }
}
