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
//! other tokens than the model was trained on. What else is refused, and why, is in [`carried`].
//!
//! A text begins and ends with the tokens that `tokenizer.json` says, whatever `add_bos_token` in
//! `tokenizer_config.json` is: so the trainer and transformers 5.24 read the two. A reader takes tokens of its own for
//! the first and the last one where none is named, so the last one has to be, and the first if it is put in front of
//! texts.
//!
//! Several tokens may end an answer, and three have a key: `eos_token_id`, `eot_token_id` and `eom_token_id`.
//!
//! Sources: `gguf-py/gguf/vocab.py` and `src/llama-vocab.cpp` of llama.cpp.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

use reference::checkpoint::gguf::{Array, Value};
use serde_json::Value as Json;

use super::carried::{self, Method, Prefix, steps};
use crate::decoder::stops;
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

/// The keys of a tokenizer, and what readers do otherwise than it.
pub(super) struct Keys {
    pub keys: Vec<(String, Value)>,
    pub warnings: Vec<String>,
}

/// The keys of a folder's tokenizer for a model of `vocab` tokens that is in another folder, or the same; `pre` names
/// the pattern, if somebody does.
///
/// Fails where the tokenizer does what no key says.
pub(super) fn keys(folder: &Path, model: &Path, vocab: usize, pre: Option<&str>) -> Result<Keys, Failure> {
    let file = folder.join("tokenizer.json");
    let json = read_json(&file).map_err(Failure::usage)?;
    let json = json.ok_or_else(|| {
        let need = "expected a tokenizer.json, found none; --tokenizer DIR names another folder";
        Failure::Usage(format!("{}: {need}", folder.display()))
    })?;
    let markers = Markers::read(folder).map_err(Failure::usage)?;
    let in_file = |problem: Problem| Failure::usage(problem.of(&file));
    let mut warnings = Vec::new();
    let mut keys = of_json(&json, vocab, pre, &mut warnings).map_err(in_file)?;
    let mut warnings: Vec<String> =
        warnings.into_iter().map(|warning| format!("{}: {warning}", file.display())).collect();
    let ids = ids(&json);
    check_named(folder, &markers, &ids)?;
    let named = named(folder, model, &markers, &ids, vocab)?;
    keys.extend(around(&json, &named).map_err(in_file)?);
    keys.extend(named.iter().map(|(key, id)| (ggml(&format!("{key}_token_id")), Value::U32(*id))));
    keys.extend(ends(model, &named, &ids, &mut warnings)?);
    keys.extend(templates(folder, &markers, &mut warnings));
    Ok(Keys { keys, warnings })
}

fn ggml(key: &str) -> String {
    format!("tokenizer.ggml.{key}")
}

fn of_json(
    json: &Json,
    vocab: usize,
    pre: Option<&str>,
    warnings: &mut Vec<String>,
) -> Result<Vec<(String, Value)>, Problem> {
    let method = carried::method(json, warnings)?;
    let merges = merges(&json["model"]["merges"])?;
    let (tokens, kinds) = tokens(json, method, vocab)?;
    let text = |key: &str, text: &str| (ggml(key), Value::String(text.into()));
    let mut keys = match method {
        Method::Scores if pre.is_some() => {
            let need = "no --pre beside byte_fallback, whose readers know no patterns";
            return Err(Problem::entry("model.byte_fallback", &true.into(), need));
        }
        Method::Scores => {
            warnings.extend(unlisted(&tokens, &kinds, &merges));
            vec![
                text("model", "llama"),
                text("pre", "default"),
                (ggml("scores"), Value::Array(Array::F32(scores(&tokens, &merges)))),
                (ggml("add_space_prefix"), Value::Bool(carried::prefix(json)? != Prefix::None)),
            ]
        }
        Method::ByteLevel => vec![
            text("model", "gpt2"),
            text("pre", named_pattern(pre, &merges, json)?),
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

/// What readers merge that the tokenizer does not: they merge every two tokens that make a third. A token with a space
/// in it is none of a text whose spaces have become other characters.
fn unlisted(tokens: &[String], kinds: &[Kind], merges: &[[String; 2]]) -> Option<String> {
    let is_met = |token: &str, kind| matches!(kind, Kind::Normal) && !token.contains(' ');
    let known = tokens.iter().zip(kinds).filter(|(token, kind)| is_met(token, **kind));
    let known: BTreeSet<&str> = known.map(|(token, _)| token.as_str()).collect();
    let listed: HashSet<[&str; 2]> = merges.iter().map(|[a, b]| [a.as_str(), b.as_str()]).collect();
    let splits =
        known.iter().flat_map(|token| token.char_indices().skip(1).map(|(at, _)| token.split_at(at)));
    let mut other =
        splits.filter(|(a, b)| known.contains(a) && known.contains(b) && !listed.contains(&[*a, *b]));
    let (a, b) = other.next()?;
    let others = other.count();
    Some(format!(
        "model.merges: expected every two tokens that make a third, as readers merge them, found {a:?} and {b:?} \
         missing, and {others} more: some texts become other tokens there"
    ))
}

/// Every token below `vocab` by its number, and what it is. Numbers that no token has get texts that none has.
fn tokens(json: &Json, method: Method, vocab: usize) -> Result<(Vec<String>, Vec<Kind>), Problem> {
    let mut all: Vec<Option<(String, Kind)>> = vec![None; vocab];
    let mut numbers = HashMap::new();
    let mut put = |entry: &str, id: &Json, text: &str, kind: Kind| {
        let wrong = |need, got: String| Err(Problem::Entry { entry: format!("{entry} {text:?}"), got, need });
        let number = id.as_u64().and_then(|id| usize::try_from(id).ok()).filter(|id| *id < vocab);
        let Some(number) = number else {
            return wrong("the number of a token that the model has", id.to_string());
        };
        if text.contains('\0') {
            return wrong("a text without U+0000, which ends it for readers", format!("{text:?}"));
        }
        if let Some((other, _)) = all[number].as_ref().filter(|(other, _)| other != text) {
            return wrong("a number of its own", format!("{number}, that of {other:?}"));
        }
        if let Some(other) = numbers.insert(text.to_owned(), number).filter(|other| *other != number) {
            return wrong("one number for a text", format!("{number} and {other}"));
        }
        all[number] = Some((text.to_owned(), kind));
        Ok(())
    };
    let own = json["model"]["vocab"].as_object();
    let own = own.ok_or_else(|| Problem::entry("model.vocab", &json["model"]["vocab"], "an object"))?;
    let bytes: HashSet<String> = (0..=u8::MAX).map(carried::byte_token).collect();
    for (text, id) in own {
        let kind = match method {
            Method::Scores if json["model"]["unk_token"] == **text => Kind::Unknown,
            Method::Scores if bytes.contains(text) => Kind::Byte,
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
    let filled = all.into_iter().enumerate();
    Ok(filled.map(|(id, token)| token.unwrap_or_else(|| (filler(id, &numbers), Kind::Unused))).unzip())
}

/// A text that no token has.
fn filler(id: usize, tokens: &HashMap<String, usize>) -> String {
    let mut text = format!("[PAD{id}]");
    while tokens.contains_key(&text) {
        text.push('_');
    }
    text
}

/// The name of the pattern: the given one, else that of the pre-tokenizer. Where nothing is merged every byte is a
/// token, and however a text is cut its tokens are the same.
fn named_pattern<'a>(pre: Option<&'a str>, merges: &[[String; 2]], json: &Json) -> Result<&'a str, Problem> {
    let cut = &json["pre_tokenizer"];
    let name = match pre {
        Some("") => return Err(Problem::entry("pre_tokenizer", cut, "a name in --pre")),
        Some(pre) => pre,
        None if merges.is_empty() && keeps_bytes(cut) => "gpt-2",
        None => pattern(cut)?,
    };
    if steps(cut, "pretokenizers").iter().any(|step| step["add_prefix_space"] == true) {
        let need = "add_prefix_space false: readers of byte-level BPE put no space in front";
        return Err(Problem::entry("pre_tokenizer", cut, need));
    }
    carried::check_ignored_merges(json, name)?;
    Ok(name)
}

/// Whether a pre-tokenizer gives every byte of a text, wherever it cuts.
fn keeps_bytes(json: &Json) -> bool {
    let Some((last, before)) = steps(json, "pretokenizers").split_last() else { return false };
    let is_cut =
        |step: &Json| step["type"] == "Digits" || (step["type"] == "Split" && step["behavior"] != "Removed");
    last["type"] == "ByteLevel" && before.iter().all(is_cut)
}

/// The name of the pattern that a pre-tokenizer cuts by.
fn pattern(json: &Json) -> Result<&'static str, Problem> {
    let is_bytes = |step: &Json, has_pattern: bool| {
        step["type"] == "ByteLevel" && (step["use_regex"] != false) == has_pattern
    };
    let is_isolated = |step: &Json| step["behavior"] == "Isolated" && step["invert"] != true;
    let named = match steps(json, "pretokenizers") {
        [bytes] if is_bytes(bytes, true) => Some("gpt-2"),
        [digits, bytes]
            if digits["type"] == "Digits" && digits["individual_digits"] == true && is_bytes(bytes, true) =>
        {
            Some("smollm")
        }
        [split, bytes] if split["type"] == "Split" && is_isolated(split) && is_bytes(bytes, false) => {
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

/// The numbers of the tokens of a `tokenizer.json`.
fn ids(json: &Json) -> HashMap<&str, u64> {
    let own = json["model"]["vocab"].as_object().into_iter().flatten();
    let own = own.filter_map(|(text, id)| Some((text.as_str(), id.as_u64()?)));
    let added = json["added_tokens"].as_array().into_iter().flatten();
    own.chain(added.filter_map(|token| Some((token["content"].as_str()?, token["id"].as_u64()?)))).collect()
}

/// That every token that the files beside `tokenizer.json` name is one of it: a file has no text for another one.
fn check_named(folder: &Path, markers: &Markers, ids: &HashMap<&str, u64>) -> Result<(), Failure> {
    let refused = |name: &str, entry: String, got: String| {
        let problem = Problem::Entry { entry, got, need: "a token of tokenizer.json, with the same number" };
        Err(Failure::usage(problem.of(&folder.join(name))))
    };
    for (text, id) in markers.added() {
        if ids.get(text) != Some(&id.into()) {
            let entry = format!("added_tokens_decoder[\"{id}\"]");
            return refused("tokenizer_config.json", entry, format!("{text:?}"));
        }
    }
    for (name, text) in &markers.named {
        if !ids.contains_key(text.as_str()) {
            return refused("tokenizer_config.json", name.clone(), format!("{text:?}"));
        }
    }
    let added = read_json(&folder.join("added_tokens.json")).map_err(Failure::usage)?.unwrap_or_default();
    for (text, id) in added.as_object().into_iter().flatten() {
        if ids.get(text.as_str()).copied() != id.as_u64() {
            return refused("added_tokens.json", format!("{text:?}"), id.to_string());
        }
    }
    Ok(())
}

/// Tokens with a meaning, by the names that the keys have for them: those of the tokenizer, else those of the model. A
/// reader stops at another token where none is the last one, so there has to be one.
fn named(
    folder: &Path,
    model: &Path,
    markers: &Markers,
    ids: &HashMap<&str, u64>,
    vocab: usize,
) -> Result<Vec<(&'static str, u32)>, Failure> {
    let config = read_json(&folder.join("config.json")).map_err(Failure::usage)?.unwrap_or_default();
    let ends = stops(model, None)?;
    let of_model = |name: &str| match name {
        "eos_token" => ends.first().and_then(|id| u32::try_from(*id).ok()),
        _ => config[format!("{name}_id")].as_u64().and_then(|id| u32::try_from(id).ok()),
    };
    let find = |name: &str| {
        let token = markers.named.iter().find(|(known, _)| known == name);
        let by_name = token.and_then(|(_, text)| u32::try_from(*ids.get(text.as_str())?).ok());
        by_name.or_else(|| of_model(name)).filter(|id| (*id as usize) < vocab)
    };
    let names =
        [("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding")];
    if find("eos_token").is_none() {
        let need = "expected eos_token, or eos_token_id in the model's generation_config.json, found neither";
        let file = folder.join("tokenizer_config.json");
        return Err(Failure::Usage(format!(
            "{}: {need}: readers would stop at a token of their own",
            file.display()
        )));
    }
    Ok(names.into_iter().filter_map(|(name, key)| Some((key, find(name)?))).collect())
}

/// Whether a text begins and ends with a token.
///
/// Fails where it is another one than the first or the last one of the keys.
fn around(json: &Json, named: &[(&str, u32)]) -> Result<[(String, Value); 2], Problem> {
    let own = carried::around(&json["post_processor"])?;
    let id = |key: &str| named.iter().find(|(name, _)| *name == key).map(|(_, id)| u64::from(*id));
    let needs = [
        "the bos_token of tokenizer_config.json in front of a text",
        "the eos_token of tokenizer_config.json behind a text",
    ];
    for ((token, key), need) in own.iter().zip(["bos", "eos"]).zip(needs) {
        if let Some((name, number)) = token.filter(|(_, number)| Some(*number) != id(key)) {
            let entry = "post_processor.single".into();
            return Err(Problem::Entry { entry, got: format!("{name:?}, {number}"), need });
        }
    }
    let key = |key: &str, token: Option<_>| (ggml(&format!("add_{key}_token")), Value::Bool(token.is_some()));
    Ok([key("bos", own[0]), key("eos", own[1])])
}

/// The end of a message that is not the end of a turn.
const END_OF_MESSAGE: &str = "<|eom_id|>";

/// Tokens that a reader of this version of llama.cpp stops at by their texts; others go by the keys alone.
const ENDS_BY_TEXT: [&str; 11] = [
    "</s>",
    "<EOT>",
    "<end_of_turn>",
    "<eos>",
    "<|call|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    END_OF_MESSAGE,
    "<|eot_id|>",
    "<|im_end|>",
    "<|return|>",
];

/// The ends of an answer beside the last token of a text. Two have a key, and first those that no reader knows by their
/// texts.
fn ends(
    model: &Path,
    named: &[(&str, u32)],
    ids: &HashMap<&str, u64>,
    warnings: &mut Vec<String>,
) -> Result<Vec<(String, Value)>, Failure> {
    let texts: HashMap<u64, &str> = ids.iter().map(|(text, id)| (*id, *text)).collect();
    let mut rest: Vec<(u32, &str)> = Vec::new();
    for id in stops(model, None)?.into_iter().filter_map(|id| u32::try_from(id).ok()) {
        let is_known = named.contains(&("eos", id)) || rest.iter().any(|(known, _)| *known == id);
        rest.extend(texts.get(&id.into()).filter(|_| !is_known).map(|text| (id, *text)));
    }
    rest.sort_by_key(|(_, text)| (ENDS_BY_TEXT.contains(text), *text == END_OF_MESSAGE));
    let (mut keys, mut free) = (Vec::new(), vec!["eot", "eom"]);
    for (id, text) in rest {
        let at =
            if text == END_OF_MESSAGE { free.len().checked_sub(1) } else { (!free.is_empty()).then_some(0) };
        match at {
            Some(at) => keys.push((ggml(&format!("{}_token_id", free.remove(at))), Value::U32(id))),
            None => warnings.push(format!(
                "{}: eos_token_id {id} ({text:?}) has no key beside three others: readers that do not know it by its \
                 text go on behind it",
                model.display()
            )),
        }
    }
    Ok(keys)
}

/// The chat templates: the one without a name, and those with.
fn templates(folder: &Path, markers: &Markers, warnings: &mut Vec<String>) -> Vec<(String, Value)> {
    let mut all: BTreeMap<String, String> = markers.templates.iter().cloned().collect();
    let text = |text: String| Value::String(text);
    let own = all.remove("default");
    if own.is_none() && !all.is_empty() {
        let named =
            "expected a chat template called \"default\", found none: readers that ask for no name have none";
        warnings.push(format!("{}: {named}", folder.display()));
    }
    let mut keys: Vec<(String, Value)> = Vec::new();
    keys.extend(own.map(|own| ("tokenizer.chat_template".into(), text(own))));
    if !all.is_empty() {
        let names = Array::String(all.keys().cloned().collect());
        keys.push(("tokenizer.chat_templates".into(), Value::Array(names)));
    }
    keys.extend(all.into_iter().map(|(name, own)| (format!("tokenizer.chat_template.{name}"), text(own))));
    keys
}
