//! Where a Markdown text is code and where it is not.
//!
//! A `$` in a shell command is no formula, and a `{{#` in a code block is no directive. This cuts a chapter
//! into pieces of three kinds: fenced blocks, code spans, and the rest. It knows no more of Markdown than
//! that: fences of backticks or tildes, up to three spaces in; spans of any number of backticks within a
//! paragraph. Indented code blocks are not used in this book (a test of [`crate::check`] would see a formula
//! left in one).

/// A piece of a chapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Anything but code.
    Text(&'a str),
    /// A code span with its backticks.
    Span(&'a str),
    /// A fenced block.
    Block(Block<'a>),
}

/// A fenced code block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// The whole block with its fences and the last line break.
    pub whole: &'a str,
    /// What stands after the opening fence: `rust`, `sh`, `text`.
    pub info: &'a str,
    /// The lines between the fences.
    pub body: &'a str,
    /// Line of the opening fence, from 1.
    pub line: usize,
}

/// Cuts a chapter into its pieces; put together again they are the chapter.
pub fn pieces(markdown: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = markdown;
    while let Some((before, block, after)) = next_block(rest, line_of(markdown, rest)) {
        spans(before, &mut pieces);
        pieces.push(Piece::Block(block));
        rest = after;
    }
    spans(rest, &mut pieces);
    pieces
}

/// The number, from 1, of the line on which `rest`, a tail of `whole`, begins.
pub fn line_of(whole: &str, rest: &str) -> usize {
    whole[..whole.len() - rest.len()].matches('\n').count() + 1
}

/// The first fenced block of `text`, with what stands before and after it.
fn next_block(text: &str, first_line: usize) -> Option<(&str, Block<'_>, &str)> {
    let mut at = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if let Some((fence, info)) = opening(line) {
            let body = &text[at + line.len()..];
            let (body, after) = until_closed(body, fence);
            let whole = &text[at..text.len() - after.len()];
            return Some((&text[..at], Block { whole, info, body, line: first_line + number }, after));
        }
        at += line.len();
    }
    None
}

/// The fence's own characters and its info string, where a line opens a block.
fn opening(line: &str) -> Option<(&str, &str)> {
    let inner = line.trim_start_matches(' ');
    let mark = inner.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let info = inner.trim_start_matches(mark);
    let fence = &inner[..inner.len() - info.len()];
    (line.len() - inner.len() <= 3 && fence.len() >= 3 && !info.contains('`')).then(|| (fence, info.trim()))
}

/// Splits after the line that closes `fence`: (body, after).
fn until_closed<'a>(text: &'a str, fence: &str) -> (&'a str, &'a str) {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let inner = line.trim();
        if inner.starts_with(fence) && inner.trim_start_matches(&fence[..1]).is_empty() {
            return (&text[..at], &text[at + line.len()..]);
        }
        at += line.len();
    }
    (text, "")
}

/// Cuts a text without fenced blocks into code spans and the rest.
fn spans<'a>(text: &'a str, pieces: &mut Vec<Piece<'a>>) {
    let mut rest = text;
    while let Some((before, span, after)) = next_span(rest) {
        push_text(before, pieces);
        pieces.push(Piece::Span(span));
        rest = after;
    }
    push_text(rest, pieces);
}

fn push_text<'a>(text: &'a str, pieces: &mut Vec<Piece<'a>>) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
}

/// The first code span: as many backticks at its end as at its beginning, no blank line between.
fn next_span(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    while let Some(start) = text[from..].find('`').map(|i| from + i) {
        let ticks = ticks_at(text, start);
        if let Some(end) = closing(text, start + ticks, ticks) {
            return Some((&text[..start], &text[start..end], &text[end..]));
        }
        from = start + ticks;
    }
    None
}

fn closing(text: &str, from: usize, ticks: usize) -> Option<usize> {
    let paragraph = text[from..].find("\n\n").map_or(text.len(), |i| from + i);
    let mut at = from;
    while let Some(next) = text[at..paragraph].find('`').map(|i| at + i) {
        let run = ticks_at(text, next);
        if run == ticks {
            return Some(next + run);
        }
        at = next + run;
    }
    None
}

fn ticks_at(text: &str, at: usize) -> usize {
    text[at..].bytes().take_while(|b| *b == b'`').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_together_are_the_chapter() {
        let chapter = "a `b $x$` c ``d`e``\n\n```rust,ignore\nlet a = `1`;\n```\nx ` y\n~~~\nunclosed";
        let whole: String = pieces(chapter)
            .into_iter()
            .map(|piece| match piece {
                Piece::Text(text) | Piece::Span(text) => text,
                Piece::Block(block) => block.whole,
            })
            .collect();
        assert_eq!(whole, chapter);
    }

    #[test]
    fn a_block_knows_its_language_body_and_line() {
        let Piece::Block(block) = pieces("one\n\n```sh\nls $HOME\n```\nafter")[1] else { panic!("no block") };
        assert_eq!((block.info, block.body, block.line), ("sh", "ls $HOME\n", 3));
    }

    #[test]
    fn a_lone_backtick_opens_nothing() {
        assert_eq!(pieces("a ` b"), [Piece::Text("a ` b")]);
    }
}
