//! A model held to a tool's JSON schema: which tokens may come next, so that what is written is a valid call.
//!
//! A schema becomes a grammar of JSON texts; before each token, a mask says which ones keep some valid text within
//! reach, and a token is refused at the first byte that leaves none. So what a model writes under the mask needs no
//! repair.
//!
//! ```text
//! schema -> bounds, nullable -> llguidance: grammar, automata      mask: vocabulary as a tree of bytes, walked once
//! ```
//!
//! **Texts.** JSON as Python writes it and templates show it: `, ` between items, `: ` after names, no other white
//! space, so that a model cannot fill its turn with blanks. Arguments stand in the order in which the schema declares
//! them. A string may hold any character but U+007F bare, and any escape of JSON but `\/`, half a surrogate pair
//! excepted; names and words that the schema lists are taken bare. **Schemas.** What [`Constraint::new`] cannot hold a
//! model to, it refuses: `not`, `if`, `oneOf`, `uniqueItems` and their like, references to elsewhere, contradictions.
//! Unknown keywords mean nothing, as the standard has it; `nullable` allows null. **Trust.** The schema may be
//! anybody's: its depth, its size and its counts are bounded, and so is the work a mask.
//!
//! Source of the masks: the library llguidance.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{JsonCompileOptions, Matcher, ParserFactory};
use reference::exact;
use serde_json::{Map, Value, json};

/// How deep a schema may be nested.
pub const DEEPEST: usize = 32;

/// How many values a schema may hold.
pub const MOST_VALUES: usize = 2000;

/// The largest count or length that a schema may ask for.
pub const MOST_COUNTED: u64 = 4096;

/// The longest pattern, in bytes.
pub const LONGEST_PATTERN: usize = 256;

/// How many bytes a token may have, and all tokens together.
pub const LONGEST_TOKEN: usize = 1000;
const MOST_BYTES: usize = 1 << 21;

/// Begins a special token in the tree of tokens; no text in UTF-8 holds this byte.
const SPECIAL: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// Keywords whose values are schemas by name, a schema, and a list of schemas.
const BY_NAME: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];
const ONE: [&str; 3] = ["items", "additionalItems", "additionalProperties"];
const SEVERAL: [&str; 4] = ["prefixItems", "anyOf", "allOf", "oneOf"];

/// Keywords that describe a value and restrict nothing.
const NOTES: [&str; 3] = ["default", "examples", "example"];

/// Keywords that count.
const COUNTS: [&str; 6] =
    ["minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"];

/// What is wrong with a schema, a vocabulary or a token.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A schema that is refused before it is compiled.
    Schema {
        /// The path of the entry, such as `properties.city`; empty: the schema.
        at: String,
        /// What is there.
        found: String,
        /// What was expected.
        needed: String,
    },
    /// A schema that no mask can be made of.
    Unsupported {
        /// The compiler's own words.
        why: String,
    },
    /// A vocabulary that is none.
    Vocabulary {
        /// The token.
        token: u32,
        /// What is there.
        found: String,
        /// What was expected.
        needed: &'static str,
    },
    /// A token that no valid text goes on with.
    Refused {
        /// The token.
        token: u32,
        /// What it writes.
        text: String,
    },
    /// The end has been taken.
    Ended,
    /// A mask takes more work than allowed, or the compiler is at fault.
    Fault {
        /// Its own words.
        why: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Schema { at, found, needed } if at.is_empty() => {
                write!(f, "schema: expected {needed}, found {found}")
            }
            Self::Schema { at, found, needed } => {
                write!(f, "schema, {at}: expected {needed}, found {found}")
            }
            Self::Unsupported { why } => write!(f, "schema: no mask can be made of it: {why}"),
            Self::Vocabulary { token, found, needed } => {
                write!(f, "vocabulary, token {token}: expected {needed}, found {found}")
            }
            Self::Refused { token, text } => write!(f, "token {token}, {text:?}: no valid text goes on so"),
            Self::Ended => f.write_str("the end has been taken"),
            Self::Fault { why } => write!(f, "no mask: {why}"),
        }
    }
}

impl std::error::Error for Error {}

/// A token, by what it writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Token {
    /// Bytes of a text; none: a place in the vocabulary that is not used.
    Text(Vec<u8>),
    /// A mark that no text can write.
    Special(String),
}

impl Token {
    /// Texts by their numbers, and special tokens after them: how most tokenizers number theirs.
    pub fn all(texts: impl IntoIterator<Item = Vec<u8>>, special: &[String]) -> Vec<Token> {
        texts.into_iter().map(Token::Text).chain(special.iter().cloned().map(Token::Special)).collect()
    }

    /// As the tree of tokens names it.
    fn word(&self) -> Vec<u8> {
        match self {
            Self::Text(bytes) => bytes.clone(),
            Self::Special(name) => [&[SPECIAL], name.as_bytes()].concat(),
        }
    }
}

/// The tokens of a model, ready for masks; cheap to clone.
#[derive(Clone)]
pub struct Vocabulary {
    tokens: Arc<[Token]>,
    end: u32,
    env: TokEnv,
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vocabulary")
            .field("tokens", &self.tokens)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl Vocabulary {
    /// Tokens by their numbers; `end` is the special one that ends a turn.
    pub fn new(tokens: Vec<Token>, end: u32) -> Result<Self, Error> {
        let words: Vec<Vec<u8>> = tokens.iter().map(Token::word).collect();
        check_words(&tokens, &words)?;
        if !matches!(tokens.get(end as usize), Some(Token::Special(_))) {
            let found = tokens.get(end as usize).map_or("nothing".to_owned(), |token| format!("{token:?}"));
            return Err(Error::Vocabulary { token: end, found, needed: "a special token, to end with" });
        }
        let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, end), &words);
        Ok(Self { tokens: tokens.into(), end, env: Arc::new(ApproximateTokEnv::new(trie)) })
    }

    /// The tokens by their numbers.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// The number of the token that ends a turn.
    pub fn end(&self) -> u32 {
        self.end
    }
}

/// Refuses tokens that the tree cannot hold or tell apart.
fn check_words(tokens: &[Token], words: &[Vec<u8>]) -> Result<(), Error> {
    let mut seen = HashMap::new();
    let mut bytes = 0;
    for (at, (token, word)) in tokens.iter().zip(words).enumerate() {
        let wrong = |found, needed| Err(Error::Vocabulary { token: at as u32, found, needed });
        bytes += word.len();
        if word.len() > LONGEST_TOKEN {
            return wrong(format!("{} bytes", word.len()), "at most 1000");
        }
        if bytes > MOST_BYTES {
            return wrong(format!("byte {bytes} of the vocabulary"), "at most 2 MiB");
        }
        if matches!(token, Token::Text(text) if text.len() > 1 && text[0] == SPECIAL) {
            return wrong("a text that begins with byte 0xff".to_owned(), "a special token, or another text");
        }
        if let Some(before) = seen.insert(word, at).filter(|_| !word.is_empty()) {
            return wrong(format!("what token {before} is"), "another text");
        }
    }
    Ok(())
}

/// What may be written so far under a schema.
#[derive(Clone)]
pub struct Constraint {
    matcher: Matcher,
    vocabulary: Vocabulary,
    ended: bool,
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Constraint").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Constraint {
    /// A constraint to the valid texts of `schema`, from their beginning.
    pub fn new(schema: &Value, vocabulary: &Vocabulary) -> Result<Self, Error> {
        let mut values = 0;
        let mut schema = prepared(schema, "", 0, &mut values)?;
        if schema == false {
            return Err(Error::Unsupported { why: "nothing is valid".to_owned() });
        }
        if schema == true {
            schema = json!({});
        }
        layout().apply_to(&mut schema);
        let grammar = TopLevelGrammar::from_grammar(GrammarWithLexer::from_json_schema(schema));
        let unsupported =
            |error: &dyn fmt::Display| Error::Unsupported { why: first_line(&error.to_string()) };
        let mut factory = ParserFactory::new(&vocabulary.env, InferenceCapabilities::default(), &[])
            .map_err(|error| unsupported(&error))?;
        factory.quiet().limits_mut().verbose_errors = false;
        let parser = factory.create_parser(grammar).map_err(|error| unsupported(&error))?;
        Ok(Self { matcher: Matcher::new(Ok(parser)), vocabulary: vocabulary.clone(), ended: false })
    }

    /// For each token, whether some valid text goes on with it. Of the special tokens only the end can; once it is
    /// taken, nothing does.
    pub fn mask(&mut self) -> Result<Vec<bool>, Error> {
        let mut mask = vec![false; self.vocabulary.tokens.len()];
        if self.ended {
            return Ok(mask);
        }
        let allowed = self.matcher.compute_mask_or_eos().map_err(|error| fault(&error))?;
        allowed.iter_set_entries(|token| {
            if let Some(place) = mask.get_mut(token) {
                *place = true;
            }
        });
        Ok(mask)
    }

    /// Goes on with a token. One that is refused changes nothing.
    pub fn take(&mut self, token: u32) -> Result<(), Error> {
        if self.ended {
            return Err(Error::Ended);
        }
        if token == self.vocabulary.end {
            self.ended = self.is_complete();
            return if self.ended { Ok(()) } else { Err(self.refused(token)) };
        }
        let known =
            matches!(self.vocabulary.tokens.get(token as usize), Some(Token::Text(text)) if !text.is_empty());
        if !known || self.matcher.is_stopped() {
            return Err(self.refused(token));
        }
        let taken = self.matcher.try_consume_tokens(&[token]).map_err(|error| fault(&error))?;
        if taken == 1 { Ok(()) } else { Err(self.refused(token)) }
    }

    /// Whether what is written is valid as it is, so that the end may be taken.
    pub fn is_complete(&mut self) -> bool {
        !self.matcher.is_error()
            && (self.matcher.is_stopped() || self.matcher.is_accepting().unwrap_or(false))
    }

    fn refused(&self, token: u32) -> Error {
        let text = match self.vocabulary.tokens.get(token as usize) {
            Some(Token::Text(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            Some(Token::Special(name)) => name.clone(),
            None => "no token".to_owned(),
        };
        Error::Refused { token, text }
    }
}

/// The schema of a call of one of the `tools`: their declarations `{"function": {"name": .., "parameters": ..}}`, or
/// the inner object alone. The call is `{"name": .., "arguments": ..}`. References within the `parameters`, as pydantic
/// writes them, follow these to their place in the schema.
pub fn call_schema<'v>(tools: impl IntoIterator<Item = &'v Value>) -> Value {
    let call = |(at, tool): (usize, &Value)| {
        let tool = tool.get("function").unwrap_or(tool);
        let none = json!({"type": "object", "additionalProperties": false});
        let arguments = tool.get("parameters").filter(|schema| !schema.is_null()).unwrap_or(&none);
        let arguments = moved(arguments, &format!("#/anyOf/{at}/properties/arguments"));
        json!({
            "type": "object",
            "properties": {"name": {"const": tool.get("name")}, "arguments": arguments},
            "required": ["name", "arguments"],
            "additionalProperties": false,
        })
    };
    json!({"anyOf": tools.into_iter().enumerate().map(call).collect::<Vec<_>>()})
}

/// A schema whose references to its own root lead to where that stands now.
fn moved(schema: &Value, root: &str) -> Value {
    let entry = |(key, value): (&String, &Value)| {
        let inner = value.as_str().filter(|_| key == "$ref").and_then(|place| place.strip_prefix('#'));
        (key.clone(), inner.map_or_else(|| moved(value, root), |place| json!(format!("{root}{place}"))))
    };
    match schema {
        Value::Object(entries) => entries.iter().map(entry).collect(),
        Value::Array(items) => items.iter().map(|item| moved(item, root)).collect(),
        other => other.clone(),
    }
}

/// The texts that Python writes.
fn layout() -> JsonCompileOptions {
    JsonCompileOptions {
        item_separator: ", ".to_owned(),
        key_separator: ": ".to_owned(),
        whitespace_flexible: false,
        json_allow_general_unicode_escapes: true,
        ..JsonCompileOptions::default()
    }
}

fn fault(error: &dyn fmt::Display) -> Error {
    Error::Fault { why: first_line(&error.to_string()) }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}

/// A schema within bounds, and with `nullable` said in the standard's words.
fn prepared(schema: &Value, at: &str, depth: usize, values: &mut usize) -> Result<Value, Error> {
    let Value::Object(entries) = schema else {
        if schema.is_boolean() {
            return Ok(schema.clone());
        }
        return Err(wrong(at, schema, "an object, true or false"));
    };
    bounded("", schema, at, depth, values)?;
    let mut out = Map::new();
    for (key, value) in entries {
        let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
        bounded(key, value, &at, depth, values)?;
        let inner = match value {
            Value::Object(named) if BY_NAME.contains(&key.as_str()) => {
                let one = |(name, schema): (&String, &Value)| {
                    Ok((name.clone(), prepared(schema, &format!("{at}.{name}"), depth + 2, values)?))
                };
                Value::Object(named.iter().map(one).collect::<Result<_, Error>>()?)
            }
            Value::Array(schemas) if SEVERAL.contains(&key.as_str()) => {
                let one = |schema: &Value| prepared(schema, &at, depth + 2, values);
                Value::Array(schemas.iter().map(one).collect::<Result<_, Error>>()?)
            }
            value if ONE.contains(&key.as_str()) && !value.is_array() => {
                prepared(value, &at, depth + 1, values)?
            }
            value if NOTES.contains(&key.as_str()) => {
                let mut note = value.clone();
                exact::round(&mut note);
                within(&note, &at, depth + 1, values)?
            }
            value => within(value, &at, depth + 1, values)?,
        };
        out.insert(key.clone(), inner);
    }
    let nullable = out.shift_remove("nullable") == Some(Value::Bool(true));
    Ok(if nullable { json!({"anyOf": [out, {"type": "null"}]}) } else { Value::Object(out) })
}

/// Refuses one entry of a schema that is too much, or none of the standard's.
fn bounded(key: &str, value: &Value, at: &str, depth: usize, values: &mut usize) -> Result<(), Error> {
    *values += 1;
    if *values > MOST_VALUES {
        return Err(wrong(at, &"more", &format!("at most {MOST_VALUES} values in all")));
    }
    if depth > DEEPEST {
        return Err(wrong(at, &"one level more", &format!("at most {DEEPEST} levels")));
    }
    if key == "x-guidance" {
        return Err(wrong(at, &"an entry for the compiler", "a keyword of json schema"));
    }
    if let Some(digits) = exact::digits(value).filter(|_| !NOTES.contains(&key)) {
        return Err(wrong(at, &digits, "whole numbers of at most 64 bits"));
    }
    if COUNTS.contains(&key) && value.as_f64().is_some_and(|count| count > MOST_COUNTED as f64) {
        return Err(wrong(at, value, &format!("at most {MOST_COUNTED}")));
    }
    if key == "multipleOf" && !value.as_f64().is_some_and(countable) {
        return Err(wrong(at, value, &format!("a number whose digits are 1 to {MOST_COUNTED}")));
    }
    if key == "pattern" && value.as_str().is_some_and(|pattern| pattern.len() > LONGEST_PATTERN) {
        return Err(wrong(at, &"a longer pattern", &format!("at most {LONGEST_PATTERN} bytes")));
    }
    Ok(())
}

/// Whether an automaton can count the multiples of a number: it has a state a remainder.
fn countable(number: f64) -> bool {
    let digits = number.to_string().replace('.', "");
    digits.len() < 8 && digits.parse().is_ok_and(|digits: u64| (1..=MOST_COUNTED).contains(&digits))
}

/// A value that is no schema, within bounds.
fn within(value: &Value, at: &str, depth: usize, values: &mut usize) -> Result<Value, Error> {
    bounded("", value, at, depth, values)?;
    Ok(match value {
        Value::Array(items) => {
            items.iter().map(|item| within(item, at, depth + 1, values)).collect::<Result<_, _>>()?
        }
        Value::Object(entries) => {
            let one =
                |(key, item): (&String, &Value)| Ok((key.clone(), within(item, at, depth + 1, values)?));
            Value::Object(entries.iter().map(one).collect::<Result<_, Error>>()?)
        }
        _ => value.clone(),
    })
}

fn wrong(at: &str, found: &dyn fmt::Display, needed: &str) -> Error {
    let found = found.to_string().chars().take(80).collect();
    Error::Schema { at: at.to_owned(), found, needed: needed.to_owned() }
}
