//! The map of a file: what stands in it, from its first byte to its last.
//!
//! Above, the whole file to scale. Below, its parts one by one, each with the byte that it begins at and how many it
//! has; of many of one kind the first and the last are shown, and between them how many there are.

use super::number::count;
use super::plot::{Anchor, CODE, Ink, Plot, StepKind, WIDTH};

/// What a part of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What a reader knows the file by.
    Header,
    /// A name with a value.
    Key,
    /// What is said of a tensor.
    Entry,
    /// Zeros that nobody reads.
    Padding,
    /// The bytes of a tensor.
    Data,
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it is.
    pub kind: Kind,
    /// The byte that it begins at.
    pub begin: usize,
    /// How many it has.
    pub bytes: usize,
    /// What it says.
    pub words: String,
}

/// A line of the figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its part, or several that are left out.
    pub part: Part,
    /// How many parts it stands for.
    pub parts: usize,
}

/// Parts of one kind that are shown before some are left out, and after.
const FIRST: usize = 3;
const LAST: usize = 1;

/// Where a line's columns are: the kind begins, the byte ends, the words begin, the count ends.
const COLUMNS: [f64; 4] = [8.0, 120.0, 132.0, WIDTH - 8.0];

/// Bytes of the largest file, whose numbers fit into their columns, and characters of a part's words beside them.
const MOST: usize = 9_999_999;
const WORDS: usize = 39;

const BAR: [f64; 2] = [32.0, 50.0];
const LINE: f64 = 16.0;

impl Kind {
    /// All of them, as they come in a file.
    pub const ALL: [Self; 5] = [Self::Header, Self::Key, Self::Entry, Self::Padding, Self::Data];

    fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Key => "keys",
            Self::Entry => "entries",
            Self::Padding => "padding",
            Self::Data => "data",
        }
    }

    fn ink(self) -> Ink {
        Ink::Step(match self {
            Self::Header => StepKind::Attention,
            Self::Key => StepKind::Product,
            Self::Entry => StepKind::Program,
            Self::Padding => StepKind::Scatter,
            Self::Data => StepKind::Dequantise,
        })
    }
}

/// The figure; nothing if the parts are none, do not follow each other from byte 0, or are 10 MB and more.
pub fn map(title: &str, parts: &[Part]) -> Option<String> {
    let bytes = parts.iter().try_fold(0, |at, part| (part.begin == at).then_some(at + part.bytes))?;
    if bytes == 0 || bytes > MOST {
        return None;
    }
    let sums = Kind::ALL.map(|kind| sum(parts, kind));
    let mut plot = Plot::new(title, &describe(bytes, &sums));
    bar(&mut plot, parts, bytes);
    let meanings = sums.map(|(kind, bytes)| (kind, format!("{} {} B", kind.name(), count(bytes as f64))));
    let meanings: Vec<(Kind, &str)> = meanings.iter().map(|(kind, words)| (*kind, words.as_str())).collect();
    let swatch = |plot: &mut Plot, (x, y): (f64, f64), kind: Kind| {
        plot.area((x, y - 9.0), (x + 10.0, y + 1.0), kind.ink(), 0.75);
    };
    let mut y = plot.entries(BAR[1] + 18.0, &meanings, swatch) + 26.0;
    plot.text((COLUMNS[1], y), Anchor::End, Ink::Quiet, "from byte");
    plot.text((COLUMNS[3], y), Anchor::End, Ink::Quiet, "bytes");
    let mut last = None;
    for line in lines(parts) {
        y += LINE;
        draw(&mut plot, y, &line, last != Some(line.part.kind));
        last = Some(line.part.kind);
    }
    Some(plot.finish(y + 10.0))
}

fn sum(parts: &[Part], kind: Kind) -> (Kind, usize) {
    (kind, parts.iter().filter(|part| part.kind == kind).map(|part| part.bytes).sum())
}

/// The file to scale.
fn bar(plot: &mut Plot, parts: &[Part], bytes: usize) {
    let at = |byte: usize| COLUMNS[0] + (COLUMNS[3] - COLUMNS[0]) * byte as f64 / bytes as f64;
    for run in parts.chunk_by(|a, b| a.kind == b.kind) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
        let (left, right) = (at(first.begin), at(last.begin + last.bytes));
        plot.area((left, BAR[0]), (right, BAR[1]), first.kind.ink(), 0.75);
    }
}

/// The lines that are drawn: all parts but those in the middle of many.
pub fn lines(parts: &[Part]) -> Vec<Line> {
    let mut lines = Vec::new();
    for run in parts.chunk_by(|a, b| a.kind == b.kind) {
        let one = |part: &Part| Line { part: part.clone(), parts: 1 };
        if run.len() <= FIRST + LAST + 1 {
            lines.extend(run.iter().map(one));
            continue;
        }
        let (first, rest) = run.split_at(FIRST);
        let (middle, last) = rest.split_at(rest.len() - LAST);
        let bytes = middle.iter().map(|part| part.bytes).sum();
        let words = format!("{} more", middle.len());
        lines.extend(first.iter().map(one));
        lines.push(Line {
            part: Part { kind: run[0].kind, begin: middle[0].begin, bytes, words },
            parts: middle.len(),
        });
        lines.extend(last.iter().map(one));
    }
    lines
}

fn draw(plot: &mut Plot, y: f64, Line { part, parts }: &Line, begins: bool) {
    let [kind, byte, words, bytes] = COLUMNS;
    if begins {
        plot.line((kind, y - 12.0), (bytes, y - 12.0), 1.0, Ink::Grid);
        plot.text((kind, y), Anchor::Start, Ink::Text, part.kind.name());
    }
    plot.area((words - 8.0, y - 11.0), (words - 4.0, y + 3.0), part.kind.ink(), 0.75);
    plot.text((byte, y), Anchor::End, Ink::Id, &count(part.begin as f64));
    let ink = if *parts == 1 { Ink::Code } else { Ink::Quiet };
    plot.text((words, y), Anchor::Start, ink, &cut(&part.words));
    plot.text((bytes, y), Anchor::End, Ink::Id, &count(part.bytes as f64));
}

/// Words that fit into their column.
fn cut(words: &str) -> String {
    if words.chars().count() <= WORDS {
        return words.to_owned();
    }
    words.chars().take(WORDS - 1).chain(['…']).collect()
}

const _: () = assert!(COLUMNS[2] + CODE * WORDS as f64 <= COLUMNS[3] - 62.0); // nine characters of a count

fn describe(bytes: usize, sums: &[(Kind, usize)]) -> String {
    let one = |(kind, bytes): &(Kind, usize)| format!("{} bytes of {}", count(*bytes as f64), kind.name());
    let all = sums.iter().map(one).collect::<Vec<_>>().join(", ");
    format!("A file of {} bytes: {all}.", count(bytes as f64))
}
