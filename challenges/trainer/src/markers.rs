//! Which markers a tokenizer has, and how it gets those that it lacks.
//!
//! A marker is a piece of text that is one token: `<|im_end|>`. Where a tokenizer does not know it, the same text is
//! ten tokens, and nothing says so: the model learns to spell it, and generation does not stop at it. Ids differ from
//! model to model, so they are read from the checkpoint's own files:
//!
//! ```text
//! tokenizer.json            added_tokens: id, content, special; model.vocab
//! tokenizer_config.json     added_tokens_decoder, bos_token, eos_token, ..., chat_template
//! generation_config.json    eos_token_id, a number or a list: where generation stops
//! ```
//!
//! `special_tokens_map.json` and `added_tokens.json` say some of it again; what changes is changed there, too. Templates
//! are read by [`super::chat_templates`].
//!
//! A wanted marker is there already, or takes the place of a token that was reserved for such a use, whose row of the
//! embedding exists, or is added after all others, which takes a row more ([`super::resize`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value as Json, json};

use super::chat_templates;
use super::files::{FileError, Problem, read_json, write_json};

/// The files that hold tokens.
const FILES: [&str; 3] = ["tokenizer.json", "tokenizer_config.json", "generation_config.json"];
/// The files that name tokens, for readers that came before the configuration had them.
const NAMES: [&str; 2] = ["special_tokens_map.json", "added_tokens.json"];
/// The names under which a tokenizer's configuration keeps a token.
const NAMED: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"];
/// The key of special tokens that only some models have, by name.
const SPECIFIC: &str = "model_specific_special_tokens";
/// Ids beyond this are no ids of tokens.
const MOST_ID: u32 = 1 << 24;

/// The markers of a tokenizer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Markers {
    added: BTreeMap<String, u32>,
    vocabulary: BTreeMap<String, u32>,
    /// The special tokens by the names that templates use: `bos_token`.
    pub named: Vec<(String, String)>,
    /// Where generation stops.
    pub stops: Vec<u32>,
    /// The templates by name; the one without a name is called `default`.
    pub templates: chat_templates::Named,
    /// Where the templates are.
    pub place: chat_templates::Place,
    /// Whether the folder has a processor, which always takes the template `default`.
    pub processor: bool,
    /// The largest id, and one: rows that the embedding needs at least.
    pub size: u32,
    /// Ids below `size` that no token has.
    pub holes: u32,
}

impl Markers {
    /// Reads what a folder holds. Needs a `tokenizer.json` or a `tokenizer_config.json`.
    pub fn read(folder: &Path) -> Result<Markers, FileError> {
        let [tokenizer, config, generation] = FILES.map(|name| folder.join(name));
        let mut markers = Markers::default();
        let found = [read_json(&tokenizer)?, read_json(&config)?];
        if found.iter().all(Option::is_none) {
            return Err(Problem::Missing { need: "tokenizer.json or tokenizer_config.json" }.of(folder));
        }
        let [first, second] = &found;
        if let Some(json) = first {
            markers.tokenizer(json).map_err(|problem| problem.of(&tokenizer))?;
        }
        if let Some(json) = second {
            markers.config(json).map_err(|problem| problem.of(&config))?;
        }
        let none = json!({});
        let map = folder.join(NAMES[0]);
        let own = second.as_ref().unwrap_or(&none);
        if let Err(problem) = markers.names(&with_map(own, read_json(&map)?)) {
            let is_from_map = Markers::default().names(own).is_ok();
            return Err(problem.of(if is_from_map { &map } else { &config }));
        }
        if let Some(json) = read_json(&generation)? {
            markers.stops = stops(&json).map_err(|problem| problem.of(&generation))?;
        }
        if let Some((place, templates)) = chat_templates::read(folder)? {
            (markers.place, markers.templates) = (place, templates);
        }
        markers.processor = chat_templates::has_processor(folder);
        markers.count();
        Ok(markers)
    }

    /// Reads the one file `tokenizer_config.json`, whatever its name is.
    pub fn of_config(path: &Path) -> Result<Markers, FileError> {
        let json = read_json(path)?.ok_or_else(|| Problem::Missing { need: "such file" }.of(path))?;
        let mut markers = Markers::default();
        markers.config(&json).and_then(|()| markers.names(&json)).map_err(|problem| problem.of(path))?;
        markers.count();
        Ok(markers)
    }

    /// The id of a text that is one token.
    pub fn id(&self, text: &str) -> Option<u32> {
        self.added.get(text).or_else(|| self.vocabulary.get(text)).copied()
    }

    /// The added tokens, by their texts.
    pub fn added(&self) -> impl Iterator<Item = (&str, u32)> {
        self.added.iter().map(|(text, id)| (text.as_str(), *id))
    }

    /// The template of a name.
    pub fn template(&self, name: &str) -> Option<&str> {
        self.templates.iter().find(|(found, _)| found == name).map(|(_, source)| source.as_str())
    }

    /// Tokens that were reserved for later and that nothing uses, by id.
    pub fn reserved(&self) -> Vec<(u32, &str)> {
        let used = |text: &str| {
            self.named.iter().any(|(_, token)| token == text)
                || self.templates.iter().any(|(_, source)| source.contains(text))
        };
        let mut all: Vec<(u32, &str)> = self
            .vocabulary
            .iter()
            .chain(&self.added)
            .filter(|(text, id)| is_reserved(text) && !used(text) && !self.stops.contains(id))
            .map(|(text, id)| (*id, text.as_str()))
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// How each wanted marker gets an id, in the order in which they are wanted.
    pub fn plan(&self, wanted: &[&str]) -> Plan {
        let mut reserved = self.reserved().into_iter();
        let mut size = self.size;
        let mut plan = Plan { places: Vec::new(), stops: self.stops.clone(), rows: size };
        for text in wanted {
            if text.is_empty() || plan.places.iter().any(|(known, _)| known == text) {
                continue;
            }
            let place = if let Some(id) = self.id(text) {
                TokenSource::There(id)
            } else if let Some((id, was)) = reserved.next() {
                TokenSource::Reserved { id, was: was.into() }
            } else {
                size += 1;
                TokenSource::Added(size - 1)
            };
            if ends_turn(text) && !plan.stops.contains(&place.id()) {
                plan.stops.push(place.id());
            }
            plan.places.push(((*text).to_string(), place));
        }
        plan.rows = size;
        plan
    }

    fn tokenizer(&mut self, json: &Json) -> Result<(), Problem> {
        for (at, entry) in list(json, "added_tokens")?.iter().enumerate() {
            let name = |part: &str| format!("added_tokens[{at}].{part}");
            let text = text(&entry["content"], || name("content"))?;
            let id = id(&entry["id"], || name("id"))?;
            self.add(text, id)?;
        }
        match &json["model"]["vocab"] {
            Json::Object(all) => {
                for (text, value) in all {
                    self.vocabulary.insert(text.clone(), id(value, || format!("model.vocab[{text:?}]"))?);
                }
            }
            Json::Array(all) => {
                for (at, entry) in all.iter().enumerate().take(MOST_ID as usize) {
                    self.vocabulary
                        .insert(text(&entry[0], || format!("model.vocab[{at}]"))?.into(), at as u32);
                }
            }
            Json::Null => (),
            other => return Err(Problem::entry("model.vocab", other, "an object or a list")),
        }
        Ok(())
    }

    fn config(&mut self, json: &Json) -> Result<(), Problem> {
        if let Json::Object(all) = &json["added_tokens_decoder"] {
            for (number, entry) in all {
                let name = || format!("added_tokens_decoder[{number:?}]");
                let id = number.parse().ok().filter(|id| *id < MOST_ID);
                let id = id.ok_or_else(|| Problem::entry(name(), &json!(number), "an id of a token"))?;
                self.add(text(&entry["content"], name)?, id)?;
            }
        }
        self.templates = chat_templates::entry(&json["chat_template"])?.unwrap_or_default();
        Ok(())
    }

    /// The special tokens that templates know by name: the usual seven, every other text whose key ends in `_token`, and
    /// those that are named in an object of extra ones.
    fn names(&mut self, json: &Json) -> Result<(), Problem> {
        for name in NAMED {
            self.name(name, &json[name])?;
        }
        let Json::Object(all) = json else { return Ok(()) };
        for (name, token) in all.iter().filter(|(name, _)| name.ends_with("_token")) {
            if !NAMED.contains(&name.as_str()) && (token.is_string() || token["content"].is_string()) {
                self.name(name, token)?;
            }
        }
        let extra = all.get("extra_special_tokens").filter(|extra| !is_empty(extra));
        let extra = extra.or_else(|| all.get("additional_special_tokens"));
        for (key, tokens) in [("extra_special_tokens", extra), (SPECIFIC, all.get(SPECIFIC))] {
            for (name, token) in tokens.and_then(Json::as_object).into_iter().flatten() {
                if !token.is_string() && !token["content"].is_string() {
                    return Err(Problem::entry(format!("{key}.{name}"), token, "a token's text"));
                }
                self.name(name, token)?;
            }
        }
        Ok(())
    }

    /// Names a token: a text, or an object with its text as `content`.
    fn name(&mut self, name: &str, token: &Json) -> Result<(), Problem> {
        let text = match token {
            Json::Object(_) => Some(text(&token["content"], || format!("{name}.content"))?),
            token => token.as_str(),
        };
        if let Some(text) = text {
            self.named.retain(|(known, _)| known != name);
            self.named.push((name.into(), text.into()));
        }
        Ok(())
    }

    fn add(&mut self, text: &str, id: u32) -> Result<(), Problem> {
        match self.added.insert(text.into(), id) {
            Some(there) if there != id => Err(Problem::Disagree { token: text.into(), here: id, there }),
            _ => Ok(()),
        }
    }

    fn count(&mut self) {
        let ids: BTreeSet<u32> = self.added.values().chain(self.vocabulary.values()).copied().collect();
        self.size = ids.last().map_or(0, |last| last + 1);
        self.holes = self.size - ids.len() as u32;
    }
}

/// A configuration with the names of `special_tokens_map.json`, which count where it does not have the added tokens, as
/// older tokenizers were written.
fn with_map(config: &Json, map: Option<Json>) -> Json {
    let mut named = config.clone();
    if let (Json::Object(all), Some(Json::Object(map))) = (&mut named, map)
        && !all.contains_key("added_tokens_decoder")
    {
        all.extend(map);
    }
    named
}

/// Whether a value is null or holds nothing.
fn is_empty(json: &Json) -> bool {
    match json {
        Json::Null => true,
        Json::Array(all) => all.is_empty(),
        Json::Object(all) => all.is_empty(),
        Json::Bool(_) | Json::Number(_) | Json::String(_) => false,
    }
}

/// Where a wanted marker gets its id from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// It is a token already.
    There(u32),
    /// It takes the place of a reserved token.
    Reserved {
        /// Its id.
        id: u32,
        /// The reserved token's text.
        was: String,
    },
    /// It is added after all others.
    Added(u32),
}

impl TokenSource {
    /// The id.
    pub fn id(&self) -> u32 {
        match self {
            TokenSource::There(id) | TokenSource::Added(id) | TokenSource::Reserved { id, .. } => *id,
        }
    }
}

/// How a tokenizer gets markers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Each marker's place.
    pub places: Vec<(String, TokenSource)>,
    /// Where generation stops afterwards.
    pub stops: Vec<u32>,
    /// Rows that the embedding needs.
    pub rows: u32,
}

impl Plan {
    /// Writes the changed files of the folder `from` into the folder `to`; all other entries stay, in their order. Says
    /// how many rows the embedding needs.
    pub fn apply(&self, from: &Path, to: &Path) -> Result<u32, FileError> {
        let changes = [Plan::tokenizer, Plan::config, Plan::generation, Plan::special, Plan::added];
        for (name, change) in FILES.into_iter().chain(NAMES).zip(changes) {
            if let Some(mut json) = read_json(&from.join(name))? {
                change(self, &mut json).map_err(|problem| problem.of(&from.join(name)))?;
                write_json(&to.join(name), &json)?;
            }
        }
        if !from.join(FILES[2]).exists() && !self.stops.is_empty() {
            write_json(&to.join(FILES[2]), &json!({"eos_token_id": self.stops}))?;
        }
        Ok(self.rows)
    }

    /// The markers that are new to the files.
    fn missing(&self) -> impl Iterator<Item = (&str, &TokenSource)> {
        let missing = self.places.iter().filter(|(_, place)| !matches!(place, TokenSource::There(_)));
        missing.map(|(text, place)| (text.as_str(), place))
    }

    fn tokenizer(&self, json: &mut Json) -> Result<(), Problem> {
        for (text, place) in self.missing() {
            if let (TokenSource::Reserved { was, .. }, Some(vocabulary)) =
                (place, json.pointer_mut("/model/vocab"))
            {
                rename(vocabulary, was, text);
            }
            let Json::Object(all) = json else { return Ok(()) };
            let tokens = all.entry("added_tokens").or_insert_with(|| json!([]));
            let Json::Array(tokens) = tokens else {
                return Err(Problem::entry("added_tokens", tokens, "a list"));
            };
            match tokens.iter_mut().find(|token| token["id"] == place.id()) {
                Some(known) => known["content"] = json!(text), // it has an id, so it is an object
                None => tokens.push(token(text, Some(place.id()))),
            }
        }
        Ok(())
    }

    fn config(&self, json: &mut Json) -> Result<(), Problem> {
        for (text, place) in self.missing() {
            let Json::Object(all) = json else { return Ok(()) };
            let tokens = all.entry("added_tokens_decoder").or_insert_with(|| json!({}));
            let Json::Object(tokens) = tokens else {
                return Err(Problem::entry("added_tokens_decoder", tokens, "an object"));
            };
            let known = tokens.entry(place.id().to_string()).or_insert_with(|| token(text, None));
            match known {
                Json::Object(known) => drop(known.insert("content".into(), json!(text))),
                other => *other = token(text, None),
            }
            if let Some(Json::Array(special)) = all.get_mut("additional_special_tokens") {
                special.retain(|known| !matches!(place, TokenSource::Reserved { was, .. } if known == was));
                special.push(json!(text));
            }
        }
        Ok(())
    }

    /// A token that took the place of a reserved one has its place in the list, too: the old text would be a new token.
    fn special(&self, json: &mut Json) -> Result<(), Problem> {
        let list = match json.get_mut("additional_special_tokens") {
            None | Some(Json::Null) => return Ok(()),
            Some(Json::Array(list)) => list,
            Some(other) => return Err(Problem::entry("additional_special_tokens", other, "a list")),
        };
        for (text, place) in self.missing() {
            let TokenSource::Reserved { was, .. } = place else { continue };
            for entry in &mut *list {
                let entry = if entry.is_object() { &mut entry["content"] } else { entry };
                if entry == was {
                    *entry = json!(text);
                }
            }
        }
        Ok(())
    }

    /// Ids by texts.
    fn added(&self, json: &mut Json) -> Result<(), Problem> {
        let Json::Object(all) = json else { return Err(Problem::entry("it", json, "an object")) };
        for (text, place) in self.missing() {
            all.retain(|_, id| *id != place.id());
            all.insert(text.to_owned(), place.id().into());
        }
        Ok(())
    }

    fn generation(&self, json: &mut Json) -> Result<(), Problem> {
        if self.stops != stops(json)? {
            json["eos_token_id"] = json!(self.stops);
        }
        Ok(())
    }
}

/// The entry of an added token.
fn token(text: &str, id: Option<u32>) -> Json {
    let mut entry = Map::new();
    entry.extend(id.map(|id| ("id".to_string(), json!(id))));
    entry.insert("content".into(), json!(text));
    entry.extend(["lstrip", "normalized", "rstrip", "single_word"].map(|flag| (flag.into(), json!(false))));
    entry.insert("special".into(), json!(true));
    Json::Object(entry)
}

/// Gives an entry of a vocabulary another text, at the same place: a text with its id, or in a list, with its score.
fn rename(vocabulary: &mut Json, was: &str, text: &str) {
    if let Json::Array(all) = vocabulary {
        all.iter_mut().filter(|entry| entry[0] == was).for_each(|entry| entry[0] = json!(text));
    }
    let Json::Object(all) = vocabulary else { return };
    if all.contains_key(was) {
        let renamed = std::mem::take(all).into_iter();
        all.extend(renamed.map(|(name, id)| if name == was { (text.to_string(), id) } else { (name, id) }));
    }
}

/// `eos_token_id`: a number, a list of numbers, or nothing.
pub(crate) fn stops(json: &Json) -> Result<Vec<u32>, Problem> {
    match &json["eos_token_id"] {
        Json::Null => Ok(Vec::new()),
        Json::Array(all) => all.iter().map(|one| id(one, || "eos_token_id".into())).collect(),
        one => Ok(vec![id(one, || "eos_token_id".into())?]),
    }
}

fn list<'a>(json: &'a Json, name: &'static str) -> Result<&'a [Json], Problem> {
    match &json[name] {
        Json::Null => Ok(&[]),
        Json::Array(all) => Ok(all),
        other => Err(Problem::entry(name, other, "a list")),
    }
}

fn text(json: &Json, name: impl Fn() -> String) -> Result<&str, Problem> {
    json.as_str().ok_or_else(|| Problem::entry(name(), json, "a text"))
}

fn id(json: &Json, name: impl Fn() -> String) -> Result<u32, Problem> {
    let id = json.as_u64().and_then(|id| u32::try_from(id).ok()).filter(|id| *id < MOST_ID);
    id.ok_or_else(|| Problem::entry(name(), json, "an id of a token"))
}

/// The words before the number of a token that is kept for later.
const RESERVED: [&str; 9] = [
    "reserved_special_token",
    "reserved_token",
    "reserved",
    "unused",
    "unused_token",
    "extra",
    "extra_token",
    "placeholder",
    "control",
];

/// Whether a token is one of those that are kept for later: `<|reserved_special_token_7|>`, `<unused3>`, `[unused12]`.
pub fn is_reserved(text: &str) -> bool {
    let inner = text.trim_matches(['<', '>', '[', ']', '|']);
    let words = inner.trim_end_matches(|c: char| c.is_ascii_digit());
    let word = words.trim_end_matches(['_', '-']).to_ascii_lowercase();
    words.len() < inner.len() && inner.len() < text.len() && RESERVED.contains(&word.as_str())
}

/// Whether a marker ends a turn, by the words in it: `<|eom_id|>`, `<|im_end|>`, `<end_of_turn>`; not the end of a
/// part.
pub fn ends_turn(text: &str) -> bool {
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    let has = |all: &[&str]| words.iter().any(|word| all.contains(&word.to_ascii_lowercase().as_str()));
    has(&["end", "eom", "eot", "eos", "endoftext", "endofturn"])
        && !has(&[
            "tool", "tools", "call", "calls", "think", "header", "thought", "response", "output", "outputs",
        ])
}
