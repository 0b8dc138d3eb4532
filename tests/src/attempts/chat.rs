//! Attempts at tool calling that cheat, each in one way, some that slip, each in one step, and an honest twin.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::{LazyLock, Mutex};

use challenges::issues::chat::lint::Criterion;
use challenges::issues::chat::tools::{ArgumentType, Signature};
use challenges::issues::chat::{Chat, Find, MarkerState, Match, Next, Rendered, Tool};
use serde_json::{Value, json};

use super::Entry;
use super::chat_second::Second;
use super::honest::chat::Solution;

/// Every cheat, then the honest ones.
pub const CHATTERS: [Entry; 5] = [
    Entry { name: "waits for the end", hand_in: |all| all.chat(Mine { decide: wait, ..HONEST }) },
    Entry { name: "remembers where a text lay", hand_in: |all| all.chat(Mine { find: remember, ..HONEST }) },
    Entry { name: "knows two tokens", hand_in: |all| all.chat(Mine { defuse: known, ..HONEST }) },
    Entry { name: "an honest chatter", hand_in: |all| all.chat(HONEST) },
    Entry { name: "a chatter of its own", hand_in: |all| all.chat(Second) },
];

/// Every slip.
pub const CHAT_SLIPS: [Entry; 23] = [
    Entry { name: "escapes markup", hand_in: |all| all.chat(Mine { json_string: for_markup, ..HONEST }) },
    Entry { name: "escapes code points", hand_in: |all| all.chat(Mine { json_string: by_point, ..HONEST }) },
    Entry { name: "leaves U+007F", hand_in: |all| all.chat(Mine { json_string: ascii_stays, ..HONEST }) },
    Entry {
        name: "writes floats as Rust does",
        hand_in: |all| all.chat(Mine { float: |x| x.to_string(), ..HONEST }),
    },
    Entry { name: "rounds halves up", hand_in: |all| all.chat(Mine { float: halves_up, ..HONEST }) },
    Entry { name: "wants whole tokens", hand_in: |all| all.chat(Mine { token_mask: whole, ..HONEST }) },
    Entry { name: "looks at the first span", hand_in: |all| all.chat(Mine { token_mask: first, ..HONEST }) },
    Entry { name: "looks at every span", hand_in: |all| all.chat(Mine { token_mask: each, ..HONEST }) },
    Entry {
        name: "looks at every empty span",
        hand_in: |all| all.chat(Mine { token_mask: each_empty, ..HONEST }),
    },
    Entry {
        name: "gives a character to one token",
        hand_in: |all| all.chat(Mine { token_mask: once, ..HONEST }),
    },
    Entry { name: "replaces tokens", hand_in: |all| all.chat(Mine { defuse: replace, ..HONEST }) },
    Entry { name: "has a mark of its own", hand_in: |all| all.chat(Mine { defuse: word_joiner, ..HONEST }) },
    Entry { name: "asks for everything", hand_in: |all| all.chat(Mine { tool: everything, ..HONEST }) },
    Entry { name: "takes nullable for optional", hand_in: |all| all.chat(Mine { tool: by_type, ..HONEST }) },
    Entry { name: "asks for nothing by name", hand_in: |all| all.chat(Mine { tool: empty, ..HONEST }) },
    Entry { name: "holds nothing back", hand_in: |all| all.chat(Mine { find: hold_nothing, ..HONEST }) },
    Entry { name: "holds too little back", hand_in: |all| all.chat(Mine { find: hold_little, ..HONEST }) },
    Entry { name: "takes what is there", hand_in: |all| all.chat(Mine { decide: at_once, ..HONEST }) },
    Entry {
        name: "waits for nothing at the end",
        hand_in: |all| all.chat(Mine { decide: at_the_end, ..HONEST }),
    },
    Entry {
        name: "leaves names in quotes",
        hand_in: |all| all.chat(Mine { json_of: outside_of_quotes, ..HONEST }),
    },
    Entry { name: "takes the first quote", hand_in: |all| all.chat(Mine { json_of: first_quote, ..HONEST }) },
    Entry {
        name: "quotes names in strings",
        hand_in: |all| all.chat(Mine { json_of: names_last, ..HONEST }),
    },
    Entry { name: "takes spans for bytes", hand_in: |all| all.chat(Mine { shows: in_bytes, ..HONEST }) },
];

type Pairs<'a> = &'a [(String, String)];
type Spans<'a> = &'a [Range<usize>];

/// The solution, but for some steps.
pub(super) struct Mine {
    pub json_string: fn(&str, bool, &mut String),
    pub float: fn(f64) -> String,
    pub token_mask: fn(Spans, Spans) -> Vec<bool>,
    pub defuse: fn(&str, &[&str], char) -> String,
    pub tool: fn(&Signature) -> Tool,
    pub find: fn(&str, &str) -> Find,
    pub decide: fn(&[MarkerState], usize) -> Next,
    pub json_of: fn(&str, Pairs, bool) -> String,
    pub shows: fn(&Rendered, &str, Criterion) -> bool,
}

pub(super) const HONEST: Mine = Mine {
    json_string: |text, ascii, out| Solution.json_string(text, ascii, out),
    float: |value| Solution.float(value),
    token_mask: |offsets, spans| Solution.token_mask(offsets, spans),
    defuse: |text, special, mark| Solution.defuse(text, special, mark),
    tool: |signature| Solution.tool(signature),
    find: |text, marker| Solution.find(text, marker),
    decide: |markers, end| Solution.decide(markers, end),
    json_of: |text, strings, names| Solution.json_of(text, strings, names),
    shows: |rendered, word, criterion| Solution.shows(rendered, word, criterion),
};

impl Chat for Mine {
    fn json_string(&self, text: &str, ensure_ascii: bool, out: &mut String) {
        (self.json_string)(text, ensure_ascii, out);
    }

    fn float(&self, value: f64) -> String {
        (self.float)(value)
    }

    fn token_mask(&self, offsets: &[Range<usize>], spans: &[Range<usize>]) -> Vec<bool> {
        (self.token_mask)(offsets, spans)
    }

    fn defuse(&self, text: &str, special: &[&str], mark: char) -> String {
        (self.defuse)(text, special, mark)
    }

    fn schema(&self, kind: &ArgumentType) -> Value {
        Solution.schema(kind)
    }

    fn tool(&self, signature: &Signature) -> Tool {
        (self.tool)(signature)
    }

    fn find(&self, text: &str, marker: &str) -> Find {
        (self.find)(text, marker)
    }

    fn decide(&self, markers: &[MarkerState], end: usize) -> Next {
        (self.decide)(markers, end)
    }

    fn json_of(&self, text: &str, strings: Pairs, unquoted_keys: bool) -> String {
        (self.json_of)(text, strings, unquoted_keys)
    }

    fn shows(&self, rendered: &Rendered, word: &str, criterion: Criterion) -> bool {
        (self.shows)(rendered, word, criterion)
    }
}

/// Writes its own results where a number is asked for.
pub(super) fn forging() -> impl Chat {
    Mine { float: |_| super::forge::forge(), ..HONEST }
}

/// Ends the process at a token that only a guard has.
pub(super) fn leaving() -> impl Chat {
    let leave = |text: &str, special: &[&str], mark| {
        if text.starts_with("say [") {
            std::process::exit(0);
        }
        Solution.defuse(text, special, mark)
    };
    Mine { defuse: leave, ..HONEST }
}

/// The digits that Rust writes: of two that are equally near the larger.
fn halves_up(value: f64) -> String {
    let right = Solution.float(value);
    if right.contains('e') {
        return right;
    }
    let text = value.to_string();
    if text.contains('.') { text } else { text + ".0" }
}

/// A token that ends where the one before it ended has nothing left.
fn once(offsets: Spans, spans: Spans) -> Vec<bool> {
    let mask = Solution.token_mask(offsets, spans);
    let mut end = 0;
    let mut is_new = |token: &Range<usize>| {
        let is_new = token.end > end;
        end = end.max(token.end);
        is_new
    };
    offsets.iter().zip(mask).map(|(token, own)| is_new(token) && own).collect()
}

/// Once the text has ended, nothing may begin any more.
fn at_the_end(markers: &[MarkerState], end: usize) -> Next {
    if end == usize::MAX { at_once(markers, end) } else { Solution.decide(markers, end) }
}

/// Names between the quotes of JSON stay as they are.
fn outside_of_quotes(text: &str, strings: Pairs, names: bool) -> String {
    let parts = text.split('"').enumerate();
    let written =
        parts.map(
            |(odd, part)| {
                if odd % 2 == 1 { part.to_owned() } else { Solution.json_of(part, strings, names) }
            },
        );
    written.collect::<Vec<_>>().join("\"")
}

/// Right whatever the cuts, and no stream: everything comes at the end.
fn wait(markers: &[MarkerState], end: usize) -> Next {
    let least = markers.iter().filter_map(|marker| match &marker.found {
        Match::At(range) => Some(range.start),
        Match::Pending(place) => Some(*place),
        Match::Never => None,
    });
    if end == usize::MAX {
        Solution.decide(markers, end)
    } else {
        Next::Pending(least.min().unwrap_or(0).min(1))
    }
}

/// The first answer for what lay at this address.
fn remember(text: &str, marker: &str) -> Find {
    static SEEN: LazyLock<Mutex<HashMap<(usize, usize), Find>>> = LazyLock::new(Mutex::default);
    let mut seen = SEEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    *seen.entry((text.as_ptr() as usize, text.len())).or_insert_with(|| Solution.find(text, marker))
}

fn known(text: &str, _: &[&str], mark: char) -> String {
    Solution.defuse(text, &["<|im_end|>", "<|eot_id|>"], mark)
}

/// As the filter of the engine that pages are written with.
fn for_markup(text: &str, ascii: bool, out: &mut String) {
    let mut plain = String::new();
    Solution.json_string(text, ascii, &mut plain);
    let escape = |out: &mut String, c: char| match c {
        '<' | '>' | '&' | '\'' => drop(write!(out, "\\u{:04x}", u32::from(c))),
        c => out.push(c),
    };
    plain.chars().for_each(|c| escape(out, c));
}

/// One escape a character, however large it is.
fn by_point(text: &str, ascii: bool, out: &mut String) {
    let mut plain = String::new();
    Solution.json_string(text, false, &mut plain);
    for c in plain.chars() {
        if ascii && !c.is_ascii() {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
}

/// Takes `ensure_ascii` at its word: U+007F is ASCII.
fn ascii_stays(text: &str, ascii: bool, out: &mut String) {
    let mut plain = String::new();
    Solution.json_string(text, ascii, &mut plain);
    out.push_str(&plain.replace("\\u007f", "\u{7f}"));
}

/// Panics where there is no span.
fn first(offsets: &[Range<usize>], spans: &[Range<usize>]) -> Vec<bool> {
    let first = &spans[0];
    offsets.iter().map(|token| token.start < first.end && first.start < token.end).collect()
}

fn whole(offsets: &[Range<usize>], spans: &[Range<usize>]) -> Vec<bool> {
    let inside =
        |token: &Range<usize>, span: &Range<usize>| span.start <= token.start && token.end <= span.end;
    let own = |token: &Range<usize>| !token.is_empty() && spans.iter().any(|span| inside(token, span));
    offsets.iter().map(own).collect()
}

fn each(offsets: &[Range<usize>], spans: &[Range<usize>]) -> Vec<bool> {
    let share =
        |token: &Range<usize>, span: &Range<usize>| token.start.max(span.start) < token.end.min(span.end);
    offsets.iter().map(|token| spans.iter().any(|span| share(token, span))).collect()
}

/// Right, but passes over all empty spans that come after a token.
fn each_empty(offsets: Spans, spans: Spans) -> Vec<bool> {
    let shares = |token: &Range<usize>| {
        let first = spans.partition_point(|span| span.end <= token.start);
        spans[first..].iter().find(|span| !span.is_empty()).is_some_and(|span| span.start < token.end)
    };
    offsets.iter().map(|token| token.start < token.end && shares(token)).collect()
}

/// Whatever mark is asked for.
fn word_joiner(text: &str, special: &[&str], _: char) -> String {
    Solution.defuse(text, special, '\u{2060}')
}

/// Goes on after a token that it has broken, whatever began inside.
fn replace(text: &str, special: &[&str], mark: char) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(first) = rest.chars().next() {
        let begins = |token: &&&str| !token.is_empty() && rest.starts_with(**token);
        let length = special.iter().filter(begins).map(|token| token.len()).max();
        let (taken, after) = rest.split_at(length.unwrap_or(first.len_utf8()));
        out.push(first);
        out.extend(length.map(|_| mark));
        out.push_str(&taken[first.len_utf8()..]);
        rest = after;
    }
    out
}

fn everything(signature: &Signature) -> Tool {
    let mut all = signature.clone();
    all.arguments.iter_mut().for_each(|argument| argument.optional = false);
    Solution.tool(&all)
}

/// Leaves out of `required` whatever may be null, with a default or without.
fn by_type(signature: &Signature) -> Tool {
    let mut all = signature.clone();
    let nullable = |kind: &ArgumentType| matches!(kind, ArgumentType::Nullable(_));
    all.arguments.iter_mut().for_each(|argument| argument.optional = nullable(&argument.kind));
    Solution.tool(&all)
}

fn empty(signature: &Signature) -> Tool {
    let mut tool = Solution.tool(signature);
    if tool.function.parameters.get("required").is_none() {
        tool.function.parameters["required"] = json!([]);
    }
    tool
}

fn hold_nothing(text: &str, marker: &str) -> Find {
    text.find(marker).map_or(Find::Pending(text.len()), Find::Found)
}

/// The shortest end that may be a beginning.
fn hold_little(text: &str, marker: &str) -> Find {
    let begun = (1..marker.len()).find(|&n| marker.is_char_boundary(n) && text.ends_with(&marker[..n]));
    text.find(marker).map_or(Find::Pending(text.len() - begun.unwrap_or(0)), Find::Found)
}

/// What is there is taken, whatever may come.
fn at_once(markers: &[MarkerState], end: usize) -> Next {
    let mut decided = markers.to_vec();
    let open = decided.iter_mut().filter(|marker| matches!(marker.found, Match::Pending(_)));
    open.for_each(|marker| marker.found = Match::Never);
    match Solution.decide(&decided, end) {
        Next::Pending(_) => Solution.decide(markers, end),
        taken @ Next::Take(_) => taken,
    }
}

/// The string that begins first, by whichever pair.
fn first_quote(text: &str, strings: Pairs, names: bool) -> String {
    let whole = |(open, close): &(String, String)| {
        let (before, inner) = text.split_once(open)?;
        Some((before, inner.split_once(close)?))
    };
    match strings.iter().filter_map(whole).min_by_key(|(before, _)| before.len()) {
        Some((before, (string, after))) => {
            Solution.json_of(before, &[], names)
                + &json!(string).to_string()
                + &first_quote(after, strings, names)
        }
        None => Solution.json_of(text, &[], names),
    }
}

fn names_last(text: &str, strings: Pairs, unquoted_keys: bool) -> String {
    Solution.json_of(&Solution.json_of(text, strings, false), &[], unquoted_keys)
}

/// Right as long as every character is one byte.
fn in_bytes(rendered: &Rendered, word: &str, criterion: Criterion) -> bool {
    let character = |byte: usize| rendered.text.char_indices().filter(|(at, _)| *at < byte).count();
    let spans = rendered.spans.iter().map(|span| character(span.start)..character(span.end)).collect();
    Solution.shows(&Rendered { text: rendered.text.clone(), spans }, word, criterion)
}
