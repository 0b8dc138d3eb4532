//! (D) `issues`, part `chat`: conversations as text, and text as calls.

use std::fmt::Write as _;
use std::ops::Range;

use challenges::issues::chat::lint::Criterion;
use challenges::issues::chat::tools::{ArgumentType, Signature};
use challenges::issues::chat::{Chat, Find, Function, MarkerState, Match, Next, Rendered, Tool, is_word};
use serde_json::{Map, Value, json};

/// The attempt.
pub struct Exercise;

impl Chat for Exercise {
    // ANCHOR: chat-step-1
    // step D.1: write a text as Python's json does
    fn json_string(&self, text: &str, ensure_ascii: bool, out: &mut String) {
        todo!("D.1: write a text as Python's json does")
    }

    // step D.1: write a float as Python's repr does
    fn float(&self, value: f64) -> String {
        todo!("D.1: write a float as Python's repr does")
    }
    // ANCHOR_END: chat-step-1

    // ANCHOR: chat-step-2
    // step D.2: find the tokens that share a character with a span
    fn token_mask(&self, offsets: &[Range<usize>], spans: &[Range<usize>]) -> Vec<bool> {
        todo!("D.2: find the tokens that share a character with a span")
    }
    // ANCHOR_END: chat-step-2

    // ANCHOR: chat-step-3
    // step D.3: break every special token in a text
    fn defuse(&self, text: &str, special: &[&str], mark: char) -> String {
        todo!("D.3: break every special token in a text")
    }
    // ANCHOR_END: chat-step-3

    // ANCHOR: chat-step-4
    // step D.4: write the schema of an argument
    fn schema(&self, kind: &ArgumentType) -> Value {
        todo!("D.4: write the schema of an argument")
    }

    // step D.4: write a function as a tool
    fn tool(&self, signature: &Signature) -> Tool {
        todo!("D.4: write a function as a tool")
    }
    // ANCHOR_END: chat-step-4

    // ANCHOR: chat-step-5
    // step D.5: find a marker in a text that may grow
    fn find(&self, text: &str, marker: &str) -> Find {
        todo!("D.5: find a marker in a text that may grow")
    }
    // ANCHOR_END: chat-step-5

    // ANCHOR: chat-step-6
    // step D.6: decide which marker wins
    fn decide(&self, markers: &[MarkerState], end: usize) -> Next {
        todo!("D.6: decide which marker wins")
    }
    // ANCHOR_END: chat-step-6

    // ANCHOR: chat-step-7
    // step D.7: rewrite a dialect to JSON
    fn json_of(&self, text: &str, strings: &[(String, String)], unquoted_keys: bool) -> String {
        todo!("D.7: rewrite a dialect to JSON")
    }
    // ANCHOR_END: chat-step-7

    // ANCHOR: chat-step-8
    // step D.8: find out whether a word shows in a text as it should
    fn shows(&self, rendered: &Rendered, word: &str, criterion: Criterion) -> bool {
        todo!("D.8: find out whether a word shows in a text as it should")
    }
    // ANCHOR_END: chat-step-8
}

/// The escape of one character.
// step D.1: write the escape of one character
fn escape(c: char, out: &mut String) {
    todo!("D.1: write the escape of one character")
}

/// A float as `1.5e22`: the fewest digits that read back as it; of several with as few, the nearest to it.
// step D.1: find the shortest digits of a float
fn shortest(value: f64) -> String {
    todo!("D.1: find the shortest digits of a float")
}

/// How many digits a number has in front of its exponent.
fn count_digits(number: &str) -> usize {
    number.chars().take_while(|c| *c != 'e').filter(char::is_ascii_digit).count()
}

/// A part of a text in a dialect of JSON.
enum Piece<'t> {
    /// What a string says.
    Text(&'t str),
    /// What is between strings.
    Between(&'t str),
}

impl<'t> Piece<'t> {
    /// Cuts the strings out that begin with `open` and end with `close`; one that does not end is none.
    // step D.7: cut strings out of what is between
    fn cut(self, open: &str, close: &str) -> Vec<Piece<'t>> {
        todo!("D.7: cut strings out of what is between")
    }
}

/// Quotes each word between `{` or `,` and `:`.
// step D.7: quote names
fn quote_names(text: &str) -> String {
    todo!("D.7: quote names")
}

/// The marks that hold something, in bytes.
fn marks(rendered: &Rendered) -> Vec<Range<usize>> {
    let length = rendered.text.len();
    let mut characters = rendered.text.char_indices().enumerate().peekable();
    let mut byte = |at: usize| {
        while characters.next_if(|(character, _)| *character < at).is_some() {}
        characters.peek().map_or(length, |(_, (byte, _))| *byte)
    };
    let marks = rendered.spans.iter().filter(|span| !span.is_empty());
    marks.map(|span| byte(span.start)..byte(span.end)).collect()
}

/// What is between the marks, before the first and after the last.
// step D.8: cut what is outside of the marks
fn outside<'t>(text: &'t str, marks: &[Range<usize>]) -> Vec<&'t str> {
    todo!("D.8: cut what is outside of the marks")
}

/// Whether the last mark with the word goes on after it, or ends the text.
// step D.8: look at the end of the last mark with the word
fn is_closed(text: &str, marks: &[Range<usize>], word: &str) -> bool {
    todo!("D.8: look at the end of the last mark with the word")
}
