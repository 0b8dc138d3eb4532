//! What of a `tokenizer.json` a GGUF file carries. All else is refused by its name: a reader would make other tokens
//! than those of the training, and nothing would say so.
//!
//! ```text
//!                  gpt2: byte-level BPE                        llama: bytes to fall back to
//! normalizer       none, or NFC (with a warning)               Replace " " by "▁", with Prepend "▁" or without
//! pre_tokenizer    what a name stands for, then ByteLevel      none, or Metaspace "▁" (some with a warning)
//! model            ignore_merges as readers of the name do     the 256 tokens of bytes, no ignore_merges
//!                  in both no dropout, no prefix or suffix of words
//! post_processor   in both ByteLevel, or TemplateProcessing with one token in front of a text and one behind it
//! decoder          none or ByteLevel                           none, or what undoes "▁" and bytes
//! added_tokens     in both without lstrip, rstrip and single_word; not normalized beside a normalizer
//! ```
//!
//! Two ways to write a space have no key. `Metaspace` puts one in front of a text that begins with none: "first" in
//! front of the first alone, "always" in front of what follows a special token as well. A reader puts one in front of
//! each, or of none. Most models with such a vocabulary are read so, which is said and not refused.
//!
//! Sources: `src/llama-vocab.cpp` of llama.cpp, in its Python binding 0.3.36; the `tokenizers` library, 0.23.

use std::collections::HashSet;

use serde_json::Value as Json;
use tokenizers::Model as _;
use tokenizers::models::bpe::BPE;

use crate::byte_model::byte_names;
use crate::files::Problem;

/// How texts become tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// Bytes as characters, merged by rank.
    ByteLevel,
    /// Characters with bytes to fall back to, merged by score.
    Scores,
}

/// The character that stands for a space.
const SPACE: &str = "\u{2581}";

/// What a vocabulary with bytes to fall back to puts in front of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefix {
    /// Nothing.
    None,
    /// A space, in front of every text and behind every special token.
    Always,
    /// A space in front of what begins with none.
    IfMissing,
    /// A space in front of a first text that begins with none.
    IfMissingAtFirst,
}

/// How a tokenizer makes tokens, if a file can say all of it; and what readers do otherwise.
///
/// Fails at the entry that has no key.
pub(super) fn method(json: &Json, warnings: &mut Vec<String>) -> Result<Method, Problem> {
    let model = &json["model"];
    if model["type"] != "BPE" {
        return Err(Problem::entry("model.type", &model["type"], "\"BPE\""));
    }
    let method = if model["byte_fallback"] == true { Method::Scores } else { Method::ByteLevel };
    check_model(model, method)?;
    match method {
        Method::ByteLevel => check_no_normalizer(json, warnings)?,
        Method::Scores => warnings.extend(warning(prefix(json)?)),
    }
    check_decoder(&json["decoder"], method)?;
    check_added(json)?;
    Ok(method)
}

/// The steps of a part: those of a sequence, the part itself, or none.
pub(super) fn steps<'j>(json: &'j Json, list: &str) -> &'j [Json] {
    match json[list].as_array() {
        Some(steps) if json["type"] == "Sequence" => steps,
        _ if json.is_null() => &[],
        _ => std::slice::from_ref(json),
    }
}

fn check_model(model: &Json, method: Method) -> Result<(), Problem> {
    for affix in ["continuing_subword_prefix", "end_of_word_suffix"] {
        if !model[affix].is_null() && model[affix] != "" {
            let need = "null: a GGUF file has no key for it";
            return Err(Problem::entry(format!("model.{affix}"), &model[affix], need));
        }
    }
    if !model["dropout"].is_null() && model["dropout"].as_f64() != Some(0.0) {
        return Err(Problem::entry("model.dropout", &model["dropout"], "null: a reader merges all it can"));
    }
    let missing = |name: &String| model["vocab"].get(name).is_none();
    match method {
        Method::Scores if model["ignore_merges"] == true => {
            let need = "false beside byte_fallback: a GGUF file has no key for it";
            Err(Problem::entry("model.ignore_merges", &model["ignore_merges"], need))
        }
        Method::Scores => match (0..=u8::MAX).map(byte_token).find(missing) {
            None => Ok(()),
            Some(name) => {
                Err(absent(format!("model.vocab {name:?}"), "the token of a byte, which byte_fallback needs"))
            }
        },
        Method::ByteLevel if model["unk_token"].is_string() => {
            match byte_names().map(String::from).find(missing) {
                None => Ok(()), // no text is unknown
                Some(name) => Err(absent(
                    format!("model.vocab {name:?}"),
                    "each byte's token: readers have no unk_token",
                )),
            }
        }
        Method::ByteLevel => Ok(()),
    }
}

fn absent(entry: String, need: &'static str) -> Problem {
    Problem::Entry { entry, got: "none".into(), need }
}

/// The token of a byte beside those of texts.
pub(super) fn byte_token(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

/// At byte level a reader takes texts as they are.
fn check_no_normalizer(json: &Json, warnings: &mut Vec<String>) -> Result<(), Problem> {
    for step in steps(&json["normalizer"], "normalizers") {
        if step["type"] != "NFC" {
            return Err(Problem::entry("normalizer", step, "none: a GGUF file has no key for it"));
        }
        warnings.push(
            "normalizer NFC: expected none, found one that readers leave out: a letter and its accent in two \
             characters become other tokens there"
                .into(),
        );
    }
    Ok(())
}

/// What is put in front of a text by a tokenizer with bytes to fall back to.
///
/// Fails where it does anything else to a text than write spaces as [`SPACE`].
pub(super) fn prefix(json: &Json) -> Result<Prefix, Problem> {
    let (mut prefix, mut replaces) = (Prefix::None, false);
    for step in steps(&json["normalizer"], "normalizers") {
        match step["type"].as_str() {
            Some("Prepend") if step["prepend"] == SPACE && prefix == Prefix::None => prefix = Prefix::Always,
            Some("Replace") if step["pattern"]["String"] == " " && step["content"] == SPACE => {
                replaces = true;
            }
            _ => {
                let need = "Replace \" \" by \"\u{2581}\", with one Prepend \"\u{2581}\" or without, alone";
                return Err(Problem::entry("normalizer", step, need));
            }
        }
    }
    match steps(&json["pre_tokenizer"], "pretokenizers") {
        [] if replaces => Ok(prefix),
        [] => {
            let need = "Replace \" \" by \"\u{2581}\", or Metaspace: readers do it";
            Err(Problem::entry("normalizer", &json["normalizer"], need))
        }
        [step] if step["type"] == "Metaspace" && step["replacement"] == SPACE => {
            check_split(step, &json["model"]["vocab"])?;
            Ok(if prefix == Prefix::None { of_metaspace(step)? } else { prefix })
        }
        _ => {
            let need = "none, or Metaspace \"\u{2581}\" alone, beside byte_fallback";
            Err(Problem::entry("pre_tokenizer", &json["pre_tokenizer"], need))
        }
    }
}

fn of_metaspace(step: &Json) -> Result<Prefix, Problem> {
    match step["prepend_scheme"].as_str() {
        Some("first") => Ok(Prefix::IfMissingAtFirst),
        Some("never") => Ok(Prefix::None),
        None if step["add_prefix_space"] == false => Ok(Prefix::None),
        Some("always") | None => Ok(Prefix::IfMissing),
        Some(_) => {
            let need = "\"first\", \"always\" or \"never\"";
            Err(Problem::entry("pre_tokenizer.prepend_scheme", &step["prepend_scheme"], need))
        }
    }
}

/// A reader does not cut a text at its spaces: words stay apart where no token holds two.
fn check_split(step: &Json, vocab: &Json) -> Result<(), Problem> {
    let holds_two = |text: &&String| text.chars().skip(1).any(|character| SPACE.contains(character));
    match vocab.as_object().into_iter().flat_map(|all| all.keys()).find(holds_two) {
        Some(token) if step["split"] != false => Err(Problem::Entry {
            entry: "pre_tokenizer.split".into(),
            got: format!("{} beside the token {token:?}", step["split"]),
            need: "false: readers do not cut a text at its spaces",
        }),
        _ => Ok(()),
    }
}

/// What readers do otherwise in front of a text.
fn warning(prefix: Prefix) -> Option<String> {
    let (scheme, own, examples) = match prefix {
        Prefix::None | Prefix::Always => return None,
        Prefix::IfMissing => {
            ("always", "where the text begins with none", "a text that begins with a space becomes")
        }
        Prefix::IfMissingAtFirst => (
            "first",
            "in front of the first text alone, where it begins with none",
            "a text that begins with a space, and one behind a special token, become",
        ),
    };
    Some(format!(
        "pre_tokenizer.prepend_scheme {scheme:?} has no key in a GGUF file: the tokenizer puts a space {own}, readers put \
         one in front of every text and behind every special token; {examples} other tokens there"
    ))
}

fn check_decoder(json: &Json, method: Method) -> Result<(), Problem> {
    let is_space = |text: &Json| *text == " ";
    let is_known = |step: &Json| match (method, step["type"].as_str()) {
        (Method::ByteLevel, Some("ByteLevel")) | (Method::Scores, Some("ByteFallback" | "Fuse")) => true,
        (Method::Scores, Some("Replace")) => step["pattern"]["String"] == SPACE && is_space(&step["content"]),
        (Method::Scores, Some("Strip")) => {
            is_space(&step["content"]) && step["start"] == 1 && step["stop"] == 0
        }
        (Method::Scores, Some("Metaspace")) => step["replacement"] == SPACE,
        _ => false,
    };
    match steps(json, "decoders").iter().find(|step| !is_known(step)) {
        None => Ok(()),
        Some(step) if method == Method::ByteLevel => Err(Problem::entry("decoder", step, "ByteLevel alone")),
        Some(step) => {
            let need = "Replace \"\u{2581}\" by \" \", ByteFallback, Fuse and Strip of one space alone";
            Err(Problem::entry("decoder", step, need))
        }
    }
}

/// Readers find added tokens in a text as it is, wherever they stand.
fn check_added(json: &Json) -> Result<(), Problem> {
    let is_normalized = !steps(&json["normalizer"], "normalizers").is_empty();
    for token in json["added_tokens"].as_array().into_iter().flatten() {
        let refused = |flag: &str, need| {
            let entry = format!("added_tokens {}: {flag}", token["content"]);
            Err(Problem::entry(entry, &token[flag], need))
        };
        for flag in ["lstrip", "rstrip", "single_word"] {
            if token[flag] == true {
                return refused(flag, "false: a GGUF file has no key for it");
            }
        }
        if is_normalized && token["normalized"] == true {
            return refused(
                "normalized",
                "false beside a normalizer: readers look for it in the text as it is",
            );
        }
    }
    Ok(())
}

/// The tokens that a post-processor puts in front of a text and behind it, by name and number.
///
/// Fails where it does anything else.
pub(super) fn around(json: &Json) -> Result<[Option<(&str, u64)>; 2], Problem> {
    let mut templates = Vec::new();
    for step in steps(json, "processors") {
        match step["type"].as_str() {
            Some("ByteLevel") => {} // it moves the places of tokens, and no token
            Some("TemplateProcessing") => templates.push(step),
            _ => return Err(Problem::entry("post_processor", step, "ByteLevel or TemplateProcessing")),
        }
    }
    let template = match templates.as_slice() {
        [] => return Ok([None; 2]),
        [template] => template,
        _ => return Err(Problem::entry("post_processor", json, "one TemplateProcessing at most")),
    };
    let wrong = || {
        let need = "the text, with one special token in front of it at most and one behind it";
        Problem::entry("post_processor.single", &template["single"], need)
    };
    let single = template["single"].as_array().ok_or_else(wrong)?;
    let is_text = |piece: &Json| piece["Sequence"]["id"] == "A";
    let token = |piece| special(piece, &template["special_tokens"]).ok_or_else(wrong);
    match single.as_slice() {
        [text] if is_text(text) => Ok([None; 2]),
        [front, text] if is_text(text) => Ok([Some(token(front)?), None]),
        [text, behind] if is_text(text) => Ok([None, Some(token(behind)?)]),
        [front, text, behind] if is_text(text) => Ok([Some(token(front)?), Some(token(behind)?)]),
        _ => Err(wrong()),
    }
}

/// A special token of a template, if it is one token.
fn special<'j>(piece: &'j Json, tokens: &Json) -> Option<(&'j str, u64)> {
    let name = piece["SpecialToken"]["id"].as_str()?;
    match tokens[name]["ids"].as_array()?.as_slice() {
        [id] => Some((name, id.as_u64()?)),
        _ => None,
    }
}

/// The names of patterns whose readers take a word that is a token as it is, whatever merges would make of it.
const IGNORING_MERGES: [&str; 15] = [
    "falcon-h1",
    "falcon3",
    "glm4",
    "glm5",
    "granite-embed-multi-97m",
    "jina-v5-nano",
    "lfm2",
    "llama-bpe",
    "llama-v3",
    "llama3",
    "midm-2.0",
    "minicpm5",
    "pixtral",
    "tekken",
    "youtu",
];

/// That readers of a pattern's name treat words that are tokens as the model does: by merges or without. Where merges
/// make each token out of its own text, both are the same.
pub(super) fn check_ignored_merges(json: &Json, pre: &str) -> Result<(), Problem> {
    let own = json["model"]["ignore_merges"] == true;
    let need = match IGNORING_MERGES.contains(&pre) {
        habit if habit == own => return Ok(()),
        true => "true, as readers do by the pattern's name",
        false => "false, as readers do by the pattern's name",
    };
    let Some(token) = unmerged(json)? else { return Ok(()) };
    let got = format!("{own}, and merges do not make the token {token:?} of its text");
    Err(Problem::Entry { entry: "model.ignore_merges".into(), got, need })
}

/// The first token that merges do not make of its own text; added tokens are cut out of texts before.
fn unmerged(json: &Json) -> Result<Option<String>, Problem> {
    let mut model = json["model"].clone();
    model["ignore_merges"] = false.into();
    let bpe: BPE = serde_json::from_str(&model.to_string())?; // it borrows from a text
    let added = json["added_tokens"].as_array().into_iter().flatten();
    let added: HashSet<&str> = added.filter_map(|token| token["content"].as_str()).collect();
    let is_merged = |text: &str, id: u32| match bpe.tokenize(text).as_deref() {
        Ok([one]) => one.id == id,
        _ => false,
    };
    let mut all: Vec<(String, u32)> = bpe.get_vocab().into_iter().collect();
    all.sort_unstable_by_key(|(_, id)| *id);
    let mut words = all.into_iter().filter(|(text, _)| !added.contains(text.as_str()));
    Ok(words.find(|(text, id)| !is_merged(text, *id)).map(|(text, _)| text))
}
