//! Follows paths from crates of which parts are refused, through use trees and the arguments of macros.

use super::tokens::{Kind, Token};
use super::{HIDDEN, PATHS, RENAMED, Refused, refused};

/// Modules of which only parts are refused, and which a text may import: `use std::thread;`. A path that begins with
/// such a name is read as if the parent came before it.
const MODULES: [(&str, &str); 4] = [("std", "thread"), ("std", "panic"), ("std", "time"), ("kernels", "cpu")];

/// Refuses a path that begins or goes on at `at`.
pub(super) fn look_through(tokens: &[Token], at: usize) -> Result<(), Refused> {
    path(tokens, at)?;
    hidden_root(tokens, at)
}

/// A path from a crate of which parts are refused, or from one of [`MODULES`].
fn path(tokens: &[Token], at: usize) -> Result<(), Refused> {
    let Some(root) = tokens[at].word() else { return Ok(()) };
    let is_root = root == "core" || PATHS.iter().any(|(path, _)| path[0] == root);
    if is_root && !is_local(tokens, at) {
        return below(tokens, at + 1, &mut vec![root.to_owned()]).map(|_| ());
    }
    match MODULES.iter().find(|(_, name)| *name == root) {
        Some((parent, name)) if continues(tokens, at) || is_renamed_import(tokens, at) => {
            let mut path = vec![(*parent).to_owned(), (*name).to_owned()];
            below(tokens, at + 1, &mut path).map(|_| ())
        }
        _ => Ok(()),
    }
}

/// Returns true for a word of a path before its last one, whatever stands before it: the module may have been imported
/// anywhere, `inner::thread`.
fn continues(tokens: &[Token], at: usize) -> bool {
    let is = |i: usize, sign| tokens.get(i).is_some_and(|token: &Token| token.is(sign));
    is(at + 1, ':') && is(at + 2, ':') && !(at > 0 && is(at - 1, '.'))
}

/// Returns true for `name as other` in a `use` declaration.
fn is_renamed_import(tokens: &[Token], at: usize) -> bool {
    is_renamed(tokens, at + 1) && is_in_use(tokens, at)
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
    let is_core = tokens[at].word() == Some("core"); // also what a variable may be called
    !begins_path && !in_use && (is_core || tokens.iter().all(|token| token.word() != Some("macro_rules")))
}

/// Returns true for a word inside a `use` declaration.
fn is_in_use(tokens: &[Token], at: usize) -> bool {
    let begins = |token: &Token| token.word() == Some("use");
    let ends = |token: &Token| token.is(';') || token.is('(') || token.is('=');
    tokens[..at].iter().rev().take_while(|token| !ends(token)).any(begins)
}

/// Looks at what follows a path's first words, at `at`; the place after it.
fn below(tokens: &[Token], at: usize, path: &mut Vec<String>) -> Result<usize, Refused> {
    let here = &tokens[at - 1];
    let whole = path.join("::");
    let mut parts: Vec<&str> = path.iter().map(String::as_str).collect();
    parts[0] = if parts[0] == "core" { "std" } else { parts[0] };
    if let Some((_, why)) = PATHS.iter().find(|(refused, _)| parts == *refused) {
        return Err(refused(here, whole, why));
    }
    let has_refused_parts = PATHS.iter().any(|(refused, _)| refused.starts_with(&parts));
    if !has_refused_parts {
        return Ok(at);
    }
    let is = |i: usize, sign| tokens.get(i).is_some_and(|token: &Token| token.is(sign));
    if !(is(at, ':') && is(at + 1, ':')) {
        let ends = [';', ',', '}'].into_iter().any(|sign| is(at, sign));
        if is_module(&parts) && ends {
            return Ok(at);
        }
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

/// Returns true for one of [`MODULES`].
fn is_module(parts: &[&str]) -> bool {
    MODULES.iter().any(|(parent, name)| parts == [*parent, *name])
}

fn is_whole_module(path: &[String]) -> bool {
    is_module(&path.iter().map(String::as_str).collect::<Vec<_>>())
}

fn is_renamed(tokens: &[Token], at: usize) -> bool {
    tokens.get(at).and_then(Token::word) == Some("as")
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
            Kind::Word(_) if begins && depth == 1 && is_whole_module(path) && !is_renamed(tokens, at) => {
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
    let is_part = word.is_some_and(|word| PATHS.iter().any(|(path, _)| path[1..].contains(&word)));
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
