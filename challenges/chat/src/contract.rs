//! The steps of tool calling: challenge D's contract of `chat`.

use std::ops::Range;

use linked::{Linked, counted, linked};
use reference::issues::chat::Tool;
use serde_json::Value;

use crate::criterion::Criterion;
use crate::jinja::Rendered;
use crate::signature::{ArgumentType, Signature};

// ANCHOR: chat-trait
/// The steps of tool calling, from small to large. Sizes of texts are bytes unless a step says otherwise.
pub trait Chat: Send + Sync {
    /// D.1 - adds `text` to `out` as a JSON string, as Python's `json.dumps` writes it: `"`, `\`, newline, carriage
    /// return, tab, backspace and form feed have escapes of two characters, all others below U+0020 are `\u` and four
    /// small hexadecimal digits, and so is every UTF-16 unit of what is beyond `~` if `ensure_ascii`.
    fn json_string(&self, text: &str, ensure_ascii: bool, out: &mut String);

    /// D.1 - a finite number as Python's `repr` writes a float: the shortest digits that read back as the same number -
    /// of several as short the nearest to it, of two as near the one whose last digit is even -, with `.0` if there is
    /// no other fraction, and an exponent of at least two digits with its sign below 0.0001 and from 10^16 on:
    /// `0.0001`, `1e-05`, `1.5e+22`, `-0.0`.
    fn float(&self, value: f64) -> String;

    /// D.2 - which tokens are the assistant's: of the characters `offsets` that each token covers, those that
    /// share one with a span of the assistant's characters. Offsets are in order, and some may share
    /// characters; but an empty range is a token without text, which is nobody's and may lie anywhere: many
    /// tokenizers say `0..0` for it. `spans` are in order and do not overlap; some may be empty. There may be
    /// many of both.
    fn token_mask(&self, offsets: &[Range<usize>], spans: &[Range<usize>]) -> Vec<bool>;

    /// D.3 - `text` without any of the `special` tokens: after the first character of each, also of one that
    /// begins inside another, stands `mark`; a token of one character is replaced by it. Where several begin
    /// at one character there is one mark: in the character's place if that alone is a token, else after it.
    /// No token holds `mark`; an empty one is none.
    fn defuse(&self, text: &str, special: &[&str], mark: char) -> String;

    /// D.4 - the JSON schema of an argument, as transformers' `get_json_schema` writes it: `{"type": ..}`,
    /// with `enum`, `items`, `prefixItems` or `additionalProperties` after the type where there is a need;
    /// `{}` for anything. [`ArgumentType::Nullable`] has the schema of what it holds, whatever that is, and
    /// after all else `"nullable": true`, once: of `Any` that is `{"nullable": true}`, of `Null`, which
    /// Python cannot say, the type `null` with it.
    fn schema(&self, kind: &ArgumentType) -> Value;

    /// D.4 - a function as a tool: its `parameters` are `{"type": "object", "properties": {..}}`, where
    /// `properties` has each argument by its name, in order, with its schema and, as the last key of that,
    /// `description`; then, after `properties`, `required`: the names of those that a call may not leave
    /// out, nullable or not, if there are some.
    fn tool(&self, signature: &Signature) -> Tool;

    /// D.5 - where `marker`, which is not empty, is first in a text that may go on: [`Find::Found`] its first byte; or,
    /// if it is nowhere, [`Find::Pending`] the first place where it may still have begun, which is the text's length if
    /// it ends in no beginning of the marker.
    fn find(&self, text: &str, marker: &str) -> Find;

    /// D.6 - what comes next in a text, by what is seen of each marker that counts. Of those that are there
    /// the one that begins first wins; of those that begin at the same place the longest; then those that
    /// open before those that close; then by the name of the field. It wins only if no marker that may still
    /// begin, may begin there or before. From `end` on any may begin: it is the text's length so far, or
    /// `usize::MAX` once the text has ended; some may be [`Match::Pending`] even then, where not all of it has
    /// been looked at. If none wins, the answer is [`Next::Pending`] with the least of `end` and the places of
    /// all [`Match::Pending`], be it `usize::MAX`.
    fn decide(&self, markers: &[MarkerState], end: usize) -> Next;

    /// D.7 - JSON out of a dialect of it. What stands between the two texts of a pair of `strings` is a
    /// string, whatever it holds, and is written as `serde_json` writes one: nothing is escaped for not being
    /// ASCII. Pairs are looked for one after the other, each in what is between the strings that there are
    /// already; a string without an end is none, and neither text of a pair is empty. With `unquoted_keys` a
    /// word ([`is_word`]) directly between `{` or `,` and `:`, without white space, is a name and gets
    /// quotes, also within the quotes of JSON, which make no string here unless they are one of the pairs.
    /// All else stays as it is.
    fn json_of(&self, text: &str, strings: &[(String, String)], unquoted_keys: bool) -> String;

    /// D.8 - whether a word that a conversation holds is in its text as the criterion asks. An occurrence counts as
    /// inside if all of it is within one of the assistant's spans, and as outside if none of it is in any; spans of
    /// characters are in order, and one without a character is none. The criterion is one of those that a text alone
    /// can tell: [`Criterion::SameStart`] and [`Criterion::SameDay`] are not asked for.
    fn shows(&self, rendered: &Rendered, word: &str, criterion: Criterion) -> bool;
}
// ANCHOR_END: chat-trait

linked!(warpbook_chat -> Linked<dyn Chat>);

counted! {
    Chat, warpbook_chat;

    fn json_string(&self, text: &str, ensure_ascii: bool, out: &mut String);
    fn float(&self, value: f64) -> String;
    fn token_mask(&self, offsets: &[Range<usize>], spans: &[Range<usize>]) -> Vec<bool>;
    fn defuse(&self, text: &str, special: &[&str], mark: char) -> String;
    fn schema(&self, kind: &ArgumentType) -> Value;
    fn tool(&self, signature: &Signature) -> Tool;
    fn find(&self, text: &str, marker: &str) -> Find;
    fn decide(&self, markers: &[MarkerState], end: usize) -> Next;
    fn json_of(&self, text: &str, strings: &[(String, String)], unquoted_keys: bool) -> String;
    fn shows(&self, rendered: &Rendered, word: &str, criterion: Criterion) -> bool;
}

/// Where a marker is in a text that may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// It begins at this byte.
    Found(usize),
    /// It begins nowhere before this byte; there it may.
    Pending(usize),
}

/// A marker, and where it is in the text so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkerState<'t> {
    /// The field whose region it opens or closes.
    pub field: &'t str,
    /// True if the marker opens the region, false if it closes it.
    pub opens: bool,
    /// The place of the marker.
    pub found: Match,
}

/// The place of a marker in a text that may still grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// The marker covers these bytes.
    At(Range<usize>),
    /// The marker does not begin before this byte, which is at most the length of the text; it may begin there.
    Pending(usize),
    /// The marker is not in the text, however the text goes on.
    Never,
}

/// The next marker in a text, or how far there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The marker of this index.
    Take(usize),
    /// No marker begins before this byte. `usize::MAX` if none will.
    Pending(usize),
}

/// The solution's text: what an exercise is derived from, and the last page of the lesson.
pub fn solution_text() -> &'static str {
    warpbook_chat().text
}
