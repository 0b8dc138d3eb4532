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
use std::path::PathBuf;

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

/// A solution's text, and the exercise that is derived from it.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The exercise's file, below the workbook's folder: `challenges/src/nf4/exercise.cu`.
    pub exercise: PathBuf,
    /// What both are written in.
    pub language: Language,
    /// The solution's text.
    pub solution: &'static str,
}

/// Every solution that an exercise is derived from.
pub fn solutions() -> impl Iterator<Item = Origin> {
    crate::course::COURSES.iter().map(|course| Origin {
        exercise: course.exercise(),
        language: course.language(),
        solution: course.solution,
    })
}

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
