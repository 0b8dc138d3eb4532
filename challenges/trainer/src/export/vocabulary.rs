//! The keys of a tokenizer: what `tokenizer.json` and the files beside it say, as a GGUF file says it.
//!
//! ```text
//! tokenizer.ggml.model        gpt2: byte-level BPE, by merges       llama: BPE with bytes to fall back to, by scores
//! tokenizer.ggml.pre          which pattern cuts a text before (gpt2)
//! tokenizer.ggml.tokens       by id          .token_type  1 normal, 2 unknown, 3 control, 4 added, 5 unused, 6 a byte
//! tokenizer.ggml.merges       the best first .scores      the rank of the merge that makes the token, negated
//! tokenizer.chat_template     Jinja
//! ```
//!
//! A reader knows patterns by name alone, so a pattern without a name here is refused: another one would cut texts into
//! other tokens than the model was trained on.
//!
//! One way to write a space has no key: `Metaspace` with `prepend_scheme` "first" puts one before a text that begins with
//! none, and none after a special token. A reader puts one before every text, or before none.
//!
//! Sources: `gguf-py/gguf/vocab.py` and `src/llama-vocab.cpp` of llama.cpp.

use std::collections::HashMap;
use std::path::Path;

use reference::checkpoint::gguf::{Array, Value};
use serde_json::Value as Json;

use crate::files::{Problem, read_json};
use crate::gguf_tokenizer::PATTERNS;
use crate::markers::Markers;
use crate::output::Failure;

/// What a token is, by its number in a file.
#[derive(Clone, Copy)]
enum Kind {
    Normal = 1,
    Unknown = 2,
    Control = 3,
    Added = 4,
    Unused = 5,
    Byte = 6,
}

/// How texts become tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    /// Bytes as characters, merged by rank.
    ByteLevel,
    /// Characters with bytes to fall back to, merged by score.
    Scores,
}

/// The keys of a folder's tokenizer for a model of `vocab` tokens; `pre` names the pattern, if somebody does.
pub(super) fn keys(folder: &Path, vocab: usize, pre: Option<&str>) -> Result<Vec<(String, Value)>, Failure> {
    let file = folder.join("tokenizer.json");
    let json = read_json(&file).map_err(Failure::usage)?;
    let json = json.ok_or_else(|| {
        let need = "expected a tokenizer.json, found none; --tokenizer DIR names another folder";
        Failure::Usage(format!("{}: {need}", folder.display()))
    })?;
    let markers = Markers::read(folder).map_err(Failure::usage)?;
    let config = read_json(&folder.join("tokenizer_config.json")).map_err(Failure::usage)?;
    let model = read_json(&folder.join("config.json")).map_err(Failure::usage)?.unwrap_or_default();
    let mut keys = of_json(&json, vocab, pre).map_err(|problem| Failure::usage(problem.of(&file)))?;
    special(&mut keys, &json, &markers, &config.unwrap_or_default(), &model, vocab);
    let templates = markers.template("default").or(match markers.templates.as_slice() {
        [(_, only)] => Some(only.as_str()),
        _ => None,
    });
    keys.extend(templates.map(|text| ("tokenizer.chat_template".into(), Value::String(text.into()))));
    Ok(keys)
}

fn ggml(key: &str) -> String {
    format!("tokenizer.ggml.{key}")
}

fn of_json(json: &Json, vocab: usize, pre: Option<&str>) -> Result<Vec<(String, Value)>, Problem> {
    let model = &json["model"];
    if model["type"] != "BPE" {
        return Err(Problem::entry("model.type", &model["type"], "\"BPE\""));
    }
    let method = if model["byte_fallback"] == true { Method::Scores } else { Method::ByteLevel };
    let merges = merges(&model["merges"])?;
    let (tokens, kinds) = tokens(json, method, vocab)?;
    let text = |key: &str, text: &str| (ggml(key), Value::String(text.into()));
    let mut keys = match method {
        Method::Scores => {
            vec![
                text("model", "llama"),
                text("pre", "default"),
                (ggml("scores"), Value::Array(Array::F32(scores(&tokens, &merges)))),
                (ggml("add_space_prefix"), Value::Bool(has_space_prefix(json))),
            ]
        }
        Method::ByteLevel => vec![
            text("model", "gpt2"),
            text("pre", named_pattern(pre, &merges, &json["pre_tokenizer"])?),
            (ggml("merges"), Value::Array(Array::String(merges.iter().map(joined).collect()))),
        ],
    };
    keys.push((ggml("tokens"), Value::Array(Array::String(tokens))));
    keys.push((
        ggml("token_type"),
        Value::Array(Array::I32(kinds.iter().map(|kind| *kind as i32).collect())),
    ));
    Ok(keys)
}

/// Pairs of tokens, the one that is merged first in front.
fn merges(json: &Json) -> Result<Vec<[String; 2]>, Problem> {
    let all = json.as_array().ok_or_else(|| Problem::entry("model.merges", json, "a list"))?;
    let pair = |(number, merge): (usize, &Json)| {
        let two = match merge {
            Json::String(text) => text.split_once(' ').map(|(a, b)| [a.to_owned(), b.to_owned()]),
            Json::Array(two) => match two.as_slice() {
                [Json::String(a), Json::String(b)] => Some([a.clone(), b.clone()]),
                _ => None,
            },
            _ => None,
        };
        two.ok_or_else(|| Problem::entry(format!("model.merges[{number}]"), merge, "two tokens"))
    };
    all.iter().enumerate().map(pair).collect()
}

/// A merge as one text. A space inside a token is written as the character that stands for it at byte level.
fn joined([a, b]: &[String; 2]) -> String {
    format!("{} {}", a.replace(' ', "\u{120}"), b.replace(' ', "\u{120}"))
}

/// The score of each token: readers merge the pair whose token has the largest.
fn scores(tokens: &[String], merges: &[[String; 2]]) -> Vec<f32> {
    let mut ranks = HashMap::new();
    for (rank, [a, b]) in merges.iter().enumerate() {
        ranks.entry(format!("{a}{b}")).or_insert(rank);
    }
    let score = |token: &String| -(ranks.get(token).copied().unwrap_or(merges.len()) as f32);
    tokens.iter().map(score).collect()
}

/// Every token below `vocab` by its number, and what it is.
fn tokens(json: &Json, method: Method, vocab: usize) -> Result<(Vec<String>, Vec<Kind>), Problem> {
    let mut tokens: Vec<String> = (0..vocab).map(|id| format!("[PAD{id}]")).collect();
    let mut kinds = vec![Kind::Unused; vocab];
    let mut put = |entry: &str, id: &Json, text: &str, kind: Kind| {
        let number = id.as_u64().and_then(|id| usize::try_from(id).ok()).filter(|id| *id < vocab);
        let number = number.ok_or_else(|| Problem::Entry {
            entry: format!("{entry} {text:?}"),
            got: id.to_string(),
            need: "the number of a token that the model has",
        })?;
        text.clone_into(&mut tokens[number]);
        kinds[number] = kind;
        Ok::<(), Problem>(())
    };
    let own = json["model"]["vocab"].as_object();
    let own = own.ok_or_else(|| Problem::entry("model.vocab", &json["model"]["vocab"], "an object"))?;
    for (text, id) in own {
        let is_byte = text.strip_prefix("<0x").is_some_and(|rest| rest.len() == 3 && rest.ends_with('>'));
        let kind = match method {
            Method::Scores if json["model"]["unk_token"] == **text => Kind::Unknown,
            Method::Scores if is_byte => Kind::Byte,
            _ => Kind::Normal,
        };
        put("model.vocab", id, text, kind)?;
    }
    for token in json["added_tokens"].as_array().into_iter().flatten() {
        let content = token["content"].as_str();
        let content =
            content.ok_or_else(|| Problem::entry("added_tokens.content", &token["content"], "a text"))?;
        let kind = match method {
            Method::Scores if json["model"]["unk_token"] == *content => Kind::Unknown,
            _ if token["special"] == true => Kind::Control,
            _ => Kind::Added,
        };
        put("added_tokens", &token["id"], content, kind)?;
    }
    Ok((tokens, kinds))
}

/// The name of the pattern: the given one, else that of the pre-tokenizer. Where nothing is merged every byte is a token,
/// and however a text is cut its tokens are the same.
fn named_pattern<'a>(pre: Option<&'a str>, merges: &[[String; 2]], json: &Json) -> Result<&'a str, Problem> {
    match pre {
        Some(pre) => Ok(pre),
        None if merges.is_empty() => Ok("gpt-2"),
        None => pattern(json),
    }
}

/// The name of the pattern that a pre-tokenizer cuts by.
fn pattern(json: &Json) -> Result<&'static str, Problem> {
    let steps = match json["pretokenizers"].as_array() {
        Some(steps) => steps.as_slice(),
        None => std::slice::from_ref(json),
    };
    let is_bytes = |step: &Json, has_pattern: bool| {
        step["type"] == "ByteLevel" && (step["use_regex"] != false) == has_pattern
    };
    let named = match steps {
        [bytes] if is_bytes(bytes, true) => Some("gpt-2"),
        [digits, bytes]
            if digits["type"] == "Digits" && digits["individual_digits"] == true && is_bytes(bytes, true) =>
        {
            Some("smollm")
        }
        [split, bytes] if split["type"] == "Split" && is_bytes(bytes, false) => {
            let regex = split["pattern"]["Regex"].as_str();
            PATTERNS.iter().find(|(known, _)| Some(*known) == regex).map(|(_, name)| *name)
        }
        _ => None,
    };
    named.ok_or_else(|| {
        Problem::entry(
            "pre_tokenizer",
            json,
            "that of GPT-2, Llama 3, Qwen 2 or SmolLM (--pre NAME gives what a reader calls another one)",
        )
    })
}

/// Whether a space is put before a text that has none.
fn has_space_prefix(json: &Json) -> bool {
    let one = |step: &Json| match step["type"].as_str() {
        Some("Prepend") => true,
        Some("Metaspace") => step["prepend_scheme"] != "never" && step["add_prefix_space"] != false,
        _ => false,
    };
    let steps = [&json["normalizer"]["normalizers"], &json["pre_tokenizer"]["pretokenizers"]];
    let steps = steps.into_iter().filter_map(Json::as_array).flatten();
    steps.chain([&json["normalizer"], &json["pre_tokenizer"]]).any(one)
}

/// Tokens with a meaning, and whether a text begins or ends with one.
fn special(
    keys: &mut Vec<(String, Value)>,
    json: &Json,
    markers: &Markers,
    config: &Json,
    model: &Json,
    vocab: usize,
) {
    let named = |name: &str| {
        let token = markers.named.iter().find(|(known, _)| known == name);
        let by_name = token.and_then(|(_, text)| markers.id(text));
        let of_model = &model[format!("{name}_id")];
        let of_model = of_model.as_u64().or_else(|| of_model[0].as_u64()).map(|id| id as u32);
        by_name.or(of_model).filter(|id| (*id as usize) < vocab)
    };
    let names =
        [("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding")];
    for (name, key) in names {
        keys.extend(named(name).map(|id| (ggml(&format!("{key}_token_id")), Value::U32(id))));
    }
    for (name, at_end) in [("bos", false), ("eos", true)] {
        let told = config[format!("add_{name}_token")].as_bool();
        let is_added = told.unwrap_or_else(|| has_special(&json["post_processor"], at_end));
        keys.push((ggml(&format!("add_{name}_token")), Value::Bool(is_added)));
    }
}

/// Whether a post-processor puts a special token before or behind a text.
fn has_special(json: &Json, at_end: bool) -> bool {
    let steps = match json["processors"].as_array() {
        Some(steps) => steps.as_slice(),
        None => std::slice::from_ref(json),
    };
    steps.iter().filter(|step| step["type"] == "TemplateProcessing").any(|step| {
        let single = step["single"].as_array().map_or(&[][..], Vec::as_slice);
        let outer = if at_end { single.last() } else { single.first() };
        outer.is_some_and(|outer| outer["SpecialToken"].is_object())
    })
}
