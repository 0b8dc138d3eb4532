//! A model's text: its tokens, where two texts part, and what comes out of one that arrives in pieces.

use std::ops::Range;

use super::Rect;
use super::plot::{Anchor, CODE, Ink, Plot, WIDTH};

const LEFT: f64 = 8.0;
const RIGHT: f64 = WIDTH - 8.0;

/// What a special token is for; each has a colour and a frame of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It begins or ends a turn: a frame.
    Turn,
    /// It begins or ends a call: a frame with a bar on its left.
    Call,
    /// It begins or ends a result: a frame with bars on both sides.
    Result,
}

impl Role {
    const ALL: [(Role, &str); 3] = [(Self::Turn, "turn"), (Self::Call, "call"), (Self::Result, "result")];

    fn ink(self) -> Ink {
        match self {
            Self::Turn => Ink::Attempt,
            Self::Call => Ink::Threshold,
            Self::Result => Ink::Bound,
        }
    }

    fn bars(self) -> [bool; 2] {
        [self != Self::Turn, self == Self::Result]
    }
}

/// A token of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its characters.
    pub text: String,
    /// Its number.
    pub id: usize,
    /// What it is for, if it is a special one.
    pub role: Option<Role>,
    /// Whether it is trained.
    pub trained: bool,
}

/// Characters of a token that are shown.
const LONGEST: usize = 65;

const LINE: f64 = 35.0;
const ID: f64 = 7.6;

/// A prompt token by token: the text in its lines, each token's number beneath it, what is trained underlined.
pub fn prompt(title: &str, pieces: &[Piece]) -> String {
    let mut plot = Plot::new(title, &describe(pieces));
    let mut left = LEFT;
    for (role, name) in Role::ALL {
        framed(&mut plot, Rect { x: left, y: 27.0, width: 12.0, height: 13.0 }, role);
        plot.text((left + 17.0, 37.5), Anchor::Start, Ink::Quiet, name);
        left += 30.0 + 5.9 * name.chars().count() as f64;
    }
    underlined(&mut plot, left, left + 14.0, 39.0);
    plot.text((left + 19.0, 37.5), Anchor::Start, Ink::Quiet, "trained");
    plot.text((RIGHT, 37.5), Anchor::End, Ink::Quiet, "\u{b7} a space, \u{21b5} a line's end");
    let (mut x, mut y) = (LEFT, 50.0);
    for piece in pieces {
        let (words, width) = (cut(&piece.text, LONGEST), width(piece));
        if x + width > RIGHT {
            (x, y) = (LEFT, y + LINE);
        }
        if let Some(role) = piece.role {
            framed(&mut plot, Rect { x, y, width, height: 13.0 }, role);
        }
        plot.text((x + width / 2.0, y + 9.8), Anchor::Middle, Ink::Code, &words);
        plot.text((x + width / 2.0, y + 26.5), Anchor::Middle, Ink::Id, &piece.id.to_string());
        if piece.trained {
            underlined(&mut plot, x, x + width, y + 15.5);
        }
        x += width + 2.0;
        if piece.text.ends_with('\n') {
            (x, y) = (LEFT, y + LINE);
        }
    }
    plot.finish(if x > LEFT { y + LINE } else { y })
}

/// Characters that can be seen.
fn shown(text: &str) -> String {
    text.replace(' ', "\u{b7}").replace('\n', "\u{21b5}")
}

/// The same, cut where there is no room for more than `most`.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return shown(text);
    }
    shown(&text.chars().take(most.saturating_sub(1)).collect::<String>()) + "\u{2026}"
}

/// As wide as the token's characters, or as its number.
fn width(piece: &Piece) -> f64 {
    let characters = CODE * piece.text.chars().count().min(LONGEST) as f64;
    let frame = if piece.role.is_some() { 8.0 } else { 0.0 };
    (characters + frame).max(ID * piece.id.to_string().len() as f64).min(RIGHT - LEFT)
}

fn framed(plot: &mut Plot, at: Rect, role: Role) {
    plot.frame(at, role.ink(), 0.14);
    let (top, bottom) = (at.y, at.y + at.height);
    let [left, right] = role.bars();
    if left {
        plot.area((at.x, top), (at.x + 3.0, bottom), role.ink(), 1.0);
    }
    if right {
        plot.area((at.x + at.width - 3.0, top), (at.x + at.width, bottom), role.ink(), 1.0);
    }
}

fn underlined(plot: &mut Plot, from: f64, to: f64, y: f64) {
    plot.line((from, y), (to + 2.0, y), 2.0, Ink::Baseline);
}

fn describe(pieces: &[Piece]) -> String {
    let text: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
    let special = pieces.iter().filter(|piece| piece.role.is_some()).count();
    let trained = pieces.iter().filter(|piece| piece.trained);
    let own: String = trained.clone().map(|piece| piece.text.as_str()).collect();
    format!(
        "{} tokens, {special} of them special, {} trained. The text: {text} - Trained of it: {own}",
        pieces.len(),
        trained.count(),
    )
}

/// A text and what it is called.
pub type Named<'t> = (&'t str, &'t str);

/// How many characters of a line are shown before and after the place where it departs.
const AROUND: usize = 32;

/// Two texts, and an arrow at the first byte at which they differ.
pub fn difference(title: &str, texts: [Named<'_>; 2]) -> String {
    let [(one, first), (other, second)] = texts;
    let place = departs(first, second);
    let words = texts.map(|(name, text)| format!("{name}: {}", byte(text, place)));
    let mut plot =
        Plot::new(title, &format!("The first {place} bytes are equal. {}. {}.", words[0], words[1]));
    plot.text((LEFT, 37.0), Anchor::Start, Ink::Quiet, &format!("{place} bytes are equal"));
    for (row, (name, text)) in [(one, first), (other, second)].into_iter().enumerate() {
        let y = 54.0 + 46.0 * row as f64;
        let ink = if row == 0 { Ink::Attempt } else { Ink::Threshold };
        parted(&mut plot, y, ink, (name, text), place);
    }
    plot.finish(144.0)
}

/// The first byte at which two texts differ, moved to the beginning of its character.
pub fn departs(first: &str, second: &str) -> usize {
    let alike = first.bytes().zip(second.bytes()).take_while(|(a, b)| a == b).count();
    (0..=alike).rev().find(|at| first.is_char_boundary(*at) && second.is_char_boundary(*at)).unwrap_or(0)
}

/// What stands at a place, byte and character.
fn byte(text: &str, place: usize) -> String {
    match (text.as_bytes().get(place), text[place..].chars().next()) {
        (Some(byte), Some(c)) => format!("byte {place} is {byte:#04x}, {}", shown(&c.to_string())),
        _ => format!("the text ends at byte {place}"),
    }
}

/// One of the two: the line around the place, the character there marked, an arrow above it.
fn parted(plot: &mut Plot, y: f64, ink: Ink, (name, text): Named<'_>, place: usize) {
    let (before, after) = text.split_at(place);
    let line = before.rsplit('\n').next().unwrap_or_default();
    let cut = line.chars().count().saturating_sub(AROUND);
    let before: String = line.chars().skip(cut).collect();
    let after: String = after.split_inclusive('\n').next().unwrap_or_default().chars().take(AROUND).collect();
    let x = LEFT + CODE * (AROUND as f64 + 2.0);
    let wide = |text: &str| text.replace(' ', "\u{a0}").replace('\n', "\u{21b5}");
    plot.text((LEFT, y), Anchor::Start, Ink::Quiet, name);
    plot.text((x + 12.0, y), Anchor::Start, Ink::Text, &byte(text, place));
    plot.line((x + 3.0, y - 7.0), (x + 3.0, y + 6.0), 1.2, ink);
    plot.arrow(x + 3.0, y + 9.0, ink);
    plot.area((x, y + 11.0), (x + CODE, y + 25.0), ink, 0.25);
    plot.line((x, y + 25.0), (x + CODE, y + 25.0), 2.0, ink);
    plot.text((x, y + 21.0), Anchor::End, Ink::Code, &wide(&before));
    plot.text((x, y + 21.0), Anchor::Start, Ink::Code, &wide(&after));
}

/// What happens when a piece of a text arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The piece.
    pub piece: String,
    /// What is handed out: text of a field, or the name of what happens.
    pub out: Vec<Out>,
    /// What is held back after it.
    pub held: String,
}

/// Something that is handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Out {
    /// Text of the message's content.
    Content(String),
    /// Text of a call.
    Call(String),
    /// Something that happens, by its name.
    Event(String),
}

const ROW: f64 = 22.0;
const COLUMNS: Range<f64> = 132.0..352.0;

/// A text that arrives in pieces: a row for each, with what is handed out and what is held back.
pub fn stream(title: &str, arrivals: &[Arrival]) -> String {
    let mut plot = Plot::new(title, &arrivals.iter().map(said).collect::<String>());
    let heads = [(LEFT, "arrives"), (COLUMNS.start, "handed out"), (COLUMNS.end, "held back")];
    for (x, head) in heads {
        plot.text((x, 37.0), Anchor::Start, Ink::Quiet, head);
    }
    for (row, arrival) in arrivals.iter().enumerate() {
        let y = 44.0 + ROW * row as f64;
        plot.line((LEFT, y), (RIGHT, y), 1.0, Ink::Grid);
        plot.text((LEFT, y + 14.0), Anchor::Start, Ink::Code, &cut(&arrival.piece, 17));
        handed(&mut plot, y, &arrival.out);
        if !arrival.held.is_empty() {
            let to = COLUMNS.end + CODE * arrival.held.chars().count().min(14) as f64;
            plot.text((COLUMNS.end, y + 14.0), Anchor::Start, Ink::Code, &cut(&arrival.held, 14));
            plot.line((COLUMNS.end, y + 18.0), (to, y + 18.0), 1.5, Ink::Threshold);
        }
    }
    plot.finish(52.0 + ROW * arrivals.len() as f64)
}

/// Text of the content on one ground, of a call on another one with a bar; what happens in small letters. What there is
/// no room for is left out, and told in words only.
fn handed(plot: &mut Plot, y: f64, out: &[Out]) {
    let mut x = COLUMNS.start;
    for one in out {
        let room = COLUMNS.end - 8.0 - x;
        let width = match one {
            Out::Event(name) => noted(plot, (x, y), name, room),
            Out::Content(text) => grounded(plot, (x, y), (text, Ink::Attempt), room),
            Out::Call(text) => {
                plot.area((x - 4.0, y + 4.0), (x - 2.0, y + 18.0), Ink::Baseline, 1.0);
                grounded(plot, (x, y), (text, Ink::Baseline), room)
            }
        };
        x += width + 8.0;
    }
}

/// The name of what happens, if there is room; its width.
fn noted(plot: &mut Plot, (x, y): (f64, f64), name: &str, room: f64) -> f64 {
    let width = 5.9 * name.chars().count() as f64;
    if width <= room {
        plot.text((x, y + 14.0), Anchor::Start, Ink::Quiet, name);
    }
    width
}

/// As much of a text as there is room for, on a ground; its width.
fn grounded(plot: &mut Plot, (x, y): (f64, f64), (text, ink): (&str, Ink), room: f64) -> f64 {
    let words = cut(text, (room / CODE).max(0.0) as usize);
    let width = CODE * words.chars().count() as f64;
    if width <= room {
        plot.area((x - 2.0, y + 4.0), (x + width + 2.0, y + 18.0), ink, 0.2);
        plot.text((x, y + 14.0), Anchor::Start, Ink::Code, &words);
    }
    width
}

fn said(arrival: &Arrival) -> String {
    let one = |out: &Out| match out {
        Out::Content(text) => format!("content {text:?}"),
        Out::Call(text) => format!("call {text:?}"),
        Out::Event(name) => name.clone(),
    };
    let out: Vec<String> = arrival.out.iter().map(one).collect();
    let out = if out.is_empty() { "nothing is handed out".to_owned() } else { out.join(", ") };
    let held = if arrival.held.is_empty() { String::new() } else { format!("; {:?} is held", arrival.held) };
    format!("{:?} arrives: {out}{held}. ", arrival.piece)
}
