//! Which file of a program imports which: a reader of `mod`, `use` and paths that begin at `crate`, `self` or `super`.
//!
//! It knows as much of Rust as that takes. Comments, literals and modules named `tests` are left out. A name that a
//! module re-exports leads to the module that it comes from, so that a root with re-exports hides no import. A root
//! names its own children to declare them and to pass their items on; that is no import.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The names from a program's root to a module; empty for the root.
type Place = Vec<String>;

/// The modules that each module imports, by name: `nf4::cuda`, and `crate` for the root.
pub type Imports = BTreeMap<String, BTreeSet<String>>;

/// A path in a file, in a module of the file or at its top.
#[derive(Clone)]
struct Named {
    inside: Place,
    names: Place,
}

/// What a file says of others.
#[derive(Default)]
struct Text {
    children: Vec<Place>,
    paths: Vec<Named>,
    /// Imported names, and where they come from.
    imported: BTreeMap<String, Named>,
}

/// Returns what each file of a program imports; `root` is the file that the compiler is given.
pub fn imports(root: &Path) -> Imports {
    let texts = texts(root);
    let name = |place: &Place| if place.is_empty() { "crate".to_owned() } else { place.join("::") };
    let of = |(place, text): (&Place, &Text)| {
        let named = text.paths.iter().filter_map(|path| resolve(&texts, place, path, 0));
        let others = named.filter(|other| !other.starts_with(place)).map(|other| name(&other)).collect();
        (name(place), others)
    };
    texts.iter().map(of).collect()
}

/// The files of a program, by their modules.
fn texts(root: &Path) -> BTreeMap<Place, Text> {
    let mut texts = BTreeMap::new();
    let folder = root.parent().expect("a file is in a folder").to_path_buf();
    let mut open = vec![(Place::new(), root.to_path_buf(), folder)];
    while let Some((place, file, folder)) = open.pop() {
        let text = read(&std::fs::read_to_string(&file).expect("a source"));
        for child in text.children.iter().filter(|child| child.last().is_some_and(|name| name != "tests")) {
            let path = child.iter().fold(folder.clone(), |path, name| path.join(name));
            let files = [path.with_extension("rs"), path.join("mod.rs")];
            // One with a path of its own belongs to another program.
            let Some(file) = files.into_iter().find(|file| file.is_file()) else { continue };
            open.push(([&place[..], child].concat(), file, path));
        }
        texts.insert(place, text);
    }
    texts
}

/// The module of a file that a path in another one leads to; `None` for a library's.
fn resolve(texts: &BTreeMap<Place, Text>, from: &Place, path: &Named, depth: usize) -> Option<Place> {
    let mut at = [&from[..], &path.inside].concat();
    let mut names = &path.names[..];
    match names.first()?.as_str() {
        "crate" => {
            at.clear();
            names = &names[1..];
        }
        "self" | "super" => {}
        first => {
            let is_child = texts.contains_key(&[&from[..], &[first.to_owned()]].concat());
            match texts[from].imported.get(first).filter(|_| !is_child && depth < 8) {
                Some(import) if import.names != path.names => {
                    let names = [&import.names[..], &names[1..]].concat();
                    return resolve(texts, from, &Named { inside: import.inside.clone(), names }, depth + 1);
                }
                _ if !is_child => return None,
                _ => at.clone_from(from),
            }
        }
    }
    while let Some(("self" | "super", rest)) = names.split_first().map(|(name, rest)| (name.as_str(), rest)) {
        if names[0] == "super" {
            at.pop();
        }
        names = rest;
    }
    while let Some((name, rest)) = names.split_first() {
        let below = [&at[..], std::slice::from_ref(name)].concat();
        if !texts.contains_key(&below) {
            break;
        }
        (at, names) = (below, rest);
    }
    while !texts.contains_key(&at) {
        at.pop(); // a module in a file
    }
    let import = names.first().and_then(|name| texts[&at].imported.get(name));
    match import.filter(|_| at != *from && depth < 8) {
        Some(import) => {
            let names = [&import.names[..], &names[1..]].concat();
            resolve(texts, &at, &Named { inside: import.inside.clone(), names }, depth + 1)
        }
        None => Some(at),
    }
}

/// Reads a file.
fn read(source: &str) -> Text {
    let tokens = tokens(source);
    let token = |at: usize| tokens.get(at).map_or("", String::as_str);
    let (mut text, mut depth, mut at) = (Text::default(), 0, 0);
    let mut inside: Vec<(String, usize)> = Vec::new();
    while at < tokens.len() {
        let place: Place = inside.iter().map(|(name, _)| name.clone()).collect();
        let is_test = place.iter().any(|name| name == "tests");
        let starts_path = ["crate", "self", "super"].contains(&token(at)) && token(at + 1) == "::";
        let is_visibility = at > 1 && token(at - 1) == "in" && token(at - 2) == "(";
        match token(at) {
            "mod" if token(at + 2) == "{" => inside.push((tokens[at + 1].clone(), depth)),
            "mod" if token(at + 2) == ";" => {
                text.children.push([&place[..], &[tokens[at + 1].clone()]].concat());
            }
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                inside.retain(|(_, from)| *from < depth);
            }
            "use" if !is_test && token(at + 1) != "<" => {
                let end = at + tokens[at..].iter().position(|token| token == ";").unwrap_or_default();
                for (names, alias) in tree(&tokens[at + 1..end], &[]) {
                    let named = Named { inside: place.clone(), names };
                    text.paths.push(named.clone());
                    text.imported.insert(alias, named);
                }
                at = end;
            }
            _ if starts_path && !is_test && !is_visibility => {
                let mut names = vec![tokens[at].clone()];
                while token(at + 1) == "::" && is_name(token(at + 2)) {
                    names.push(tokens[at + 2].clone());
                    at += 2;
                }
                text.paths.push(Named { inside: place, names });
            }
            _ => {}
        }
        at += 1;
    }
    text
}

/// The paths of a `use`, each with the name that it has here.
fn tree(tokens: &[String], before: &[String]) -> Vec<(Place, String)> {
    let list = tokens.iter().position(|token| token == "{");
    let names = |tokens: &[String]| tokens.iter().filter(|token| is_name(token)).cloned().collect::<Place>();
    let Some(open) = list else {
        let (path, alias) = match tokens.iter().position(|token| token == "as") {
            Some(at) => (names(&tokens[..at]), tokens.get(at + 1).cloned()),
            None => (names(tokens), None),
        };
        let mut path = [before, &path].concat();
        if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
            path.pop();
        }
        let is_glob = tokens.last().is_some_and(|token| token == "*");
        let alias = alias.or_else(|| path.last().cloned()).filter(|_| !is_glob);
        return if path.is_empty() { Vec::new() } else { vec![(path, alias.unwrap_or_else(|| "*".into()))] };
    };
    let before = [before, &names(&tokens[..open])].concat();
    let (mut depth, mut begin, mut all) = (0, open + 1, Vec::new());
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if (depth == 1 && token == ",") || depth == 0 {
            if begin < at {
                all.extend(tree(&tokens[begin..at], &before));
            }
            begin = at + 1;
        }
    }
    all
}

fn is_name(token: &str) -> bool {
    token.starts_with(|letter: char| letter.is_alphabetic() || letter == '_')
}

/// The names and marks of a text, without comments and literals.
fn tokens(source: &str) -> Vec<String> {
    let letters: Vec<char> = source.chars().collect();
    let letter = |at: usize| letters.get(at).copied().unwrap_or('\0');
    let find = |from: usize, end: &[char]| {
        let windows = letters.get(from..).unwrap_or_default().windows(end.len());
        windows
            .enumerate()
            .find(|(_, window)| *window == end)
            .map_or(letters.len(), |(n, _)| from + n + end.len())
    };
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < letters.len() {
        let hashes = letters[at + 1..].iter().take_while(|letter| **letter == '#').count();
        match (letters[at], letter(at + 1)) {
            ('/', '/') => at = find(at, &['\n']),
            ('/', '*') => at = find(at + 2, &['*', '/']),
            ('r', '"' | '#') if letter(at + 1 + hashes) == '"' => {
                let end: Vec<char> = std::iter::once('"').chain(vec!['#'; hashes]).collect();
                at = find(at + 2 + hashes, &end);
            }
            ('"', _) => {
                at += 1;
                while at < letters.len() && letters[at] != '"' {
                    at += if letters[at] == '\\' { 2 } else { 1 };
                }
                at += 1;
            }
            ('\'', '\\') => at = find(at + 3, &['\'']),
            ('\'', _) if letter(at + 2) == '\'' => at += 3,
            (':', ':') => {
                tokens.push("::".into());
                at += 2;
            }
            (first, _) if first.is_alphanumeric() || first == '_' => {
                let word =
                    letters[at..].iter().take_while(|letter| letter.is_alphanumeric() || **letter == '_');
                let word: String = word.collect();
                at += word.chars().count();
                tokens.push(word);
            }
            (mark, _) => {
                if !mark.is_whitespace() {
                    tokens.push(mark.into());
                }
                at += 1;
            }
        }
    }
    tokens
}
