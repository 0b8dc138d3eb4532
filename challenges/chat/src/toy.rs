//! A toy tokenizer, to look at tokens with: all bytes, a few words, and special tokens.
//!
//! A special token is one wherever its characters stand, and bytes leave nothing without a token: that is so in the
//! byte-level vocabularies of large models too. Of the rest the longest entry wins here; theirs have a hundred thousand
//! entries and rules of their own for what is merged first.

use std::ops::Range;

/// Words that are one token each, beside the bytes: what the conversations of this project often say.
const WORDS: [&str; 40] = [
    "system",
    "user",
    "assistant",
    " answer",
    "You",
    " brief",
    "ly",
    "tool",
    "call",
    "name",
    "arguments",
    "weather",
    "Weather",
    " in",
    " Oslo",
    "Oslo",
    "city",
    "days",
    "rain",
    " and",
    "\": \"",
    "\", \"",
    "\": ",
    ", \"",
    "{\"",
    "\"}",
    "}}",
    " C",
    "er",
    "on",
    "in",
    "is",
    "th",
    " a",
    "re",
    "or",
    "at",
    "en",
    "es",
    "function",
];

/// Special tokens after the words, and these after the 256 bytes.
#[derive(Clone, Debug)]
pub struct Toy {
    special: Vec<String>,
}

/// A token in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its number.
    pub id: usize,
    /// The characters that it covers; bytes of one character cover the same.
    pub characters: Range<usize>,
    /// Whether it is a special one.
    pub special: bool,
}

impl Toy {
    /// The words, the bytes, and these special tokens; an empty one is none.
    pub fn new(special: &[&str]) -> Toy {
        let some = special.iter().filter(|token| !token.is_empty());
        Toy { special: some.map(|token| (*token).to_owned()).collect() }
    }

    /// What each number writes, up to the first special token.
    pub fn texts(&self) -> impl Iterator<Item = Vec<u8>> {
        let bytes = (0..=255_u8).map(|byte| vec![byte]);
        bytes.chain(WORDS.iter().map(|word| word.as_bytes().to_vec()))
    }

    /// The special tokens, whose numbers are after all others.
    pub fn special(&self) -> &[String] {
        &self.special
    }

    /// The tokens of a text. With `plain` no special token is one, whatever characters there are.
    pub fn encode(&self, text: &str, plain: bool) -> Vec<Token> {
        let mut out = Vec::new();
        let (mut rest, mut at) = (text, 0);
        while let Some(first) = rest.chars().next() {
            let special = if plain { None } else { longest(rest, self.special.iter().map(String::as_str)) };
            let known = special.or_else(|| longest(rest, WORDS.into_iter()));
            let bytes = known.map_or(first.len_utf8(), |(_, length)| length);
            let (taken, after) = rest.split_at(bytes);
            let characters = at..at + taken.chars().count();
            at = characters.end;
            match known {
                Some((index, _)) => {
                    let id = index + 256 + if special.is_some() { WORDS.len() } else { 0 };
                    out.push(Token { id, characters, special: special.is_some() });
                }
                None => out.extend(taken.bytes().map(|byte| Token {
                    id: byte.into(),
                    characters: characters.clone(),
                    special: false,
                })),
            }
            rest = after;
        }
        out
    }
}

/// The longest of the entries that `text` begins with: its index, and its bytes.
fn longest<'e>(text: &str, entries: impl Iterator<Item = &'e str>) -> Option<(usize, usize)> {
    let begins = entries.enumerate().filter(|(_, entry)| text.starts_with(entry));
    begins.map(|(index, entry)| (index, entry.len())).max_by_key(|(_, length)| *length)
}
