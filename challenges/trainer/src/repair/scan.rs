//! Where a template's tags are, in bytes of its source, so that text can be put between them.

use std::ops::Range;

/// A `{% ... %}` or `{{ ... }}`.
#[derive(Clone, Debug)]
pub(super) struct Tag {
    /// All of it, with its signs.
    pub(super) bytes: Range<usize>,
    /// What is between the braces and signs.
    pub(super) inside: Range<usize>,
    /// The first word of a statement; none of an expression.
    pub(super) word: String,
}

/// A `for` and its body.
#[derive(Clone, Debug)]
pub(super) struct Loop {
    /// What is between the tags.
    pub(super) body: Range<usize>,
    /// The sign at the end of the opening tag, if there is one.
    pub(super) after_open: &'static str,
    /// The sign at the beginning of the tag that ends the body.
    pub(super) before_close: &'static str,
    /// The names that an item is given.
    pub(super) names: Vec<String>,
    /// How many loops and macros are around it.
    pub(super) depth: usize,
}

/// All tags, in order. What is no sound template gives some tags or none.
pub(super) fn tags(source: &str) -> Vec<Tag> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(begin) = next(source, at) {
        let rest = source.get(begin..).unwrap_or_default();
        let length = if rest.starts_with("{#") { rest.find("#}").map(|end| end + 2) } else { length(rest) };
        let Some(length) = length else { break };
        at = begin + length;
        if rest.starts_with("{#") {
            continue;
        }
        let tag = tag(source, begin..at);
        if tag.word == "raw" {
            at = raw_end(source, at);
            continue;
        }
        out.push(tag);
    }
    out
}

fn next(source: &str, from: usize) -> Option<usize> {
    let bytes = source.as_bytes().get(from..)?;
    let opens = |pair: &[u8]| matches!(pair, [b'{', b'%' | b'{' | b'#']);
    bytes.windows(2).position(opens).map(|at| from + at)
}

/// The bytes of a tag: its end is outside quotes, and outside brackets.
fn length(tag: &str) -> Option<usize> {
    let close = if tag.starts_with("{%") { "%}" } else { "}}" };
    let (mut depth, mut quote, mut escaped) = (0usize, None, false);
    for (at, c) in tag.char_indices().skip(2) {
        if let Some(open) = quote {
            quote = if c == open && !escaped { None } else { Some(open) };
            escaped = c == '\\' && !escaped;
            continue;
        }
        if depth == 0 && tag.get(at..).is_some_and(|rest| rest.starts_with(close)) {
            return Some(at + 2);
        }
        match c {
            '"' | '\'' => (quote, escaped) = (Some(c), false),
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => (),
        }
    }
    None
}

fn tag(source: &str, bytes: Range<usize>) -> Tag {
    let text = source.get(bytes.clone()).unwrap_or_default();
    let signed = |byte: Option<&u8>| usize::from(matches!(byte, Some(b'-' | b'+')));
    let ends = text.as_bytes();
    let inside = bytes.start + 2 + signed(ends.get(2))
        ..bytes.end.saturating_sub(2 + signed(ends.len().checked_sub(3).and_then(|at| ends.get(at))));
    let inner = source.get(inside.clone()).unwrap_or_default();
    let word = if text.starts_with("{%") { words(inner).next().unwrap_or_default() } else { "" };
    Tag { bytes, word: word.to_string(), inside }
}

/// The names in an expression, without regard to quotes.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c != '_' && !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

fn raw_end(source: &str, from: usize) -> usize {
    let ends = |rest: &str| {
        let rest =
            rest.strip_prefix(['-', '+']).unwrap_or(rest).trim_start().strip_prefix("endraw")?.trim_start();
        rest.strip_prefix(['-', '+']).unwrap_or(rest).strip_prefix("%}").map(str::len)
    };
    let tags = source.get(from..).unwrap_or_default().match_indices("{%");
    let mut after = tags.filter_map(|(at, open)| ends(source.get(from + at + open.len()..)?));
    after.next().map_or(source.len(), |left| source.len() - left)
}

/// Every loop whose end is there, in the order of their beginnings.
pub(super) fn loops(source: &str) -> Vec<Loop> {
    let tags = tags(source);
    let mut open: Vec<(&str, usize)> = Vec::new();
    let mut out: Vec<(usize, Loop)> = Vec::new();
    for (at, tag) in tags.iter().enumerate() {
        match tag.word.as_str() {
            "for" | "if" | "macro" | "call" | "filter" | "with" | "autoescape" | "block" | "generation" => {
                open.push((&tag.word, at));
            }
            "set" if is_block(source, tag) => open.push((&tag.word, at)),
            "else" | "endfor" => {
                let depth = open.len();
                if let Some(("for", begin)) = open.last().copied() {
                    let around =
                        open.iter().take(depth - 1).filter(|(word, _)| matches!(*word, "for" | "macro"));
                    out.extend(
                        tags.get(begin)
                            .map(|begin| (begin.bytes.start, found(source, begin, tag, around.count()))),
                    );
                    open.pop();
                    if tag.word == "else" {
                        open.push(("else", at));
                    }
                } else if tag.word == "endfor" {
                    open.pop();
                }
            }
            word if word.starts_with("end") => drop(open.pop()),
            _ => (),
        }
    }
    out.sort_by_key(|(begin, _)| *begin);
    out.into_iter().map(|(_, found)| found).collect()
}

/// Whether a `set` has a body: it assigns nothing itself.
fn is_block(source: &str, tag: &Tag) -> bool {
    let inner = source.get(tag.inside.clone()).unwrap_or_default();
    !inner.split('|').next().unwrap_or_default().contains('=')
}

fn found(source: &str, open: &Tag, close: &Tag, depth: usize) -> Loop {
    let inner = source.get(open.inside.clone()).unwrap_or_default();
    let names = words(inner).skip(1).take_while(|word| *word != "in").map(str::to_string).collect();
    let sign = |byte: Option<u8>| match byte {
        Some(b'-') => "-",
        Some(b'+') => "+",
        _ => "",
    };
    let byte = |at: usize| source.as_bytes().get(at).copied();
    Loop {
        body: open.bytes.end..close.bytes.start,
        after_open: sign(byte(open.bytes.end.saturating_sub(3))),
        before_close: sign(byte(close.bytes.start + 2)),
        names,
        depth,
    }
}

/// Where `| tojson` is written after something: what it is applied to, and all of it.
pub(super) fn json_filters(source: &str) -> Vec<(Range<usize>, Range<usize>)> {
    let sites = tags(source).into_iter().flat_map(|tag| {
        let inner = source.get(tag.inside.clone()).unwrap_or_default();
        let start = tag.inside.start;
        inner
            .match_indices("tojson")
            .map(move |(at, word)| (start, start + at, start + at + word.len()))
            .collect::<Vec<_>>()
    });
    sites.filter_map(|(from, begin, end)| site(source, from, begin, end)).collect()
}

fn site(source: &str, from: usize, begin: usize, end: usize) -> Option<(Range<usize>, Range<usize>)> {
    let before = source.get(from..begin)?.trim_end().strip_suffix('|')?.trim_end();
    let operand = from + operand(before)..from + before.len();
    let rest = source.get(end..)?;
    let call = rest.trim_start();
    let end = if call.starts_with('(') { end + (rest.len() - call.len()) + closing(call)? } else { end };
    (!operand.is_empty()).then_some((operand.clone(), operand.start..end))
}

/// The bytes up to the bracket that closes the first one.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth <= 1 => return Some(at + 1),
            ')' => depth -= 1,
            _ => (),
        }
    }
    None
}

/// Where the last operand of `text` begins: names, with attributes, items and calls.
fn operand(text: &str) -> usize {
    let (mut depth, mut begin) = (0usize, text.len());
    for (at, c) in text.char_indices().rev() {
        match c {
            ']' | ')' => depth += 1,
            '[' | '(' if depth == 0 => break,
            '[' | '(' => depth -= 1,
            _ if depth > 0 || c == '_' || c == '.' || c.is_alphanumeric() => (),
            _ => break,
        }
        begin = at;
    }
    begin
}
