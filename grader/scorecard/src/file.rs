//! A scorecard from a file that anybody may have written: every size is bounded before it is used.

use std::fs::{self, File, FileType};
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::{Challenge, MOST_SAMPLES, Scorecard};

/// Bytes of a file: a whole report has a quarter of a MiB.
const MOST_BYTES: u64 = 16 << 20;

/// Entries of a list, and numbers of a challenge.
const MOST_ENTRIES: usize = 2_000;

/// Bytes of one text; a compiler's words are the longest.
const MOST_TEXT: usize = 64 << 10;

/// Reads a scorecard.
///
/// # Errors
/// What the file is, or what of it is too much, in a sentence that names the file.
pub fn read(path: &Path) -> Result<Scorecard, String> {
    let text = read_text(path, MOST_BYTES)?;
    let named = |what: String| format!("{} is not a scorecard: {what}", path.display());
    let card: Scorecard = serde_json::from_str(&text).map_err(|error| named(error.to_string()))?;
    bounded(&card).and_then(|()| nothing_beside(&card, &text)).map_err(named)?;
    Ok(card)
}

/// The text of a regular file of at most so many bytes.
///
/// # Errors
/// What the file is instead, in a sentence that names it.
pub fn read_text(path: &Path, most_bytes: u64) -> Result<String, String> {
    let named = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let kind = fs::metadata(path).map_err(|error| named(&error))?.file_type(); // opening a pipe would wait
    if !kind.is_file() {
        return Err(named(&format!("expected a regular file, found {}", kind_of(kind))));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| named(&error))?;
    file.take(most_bytes + 1).read_to_end(&mut bytes).map_err(|error| named(&error))?;
    if bytes.len() as u64 > most_bytes {
        return Err(named(&format!("expected at most {} MiB, found more", most_bytes >> 20)));
    }
    String::from_utf8(bytes).map_err(|_| named(&"expected UTF-8, found other bytes"))
}

/// What is no regular file, in words.
pub fn kind_of(kind: FileType) -> &'static str {
    if kind.is_dir() { "a directory" } else { "a device, a pipe or a socket" }
}

/// No list is longer, and no text, than any that the grader writes.
fn bounded(card: &Scorecard) -> Result<(), String> {
    few("challenges", card.challenges.len())?;
    few("guards", card.guards.len())?;
    let machine = &card.machine;
    let optional =
        [&machine.gpu, &machine.wine, &machine.widest].map(|text| text.as_deref().unwrap_or_default());
    let heads = [&card.warpbook, &card.attempt, &card.seed, &machine.cpu, &machine.vector, &machine.os];
    for text in heads.into_iter().chain([&machine.arch, &machine.date]).map(String::as_str).chain(optional) {
        short(text)?;
    }
    for guard in &card.guards {
        [&guard.challenge, &guard.name, &guard.detail].into_iter().try_for_each(|text| short(text))?;
    }
    card.challenges.iter().try_for_each(bounded_challenge)
}

fn bounded_challenge(challenge: &Challenge) -> Result<(), String> {
    few("rows", challenge.rows.len())?;
    few("checks", challenge.checks.len())?;
    few("measurements", challenge.measurements.len())?;
    let Challenge { name, letter, device, code, .. } = challenge;
    [name, letter, device, code].into_iter().try_for_each(|text| short(text))?;
    for row in &challenge.rows {
        [&row.wording, &row.evidence].into_iter().try_for_each(|text| short(text))?;
    }
    for check in &challenge.checks {
        [&check.name, &check.detail, &check.replay].into_iter().try_for_each(|text| short(text))?;
    }
    for (name, number) in &challenge.measurements {
        [name, &number.unit].into_iter().try_for_each(|text| short(text))?;
        if number.samples.len() > MOST_SAMPLES {
            let samples = number.samples.len();
            return Err(format!("expected at most {MOST_SAMPLES} samples of {name}, found {samples}"));
        }
    }
    Ok(())
}

fn few(what: &str, entries: usize) -> Result<(), String> {
    if entries <= MOST_ENTRIES {
        return Ok(());
    }
    Err(format!("expected at most {MOST_ENTRIES} {what}, found {entries}"))
}

fn short(text: &str) -> Result<(), String> {
    if text.len() <= MOST_TEXT {
        return Ok(());
    }
    Err(format!("expected texts of at most {MOST_TEXT} bytes, found one of {}", text.len()))
}

/// What a reader of the file sees beside the scorecard: a field that nobody knows could say anything.
fn nothing_beside(card: &Scorecard, text: &str) -> Result<(), String> {
    let known = serde_json::to_value(card).map_err(|error| error.to_string())?;
    let all: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match beside(&all, &known) {
        None => Ok(()),
        Some(name) => Err(format!("expected the fields of a scorecard, found {name:?}")),
    }
}

/// The first field of `all` that `known` has not. Empty lists and texts may be left out of a scorecard, or be there.
fn beside(all: &Value, known: &Value) -> Option<String> {
    match (all, known) {
        (Value::Object(all), Value::Object(known)) => {
            all.iter().find_map(|(name, value)| match known.get(name) {
                Some(same) => beside(value, same),
                None if OPTIONAL.contains(&name.as_str()) => None,
                None => Some(name.clone()),
            })
        }
        (Value::Array(all), Value::Array(known)) => {
            all.iter().zip(known).find_map(|(value, same)| beside(value, same))
        }
        (Value::Object(_) | Value::Array(_), _) => Some("a list or an object of another form".into()),
        _ => None,
    }
}

/// Fields that are not written where there is nothing to say.
const OPTIONAL: [&str; 4] = ["gpu", "interval", "samples", "detail"];
