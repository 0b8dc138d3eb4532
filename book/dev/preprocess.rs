//! The preprocessor: chapters in, chapters with everything filled in out.
//!
//! It runs after mdBook's own `links`, so that included sources are already in place, and it fails where
//! mdBook would only log: a missing file or anchor of an `{{#include}}` leaves a hole in the page.

use std::io::{Read, Write};
use std::path::Path;

use mdbook_preprocessor::book::Book;
use mdbook_preprocessor::errors::{Error, Result};
use mdbook_preprocessor::{Preprocessor, PreprocessorContext, parse_input};

use crate::markdown::{Piece, pieces};
use crate::{Fault, check, directive};

/// The preprocessor of this book; `[preprocessor.warpbook]` in `book.toml`.
#[derive(Clone, Copy, Debug)]
pub struct Warpbook;

impl Preprocessor for Warpbook {
    fn name(&self) -> &'static str {
        "warpbook"
    }

    fn run(&self, ctx: &PreprocessorContext, mut book: Book) -> Result<Book> {
        let src = ctx.root.join(&ctx.config.book.src);
        let mut faults = check::sources(&src).map_err(Error::new)?;
        book.for_each_chapter_mut(|chapter| {
            let at = chapter.source_path.as_ref().map_or(chapter.name.clone(), |p| p.display().to_string());
            match fill(&chapter.content, &src) {
                Ok(content) => chapter.content = content,
                Err(wrong) => faults.extend(wrong.into_iter().map(|what| Fault { at: at.clone(), what })),
            }
        });
        if faults.is_empty() { Ok(book) } else { Err(Error::new(crate::Error::Faults(faults))) }
    }

    fn supports_renderer(&self, renderer: &str) -> Result<bool> {
        Ok(supports(renderer))
    }
}

/// Whether the pages of a renderer can hold what is filled in: HTML only.
pub fn supports(renderer: &str) -> bool {
    renderer == "html"
}

/// Speaks mdBook's protocol on stdin and stdout.
///
/// # Errors
/// As [`answer`].
pub fn stdin_to_stdout() -> std::result::Result<(), crate::Error> {
    answer(std::io::stdin(), std::io::stdout())
}

/// mdBook's protocol: `[context, book]` comes as JSON, the book goes back.
///
/// # Errors
/// Where the input is no such JSON, or a chapter has a fault.
pub fn answer(from: impl Read, to: impl Write) -> std::result::Result<(), crate::Error> {
    let (ctx, book) = parse_input(from).map_err(|error| crate::mdbook(&error))?;
    let book = Warpbook.run(&ctx, book).map_err(|error| crate::mdbook(&error))?;
    serde_json::to_writer(to, &book).map_err(|error| crate::Error::Mdbook(error.to_string()))
}

/// Fills in the directives and formulas of one chapter; code stays as it is.
fn fill(chapter: &str, src: &Path) -> std::result::Result<String, Vec<String>> {
    let mut out = String::new();
    let mut wrong = Vec::new();
    for piece in pieces(chapter) {
        match piece {
            Piece::Span(code) => out += code,
            Piece::Block(block) => out += block.whole,
            Piece::Text(text) => match directive::expand(text, src) {
                Ok(filled) => out += &filled,
                Err(what) => wrong.push(what),
            },
        }
    }
    if wrong.is_empty() { Ok(out) } else { Err(wrong) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A book of one chapter, and the folder that it lies in.
    fn book(chapter: &str) -> (tempfile::TempDir, PreprocessorContext, Book) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("src")).unwrap();
        std::fs::write(folder.path().join("src/SUMMARY.md"), "[One](one.md)\n").unwrap();
        std::fs::write(folder.path().join("src/one.md"), chapter).unwrap();
        let loaded = mdbook_driver::MDBook::load(folder.path()).unwrap();
        let ctx = PreprocessorContext::new(loaded.root, loaded.config, "html".into());
        (folder, ctx, loaded.book)
    }

    #[test]
    fn the_protocol_gives_what_the_library_gives() {
        let (_folder, ctx, book) = book("# One\n\n$a$ `$b$` {{#rubric nf4}}\n");
        let input = serde_json::to_vec(&(&ctx, &book)).unwrap();
        let mut output = Vec::new();
        answer(input.as_slice(), &mut output).unwrap();
        let answered: Book = serde_json::from_slice(&output).unwrap();
        assert_eq!(answered, Warpbook.run(&ctx, book).unwrap());
    }

    #[test]
    fn a_fault_names_its_chapter() {
        let (_folder, ctx, book) = book("{{#rubric nf5}}\n\n```rust\n{{#include gone.rs:a}}\n```\n");
        let error = Warpbook.run(&ctx, book).unwrap_err().to_string();
        assert_eq!(
            error,
            "one.md:4: includes `gone.rs`, which is not there\none.md: no rubric has the name `nf5`"
        );
    }
}
