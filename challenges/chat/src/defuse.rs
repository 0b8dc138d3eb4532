//! Special tokens in what users wrote.
//!
//! A template writes `<|im_end|>` to end a message, and a tokenizer makes one token of these characters wherever they
//! stand. A user who writes them too ends the message and begins one of their own, as the system or the assistant. Two
//! ways out: [`marked`] texts stay what they are and say which of their characters are no token, for a tokenizer that
//! can be told; [`defused`] texts hold no special token any more, for one that cannot and does not remove what breaks
//! them.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use crate::given;
use crate::steps::Steps;

/// Around a user's special token in a marked text: two characters that Unicode leaves to private use.
const MARKS: [char; 2] = ['\u{f0000}', '\u{f0001}'];
/// What breaks a special token, the first that no token holds: word joiner, non-joiner, joiner, space of no width.
const BREAKS: [char; 4] = ['\u{2060}', '\u{200c}', '\u{200d}', '\u{200b}'];
/// What breaks one where tokens hold all of these: a character for private use.
const LAST_BREAK: char = '\u{f0002}';

/// `value` with every special token in its texts marked; keys are left as they are.
///
/// Longer tokens come first, so one that holds another is marked as a whole. Marks that a user wrote are dropped. A
/// text that ends with a beginning of a token gets half a mark there: the rest may be in the next text.
pub fn marked(value: &Json, special: &[&str]) -> Json {
    given::CHAT.count();
    let tokens = Tokens::new(special);
    each_text(value, &|text| {
        let text = text.replace(MARKS, "");
        let whole = tokens.replaced(&text, |token| format!("{}{token}{}", MARKS[0], MARKS[1]));
        tokens.broken_end(&whole, MARKS[1])
    })
}

/// A rendered text without its marks, and the pieces of it: those that are plain text, special tokens and all (`true`),
/// and those in which a special token is one (`false`).
///
/// A mark without its partner, which a template has cut, still ends a piece: what stands on its two sides cannot become
/// a token together.
pub fn pieces(rendered: &str, special: &[&str]) -> Vec<(String, bool)> {
    let mut out: Vec<(String, bool)> = Vec::new();
    for (at, part) in rendered.split(MARKS[0]).enumerate() {
        let (inside, after) = match part.split_once(MARKS[1]) {
            Some((inside, after)) if at > 0 && special.contains(&inside) => (Some(inside), after),
            _ => (None, part),
        };
        out.extend(inside.map(|token| (token.to_string(), true)));
        out.extend(after.split(MARKS[1]).map(|text| (text.to_string(), false)));
    }
    out.retain(|(text, _)| !text.is_empty());
    out
}

/// `value` with every special token in its texts broken by a character of no width ([`super::Chat::defuse`]); keys are
/// left as they are. The text reads the same, and no token of `special` is left in it or begins in it: two texts may be
/// written one behind the other.
///
/// That holds for a tokenizer that looks for its special tokens in the text as it is. One that normalises first, by a
/// normaliser that removes such characters, finds the tokens again: Bert's removes all four
/// (`book/src/results/chat-normalisers.txt`). [`marked`] has no such gap.
pub fn defused(value: &Json, special: &[&str], steps: &Steps) -> Json {
    Defuser::new(special, steps).defused(value)
}

/// [`defused`] for many values and the same special tokens, which are put in order once.
pub struct Defuser<'t> {
    tokens: Tokens<'t>,
    mark: char,
    steps: &'t Steps,
}

impl<'t> Defuser<'t> {
    /// For these tokens.
    pub fn new(special: &[&'t str], steps: &'t Steps) -> Self {
        let free = BREAKS.iter().copied().find(|mark| !special.iter().any(|token| token.contains(*mark)));
        Defuser { tokens: Tokens::new(special), mark: free.unwrap_or(LAST_BREAK), steps }
    }

    /// The value without any of them.
    pub fn defused(&self, value: &Json) -> Json {
        each_text(value, &|text| {
            let broken = self.steps.chat().defuse(text, &self.tokens.within(text), self.mark);
            self.tokens.broken_end(&broken, self.mark)
        })
    }
}

/// Special tokens in order: what begins at a place is found by a binary search, however many there are.
struct Tokens<'t> {
    sorted: Vec<&'t str>,
    /// For each the longest other one that it begins with.
    parents: Vec<Option<usize>>,
    /// For each the shortest one that it begins with, be it itself.
    roots: Vec<usize>,
    longest: usize,
}

impl<'t> Tokens<'t> {
    fn new(special: &[&'t str]) -> Self {
        let mut sorted: Vec<&str> = special.iter().copied().filter(|token| !token.is_empty()).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let (mut parents, mut roots, mut open) = (Vec::new(), Vec::new(), Vec::<usize>::new());
        for (at, token) in sorted.iter().enumerate() {
            while open.pop_if(|outer| !token.starts_with(sorted[*outer])).is_some() {}
            parents.push(open.last().copied());
            roots.push(open.first().copied().unwrap_or(at));
            open.push(at);
        }
        let longest = sorted.iter().map(|token| token.len()).max().unwrap_or(0);
        Tokens { sorted, parents, roots, longest }
    }

    /// The last token that is not after `text`: every token that `text` begins with begins this one too, or is it.
    fn before(&self, text: &str) -> Option<usize> {
        self.sorted.partition_point(|token| *token <= text).checked_sub(1)
    }

    /// The shortest token that `text` begins with.
    fn shortest(&self, text: &str) -> Option<&'t str> {
        let token = self.sorted[self.roots[self.before(text)?]];
        text.starts_with(token).then_some(token)
    }

    /// The longest token that `text` begins with.
    fn longest(&self, text: &str) -> Option<&'t str> {
        let all = std::iter::successors(self.before(text), |at| self.parents[*at]);
        let mut tokens = all.map(|at| self.sorted[at]);
        tokens.find(|token| text.starts_with(token))
    }

    /// Whether a token goes on where `text` ends.
    fn goes_on(&self, text: &str) -> bool {
        let next = self.sorted.partition_point(|token| *token <= text);
        self.sorted.get(next).is_some_and(|token| token.starts_with(text))
    }

    /// The shortest token at each place of `text` where one begins, each once: these alone decide what is broken.
    fn within(&self, text: &str) -> Vec<&'t str> {
        let found: BTreeSet<&str> =
            text.char_indices().filter_map(|(at, _)| self.shortest(&text[at..])).collect();
        found.into_iter().collect()
    }

    /// `text` with `mark` after the first character of every end of it that is a beginning of a token.
    fn broken_end(&self, text: &str, mark: char) -> String {
        let from = text.floor_char_boundary(text.len().saturating_sub(self.longest));
        let mut out = text[..from].to_owned();
        for (at, c) in text[from..].char_indices() {
            out.push(c);
            out.extend(self.goes_on(&text[from + at..]).then_some(mark));
        }
        out
    }

    /// `text` with the longest token that begins at each place written by `write`.
    fn replaced(&self, text: &str, write: impl Fn(&str) -> String) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let token = self.longest(rest);
            match token {
                Some(token) => out.push_str(&write(token)),
                None => out.push(first),
            }
            rest = &rest[token.map_or(first.len_utf8(), str::len)..];
        }
        out
    }
}

/// `value` with `work` done on its texts, whatever its depth.
fn each_text(value: &Json, work: &dyn Fn(&str) -> String) -> Json {
    match value {
        Json::String(text) => Json::String(work(text)),
        Json::Array(items) => items.iter().map(|item| each_text(item, work)).collect(),
        Json::Object(fields) => {
            Json::Object(fields.iter().map(|(name, value)| (name.clone(), each_text(value, work))).collect())
        }
        other => other.clone(),
    }
}
