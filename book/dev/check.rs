//! What a finished book must hold, looked up in its sources and in its pages.
//!
//! *Sources*: every `{{#include}}` finds its file and its anchor; every block of Rust, CUDA or C comes
//! from the sources by an anchor, so that the book cannot show code that the tests do not run. Shell
//! commands and plain output are typed. A typed number that names a report is that report's ([`crate::typed`]), in
//! the documents beside the book as well.
//!
//! *Pages*: every link and anchor leads somewhere; no directive and no formula is left as it was written;
//! every picture says in words what it shows; nothing is escaped twice; no script, style, font or picture is
//! fetched from elsewhere, and every one that a style sheet names is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::html::{Token, tokens, unescape};
use crate::markdown::{Block, Piece, line_of, pieces};
use crate::{Error, Fault};

/// How much was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// HTML files.
    pub pages: usize,
    /// Links within the book.
    pub links: usize,
    /// Formulas.
    pub formulas: usize,
    /// Drawings and pictures.
    pub pictures: usize,
}

/// Builds the book into a folder of its own and checks its pages.
///
/// # Errors
/// Every fault that was found, or why the book could not be built.
pub fn check(root: &Path) -> Result<Seen, Error> {
    documents(root)?;
    let folder = tempfile::tempdir().map_err(|source| Error::File { path: std::env::temp_dir(), source })?;
    pages(&crate::build(root, Some(folder.path()))?)
}

/// Holds what the documents beside the book type to the recorded reports.
fn documents(root: &Path) -> Result<(), Error> {
    let (reports, mut faults) = (reports(&root.join("src"))?, Vec::new());
    for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        let text = crate::read(&root.join("..").join(name))?;
        faults.extend(crate::typed::faults(name, &text, &reports));
    }
    if faults.is_empty() { Ok(()) } else { Err(Error::Faults(faults)) }
}

fn reports(src: &Path) -> Result<Vec<crate::results::Report>, Error> {
    let fault = |what| Error::Faults(vec![Fault { at: "src/results".into(), what }]);
    crate::results::read(&src.join("results")).map_err(fault)
}

/// The faults of the Markdown files.
///
/// # Errors
/// Where a file cannot be read.
pub fn sources(src: &Path) -> Result<Vec<Fault>, Error> {
    let (reports, mut faults) = (reports(src)?, Vec::new());
    for path in crate::files(src, "md")? {
        let text = crate::read(&path)?;
        let name = slashed(path.strip_prefix(src).unwrap_or(&path));
        faults.extend(crate::typed::faults(&name, &text, &reports));
        let at = |line| format!("{name}:{line}");
        let folder = path.parent().unwrap_or(src);
        for (line, include) in includes(&text) {
            faults.extend(missing(folder, include).map(|what| Fault { at: at(line), what }));
        }
        for piece in pieces(&text) {
            if let Piece::Block(block) = piece {
                faults.extend(typed_by_hand(&block).map(|what| Fault { at: at(block.line), what }));
            }
        }
    }
    Ok(faults)
}

/// The words of every `{{#include words}}` with its line.
fn includes(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices("{{#include ").filter_map(move |(at, mark)| {
        let from = &text[at + mark.len()..];
        let words = from.split_once("}}")?.0.trim();
        Some((line_of(text, from), words))
    })
}

/// What an include does not find: its file or its anchor.
fn missing(folder: &Path, include: &str) -> Option<String> {
    let (file, anchor) = include.split_once(':').unwrap_or((include, ""));
    let Ok(text) = std::fs::read_to_string(folder.join(file)) else {
        return Some(format!("includes `{file}`, which is not there"));
    };
    let has =
        |mark: &str| text.lines().any(|line| line.split_once(mark).is_some_and(|(_, n)| n.trim() == anchor));
    let found = anchor.is_empty() || (has("ANCHOR: ") && has("ANCHOR_END: "));
    (!found).then(|| format!("includes the anchor `{anchor}` of `{file}`, which has no such pair of marks"))
}

/// What is wrong with a code block: a language that must come from the sources, or none at all.
fn typed_by_hand(block: &Block<'_>) -> Option<String> {
    let language = block.info.split(|c: char| !c.is_alphanumeric() && c != '+').next().unwrap_or("");
    match language {
        "" => Some("a code block without a language; plain output is `text`".into()),
        "rust" | "cuda" | "c" | "cpp" | "c++" | "cu" | "ptx" if !only_anchored(block.body) => {
            Some(format!("a block of {language} that is not included from the sources by an anchor"))
        }
        _ => None,
    }
}

fn only_anchored(body: &str) -> bool {
    let anchored = |line: &str| line.starts_with("{{#include ") && line.ends_with("}}") && line.contains(':');
    body.lines().map(str::trim).filter(|line| !line.is_empty()).all(anchored)
}

/// A page read once.
struct Page {
    /// Below the book's folder, with `/` between the parts.
    name: String,
    ids: BTreeSet<String>,
    links: Vec<String>,
    faults: Vec<String>,
    formulas: usize,
    pictures: usize,
    based_on_root: bool,
    /// Inside a picture that has not yet been told in words.
    untold: bool,
}

/// Checks the pages of a built book.
///
/// # Errors
/// Every fault that was found.
pub fn pages(folder: &Path) -> Result<Seen, Error> {
    let mut pages = BTreeMap::new();
    for path in crate::files(folder, "html")? {
        let name = slashed(path.strip_prefix(folder).unwrap_or(&path));
        pages.insert(name.clone(), Page::read(name, &crate::read(&path)?));
    }
    let mut faults = stylesheets(folder)?;
    for page in pages.values() {
        let broken = page.links.iter().filter_map(|link| broken(folder, &pages, page, link));
        let all = page.faults.iter().cloned().chain(broken);
        faults.extend(all.map(|what| Fault { at: page.name.clone(), what }));
    }
    if faults.is_empty() { Ok(seen(&pages)) } else { Err(Error::Faults(faults)) }
}

fn seen(pages: &BTreeMap<String, Page>) -> Seen {
    Seen {
        pages: pages.len(),
        links: pages.values().map(|page| page.links.len()).sum(),
        formulas: pages.values().map(|page| page.formulas).sum(),
        pictures: pages.values().map(|page| page.pictures).sum(),
    }
}

/// What is wrong with one page by itself: text left unrendered, pictures without words, addresses
/// elsewhere.
pub fn page(html: &str) -> Vec<String> {
    Page::read(String::new(), html).faults
}

impl Page {
    fn read(name: String, html: &str) -> Page {
        let mut page = Page {
            name,
            ids: BTreeSet::new(),
            links: Vec::new(),
            faults: Vec::new(),
            formulas: 0,
            pictures: 0,
            based_on_root: false,
            untold: false,
        };
        let mut verbatim: Vec<String> = Vec::new();
        for token in tokens(html) {
            match token {
                Token::Text(text) => {
                    if verbatim.is_empty() {
                        page.text(text);
                    }
                    if verbatim.iter().all(|element| element == "text") {
                        page.escaped_once(&unescape(text));
                    }
                }
                Token::Tag { name, attributes } => {
                    follow(&mut verbatim, &name);
                    page.tag(&name, &attributes);
                }
            }
        }
        page
    }

    /// Prose must hold nothing that a preprocessor should have taken away.
    fn text(&mut self, text: &str) {
        let command =
            text.match_indices('\\').any(|(at, _)| text[at + 1..].starts_with(|c: char| c.is_alphabetic()));
        if text.contains("{{#") || text.contains("$$") || command {
            self.faults.push(format!("left unrendered: `{}`", text.trim()));
        }
    }

    /// What a browser shows outside code holds no name of a character: that was escaped twice.
    fn escaped_once(&mut self, shown: &str) {
        if let Some(entity) = entity(shown) {
            self.faults.push(format!("escaped twice: `{entity}` in `{}`", shown.trim()));
        }
    }

    fn tag(&mut self, name: &str, attributes: &[(String, String)]) {
        for (_, value) in attributes {
            self.escaped_once(value);
        }
        let get =
            |wanted: &str| attributes.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
        self.ids.extend(get("id"));
        match name {
            "a" => self.links.extend(get("href").filter(|link| !is_external(link))),
            "base" => self.based_on_root = true,
            "title" => self.untold = false,
            "/svg" => self.describe(),
            "math" => self.formulas += 1,
            "img" | "svg" => self.picture(name, get("alt").or(get("aria-label")), get("role").as_deref()),
            _ => {}
        }
        if name != "a" {
            self.resource(name, get("src").or(if name == "link" { get("href") } else { None }));
        }
    }

    /// A picture is to be told in words: by an attribute, or by a drawing's own title. mdBook's icons are
    /// decoration and say so by having no role.
    fn picture(&mut self, name: &str, words: Option<String>, role: Option<&str>) {
        if name == "img" || role == Some("img") {
            self.pictures += 1;
            self.untold = words.is_none_or(|words| words.trim().is_empty());
            if name == "img" {
                self.describe();
            }
        }
    }

    fn describe(&mut self) {
        if std::mem::take(&mut self.untold) {
            self.faults.push("a picture without a text that says what it shows".into());
        }
    }

    /// Scripts, styles, fonts and pictures lie beside the pages.
    fn resource(&mut self, name: &str, address: Option<String>) {
        match address {
            Some(address) if is_external(&address) => {
                self.faults.push(format!("<{name}> is fetched from elsewhere: {address}"));
            }
            Some(address) => self.links.push(address),
            None => {}
        }
    }
}

/// Keeps the open elements whose text is shown or kept as it stands; `text` is a line in a drawing.
fn follow(verbatim: &mut Vec<String>, tag: &str) {
    match tag.strip_prefix('/') {
        Some(name) if verbatim.last().is_some_and(|open| open == name) => drop(verbatim.pop()),
        None if matches!(tag, "code" | "pre" | "script" | "style" | "annotation" | "text") => {
            verbatim.push(tag.into());
        }
        _ => {}
    }
}

/// The first `&name;` or `&#1;` of a text.
fn entity(text: &str) -> Option<&str> {
    text.match_indices('&').find_map(|(at, _)| {
        let name = text[at + 1..].split_once(';')?.0;
        let plain = name.strip_prefix('#').unwrap_or(name);
        let known = !plain.is_empty() && plain.chars().all(|c| c.is_ascii_alphanumeric());
        known.then(|| &text[at..at + name.len() + 2])
    })
}

fn is_external(address: &str) -> bool {
    let scheme =
        address.split_once(':').is_some_and(|(scheme, _)| scheme.chars().all(|c| c.is_ascii_alphabetic()));
    address.starts_with("//") || (scheme && !address.starts_with("data:"))
}

/// Why a link within the book leads nowhere.
fn broken(folder: &Path, pages: &BTreeMap<String, Page>, from: &Page, link: &str) -> Option<String> {
    if link.starts_with("data:") {
        return None;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() { from.name.clone() } else { resolve(from, file) };
    match pages.get(&target) {
        Some(page) if anchor.is_empty() || page.ids.contains(anchor) => None,
        Some(_) => Some(format!("links to {target}#{anchor}, but the page has no such anchor")),
        None if folder.join(&target).is_file() => None,
        None => Some(format!("links to {link}, which is not there")),
    }
}

/// The name of a linked file below the book's folder.
fn resolve(from: &Page, file: &str) -> String {
    let base = if from.based_on_root {
        Path::new("")
    } else {
        Path::new(&from.name).parent().unwrap_or(Path::new(""))
    };
    let mut path = PathBuf::new();
    for part in base.join(file.trim_start_matches('/')).components() {
        match part {
            std::path::Component::ParentDir => drop(path.pop()),
            std::path::Component::Normal(part) => path.push(part),
            _ => {}
        }
    }
    slashed(&path)
}

fn slashed(path: &Path) -> String {
    path.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// Style sheets that fetch from elsewhere, or name a file that is not there.
fn stylesheets(folder: &Path) -> Result<Vec<Fault>, Error> {
    let mut faults = Vec::new();
    for path in crate::files(folder, "css")? {
        let text = crate::read(&path)?;
        let fetches = ["url(http", "url('http", "url(\"http", "url(//", "@import"];
        if let Some(mark) = fetches.into_iter().find(|mark| text.contains(mark)) {
            let at = slashed(path.strip_prefix(folder).unwrap_or(&path));
            faults.push(Fault { at, what: format!("`{mark}` fetches from elsewhere") });
        } else {
            let beside = path.parent().unwrap_or(folder);
            let gone = addresses(&text).filter(|address| !beside.join(address).is_file());
            let at = || slashed(path.strip_prefix(folder).unwrap_or(&path));
            faults.extend(
                gone.map(|file| Fault { at: at(), what: format!("names `{file}`, which is not there") }),
            );
        }
    }
    Ok(faults)
}

/// The files that a style sheet names by `url(..)`.
fn addresses(css: &str) -> impl Iterator<Item = &str> {
    let inside = css.split("url(").skip(1).filter_map(|from| from.split_once(')'));
    let addresses = inside.map(|(address, _)| address.trim().trim_matches(['\'', '"']));
    addresses
        .map(|address| address.split(['?', '#']).next().unwrap_or(""))
        .filter(|a| !a.starts_with("data:"))
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seen { pages, links, formulas, pictures } = self;
        write!(f, "{pages} pages, {links} links, {formulas} formulas, {pictures} pictures")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The faults of a book whose only page is this one.
    fn faults(html: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("index.html"), html).unwrap();
        match pages(folder.path()) {
            Err(Error::Faults(faults)) => faults.into_iter().map(|fault| fault.what).collect(),
            other => other.map(|_| Vec::new()).unwrap(),
        }
    }

    #[test]
    fn a_broken_link_is_found() {
        assert_eq!(faults("<a href='gone.html'>x</a>"), ["links to gone.html, which is not there"]);
        assert_eq!(
            faults("<a href='#b'>x</a><p id=a>"),
            ["links to index.html#b, but the page has no such anchor"]
        );
        assert!(faults("<a href='#a'>x</a><p id=a><a href='https://example.org'>").is_empty());
    }

    #[test]
    fn what_was_left_unrendered_is_found_outside_code() {
        for text in ["{{#rubric nf4}}", "$$x$$", r"\frac{1}{2}"] {
            assert_eq!(faults(&format!("<p>{text}</p>")), [format!("left unrendered: `{text}`")]);
            assert!(faults(&format!("<pre><code>{text}</code></pre>")).is_empty());
            assert!(faults(&format!("<svg><text>{text}</text></svg>")).is_empty());
        }
    }

    #[test]
    fn nothing_is_fetched_from_elsewhere() {
        assert_eq!(faults("<script src='//x.org/a.js'></script>").len(), 1);
        assert_eq!(faults("<link rel=stylesheet href='https://x.org/a.css'>").len(), 1);
    }

    #[test]
    fn what_is_escaped_twice_is_found() {
        for html in [
            "<p>a &amp;lt; b</p>",
            "<svg><text>&amp;#39;</text></svg>",
            "<math><mtext>&amp;nbsp;</mtext></math>",
        ] {
            assert!(faults(html)[0].starts_with("escaped twice: `&"), "{html}: {:?}", faults(html));
        }
        let label = "<svg role='img' aria-label='&amp;lt;'></svg>";
        assert_eq!(faults(label), ["escaped twice: `&lt;` in `&lt;`"]);
        for html in [
            "<p>a &lt; b &amp; c; d</p>",
            "<code>&amp;lt;</code>",
            "<svg role='img' aria-label='&lt;'></svg>",
        ] {
            assert!(faults(html).is_empty(), "{html}: {:?}", faults(html));
        }
    }

    #[test]
    fn a_font_that_a_style_sheet_names_is_there() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.css"), "@font-face { src: url('fonts/a.woff2?v=1') }").unwrap();
        let named = |error: Error| error.to_string();
        assert_eq!(
            pages(folder.path()).map_err(named),
            Err("a.css: names `fonts/a.woff2`, which is not there".into())
        );
        std::fs::create_dir(folder.path().join("fonts")).unwrap();
        std::fs::write(folder.path().join("fonts/a.woff2"), "").unwrap();
        assert!(pages(folder.path()).is_ok());
    }

    #[test]
    fn a_picture_without_words_is_found() {
        assert_eq!(faults("<svg role='img'></svg>"), ["a picture without a text that says what it shows"]);
        assert_eq!(faults("<img src='index.html'>").len(), 1);
        assert!(faults("<svg role='img'><title>a line</title></svg>").is_empty());
    }

    /// The faults of a book source of one chapter beside `code.rs`.
    fn source_faults(chapter: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("code.rs"), "// ANCHOR: a\nfn a() {}\n// ANCHOR_END: a\n").unwrap();
        std::fs::write(folder.path().join("one.md"), chapter).unwrap();
        sources(folder.path()).unwrap().into_iter().map(|fault| fault.to_string()).collect()
    }

    #[test]
    fn a_missing_include_is_found() {
        assert!(source_faults("```rust\n{{#include code.rs:a}}\n```\n").is_empty());
        let want = "one.md:2: includes the anchor `b` of `code.rs`, which has no such pair of marks";
        assert_eq!(source_faults("```rust\n{{#include code.rs:b}}\n```\n"), [want]);
        assert_eq!(
            source_faults("```rust\n{{#include gone.rs:a}}\n```\n"),
            ["one.md:2: includes `gone.rs`, which is not there"]
        );
    }

    #[test]
    fn code_typed_by_hand_is_found() {
        let want = "one.md:3: a block of rust that is not included from the sources by an anchor";
        assert_eq!(source_faults("a\n\n```rust,ignore\nlet a = 1;\n```\n"), [want]);
        assert_eq!(source_faults("```\nls\n```\n").len(), 1);
        assert!(source_faults("```sh\ncargo grader\n```\n").is_empty());
    }
}
