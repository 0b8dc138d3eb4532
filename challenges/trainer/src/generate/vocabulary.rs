//! What each token of a `tokenizer.json` writes, in bytes.
//!
//! ```text
//! decoder ByteLevel       a character stands for a byte          "Ġthe"    -> " the"
//! decoder ByteFallback    a mark stands for a space, or a byte   "▁the"    -> " the",  "<0x0A>" -> "\n"
//! added tokens            their content; a special one is a mark that no text can write
//! ```
//!
//! Two tokens may write the same bytes, such as a space and `<0x20>`: the one that names its byte is left out, else the
//! later one, so that a text has one meaning.
//!
//! Source of the characters: `bytes_to_unicode` of GPT-2's encoder: printable ones stand for themselves, the others for
//! U+0100 and on, in their order.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde_json::Value as Json;

use crate::constrain::{Token, Vocabulary};
use crate::files::{Problem, read_json};

/// How a token's text stands for bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alphabet {
    ByteLevel,
    ByteFallback,
}

/// Reads the vocabulary; `end` is the special token that ends a turn.
///
/// # Errors
/// A sentence that names the file and what is not as expected.
pub fn vocabulary(file: &Path, end: u32) -> Result<Vocabulary, String> {
    let json = read_json(file).map_err(|error| error.to_string())?;
    let json = json.ok_or_else(|| format!("{}: there is no such file", file.display()))?;
    let named = |problem: Problem| problem.of(file).to_string();
    let tokens = tokens(&json).map_err(named)?;
    Vocabulary::new(tokens, end).map_err(|error| format!("{}: {error}", file.display()))
}

/// Every token by its number; those that nothing uses write nothing.
fn tokens(json: &Json) -> Result<Vec<Token>, Problem> {
    let alphabet = alphabet(&json["decoder"])
        .ok_or_else(|| Problem::entry("decoder", &json["decoder"], "one with ByteLevel or ByteFallback"))?;
    let mut all: Vec<(usize, Token, bool)> = Vec::new(); // the number, what it writes, whether it names a byte
    let bytes = bytes_of_characters();
    let vocab = json["model"]["vocab"].as_object();
    let vocab = vocab.ok_or_else(|| Problem::entry("model.vocab", &json["model"]["vocab"], "an object"))?;
    for (text, id) in vocab {
        let written = match alphabet {
            Alphabet::ByteLevel => text.chars().map(|c| bytes.get(&c).copied()).collect(),
            Alphabet::ByteFallback => Some(fallback(text)),
        };
        // a text of other characters is one that is added, too
        all.push((number(id, text)?, Token::Text(written.unwrap_or_default()), named_byte(text).is_some()));
    }
    for token in json["added_tokens"].as_array().into_iter().flatten() {
        let content = token["content"].as_str();
        let content =
            content.ok_or_else(|| Problem::entry("added_tokens.content", &token["content"], "a text"))?;
        let is_special = token["special"].as_bool() == Some(true);
        let written = if is_special { Token::Special(content.into()) } else { Token::Text(content.into()) };
        let number = number(&token["id"], content)?;
        all.retain(|(other, ..)| *other != number);
        all.push((number, written, false));
    }
    all.sort_by_key(|(number, _, names_byte)| (*names_byte, *number));
    let size = all.iter().map(|(number, ..)| number + 1).max().unwrap_or(0);
    let mut tokens = vec![Token::Text(Vec::new()); size];
    let mut seen = HashSet::new();
    for (number, token, _) in all {
        if seen.insert(token.clone()) {
            tokens[number] = token;
        }
    }
    Ok(tokens)
}

/// A token's number.
fn number(id: &Json, text: &str) -> Result<usize, Problem> {
    let number = id.as_u64().filter(|number| *number < 1 << 24);
    number.map(|number| number as usize).ok_or_else(|| Problem::entry(text, id, "a token's number"))
}

fn alphabet(decoder: &Json) -> Option<Alphabet> {
    match decoder["type"].as_str()? {
        "ByteLevel" => Some(Alphabet::ByteLevel),
        "ByteFallback" => Some(Alphabet::ByteFallback),
        "Sequence" => decoder["decoders"].as_array()?.iter().find_map(alphabet),
        _ => None,
    }
}

/// The bytes of a token that spaces and unknown bytes are marked in.
fn fallback(text: &str) -> Vec<u8> {
    named_byte(text).map_or_else(|| text.replace('\u{2581}', " ").into_bytes(), |byte| vec![byte])
}

/// The byte that a token such as `<0x0A>` names.
fn named_byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 2)
}

/// The byte that each character of GPT-2's alphabet stands for.
fn bytes_of_characters() -> HashMap<char, u8> {
    let is_plain = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let plain = (0..=255).filter(is_plain).map(|byte| (char::from(byte), byte));
    let others = (0..=255).filter(|byte| !is_plain(byte));
    let others = ('\u{100}'..).zip(others);
    plain.chain(others).collect()
}
