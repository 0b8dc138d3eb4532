//! The token that ends a sequence.
//!
//! ```text
//! tokenizer_config.json      eos_token
//! special_tokens_map.json    eos_token, which wins where tokenizer_config.json has no added_tokens_decoder
//! ```
//!
//! A row of texts ends with it: a model that never sees an end never stops. Without such a token TRL fails, too.
//! `eos_token_id` of `config.json` or `generation_config.json` is the model's, not the tokenizer's; an error suggests it.
//!
//! Sources: `_from_pretrained` in `tokenization_utils_base.py` of the `transformers` library, 5.24; `add_eos` in the
//! trainers of `trl`, 1.16.

use std::path::Path;

use serde_json::Value as Json;
use tokenizers::Tokenizer;

use crate::files::{FileError, read_json};
use crate::markers;

const CONFIG: &str = "tokenizer_config.json";
const MAP: &str = "special_tokens_map.json";

/// The token that ends a sequence: its text and its number.
pub(super) type End = (String, i32);

/// Finds the token that ends a sequence.
///
/// The outer error is a file that cannot be read; the inner one explains why the tokenizer has no end and what to do.
pub(super) fn find(folder: &Path, tokenizer: &Tokenizer) -> Result<Result<End, String>, FileError> {
    let config = read_json(&folder.join(CONFIG))?.unwrap_or_default();
    let map = read_json(&folder.join(MAP))?.filter(|_| config["added_tokens_decoder"].is_null());
    let map = map.unwrap_or_default();
    let (file, text) = match (text(&map["eos_token"]), text(&config["eos_token"])) {
        (Some(text), _) => (MAP, text),
        (None, Some(text)) => (CONFIG, text),
        (None, None) => return Ok(Err(none(folder, tokenizer))),
    };
    Ok(match tokenizer.token_to_id(text) {
        Some(id) => Ok((text.to_owned(), id as i32)),
        None => Err(format!(
            "{}: eos_token: expected a token of tokenizer.json, found {text:?}",
            folder.join(file).display()
        )),
    })
}

/// A token's text, if it is given and not empty.
fn text(token: &Json) -> Option<&str> {
    let token = if token.is_object() { &token["content"] } else { token };
    token.as_str().filter(|text| !text.is_empty())
}

/// Explains that the token is missing, and suggests the one that the model's files name.
fn none(folder: &Path, tokenizer: &Tokenizer) -> String {
    let named = ["generation_config.json", "config.json"].into_iter().find_map(|name| {
        let json = read_json(&folder.join(name)).ok()??;
        let id = *markers::stops(&json).ok()?.first()?;
        Some((name, id, tokenizer.id_to_token(id)?))
    });
    let next = match named {
        Some((name, id, text)) => {
            format!("add \"eos_token\": {}, the token {id} that {name} names", Json::from(text))
        }
        None => "add \"eos_token\" with the token that ends a sequence".to_owned(),
    };
    format!("{} names no eos_token, which ends every row of texts; {next}", folder.join(CONFIG).display())
}
