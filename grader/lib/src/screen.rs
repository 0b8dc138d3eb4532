//! Searches an exercise's text for what a step may not use.
//!
//! An attempt is graded by what its steps return. So a text is refused before it is built, with the line, if it reaches
//! the process around the steps: the environment, files, descriptors, code that runs before `main`, functions that
//! the linker would take instead of the system's, the allocator's counters, functions of the workbook that open files,
//! the grader, a solution. It is also refused if it finds out who calls a step and when, or starts work that outlives
//! the call. Inline assembly may hold only what `asm` lists.
//!
//! Comments and strings count for nothing; raw identifiers (`r#fs`), use trees, renames and the arguments of macros do.
//!
//! This stops cheats in plain sight. A text can still compute an address and call it; what a child process can do
//! against that is in `gather`.

mod asm;
mod paths;
mod tokens;

use crate::stub::Language;
use tokens::{Kind, Token, tokens};

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
const DOORS: &str = "a step may not call workbook functions that open files or start processes";
const RENAMED: &str =
    "a crate of which parts are refused is named in full: `std::thread`, no glob, no other name";
const HIDDEN: &str = "the name of a macro or a path must stand in the text, not come from a macro's argument";
const MACHINE: &str = "inline assembly may hold moves, arithmetic, vector instructions, fences and jumps to its own \
    numbered labels, in the Intel syntax, and nothing else";
const CALLER: &str = "a step may not find out who calls it";
const CLOCK: &str = "a step may not read a clock: the grader times it";
const LATER: &str =
    "work ends with the call: a step may use `std::thread::scope` and the threads of its `cpu`";
const PANICS: &str = "panics are caught and reported by the grader";

/// Words that are refused wherever they stand.
const WORDS: [(&str, &str); 19] = [
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
    ("track_caller", CALLER),
    ("type_name", CALLER),
    ("type_name_of_val", CALLER),
    ("_rdtsc", CLOCK),
    ("__rdtscp", CLOCK),
];

/// Paths that are refused, and with them whatever is below. `core` counts as `std`.
const PATHS: &[(&[&str], &str)] = &[
    (&["std", "env"], PROCESS),
    (&["std", "fs"], PROCESS),
    (&["std", "net"], PROCESS),
    (&["std", "os"], PROCESS),
    (&["std", "path"], PROCESS),
    (&["std", "process"], PROCESS),
    (&["std", "alloc"], MEMORY),
    (&["std", "backtrace"], CALLER),
    (&["std", "thread", "current"], CALLER),
    (&["std", "thread", "Thread"], CALLER),
    (&["std", "thread", "ThreadId"], CALLER),
    (&["std", "thread", "spawn"], LATER),
    (&["std", "thread", "Builder"], LATER),
    (&["std", "thread", "JoinHandle"], LATER),
    (&["std", "thread", "park"], LATER),
    (&["std", "thread", "park_timeout"], LATER),
    (&["std", "thread", "sleep"], LATER),
    (&["std", "thread", "sleep_ms"], LATER),
    (&["std", "thread", "sleep_until"], LATER),
    (&["std", "panic", "catch_unwind"], PANICS),
    (&["std", "panic", "set_hook"], PANICS),
    (&["std", "panic", "take_hook"], PANICS),
    (&["std", "panic", "update_hook"], PANICS),
    (&["std", "panic", "resume_unwind"], PANICS),
    (&["std", "panic", "panic_any"], PANICS),
    (&["std", "time", "Instant"], CLOCK),
    (&["std", "time", "SystemTime"], CLOCK),
    (&["std", "time", "UNIX_EPOCH"], CLOCK),
    (&["rayon", "spawn"], LATER),
    (&["rayon", "spawn_fifo"], LATER),
    (&["rayon", "spawn_broadcast"], LATER),
    (&["rayon", "ThreadPool"], LATER),
    (&["rayon", "ThreadPoolBuilder"], LATER),
    (&["rayon", "current_thread_index"], CALLER),
    (&["kernels", "cpu", "Tick"], CLOCK),
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

/// The first thing that a text may not hold.
pub(crate) fn look_through(text: &str, language: Language) -> Result<(), Refused> {
    match language {
        Language::Rust => rust(&tokens(text)),
        Language::Cuda => cuda(text),
    }
}

fn refused(token: &Token, what: impl Into<String>, why: &'static str) -> Refused {
    Refused { line: token.line, what: what.into(), why }
}

fn rust(tokens: &[Token]) -> Result<(), Refused> {
    for at in 0..tokens.len() {
        word(tokens, at)?;
        paths::look_through(tokens, at)?;
        macro_name(tokens, at)?;
        attribute(tokens, at)?;
        asm::look_through(tokens, at)?;
        caller(tokens, at)?;
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

/// `Location::caller`, and `caller` of any other path.
fn caller(tokens: &[Token], at: usize) -> Result<(), Refused> {
    let follows_path = at > 1 && tokens[at - 1].is(':') && tokens[at - 2].is(':');
    if follows_path && tokens[at].word() == Some("caller") {
        return Err(refused(&tokens[at], "::caller", CALLER));
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

#[cfg(test)]
mod tests;
