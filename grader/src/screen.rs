//! What an attempt's text may not name.
//!
//! An attempt is graded by what its steps return. A text that reaches for the process around them - its
//! environment, files, descriptors, what runs before `main`, the functions that a linker would take in place of the
//! system's, the allocator that counts, what of the workbook itself opens files, the grader, a solution - is refused
//! before it is built, with its line.
//! Comments and strings name nothing; raw identifiers (`r#fs`), use trees, renames and the arguments of macros do.
//!
//! This stops what is written plainly. Machine code that is written to deceive gets past every text; what a child
//! process can hold against it is in `gather`.

use crate::stub::Language;

/// A word that an attempt may not use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The line, from 1.
    pub line: usize,
    /// What stands there.
    pub what: String,
    /// Why an attempt may not.
    pub why: &'static str,
}

const PROCESS: &str = "an attempt has its arguments and no other way into or out of its process";
const LINKER: &str = "it changes what the program is linked from or what runs before `main`";
const FOREIGN: &str = "foreign functions reach past everything that is counted and timed";
const FILES: &str = "an attempt is one text: it takes in no other file and no variable of the build";
const MEMORY: &str = "memory is counted by the grader's allocator, whose counters are its own";
const COUNTED: &str = "the calls of oracles are counted for the grader";
const GRADER: &str = "an attempt does not see who grades it";
const SOLUTION: &str = "a solution is not an attempt's to call";
const DOORS: &str = "what of the workbook opens a file or starts a process is no step's to use";
const RENAMED: &str =
    "a crate of which parts are refused is named in full: `std::thread`, no glob, no other name";
const HIDDEN: &str = "the name of a macro or a path must stand in the text, not come from a macro's argument";
const MACHINE: &str = "inline assembly that leaves the function or is given as bytes is not vector code";

/// Words that are refused wherever they stand.
const WORDS: [(&str, &str); 14] = [
    ("extern", FOREIGN),
    ("libc", FOREIGN),
    ("link_section", LINKER),
    ("link_name", LINKER),
    ("no_mangle", LINKER),
    ("export_name", LINKER),
    ("global_allocator", LINKER),
    ("global_asm", LINKER),
    ("naked_asm", LINKER),
    ("include", FILES),
    ("include_str", FILES),
    ("include_bytes", FILES),
    ("option_env", FILES),
    ("Solution", SOLUTION),
];

/// Paths that are refused, and with them whatever is below.
const PATHS: [(&[&str], &str); 20] = [
    (&["std", "env"], PROCESS),
    (&["std", "fs"], PROCESS),
    (&["std", "net"], PROCESS),
    (&["std", "os"], PROCESS),
    (&["std", "path"], PROCESS),
    (&["std", "process"], PROCESS),
    (&["std", "alloc"], MEMORY),
    (&["kernels", "bytes"], MEMORY),
    (&["grader"], GRADER),
    (&["reference", "oracles"], COUNTED),
    (&["challenges", "given"], COUNTED),
    (&["reference", "atomic_write"], DOORS),
    (&["reference", "checkpoint"], DOORS),
    (&["reference", "llama", "Llama"], DOORS),
    (&["reference", "llama", "Config"], DOORS),
    (&["reference", "llama", "hub"], DOORS),
    (&["reference", "lora", "Adapter"], DOORS),
    (&["reference", "lora", "Config"], DOORS),
    (&["kernels", "cuda"], DOORS),
    (&["compiler", "tune"], DOORS),
];

/// What inline assembly may not hold.
const INSTRUCTIONS: [&str; 6] = ["syscall", "sysenter", "int", "svc", "hlt", "rdtsc"];

/// The first thing that a text may not hold.
pub(crate) fn look_through(text: &str, language: Language) -> Result<(), Refused> {
    match language {
        Language::Rust => rust(&tokens(text)),
        Language::Cuda => cuda(text),
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    /// An identifier or a keyword, without `r#`.
    Word(String),
    /// What a string holds, as it is written.
    Text(String),
    /// Any other character that is no space.
    Sign(char),
}

#[derive(Clone, Debug)]
struct Token {
    line: usize,
    kind: Kind,
}

impl Token {
    fn word(&self) -> Option<&str> {
        if let Kind::Word(word) = &self.kind { Some(word) } else { None }
    }

    fn is(&self, sign: char) -> bool {
        self.kind == Kind::Sign(sign)
    }
}

fn refused(token: &Token, what: impl Into<String>, why: &'static str) -> Refused {
    Refused { line: token.line, what: what.into(), why }
}

fn rust(tokens: &[Token]) -> Result<(), Refused> {
    for at in 0..tokens.len() {
        word(tokens, at)?;
        path(tokens, at)?;
        hidden_root(tokens, at)?;
        macro_name(tokens, at)?;
        attribute(tokens, at)?;
        assembly(tokens, at)?;
        file(tokens, at)?;
    }
    Ok(())
}

fn word(tokens: &[Token], at: usize) -> Result<(), Refused> {
    let Some(word) = tokens[at].word() else { return Ok(()) };
    if let Some((word, why)) = WORDS.iter().find(|(refused, _)| *refused == word) {
        return Err(refused(&tokens[at], *word, why));
    }
    let is_macro = tokens.get(at + 1).is_some_and(|next| next.is('!'));
    if word == "env" && is_macro {
        return Err(refused(&tokens[at], "env!", FILES));
    }
    Ok(())
}

/// A path from a crate of which parts are refused.
fn path(tokens: &[Token], at: usize) -> Result<(), Refused> {
    let Some(root) = tokens[at].word() else { return Ok(()) };
    let is_root = PATHS.iter().any(|(path, _)| path[0] == root);
    if !is_root || is_local(tokens, at) {
        return Ok(());
    }
    below(tokens, at + 1, &mut vec![root.to_owned()]).map(|_| ())
}

/// Whether a word is a field, a method, a variable or a part of a longer path: `x.grader`, `let std = 1`, `a::std`.
fn is_local(tokens: &[Token], at: usize) -> bool {
    let [before, twice] = [1, 2].map(|back| at.checked_sub(back).map(|i| &tokens[i]));
    let is = |token: Option<&Token>, sign| token.is_some_and(|token| token.is(sign));
    if is(before, '.') {
        return true;
    }
    if is(before, ':') && is(twice, ':') {
        // `::std::fs` begins with the colons; `inner::std` does not, and `crate::std` may be a `use` of it
        let word = at.checked_sub(3).and_then(|i| tokens[i].word());
        return word
            .is_some_and(|word| !["crate", "self", "super", "use", "return", "in", "as"].contains(&word));
    }
    // alone it is a variable, but where a macro could put it in front of a path
    let begins_path = is(tokens.get(at + 1), ':') && is(tokens.get(at + 2), ':');
    let in_use = is_in_use(tokens, at);
    !begins_path && !in_use && tokens.iter().all(|token| token.word() != Some("macro_rules"))
}

/// Whether a word stands in a `use` declaration.
fn is_in_use(tokens: &[Token], at: usize) -> bool {
    let begins = |token: &Token| token.word() == Some("use");
    let ends = |token: &Token| token.is(';') || token.is('(') || token.is('=');
    tokens[..at].iter().rev().take_while(|token| !ends(token)).any(begins)
}

/// Looks at what follows a path's first words, at `at`; the place after it.
fn below(tokens: &[Token], at: usize, path: &mut Vec<String>) -> Result<usize, Refused> {
    let here = &tokens[at - 1];
    let whole = path.join("::");
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    if let Some((_, why)) = PATHS.iter().find(|(refused, _)| parts == *refused) {
        return Err(refused(here, whole, why));
    }
    let has_refused_parts = PATHS.iter().any(|(refused, _)| refused.starts_with(&parts));
    if !has_refused_parts {
        return Ok(at);
    }
    let is = |i: usize, sign| tokens.get(i).is_some_and(|token: &Token| token.is(sign));
    if !(is(at, ':') && is(at + 1, ':')) {
        return Err(refused(here, whole, RENAMED));
    }
    match tokens.get(at + 2).map(|token| &token.kind) {
        Some(Kind::Word(word)) if word != "self" => {
            path.push(word.clone());
            let end = below(tokens, at + 3, path);
            path.pop();
            end
        }
        Some(Kind::Sign('{')) => tree(tokens, at + 3, path),
        Some(Kind::Sign('$')) => Err(refused(here, format!("{whole}::$"), HIDDEN)),
        _ => Err(refused(here, format!("{whole}::*"), RENAMED)),
    }
}

/// The branches of a use tree, from after its brace; the place after its end.
fn tree(tokens: &[Token], mut at: usize, path: &mut Vec<String>) -> Result<usize, Refused> {
    let mut depth = 1;
    let mut begins = true;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match &token.kind {
            Kind::Word(word) if begins && depth == 1 && word != "self" => {
                path.push(word.clone());
                let end = below(tokens, at, path);
                path.pop();
                at = end?;
                begins = false;
            }
            Kind::Word(_) | Kind::Sign('*' | '$') if begins && depth == 1 => {
                return Err(refused(token, path.join("::"), RENAMED));
            }
            Kind::Sign('{') => depth += 1,
            Kind::Sign('}') => {
                depth -= 1;
                if depth == 0 {
                    return Ok(at);
                }
            }
            Kind::Sign(',') if depth == 1 => begins = true,
            _ => {}
        }
    }
    Ok(at)
}

/// `$root::fs`, `$(...)*::fs`: a path whose root the text does not name.
fn hidden_root(tokens: &[Token], at: usize) -> Result<(), Refused> {
    let back = |count: usize| at.checked_sub(count).map(|i| &tokens[i]);
    let is = |token: Option<&Token>, sign| token.is_some_and(|token| token.is(sign));
    let below = is(back(1), ':') && is(back(2), ':');
    let word = tokens[at].word();
    let is_part = word.is_some_and(|word| PATHS.iter().any(|(path, _)| path.get(1) == Some(&word)));
    let has_root = is(back(3), '>') || back(3).is_some_and(|token| token.word().is_some());
    let from_argument = is(back(4), '$') && back(3).and_then(Token::word) != Some("crate");
    match (below, word) {
        (true, Some(word)) if is_part && (from_argument || !has_root) => {
            Err(refused(&tokens[at], format!("::{word}"), HIDDEN))
        }
        (true, None) if from_argument && tokens[at].is('$') => Err(refused(&tokens[at], "$::$", HIDDEN)),
        _ => Ok(()),
    }
}

/// `$name!(...)`: a macro that the text does not name.
fn macro_name(tokens: &[Token], at: usize) -> Result<(), Refused> {
    let [dollar, name, bang] = [0, 1, 2].map(|i| tokens.get(at + i));
    let hidden = dollar.is_some_and(|token| token.is('$')) && bang.is_some_and(|token| token.is('!'));
    match name.and_then(Token::word) {
        Some(word) if hidden && word != "crate" => Err(refused(&tokens[at], format!("${word}!"), HIDDEN)),
        _ => Ok(()),
    }
}

/// `path = "..."` in an attribute, or on its way into one.
fn attribute(tokens: &[Token], at: usize) -> Result<(), Refused> {
    let before = at.checked_sub(1).map(|i| &tokens[i].kind);
    let opens = matches!(before, Some(Kind::Sign('[' | '(' | ',')));
    let assigned = tokens.get(at + 1).is_some_and(|token| token.is('='))
        && matches!(tokens.get(at + 2).map(|token| &token.kind), Some(Kind::Text(_)));
    if opens && assigned && tokens[at].word() == Some("path") {
        return Err(refused(&tokens[at], "path = ", FILES));
    }
    Ok(())
}

/// What stands in `asm!( ... )`, and that it has no other name.
fn assembly(tokens: &[Token], at: usize) -> Result<(), Refused> {
    if tokens[at].word() != Some("asm") {
        return Ok(());
    }
    if tokens.get(at + 1).and_then(Token::word) == Some("as") {
        return Err(refused(&tokens[at], "asm as", HIDDEN));
    }
    if !tokens.get(at + 1).is_some_and(|token| token.is('!')) {
        return Ok(());
    }
    let mut depth = 0;
    for token in &tokens[at + 2..] {
        match &token.kind {
            Kind::Sign('(' | '[' | '{') => depth += 1,
            Kind::Sign(')' | ']' | '}') => depth -= 1,
            Kind::Text(text) => instructions(token, text)?,
            Kind::Word(word) if word == "concat" => return Err(refused(token, "asm!: concat", MACHINE)),
            Kind::Sign('$') => return Err(refused(token, "asm!: $", HIDDEN)),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    Ok(())
}

fn instructions(token: &Token, text: &str) -> Result<(), Refused> {
    if text.contains("\\x") || text.contains("\\u") {
        return Err(refused(token, text, MACHINE));
    }
    for line in text.split(['\n', ';']).flat_map(|line| line.split("\\n")) {
        let first = line.split_whitespace().next().unwrap_or_default().to_lowercase();
        let is_word = |word: &str| line.to_lowercase().split_whitespace().any(|found| found == word);
        let found = INSTRUCTIONS.into_iter().find(|word| is_word(word));
        let found = found.or_else(|| first.starts_with('.').then_some("a directive"));
        if let Some(found) = found {
            return Err(refused(token, format!("asm!: {found}"), MACHINE));
        }
    }
    Ok(())
}

/// `mod other;`, and the paths by which a process knows itself.
fn file(tokens: &[Token], at: usize) -> Result<(), Refused> {
    let is_module = tokens[at].word() == Some("mod") && tokens.get(at + 2).is_some_and(|token| token.is(';'));
    if let Some(name) = tokens.get(at + 1).and_then(Token::word).filter(|_| is_module) {
        return Err(refused(&tokens[at], format!("mod {name};"), FILES));
    }
    match &tokens[at].kind {
        Kind::Text(text) if text.starts_with("/proc/") || text.starts_with("/dev/fd") => {
            Err(refused(&tokens[at], text, PROCESS))
        }
        _ => Ok(()),
    }
}

/// Kernels take in no file by a path of its own: what is there for them has a plain name.
fn cuda(text: &str) -> Result<(), Refused> {
    let spliced = text.replace("\\\r\n", "").replace("\\\n", "");
    for (i, line) in spliced.lines().enumerate() {
        let directive = line.trim_start().strip_prefix('#').map(str::trim_start);
        let Some(named) = directive.and_then(|rest| rest.strip_prefix("include")) else { continue };
        let named = named.trim();
        let is_plain = named.starts_with(['<', '"']) && !named.contains("..") && !named[1..].starts_with('/');
        if !is_plain {
            let what = format!("#include {named}");
            return Err(Refused { line: i + 1, what, why: FILES });
        }
    }
    Ok(())
}

/// A Rust text's words, strings and signs, without its comments.
fn tokens(text: &str) -> Vec<Token> {
    let mut rest = text;
    let (mut tokens, mut line) = (Vec::new(), 1);
    while let Some(first) = rest.chars().next() {
        let (length, kind) = token(rest, first);
        tokens.extend(kind.map(|kind| Token { line, kind }));
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    tokens
}

/// The bytes that the first token takes, and what it is, if it is more than space.
fn token(rest: &str, first: char) -> (usize, Option<Kind>) {
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), None);
    }
    if rest.starts_with("/*") {
        return (comment(rest), None);
    }
    if let Some((length, text)) = string(rest) {
        return (length, Some(Kind::Text(text.to_owned())));
    }
    if first == '\'' {
        return quote(rest);
    }
    let bare = rest.strip_prefix("r#").unwrap_or(rest);
    let word: String = bare.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    if word.is_empty() {
        return (first.len_utf8(), (!first.is_whitespace()).then_some(Kind::Sign(first)));
    }
    (rest.len() - bare.len() + word.len(), Some(Kind::Word(word)))
}

/// The length of a comment, with those inside it.
fn comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// The length of a string of any kind and what it holds.
fn string(rest: &str) -> Option<(usize, &str)> {
    let prefix = ["br", "cr", "b", "c", "r", ""].into_iter().find(|prefix| {
        let after = rest.strip_prefix(prefix);
        let after =
            after.map(|after| if prefix.ends_with('r') { after.trim_start_matches('#') } else { after });
        after.is_some_and(|after| after.starts_with('"'))
    })?;
    let marks = if prefix.ends_with('r') {
        rest[prefix.len()..].chars().take_while(|c| *c == '#').count()
    } else {
        0
    };
    let begin = prefix.len() + marks + 1;
    let body = &rest[begin..];
    let length = if prefix.ends_with('r') {
        body.find(&format!("\"{}", "#".repeat(marks))).unwrap_or(body.len())
    } else {
        let mut escaped = false;
        let end = body.char_indices().find(|(_, c)| {
            let ends = *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            ends
        });
        end.map_or(body.len(), |(at, _)| at)
    };
    Some(((begin + length + 1 + marks).min(rest.len()), &body[..length]))
}

/// A character, or the mark of a lifetime.
fn quote(rest: &str) -> (usize, Option<Kind>) {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, c))) => {
            let from = at + c.len_utf8(); // after what is escaped, which may be a quote
            let end = rest[from..].find('\'').map_or(rest.len(), |end| from + end + 1);
            (end, None)
        }
        (Some(_), Some((at, '\''))) => (at + 1, None),
        _ => {
            // the whole name, so that the `r` of `'r"..."` begins no raw string
            let name = rest[1..].chars().take_while(|c| c.is_alphanumeric() || *c == '_');
            (1 + name.map(char::len_utf8).sum::<usize>(), Some(Kind::Sign('\'')))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::courses::COURSES;
    use crate::stub;

    fn describe(text: &str) -> Option<(usize, String)> {
        look_through(text, Language::Rust).err().map(|refused| (refused.line, refused.what))
    }

    #[test]
    fn every_solution_and_every_stub_is_let_through() {
        for course in &COURSES {
            let typed = course.solution().replace("Solution", "Exercise");
            let stub = stub::derive(course.solution(), course.language).expect("sound markers");
            for text in [typed, stub] {
                assert_eq!(look_through(&text, course.language), Ok(()), "{}", course.name);
            }
        }
    }

    /// Texts, each with what is refused in it.
    const REFUSED: [(&str, &str); 61] = [
        ("#[unsafe(link_section = \".init_array\")] static F: fn() = f;", "link_section"),
        ("#[no_mangle] pub fn write() {}", "no_mangle"),
        ("#[unsafe(no_mangle)] pub fn clock_gettime() {}", "no_mangle"),
        ("#[unsafe(export_name = \"write\")] fn w() {}", "export_name"),
        ("macro_rules! m { ($m:meta) => { #[$m] fn write() {} } } m!(no_mangle);", "no_mangle"),
        ("extern \"C\" { fn _exit(code: i32) -> !; }", "extern"),
        ("unsafe extern \"C\" { fn _exit(code: i32) -> !; }", "extern"),
        ("extern crate std as s;", "extern"),
        ("fn f() { std::process::exit(0) }", "std::process"),
        ("fn f() { ::std::process::exit(0) }", "std::process"),
        ("fn f() { r#std::r#process::exit(0) }", "std::process"),
        ("fn f() { std :: /* a comment */ process::exit(0) }", "std::process"),
        ("use std::{collections::BTreeMap, process};", "std::process"),
        ("use std::{collections::{BTreeMap, btree_map::Entry}, fs::File};", "std::fs"),
        ("use std::{io::{self, Write}, os::fd::FromRawFd};", "std::os"),
        ("use std as s;", "std"),
        ("use std::{self as s};", "std"),
        ("use ::std;", "std"),
        ("use std::*;", "std::*"),
        ("use std::{io, *};", "std"),
        ("use crate::std::fs;", "std::fs"),
        ("use std::env;", "std::env"),
        ("use std::net::TcpStream;", "std::net"),
        ("use std::alloc::System;", "std::alloc"),
        ("macro_rules! m { ($a:ident) => { std::$a::exit(0) } } m!(process);", "std::$"),
        ("macro_rules! m { ($a:ident) => { $a::process::exit(0) } } m!(s);", "::process"),
        ("macro_rules! m { ($($a:tt)*) => { $($a)*::process::exit(0) } } m!(s);", "::process"),
        ("macro_rules! m { ($a:ident, $b:ident) => { $a::$b::exit(0) } } m!(s, p);", "$::$"),
        ("macro_rules! m { ($a:ident $($b:tt)*) => { $a $($b)* } } m!(s, ::process);", "::process"),
        ("macro_rules! m { ($a:ident) => { } } m!(std);", "std"),
        ("macro_rules! a { ($($t:tt)*) => { core::arch::asm!($($t)*) } }", "asm!: $"),
        ("fn f() { m!('r\"\\\"\" std::process::exit(0) \"x\") }", "std::process"),
        ("use std::path::Path;", "std::path"),
        ("macro_rules! m { ($a:ident) => { $a!(\"/etc/passwd\") } }", "$a!"),
        ("const S: &str = include_str!(\"solution.rs\");", "include_str"),
        ("include!(\"solution.rs\");", "include"),
        ("const S: &str = env!(\"HOME\");", "env!"),
        ("const S: Option<&str> = option_env!(\"HOME\");", "option_env"),
        ("#[path = \"solution.rs\"] mod s;", "path = "),
        ("#[cfg_attr(all(), path = \"solution.rs\")] mod s { }", "path = "),
        ("mod solution;", "mod solution;"),
        ("use kernels::bytes;", "kernels::bytes"),
        ("fn f() { kernels::bytes::reset_peak() }", "kernels::bytes"),
        ("use kernels::{Cpu, bytes as b};", "kernels::bytes"),
        ("use kernels as k;", "kernels"),
        ("use grader::Attempts;", "grader"),
        ("fn f() { reference::atomic_write::write(p, b); }", "reference::atomic_write"),
        ("use reference::{atomic_write as a, graph::Tape};", "reference::atomic_write"),
        ("use reference::checkpoint::Checkpoint;", "reference::checkpoint"),
        ("use reference::llama::{Storage, Llama};", "reference::llama::Llama"),
        ("fn f() { reference::llama::hub::find(\"x\"); }", "reference::llama::hub"),
        ("use reference::llama as l;", "reference::llama"),
        ("use reference::lora::Adapter;", "reference::lora::Adapter"),
        ("use kernels::{Cpu, cuda::Gpu};", "kernels::cuda"),
        ("use compiler::{front::capture::Capture, tune};", "compiler::tune"),
        ("fn f() { challenges::nf4::Solution.unpack(a, b) }", "Solution"),
        ("use challenges::nf4::{Nf4, Solution as S};", "Solution"),
        ("use reference::{nf4, oracles::NF4};", "reference::oracles"),
        ("fn f() -> u64 { challenges::given::nf4_calls() }", "challenges::given"),
        ("fn f() { unsafe{ core::arch::asm!(\"mov eax, 60\", \"syscall\") } }", "asm!: syscall"),
        ("fn f() { unsafe{ core::arch::asm!(\".byte 0x0f, 0x05\") } }", "asm!: a directive"),
    ];

    #[test]
    fn what_reaches_past_the_steps_is_refused_with_its_line() {
        for (text, what) in REFUSED {
            let below = format!("//! An attempt.\n\n/* std::fs */\n{text}\n");
            assert_eq!(describe(&below), Some((4, what.to_owned())), "{text}");
        }
    }

    /// Texts that only look like those.
    const HONEST: [&str; 22] = [
        "// std::process::exit(0), #[no_mangle], extern",
        "/* /* std::fs */ extern \"C\" */ fn f() {}",
        "/// `std::env` is not used\nfn f() {}",
        "const S: &str = \"std::process::exit(0) extern no_mangle\";",
        "const S: &str = r#\"use std::fs; \" include!(\"x\")\"#;",
        "const S: &[u8] = b\"extern\\\"libc\";",
        "use std::collections::{BTreeMap, BTreeSet, HashMap};",
        "use std::{fmt::Write as _, ops::Range, sync::{Arc, Mutex}};",
        "fn f<'a>(process: &'a str, env: char) -> bool { env == 'x' && process.len() > '\\'' as usize }",
        "fn f(fs: usize, net: usize, os: usize) -> usize { let grader = fs; grader + net + os }",
        "struct S { path: String } fn f(s: &mut S) { s.path = String::new(); let path = \"x\"; }",
        "use kernels::{Cpu, Vector}; use kernels::tile::{self, Op as Tile, Value};",
        "mod inner { pub fn process() {} } fn f() { inner::process() }",
        "fn f() { unsafe{ core::arch::asm!(\"vmovntdq [{}], {}\", in(reg) p, in(zmm_reg) z) } }",
        "fn f() { println!(\"{}\", std::mem::size_of::<u8>()); std::thread::scope(|s| ()); }",
        "fn f(var: f64) -> f64 { let std = var.sqrt(); let kernels = std; kernels }",
        "enum E { A } macro_rules! m { ($v:ident) => { E::$v } } fn f<'r>(x: &'r str) -> E { m!(A) }",
        "macro_rules! m { ($t:ty) => { <$t>::process(); $t::MAX; Vec::<$t>::new() } }",
        "macro_rules! m { ($a:expr) => { $a + $crate::one() } }",
        "use reference::llama::Storage; use reference::fsdp::{self, Cut}; use reference::schedule::{self, Rule};",
        "use challenges::issues::{chat::Chat, vision::Vision}; use challenges::loss::problem::row_dim;",
        "fn f(reference: &[f64]) -> usize { let checkpoint = reference.len(); checkpoint }",
    ];

    #[test]
    fn what_only_looks_like_it_is_let_through() {
        for text in HONEST {
            assert_eq!(describe(text), None, "{text}");
        }
    }

    #[test]
    fn any_text_is_looked_through_to_its_end() {
        for text in [
            "",
            "'",
            "\"",
            "r#",
            "r#\"",
            "b'",
            "/*",
            "'\\",
            "std",
            "use std::{",
            "asm!",
            "$",
            "é'é'",
            "std::",
        ] {
            _ = describe(text);
        }
    }

    #[test]
    fn kernels_take_in_no_file_by_its_path() {
        let describe = |text: &str| look_through(text, Language::Cuda).err().map(|refused| refused.line);
        assert_eq!(
            describe("#include \"warpbook.cuh\"\n#include <cuda_fp16.h>\nasm volatile(\"exit;\");"),
            None
        );
        for text in ["#include \"/etc/passwd\"", "# include <../x.h>", "#include NAME", "#inc\\\nlude \"/x\""]
        {
            assert!(describe(text).is_some(), "{text}");
        }
    }
}
