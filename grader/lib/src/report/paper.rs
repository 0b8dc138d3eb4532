//! A page of terminal text: lines that never pass the width, coloured or plain.
//!
//! Width is counted in terminal columns: combining marks take none, East Asian wide characters and most
//! pictographs two (Unicode Standard Annex 11, coarse ranges). Every text is cleaned on its way in, so no
//! caller can forget it. Colours are four, chosen from the 256-colour cube to stay apart for every common
//! colour blindness on light and dark grounds: blue for good, orange for bad, grey for quiet, and bold.

use super::clean;

/// How a span looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// As the terminal writes.
    Plain,
    /// Headings and totals.
    Bold,
    /// What is secondary.
    Quiet,
    /// Points won.
    Good,
    /// Points lost, wrong answers.
    Bad,
    /// A tripped guard.
    Alarm,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "1",
            Self::Quiet => "38;5;243",
            Self::Good => "38;5;32",
            Self::Bad => "38;5;166",
            Self::Alarm => "1;7;38;5;166",
        }
    }
}

/// Lines written so far.
#[derive(Debug)]
pub struct Paper {
    color: bool,
    width: usize,
    out: String,
}

/// Columns of the lines that a compiler lays out itself.
pub const COMPILER_COLUMNS: usize = 160;

impl Paper {
    /// An empty page; widths below 40 columns are taken as 40.
    pub fn new(color: bool, width: usize) -> Self {
        Self { color, width: width.max(40), out: String::new() }
    }

    /// Columns of a line.
    pub fn width(&self) -> usize {
        self.width
    }

    /// What was written.
    pub fn finish(self) -> String {
        self.out
    }

    /// One line of spans; what does not fit is cut.
    pub fn line(&mut self, spans: &[(Style, &str)]) {
        let mut room = self.width;
        let mut texts = Vec::new();
        for (_, text) in spans {
            texts.push(cut(&clean(text).replace('\n', " "), room));
            room -= columns(&texts[texts.len() - 1]);
        }
        trim_end(&mut texts);
        for ((style, _), text) in spans.iter().zip(&texts) {
            self.span(*style, text);
        }
        self.out.push('\n');
    }

    /// An empty line.
    pub fn gap(&mut self) {
        self.out.push('\n');
    }

    /// A rule across the page.
    pub fn rule(&mut self) {
        self.line(&[(Style::Quiet, &"\u{2500}".repeat(self.width))]);
    }

    /// A sentence after `lead`, wrapped at words; further lines begin under the sentence's first word.
    pub fn wrapped(&mut self, lead: &[(Style, &str)], style: Style, text: &str) {
        let indent: usize = lead.iter().map(|(_, text)| columns(&clean(text))).sum();
        let blank = " ".repeat(indent.min(self.width / 2));
        for (i, line) in wrap(&clean(text), self.width - blank.len()).iter().enumerate() {
            if i == 0 && indent == blank.len() {
                self.line(&[lead, &[(style, line)]].concat());
            } else {
                self.line(&[(Style::Plain, &blank), (style, line)]);
            }
        }
    }

    /// Lines as they are, indented, up to [`COMPILER_COLUMNS`]: a folded line would leave its caret behind.
    pub fn unfolded(&mut self, indent: usize, style: Style, text: &str) {
        let blank = " ".repeat(indent);
        for line in clean(text).lines() {
            self.span(Style::Plain, &blank);
            self.span(style, &cut(line.trim_end(), COMPILER_COLUMNS - indent));
            self.out.push('\n');
        }
    }

    /// One line that is there to be copied: never cut, however narrow the page is.
    pub fn whole(&mut self, indent: usize, style: Style, text: &str) {
        self.span(Style::Plain, &" ".repeat(indent));
        self.span(style, &clean(text).replace('\n', " "));
        self.out.push('\n');
    }

    /// Lines as they are, indented; long ones go on below their own indentation.
    pub fn verbatim(&mut self, indent: usize, style: Style, text: &str) {
        let blank = " ".repeat(indent);
        for line in clean(text).lines() {
            for part in folded(line.trim_end(), self.width - indent) {
                self.line(&[(Style::Plain, &blank), (style, &part)]);
            }
        }
    }

    fn span(&mut self, style: Style, text: &str) {
        let code = if self.color && !text.trim().is_empty() { style.code() } else { "" };
        let parts =
            if code.is_empty() { [text, "", "", "", ""] } else { ["\u{1b}[", code, "m", text, "\u{1b}[0m"] };
        self.out.extend(parts);
    }
}

/// Takes the blanks off a line's end, over as many spans as they fill.
fn trim_end(texts: &mut [String]) {
    for text in texts.iter_mut().rev() {
        text.truncate(text.trim_end_matches(' ').len());
        if !text.is_empty() {
            return;
        }
    }
}

/// Terminal columns of a text without control characters.
pub fn columns(text: &str) -> usize {
    text.chars().map(column).sum()
}

/// The text followed by spaces up to `width` columns.
pub fn left(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(columns(text))))
}

/// The text after spaces up to `width` columns.
pub fn right(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(columns(text))))
}

/// Lines of at most `width` columns, broken at spaces; a longer word is broken anywhere.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace().flat_map(|word| chunks(word, width)) {
        let last = lines.len() - 1;
        if lines[last].is_empty() {
            lines[last] = word;
        } else if columns(&lines[last]) + 1 + columns(&word) <= width {
            lines[last].extend([" ", &word]);
        } else {
            lines.push(word);
        }
    }
    lines
}

/// `lead` and a text after it in lines of at most `width` columns, all but the first indented. A word is never
/// broken, and what stands between backticks is one word: a command or a path is there to be copied.
pub fn hanging(lead: &str, text: &str, indent: usize, width: usize) -> String {
    let (mut out, mut used) = (lead.to_owned(), columns(lead));
    let mut first = true;
    for word in words(text) {
        if !first && used + 1 + columns(word) > width {
            out = format!("{}\n{}", out.trim_end(), " ".repeat(indent));
            used = indent;
        } else if !first {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += columns(word);
        first = false;
    }
    format!("{}\n", out.trim_end())
}

/// Words between spaces; spaces between backticks separate none.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let parts = text.split(move |c: char| {
        quoted ^= c == '`';
        c.is_whitespace() && !quoted
    });
    parts.filter(|word| !word.is_empty())
}

fn column(c: char) -> usize {
    match c as u32 {
        0x300..=0x36f | 0x200b..=0x200d | 0x20d0..=0x20ff | 0xfe00..=0xfe0f | 0xe0100..=0xe01ef => 0,
        0x1100..=0x115f
        | 0x2e80..=0x303e
        | 0x3041..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1faff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

fn cut(text: &str, room: usize) -> String {
    chunks(text, room).swap_remove(0)
}

/// A line folded at its last space before the width; what follows stands four columns deeper than the line.
fn folded(line: &str, width: usize) -> Vec<String> {
    let first = cut(line, width);
    if first.len() == line.len() {
        return vec![first];
    }
    let own = line.len() - line.trim_start().len();
    let at = first.rfind(' ').filter(|at| *at > own.max(width / 2)).unwrap_or(first.len());
    let blank = " ".repeat((own + 4).min(width / 2));
    let rest = line[at..].trim_start();
    let more = wrap(rest, width - blank.len()).into_iter().map(|part| format!("{blank}{part}"));
    std::iter::once(line[..at].to_owned()).chain(more).collect()
}

/// Pieces of at most `width` columns; at least one, perhaps empty.
fn chunks(text: &str, width: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut used = 0;
    for c in text.chars() {
        if used + column(c) > width {
            pieces.push(String::new());
            used = 0;
        }
        used += column(c);
        let last = pieces.len() - 1;
        pieces[last].push(c);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_wrap_and_long_words_break() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrap("\u{6f22}\u{5b57}\u{6f22}", 4), ["\u{6f22}\u{5b57}", "\u{6f22}"]);
        assert_eq!(wrap("", 4), [""]);
    }

    #[test]
    fn a_hanging_text_breaks_no_word_and_no_command() {
        let message = hanging("Next:  ", "one two `cargo grader hint A.1` three", 2, 16);
        assert_eq!(message, "Next:  one two\n  `cargo grader hint A.1`\n  three\n");
        assert_eq!(hanging("", "", 4, 10), "\n");
        assert_eq!(
            hanging("    ", "/a/path/longer/than/the/line x", 4, 10),
            "    /a/path/longer/than/the/line\n    x\n"
        );
        assert_eq!(hanging("", "an open ` quote stays", 1, 80), "an open ` quote stays\n");
    }

    #[test]
    fn no_line_passes_the_width_and_no_escape_passes_at_all() {
        let mut paper = Paper::new(false, 40);
        let nasty =
            "\u{1b}[31mred\u{1b}[0m and a wordthatisfarlongerthanthewholelineofthispaper \u{6f22}\u{5b57}"
                .repeat(4);
        paper.line(&[(Style::Bad, &nasty), (Style::Good, &nasty)]);
        paper.wrapped(
            &[(Style::Bold, "a lead that takes more than half of the line: ")],
            Style::Plain,
            &nasty,
        );
        paper.verbatim(6, Style::Quiet, &nasty);
        let text = paper.finish();
        assert!(!text.contains('\u{1b}') && !text.contains("[31m"));
        assert!(text.lines().all(|line| columns(line) <= 40), "{text}");
    }
}
