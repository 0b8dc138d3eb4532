//! A stub is its solution with holes.
//!
//! One rule derives the exercise from the solution, so the two can never drift apart and
//! `diff exercise.rs solution.rs` is the lesson:
//!
//! - a comment block that begins with `// why:` is dropped (it would give the answer away);
//! - below a line `// step A.4: sentence`, the next body in braces becomes `todo!("A.4: sentence")`, or in CUDA
//!   C++ `TODO("A.4: sentence");`;
//! - everything else stays, in its order; the type `Solution` is called `Exercise`.
//!
//! The sentence of a step's first marker is the step's task, shown by `list` and by the book.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// A step of a challenge, as its solution's markers tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// `A.1`.
    pub name: &'a str,
    /// What it asks.
    pub task: &'a str,
}

/// What a text is written in: how it spells a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// `todo!("A.4: ...")`
    Rust,
    /// `TODO("A.9: ...");`
    Cuda,
}

impl Language {
    fn hole(self, sentence: &str) -> String {
        match self {
            Self::Rust => format!("todo!({sentence:?})"),
            Self::Cuda => format!("TODO({sentence:?});"),
        }
    }
}

const STEP: &str = "// step ";
const WHY: &str = "// why:";

/// The steps that a text marks, once each, in order.
pub fn steps(text: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for step in text.lines().filter_map(marker) {
        if steps.iter().all(|known| known.name != step.name) {
            steps.push(step);
        }
    }
    steps
}

/// The step whose text holds line number `line` (from 1): the last marker above it.
pub fn step_at(text: &str, line: usize) -> Option<Step<'_>> {
    text.lines().take(line).filter_map(marker).last()
}

/// The line number (from 1) of a step's first marker.
pub fn line_of(text: &str, step: &str) -> Option<usize> {
    let mut lines = text.lines();
    lines.position(|line| marker(line).is_some_and(|known| known.name == step)).map(|at| at + 1)
}

fn marker(line: &str) -> Option<Step<'_>> {
    let (name, task) = line.trim().strip_prefix(STEP)?.split_once(": ")?;
    Some(Step { name, task })
}

/// Derives the exercise.
///
/// # Errors
/// A marker without a body below it, or a body that does not end.
pub fn derive(solution: &str, language: Language) -> Result<String, String> {
    let mut stub = String::new();
    let mut rest = solution;
    while !rest.is_empty() {
        let (line, after) = split_line(rest);
        if line.trim_start().starts_with(WHY) {
            rest = after_comment(rest);
        } else if let Some(step) = marker(line) {
            stub.push_str(line);
            rest = hole(&mut stub, after, step, language)?;
        } else {
            stub.push_str(line);
            rest = after;
        }
    }
    Ok(stub.replace("Solution", "Exercise"))
}

/// An exercise in which one step is as it was in the beginning; everything else stays.
///
/// A marked item goes from its marker to the brace that closes it. Where the braces of a half-typed body do not match,
/// it goes to what follows the item in the solution.
///
/// # Errors
/// A marker that the text lacks, or an item whose end cannot be found.
pub fn restore(text: &str, solution: &str, language: Language, step: &str) -> Result<String, String> {
    let fresh = derive(solution, language)?;
    let ends = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let (wanted, mut open) = (marked(&fresh, step), marked(text, step));
    if wanted.is_empty() {
        return Err(format!("the solution has no step {step}"));
    }
    let mut parts = Vec::new();
    for (line, begin) in wanted {
        let at = open.iter().position(|(known, _)| *known == line).ok_or_else(|| lacks(&open, line))?;
        let (_, own) = open.remove(at);
        let (item, after) = item(&fresh[begin..]).ok_or("the derived exercise is not well-formed")?;
        let end = own + end_of_item(&text[own..], after).ok_or_else(|| endless(line))?;
        parts.push((own..end, item.replace('\n', ends)));
    }
    parts.sort_by_key(|(range, _)| std::cmp::Reverse(range.start)); // from the end, so that places stay
    let mut restored = text.to_owned();
    for (range, item) in parts {
        restored.replace_range(range, &item);
    }
    Ok(restored)
}

fn lacks(left: &[(&str, usize)], line: &str) -> String {
    let found = left.first().map_or("none".to_owned(), |(line, _)| format!("`{line}`"));
    format!("expected the line `{line}`, found {found}")
}

fn endless(line: &str) -> String {
    format!("expected an end of the item below `{line}`, found none: a brace is missing")
}

/// The markers of a step, and where their lines begin.
fn marked<'a>(text: &'a str, step: &str) -> Vec<(&'a str, usize)> {
    let lines = lines_with_places(text).map(|(line, at)| (line.trim(), at));
    lines.filter(|(line, _)| marker(line).is_some_and(|known| known.name == step)).collect()
}

/// A marked item of a well-formed text that begins with its marker, and what follows it.
fn item(text: &str) -> Option<(&str, &str)> {
    let (line, body) = split_line(text);
    Some(text.split_at(line.len() + end_of_body(body)?))
}

/// Where the first pair of braces ends.
fn end_of_body(text: &str) -> Option<usize> {
    let mut depth = 0;
    let end = tokens(text).find(|(_, token)| {
        depth += i32::from(*token == Token::Open) - i32::from(*token == Token::Close);
        depth <= 0 && *token == Token::Close
    });
    end.map(|(at, _)| at + 1)
}

/// Where the reader's item ends, in a text that begins with its marker; `after` follows the item in the exercise as
/// derived.
fn end_of_item(text: &str, after: &str) -> Option<usize> {
    let (line, rest) = split_line(text);
    let limit = line.len() + next_marker(rest);
    let by_braces = end_of_body(rest).map(|end| line.len() + end).filter(|end| *end <= limit);
    let by_place = begin_of(&text[..limit], &after[..next_marker(after)]);
    match (by_braces, by_place) {
        (Some(end), Some(place)) if end <= place && balanced(&text[end..place]) => Some(end),
        (_, Some(place)) => Some(text[..place].trim_end().len()),
        (end, None) => end,
    }
}

/// Where the line of the next marker begins, else the text's end.
fn next_marker(text: &str) -> usize {
    lines_with_places(text).find(|(line, _)| marker(line).is_some()).map_or(text.len(), |(_, at)| at)
}

/// Where the lines of `after` stand last in a text, blank ones aside.
fn begin_of(text: &str, after: &str) -> Option<usize> {
    let wanted: Vec<&str> = after.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let lines = lines_with_places(text).map(|(line, at)| (line.trim_end(), at));
    let lines: Vec<(&str, usize)> = lines.filter(|(line, _)| !line.is_empty()).collect();
    if wanted.is_empty() {
        return Some(text.len());
    }
    let found =
        lines.windows(wanted.len()).rev().find(|lines| lines.iter().map(|(line, _)| line).eq(&wanted));
    found.map(|lines| lines[0].1)
}

/// The lines of a text with their ends, and where each begins.
fn lines_with_places(text: &str) -> impl Iterator<Item = (&str, usize)> {
    text.split_inclusive('\n').scan(0, |next, line| {
        let at = *next;
        *next += line.len();
        Some((line, at))
    })
}

/// Whether every brace that opens is closed, and the other way round.
fn balanced(text: &str) -> bool {
    let mut depth = 0;
    let closes = tokens(text).all(|(_, token)| {
        depth += i32::from(token == Token::Open) - i32::from(token == Token::Close);
        depth >= 0
    });
    closes && depth == 0
}

/// A line with its end, and what follows it.
fn split_line(text: &str) -> (&str, &str) {
    text.split_at(text.find('\n').map_or(text.len(), |end| end + 1))
}

/// What follows a comment block, up to the step that it introduces.
fn after_comment(text: &str) -> &str {
    let mut rest = text;
    loop {
        let (line, after) = split_line(rest);
        let bare = line.trim_start();
        if !bare.starts_with("//") || marker(line).is_some() || bare.starts_with("///") {
            return rest;
        }
        rest = after;
    }
}

/// Copies an item's head to `stub`, a hole for its body, and returns what follows the body.
fn hole<'a>(stub: &mut String, text: &'a str, step: Step<'_>, language: Language) -> Result<&'a str, String> {
    let missing = || format!("no body below the marker of step {} ({})", step.name, step.task);
    let open = tokens(text).find(|(_, token)| *token == Token::Open).ok_or_else(missing)?.0;
    let mut depth = 0;
    for (at, token) in tokens(&text[open..]) {
        match token {
            Token::Open => depth += 1,
            Token::Close => depth -= 1,
            Token::Other(_) => {}
        }
        if depth == 0 && token == Token::Close {
            let indent = text[..open].lines().last().map_or(0, |line| line.len() - line.trim_start().len());
            let indent = if text[..open].ends_with('\n') { 0 } else { indent };
            let _ = writeln!(stub, "{}{{", &text[..open]);
            let _ = write!(
                stub,
                "{:indent$}    {}\n{:indent$}}}",
                "",
                language.hole(&format!("{}: {}", step.name, step.task)),
                ""
            );
            return Ok(&text[open + at + 1..]);
        }
    }
    Err(format!("the body of step {} ({}) does not end", step.name, step.task))
}

/// What matters of a program's text: braces, and everything that is no comment and no white space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Open,
    Close,
    Other(u8),
}

/// The bytes of a text with their places; comments, white space and the insides of literals are passed over
/// where they could be mistaken for code (Rust and CUDA alike).
fn tokens(text: &str) -> impl Iterator<Item = (usize, Token)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut inside_until = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            let begin = at;
            if at < inside_until {
                at += 1;
                return Some((begin, Token::Other(bytes[begin])));
            }
            match bytes[at] {
                b'/' if bytes[at..].starts_with(b"//") => at = end_of_line(bytes, at),
                b'/' if bytes[at..].starts_with(b"/*") => at = end_of_block(bytes, at),
                b' ' | b'\t' | b'\r' | b'\n' => at += 1,
                byte => {
                    inside_until = end_of_literal(bytes, at);
                    at += 1;
                    let literal = inside_until > at;
                    return Some((
                        begin,
                        match byte {
                            b'{' if !literal => Token::Open,
                            b'}' if !literal => Token::Close,
                            other => Token::Other(other),
                        },
                    ));
                }
            }
        }
        None
    })
}

fn end_of_line(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| at + length)
}

/// Rust's block comments nest.
fn end_of_block(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if bytes[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
        } else {
            at += 1;
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// Where a string or character literal that begins here ends; `at` itself if none does.
fn end_of_literal(bytes: &[u8], at: usize) -> usize {
    match bytes[at] {
        b'"' => quoted(bytes, at, b'"'),
        b'r' if !word_before(bytes, at) => raw(bytes, at),
        // 'a' and '\n' are characters; 'a without a closing quote is a lifetime
        b'\'' if bytes.get(at + 1) == Some(&b'\\') => quoted(bytes, at, b'\''),
        b'\'' if bytes.get(at + 2) == Some(&b'\'') => at + 3,
        _ => at,
    }
}

fn quoted(bytes: &[u8], at: usize, quote: u8) -> usize {
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != quote {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    (end + 1).min(bytes.len())
}

fn word_before(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

/// `r"..."` and `r#"..."#`.
fn raw(bytes: &[u8], at: usize) -> usize {
    let hashes = bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count();
    if bytes.get(at + 1 + hashes) != Some(&b'"') {
        return at;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = at + 2 + hashes;
    let end = bytes[body..].windows(close.len()).position(|window| window == close);
    end.map_or(bytes.len(), |length| body + length + close.len())
}

/// SHA-256 of a program without its comments and white space: what a report was made with. Words that a
/// comment or a space separated run together; two programs that differ only there are the same to a reader.
pub fn code_hash(text: &str) -> String {
    let mut hash = Sha256::new();
    for (at, _) in tokens(text) {
        hash.update(&text.as_bytes()[at..=at]);
    }
    hash.finalize().iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOLUTION: &str = "impl Solution {\n    // why: because\n    // it is so.\n    // step A.1: do it {well}\n    fn one(&self) -> u8 {\n        if self.x == '{' { 1 } else { 2 } // }\n    }\n\n    fn two() {}\n}\n";

    #[test]
    fn a_marked_body_becomes_a_hole_and_the_rest_stays() {
        let want = "impl Exercise {\n    // step A.1: do it {well}\n    fn one(&self) -> u8 {\n        todo!(\"A.1: do it {well}\")\n    }\n\n    fn two() {}\n}\n";
        assert_eq!(derive(SOLUTION, Language::Rust).unwrap(), want);
    }

    #[test]
    fn a_hole_in_cuda_is_a_statement() {
        let text = "// step A.8: add\n__device__ float f(int x) {\n    return x;\n}\n";
        let want = "// step A.8: add\n__device__ float f(int x) {\n    TODO(\"A.8: add\");\n}\n";
        assert_eq!(derive(text, Language::Cuda).unwrap(), want);
    }

    #[test]
    fn a_marker_without_a_body_is_an_error() {
        assert!(derive("// step A.1: do\nfn f();", Language::Rust).unwrap_err().contains("no body"));
        assert!(derive("// step A.1: do\nfn f() { (", Language::Rust).unwrap_err().contains("does not end"));
    }

    #[test]
    fn braces_in_literals_and_comments_are_no_braces() {
        let text = "// step A.1: x\nfn f() { let a = \"}\"; let b = r#\"}\"}\"#; let c = '}'; /* } /* } */ */ }\nrest\n";
        assert!(derive(text, Language::Rust).unwrap().ends_with("}\nrest\n"));
    }

    /// A well-formed text with two items of one step, one of another, and what stands between them.
    const TWICE: &str = "impl Solution {\n    // step A.1: do it\n    fn one(&self) {\n        a();\n    }\n    // ANCHOR_END: one\n\n    // step A.2: more\n    fn two() { b(); }\n}\n\nimpl Solution {\n    // step A.1: the rest\n    fn three() {\n        c();\n    }\n}\n";

    fn typed() -> String {
        TWICE.replace("Solution", "Exercise")
    }

    #[test]
    fn a_restored_step_is_derived_and_the_others_stay() {
        let fresh = derive(TWICE, Language::Rust).unwrap();
        let restored = restore(&typed(), TWICE, Language::Rust, "A.1").unwrap();
        assert!(restored.contains("todo!(\"A.1: do it\")") && restored.contains("todo!(\"A.1: the rest\")"));
        assert!(restored.contains("fn two() { b(); }"), "{restored}");
        assert_eq!(restore(&restored, TWICE, Language::Rust, "A.2").unwrap(), fresh);
        assert_eq!(restore(&fresh, TWICE, Language::Rust, "A.1").unwrap(), fresh);
    }

    #[test]
    fn a_half_typed_step_is_restored_too() {
        let fresh = derive(TWICE, Language::Rust).unwrap();
        let whole = restore(&typed(), TWICE, Language::Rust, "A.2").unwrap();
        for (from, to) in [
            ("a();", "if x { a();"),
            ("a();", "a(); }"),
            ("a();", "a(); } }"),
            ("a();", "let s = \"open;"),
            ("a();", "/* open"),
            ("c();", "for i in 0..3 { c();"),
            ("c();", "c(); }"),
            ("c();", ""),
        ] {
            let broken = whole.replace(from, to);
            assert_eq!(restore(&broken, TWICE, Language::Rust, "A.1").unwrap(), fresh, "{to}");
        }
    }

    #[test]
    fn what_stands_beside_a_restored_step_stays() {
        let own =
            typed().replace("    // ANCHOR_END: one", "\n    fn helper() { h(); }\n    // ANCHOR_END: one");
        let restored = restore(&own, TWICE, Language::Rust, "A.1").unwrap();
        assert!(restored.contains("fn helper() { h(); }"), "{restored}");
        let windows = typed().replace('\n', "\r\n");
        let restored = restore(&windows, TWICE, Language::Rust, "A.1").unwrap();
        assert_eq!(restored.matches('\n').count(), restored.matches("\r\n").count());
        let gone = typed().replace("// step A.1: the rest", "");
        let error = restore(&gone, TWICE, Language::Rust, "A.1").unwrap_err();
        assert_eq!(error, "expected the line `// step A.1: the rest`, found none");
    }

    #[test]
    fn a_line_belongs_to_the_marker_above_it() {
        assert_eq!(step_at(SOLUTION, 6).map(|step| step.name), Some("A.1"));
        assert_eq!(step_at(SOLUTION, 1), None);
    }

    #[test]
    fn comments_and_layout_do_not_change_the_hash() {
        assert_eq!(code_hash("fn f() { 1 } // one"), code_hash("fn f()\n{\n    1\n}"));
        assert_ne!(code_hash("fn f() { 1 }"), code_hash("fn f() { 2 }"));
        assert_ne!(code_hash("f(\"a b\")"), code_hash("f(\"ab\")"));
    }
}
