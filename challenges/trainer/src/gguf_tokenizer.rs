//! The tokenizer of a GGUF file as the files of a folder, which is what all else here reads.
//!
//! ```text
//! tokenizer.ggml.tokens, .token_type, .merges or .scores   -> tokenizer.json
//! .bos_token_id, .eos_token_id, .. -> tokens by name        -> tokenizer_config.json
//! .eos_token_id, .eot_, .eom_      -> where answers end     -> generation_config.json
//! tokenizer.chat_template, tokenizer.chat_template.NAME    -> chat_template.jinja, additional_chat_templates
//! ```
//!
//! Where a key is missing, its value is the one that llama.cpp takes:
//!
//! ```text
//! add_bos_token        true for scores, and for the pattern llama-bpe; else false      add_eos_token    false
//! add_space_prefix     true for scores                                                 *_token_id       Llama 2's, for scores
//! ```
//!
//! The folder is in the workbook's cache, where nobody else writes, under a name made of what is in it, and written
//! each time.
//!
//! Sources: `src/llama-vocab.cpp` of llama.cpp; the `tokenizer.json` of Llama 2, Llama 3, Qwen 2 and GPT-2.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{MAIN_SEPARATOR_STR, Path, PathBuf};

use reference::atomic_write;
use reference::checkpoint::gguf::{Array, Gguf, Value};
use reference::llama::hub;
use serde_json::{Map, Value as Json, json};
use sha2::{Digest, Sha256};

use crate::chat_templates::{self, DEFAULT};
use crate::output::Failure;

/// Patterns that cut a text, and their names: the regular expressions that stand in the `tokenizer.json` of Llama 3 and
/// of Qwen 2.
pub(crate) const PATTERNS: [(&str, &str); 2] = [
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        "llama-bpe",
    ),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        "qwen2",
    ),
];

/// The folder whose tokenizer a model has: the model's own, or one made of a GGUF file's keys.
///
/// Fails where a GGUF file has no tokenizer.
pub(crate) fn folder(model: &str) -> Result<PathBuf, Failure> {
    match hub::gguf(model) {
        None => hub::find(model).map_err(Failure::usage),
        Some(path) => unpacked(path, false),
    }
}

/// Returns the folder for a prompt of tokens: it has no `tokenizer.json` if a GGUF file has no tokenizer.
pub(crate) fn folder_for_ids(model: &str) -> Result<PathBuf, Failure> {
    hub::gguf(model).map_or_else(|| folder(model), |path| unpacked(path, true))
}

/// Names the GGUF file in a failure instead of the folder that [`folder`] made from it.
pub(crate) fn name_file(model: &str, failure: Failure) -> Failure {
    let (Some(path), Failure::Usage(words)) = (hub::gguf(model), &failure) else { return failure };
    let Ok(folder) = folder_for_ids(model) else { return failure };
    let (folder, path) = (folder.display().to_string(), path.display().to_string());
    if !words.contains(&folder) {
        return failure;
    }
    let template = format!("{path}: tokenizer.chat_template");
    let names = [
        ("/chat_template.jinja", template.as_str()),
        ("/tokenizer.json", &path),
        ("/tokenizer_config.json", &path),
        ("/generation_config.json", &path),
        ("", &path),
    ];
    let renamed = |words: String, (name, shown): (&str, &str)| {
        words.replace(&format!("{folder}{}", name.replace('/', MAIN_SEPARATOR_STR)), shown)
    };
    Failure::Usage(names.into_iter().fold(words.clone(), renamed))
}

/// Writes the files of a GGUF file's tokenizer, which may be missing if only tokens are read.
fn unpacked(path: &Path, only_ids: bool) -> Result<PathBuf, Failure> {
    let file = Gguf::open(path).map_err(Failure::usage)?;
    let keys = Keys(&file);
    let has_tokens = keys.get("tokens").is_some();
    let files = if only_ids && !has_tokens { keys.ends_alone() } else { keys.files() };
    let files = files.map_err(|why| Failure::Usage(format!("{}: {why}", path.display())))?;
    let mut digest = Sha256::new();
    for (name, text) in &files {
        digest.update(format!("{name}\n{}\n{text}\n", text.len()));
    }
    let mut name = "tokenizer-".to_owned();
    digest.finalize().iter().take(16).for_each(|byte| write!(name, "{byte:02x}").expect("a text"));
    let cache = kernels::cuda::cache_folder().ok_or_else(|| {
        Failure::usage("expected a folder for caches, found none; WARPBOOK_CACHE names one")
    })?;
    let folder = cache.join(name);
    for (name, text) in files {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(&folder);
        fs::create_dir_all(parent).map_err(|error| Failure::fault(parent, error))?;
        atomic_write::write(&path, text.as_bytes()).map_err(|error| Failure::fault(&path, error))?;
    }
    Ok(folder)
}

/// What a token is, by its number: those that are no ordinary text.
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const ADDED: i32 = 4;
const UNUSED: i32 = 5;

/// The pattern of GPT-2 that cuts a text, with digits one by one or not, and those of a regular expression.
const BYTE_LEVEL: [&str; 2] = ["gpt-2", "smollm"];

/// Names of patterns that are the one of Llama 3.
const LIKE_LLAMA_3: [&str; 7] = ["llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"];

/// The keys of tokens that end an answer, without their common ending `_token_id`.
const ENDS: [&str; 3] = ["eos", "eot", "eom"];

/// The numbers and the kinds of Llama 2's special tokens.
const USUAL: [(&str, usize, i32); 3] = [("unknown", 0, UNKNOWN), ("bos", 1, CONTROL), ("eos", 2, CONTROL)];

/// Keys that change how a text is cut into tokens, and that only other tokenizers have.
const UNSUPPORTED: [&str; 5] = [
    "add_sep_token",
    "remove_extra_whitespaces",
    "precompiled_charsmap",
    "normalizer.lowercase",
    "suppress_tokens",
];

/// The longest token that is taken apart, in bytes: each place in it is looked at, and both sides are read.
const LONGEST_TOKEN: usize = 256;

/// The keys of a tokenizer.
struct Keys<'f>(&'f Gguf);

impl Keys<'_> {
    /// Whether the file has no tokenizer.
    fn are_missing(&self) -> bool {
        let model = self.get("model").and_then(Value::text);
        self.get("tokens").is_none() && model.is_none_or(|model| ["none", "no_vocab"].contains(&model))
    }

    /// The tokens that end an answer, of a file without a tokenizer.
    fn ends_alone(&self) -> Result<Vec<(String, String)>, String> {
        let mut ends = Vec::new();
        for key in ENDS {
            let key = format!("{key}_token_id");
            let Some(value) = self.get(&key) else { continue };
            ends.push(value.whole().ok_or_else(|| wrong(&key, Some(value), "the number of a token"))?);
        }
        Ok(vec![("generation_config.json".to_owned(), json!({"eos_token_id": ends}).to_string())])
    }

    fn files(&self) -> Result<Vec<(String, String)>, String> {
        if self.are_missing() {
            return Err("the file has no tokenizer (tokenizer.ggml.tokens): expected --tokenizer DIR, or \
                        tokenizer_name_or_path in a config, with a folder that has a tokenizer.json"
                .into());
        }
        let tokens = self.tokens()?;
        self.check_others()?;
        let kinds = self.kinds(tokens.len())?;
        let model = match self.text("model")? {
            "gpt2" => self.byte_level(tokens, &kinds)?,
            "llama" => self.by_scores(tokens, &kinds)?,
            other => {
                let need =
                    "expected \"gpt2\" or \"llama\"; --tokenizer DIR names a folder with a tokenizer.json";
                return Err(format!("tokenizer.ggml.model: {need}, found {other:?}"));
            }
        };
        let named = self.named(tokens)?;
        let generation = json!({"eos_token_id": self.ends(tokens)?});
        let mut files = vec![
            ("tokenizer.json".to_owned(), model.to_string()),
            ("tokenizer_config.json".to_owned(), Json::Object(named).to_string()),
            ("generation_config.json".to_owned(), generation.to_string()),
        ];
        files.extend(self.templates()?);
        Ok(files)
    }

    /// The chat templates as files: the one without a name, and those with.
    fn templates(&self) -> Result<Vec<(String, String)>, String> {
        let mut files = Vec::new();
        for (key, value) in self.0.keys() {
            let name = match key.strip_prefix("tokenizer.chat_template") {
                Some("") => DEFAULT,
                Some(rest) if rest.starts_with('.') => &rest[1..],
                _ => continue,
            };
            let is_part = |c: char| !c.is_control() && !matches!(c, '/' | '\\');
            if name.is_empty() || name.starts_with('.') || !name.chars().all(is_part) {
                return Err(format!("{key}: expected a name that a file can have, found {name:?}"));
            }
            let text = value.text().ok_or_else(|| format!("{key}: expected a text, found {value:?}"))?;
            let path = chat_templates::path(Path::new(""), name);
            files.push((path.to_string_lossy().into_owned(), text.to_owned()));
        }
        let named = match self.0.value("tokenizer.chat_templates") {
            Some(Value::Array(Array::String(names))) => names.as_slice(),
            _ => &[],
        };
        let key = |name: &String| format!("tokenizer.chat_template.{name}");
        match named.iter().map(key).find(|key| self.0.value(key).is_none()) {
            Some(missing) => Err(format!("tokenizer.chat_templates: expected the key {missing}, found none")),
            None => Ok(files),
        }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.0.value(&format!("tokenizer.ggml.{key}"))
    }

    fn text(&self, key: &str) -> Result<&str, String> {
        let value = self.get(key);
        value.and_then(Value::text).ok_or_else(|| wrong(key, value, "a text"))
    }

    fn is(&self, key: &str, usual: bool) -> Result<bool, String> {
        match self.get(key) {
            None => Ok(usual),
            Some(Value::Bool(flag)) => Ok(*flag),
            other => Err(wrong(key, other, "true or false")),
        }
    }

    fn tokens(&self) -> Result<&[String], String> {
        match self.get("tokens") {
            Some(Value::Array(Array::String(tokens))) => Ok(tokens),
            other => Err(wrong("tokens", other, "a list of texts")),
        }
    }

    /// What each token is; ordinary, if the file does not say.
    fn kinds(&self, count: usize) -> Result<Vec<i32>, String> {
        match self.get("token_type") {
            None => Ok(vec![1; count]),
            Some(Value::Array(Array::I32(kinds))) if kinds.len() == count => Ok(kinds.clone()),
            other => Err(wrong("token_type", other, &format!("{count} numbers"))),
        }
    }

    /// Returns the token that a key names, or the usual one if the key is missing.
    fn token<'t>(&self, key: &str, tokens: &'t [String]) -> Result<Option<(usize, &'t str)>, String> {
        let usual = self.usual_token(key, tokens)?;
        let key = format!("{key}_token_id");
        let Some(value) = self.get(&key) else { return Ok(usual) };
        let id = value.whole().and_then(|id| usize::try_from(id).ok());
        let token = id.and_then(|id| Some((id, tokens.get(id)?.as_str())));
        let need = format!("a number below {}", tokens.len());
        token.map(Some).ok_or_else(|| wrong(&key, Some(value), &need))
    }

    /// Returns the token of Llama 2, which readers take if the key is missing. It has to be of the same kind as there.
    fn usual_token<'t>(&self, key: &str, tokens: &'t [String]) -> Result<Option<(usize, &'t str)>, String> {
        let usual = USUAL.iter().find(|(usual, ..)| *usual == key);
        let Some((_, id, kind)) = usual.filter(|_| self.is_scored()) else { return Ok(None) };
        let is_usual = self.kinds(tokens.len())?.get(*id) == Some(kind);
        Ok(tokens.get(*id).filter(|_| is_usual).map(|token| (*id, token.as_str())))
    }

    /// Whether tokens are merged by their scores.
    fn is_scored(&self) -> bool {
        self.get("model").and_then(Value::text) == Some("llama")
    }

    /// Checks that keys of other tokenizers ask for nothing.
    fn check_others(&self) -> Result<(), String> {
        let is_set = |key: &str| match self.get(key) {
            None | Some(Value::Bool(false)) => false,
            Some(Value::Array(array)) => !array.is_empty(),
            Some(_) => true,
        };
        let only_scored = ["add_space_prefix"].into_iter().filter(|_| !self.is_scored());
        let mut others = UNSUPPORTED.into_iter().chain(only_scored);
        match others.find(|key| is_set(key)) {
            Some(key) => Err(wrong(key, self.get(key), "false or no such key, as it is not supported")),
            None => Ok(()),
        }
    }

    /// The tokens that end an answer: of a text, of a turn and of a message.
    fn ends(&self, tokens: &[String]) -> Result<Vec<u64>, String> {
        let mut ends = Vec::new();
        for key in ENDS {
            let id = self.token(key, tokens)?.map(|(id, _)| id as u64);
            ends.extend(id.filter(|id| !ends.contains(id)));
        }
        Ok(ends)
    }

    fn named(&self, tokens: &[String]) -> Result<Map<String, Json>, String> {
        let mut all = Map::new();
        for (key, name) in [("bos", "bos"), ("eos", "eos"), ("unknown", "unk"), ("padding", "pad")] {
            if let Some((_, token)) = self.token(key, tokens)? {
                all.insert(format!("{name}_token"), json!(token));
            }
        }
        Ok(all)
    }

    /// Byte-level BPE: tokens and merges as they are.
    fn byte_level(&self, tokens: &[String], kinds: &[i32]) -> Result<Json, String> {
        let merges = match self.get("merges") {
            Some(Value::Array(Array::String(merges))) => merges,
            other => return Err(wrong("merges", other, "a list of texts")),
        };
        let pair = |merge: &String| merge.split_once(' ').map(|(a, b)| json!([a, b]));
        let merges: Option<Vec<Json>> = merges.iter().map(pair).collect();
        let merges = merges.ok_or("tokenizer.ggml.merges: expected two tokens with a space between them")?;
        let pre = if self.get("pre").is_none() { "" } else { self.text("pre")? };
        let pre = if LIKE_LLAMA_3.contains(&pre) { "llama-bpe" } else { pre };
        let bytes = |has_pattern: bool| {
            json!({
                "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": has_pattern,
            })
        };
        let cut = match (pre, PATTERNS.iter().find(|(_, name)| *name == pre)) {
            ("gpt-2", _) => bytes(true),
            ("smollm", _) => json!({"type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": true}, bytes(true),
            ]}),
            (_, Some((pattern, _))) => json!({"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false}, bytes(false),
            ]}),
            (_, None) => {
                let known: Vec<&str> = BYTE_LEVEL.into_iter().chain(PATTERNS.map(|(_, name)| name)).collect();
                let found = if pre.is_empty() { "none".into() } else { format!("{pre:?}") };
                return Err(format!(
                    "tokenizer.ggml.pre: expected one of {known:?}, found {found}; --tokenizer DIR names a folder with \
                     a tokenizer.json"
                ));
            }
        };
        let model = json!({
            "type": "BPE", "byte_fallback": false, "ignore_merges": pre == "llama-bpe",
            "vocab": vocab(tokens, kinds), "merges": merges,
        });
        let usual_bos = pre == "llama-bpe";
        self.whole(
            tokens,
            kinds,
            usual_bos,
            json!({
                "pre_tokenizer": cut, "decoder": bytes(true), "model": model,
            }),
        )
    }

    /// BPE by scores: of every way to make a token of two, the one whose token has the largest score is merged first.
    fn by_scores(&self, tokens: &[String], kinds: &[i32]) -> Result<Json, String> {
        let scores = match self.get("scores") {
            Some(Value::Array(Array::F32(scores))) if scores.len() == tokens.len() => scores,
            other => return Err(wrong("scores", other, &format!("{} numbers", tokens.len()))),
        };
        if let Some((token, id)) = plain(tokens, kinds).find(|(token, _)| token.len() > LONGEST_TOKEN) {
            let need = format!("expected tokens of at most {LONGEST_TOKEN} bytes, found one of");
            return Err(format!("tokenizer.ggml.tokens[{id}]: {need} {}", token.len()));
        }
        let known: HashMap<&str, usize> = plain(tokens, kinds).collect();
        let mut merges = Vec::new();
        for (token, id) in plain(tokens, kinds) {
            for (at, _) in token.char_indices().skip(1) {
                let (a, b) = token.split_at(at);
                if let (Some(left), Some(right)) = (known.get(a), known.get(b)) {
                    merges.push((-scores[id], id, *left, *right));
                }
            }
        }
        merges.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| (a.1, a.2).cmp(&(b.1, b.2))));
        let merges: Vec<Json> =
            merges.into_iter().map(|(_, _, left, right)| json!([tokens[left], tokens[right]])).collect();
        let unknown = kinds.iter().position(|kind| *kind == UNKNOWN).map(|id| tokens[id].as_str());
        let mut steps = vec![json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"})];
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        if self.is("add_space_prefix", true)? {
            steps.insert(0, json!({"type": "Prepend", "prepend": "\u{2581}"}));
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        let model = json!({
            "type": "BPE", "byte_fallback": true, "fuse_unk": true, "unk_token": unknown,
            "vocab": vocab(tokens, kinds), "merges": merges,
        });
        self.whole(
            tokens,
            kinds,
            true,
            json!({
                "normalizer": {"type": "Sequence", "normalizers": steps},
                "decoder": {"type": "Sequence", "decoders": decoders},
                "model": model,
            }),
        )
    }

    /// The rest of a `tokenizer.json`: what is added, and what is put around a text. `usual_bos` says whether the first
    /// token is put in front of a text where the file does not say.
    fn whole(
        &self,
        tokens: &[String],
        kinds: &[i32],
        usual_bos: bool,
        mut json: Json,
    ) -> Result<Json, String> {
        let is_added = |kind: i32| [UNKNOWN, CONTROL, ADDED].contains(&kind);
        let added = tokens.iter().zip(kinds).enumerate().filter(|(_, (_, kind))| is_added(**kind));
        let added = added.map(|(id, (token, kind))| {
            json!({
                "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": *kind != ADDED,
            })
        });
        json["version"] = json!("1.0");
        json["added_tokens"] = added.collect();
        let mut around = vec![json!({"Sequence": {"id": "A", "type_id": 0}})];
        let mut special = Map::new();
        for (key, usual, at) in [("bos", usual_bos, 0), ("eos", false, 1)] {
            if self.is(&format!("add_{key}_token"), usual)? {
                let (id, token) = self.token(key, tokens)?.ok_or_else(|| {
                    let need = "a number, as the token is put around texts (add_";
                    wrong(&format!("{key}_token_id"), None, &format!("{need}{key}_token)"))
                })?;
                around.insert(at * around.len(), json!({"SpecialToken": {"id": token, "type_id": 0}}));
                special.insert(token.into(), json!({"id": token, "ids": [id], "tokens": [token]}));
            }
        }
        if !special.is_empty() {
            let pair = [around.clone(), vec![json!({"Sequence": {"id": "B", "type_id": 0}})]].concat();
            json["post_processor"] = json!({
                "type": "TemplateProcessing", "single": around, "pair": pair, "special_tokens": special,
            });
        }
        Ok(json)
    }
}

/// The tokens that texts are made of, with their numbers.
fn plain<'t>(tokens: &'t [String], kinds: &'t [i32]) -> impl Iterator<Item = (&'t str, usize)> {
    let is_plain = |kind: i32| ![CONTROL, ADDED, UNUSED].contains(&kind);
    let all = tokens.iter().zip(kinds).enumerate();
    all.filter(move |(_, (_, kind))| is_plain(**kind)).map(|(id, (token, _))| (token.as_str(), id))
}

/// Every token with its number, added ones too: the library numbers those anew that are not here.
fn vocab(tokens: &[String], kinds: &[i32]) -> Map<String, Json> {
    let used = tokens.iter().zip(kinds).enumerate().filter(|(_, (_, kind))| **kind != UNUSED);
    used.map(|(id, (token, _))| (token.clone(), json!(id))).collect()
}

fn wrong(key: &str, got: Option<&Value>, need: &str) -> String {
    let got = got.map_or("none".into(), ToString::to_string);
    format!("tokenizer.ggml.{key}: expected {need}, found {got}")
}
