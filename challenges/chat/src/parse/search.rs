//! A pattern looked for in a text that grows.
//!
//! All ways a match can go are followed at once, one byte at a time, the preferred ones first (Thompson's simulation in
//! the order that Pike gave it): so the first answer that nothing preferred can overtake is the match that a
//! backtracking matcher finds, at a cost of at most the text's length times the pattern's, and of a look into a table
//! where the ways have gone before. Between two texts the ways stay where they are. The earliest beginning among them
//! is what has to be held back.

use std::ops::Range;

use super::lazy_dfa::{IDLE, LazyDfa, Move, NONE};
use super::pattern::{Ahead, Literal, Pattern};
use crate::contract::Find;

/// Where a pattern matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The first byte.
    pub start: usize,
    /// Behind the last byte.
    pub end: usize,
    /// Two places for each group.
    slots: Vec<usize>,
}

impl Found {
    /// Where the group whose first slot is `slot` lies, if it took part.
    pub fn group(&self, slot: usize) -> Option<Range<usize>> {
        let (start, end) = (*self.slots.get(slot)?, *self.slots.get(slot + 1)?);
        (start != NONE && end != NONE).then_some(start..end)
    }
}

/// What is known of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The next match, which nothing can change.
    Match,
    /// No match begins before this place; what comes decides about the rest.
    Until(usize),
    /// There is none, and none will come.
    Never,
}

/// How far to look: to the byte `until`, and as long as a match could begin at or before `beside`.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// At least so far.
    pub until: usize,
    /// Farther, while a match may begin here or before.
    pub beside: Option<usize>,
}

impl Reach {
    /// To the end of the text.
    pub const ALL: Self = Self { until: usize::MAX, beside: None };
}

/// The next match of a pattern, as far as it is known.
#[derive(Debug)]
pub struct Search {
    main: Scan,
    ahead: Option<Box<Scan>>,
    from: usize,
    known: Option<Known>,
}

impl Search {
    /// A search from the beginning of a text.
    pub fn new(pattern: &Pattern) -> Self {
        let ahead = pattern.ahead.as_ref().map(|ahead| Box::new(Scan::new(&ahead.pattern)));
        Self { main: Scan::new(pattern), ahead, from: 0, known: None }
    }

    /// The match that [`Known::Match`] speaks of.
    pub fn found(&self) -> &Found {
        &self.main.best
    }

    /// Whether the next match is known.
    pub fn matched(&self) -> bool {
        self.known == Some(Known::Match)
    }

    /// What the last look found, if there was one since the last [`Self::seek`].
    pub fn known(&self) -> Option<Known> {
        self.known
    }

    /// Asks for the first match that begins at `from` or later; `from` never goes back.
    pub fn seek(&mut self, from: usize) {
        self.from = from;
        if self.known != Some(Known::Never) {
            self.main.seek(from);
            self.known = None;
        }
    }

    /// Looks on; `ended` if the text will not grow.
    pub fn advance(&mut self, pattern: &Pattern, text: &str, ended: bool, reach: Reach) -> Known {
        let final_answer = matches!(self.known, Some(Known::Match | Known::Never));
        if final_answer {
            return self.known.unwrap_or(Known::Never);
        }
        let known = match (&pattern.literal, &pattern.ahead, &mut self.ahead) {
            (Some(literal), ..) => self.main.literal(literal, text, ended),
            (_, Some(ahead), Some(scan)) => {
                both(pattern, &mut self.main, ahead, scan, self.from, text, ended, reach)
            }
            _ => self.main.advance(pattern, text, ended, reach),
        };
        self.known = Some(known);
        known
    }
}

/// The first match that begins where the look-ahead holds.
#[expect(clippy::too_many_arguments, reason = "two patterns, their states, and the text")]
fn both(
    pattern: &Pattern,
    main: &mut Scan,
    ahead: &Ahead,
    scan: &mut Scan,
    from: usize,
    text: &str,
    ended: bool,
    reach: Reach,
) -> Known {
    if pattern.empty && !main.settled {
        main.best = Found { start: from.max(main.from), end: from.max(main.from), slots: Vec::new() };
        main.settled = true;
    }
    loop {
        let known = main.advance(pattern, text, ended, reach);
        if known != Known::Match {
            return known;
        }
        let start = main.best.start;
        scan.anchored = !ahead.anywhere;
        scan.seek(start);
        let there = match scan.advance(&ahead.pattern, text, ended, Reach::ALL) {
            Known::Until(_) => return Known::Until(start),
            known => known == Known::Match,
        };
        let gone = ahead.anywhere && !there && !ahead.negative;
        if there != ahead.negative {
            return Known::Match;
        }
        let Some(next) = text[start..].chars().next().filter(|_| !gone) else {
            return if gone || ended { Known::Never } else { Known::Until(start) };
        };
        main.seek(start + next.len_utf8());
        if pattern.empty {
            let from = main.from;
            main.best = Found { start: from, end: from, slots: Vec::new() };
            main.settled = true;
        }
    }
}

/// A search for a pattern without what has to follow it.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is asked for alone")]
struct Scan {
    from: usize,
    at: usize,
    /// Whether a match that begins here is among the ways.
    opened: bool,
    dfa: LazyDfa,
    state: u32,
    live: bool,
    /// For each row of the state, `width` places.
    rows: Vec<usize>,
    spare: Vec<usize>,
    width: usize,
    best: Found,
    has_best: bool,
    settled: bool,
    never: bool,
    anchored: bool,
}

impl Scan {
    fn new(pattern: &Pattern) -> Self {
        Self {
            from: 0,
            at: 0,
            opened: false,
            dfa: LazyDfa::take(pattern),
            state: IDLE,
            live: false,
            rows: Vec::new(),
            spare: Vec::new(),
            width: pattern.nfa.group_info().slot_len().max(2),
            best: Found::default(),
            has_best: false,
            settled: false,
            never: false,
            anchored: false,
        }
    }

    /// What was found stays found if it begins late enough, and so does what is on its way.
    fn seek(&mut self, from: usize) {
        let begun = if self.live { self.rows.first().copied().unwrap_or(NONE) } else { NONE };
        let best = if self.has_best || self.settled { self.best.start } else { NONE };
        let earliest = begun.min(best);
        let kept =
            !self.anchored && from >= self.from && earliest >= from && (self.settled || self.at >= from);
        if kept || self.never && !self.anchored {
            return;
        }
        self.from = from;
        self.at = from;
        self.opened = false;
        self.state = IDLE;
        self.live = false;
        (self.has_best, self.settled, self.never) = (false, false, false);
    }

    /// The earliest place where a match may still begin.
    fn hold(&self) -> usize {
        let begun = self.rows.first().copied().filter(|_| self.live).unwrap_or(self.at);
        if self.has_best { begun.min(self.best.start) } else { begun }
    }

    fn advance(&mut self, pattern: &Pattern, text: &str, ended: bool, reach: Reach) -> Known {
        while !self.settled && !self.never {
            if self.at >= reach.until && reach.beside.is_none_or(|beside| self.hold() > beside) {
                return Known::Until(self.hold());
            }
            if !self.opened && !self.open(pattern, text, ended) {
                break;
            }
            if self.at >= text.len() {
                return self.at_end(ended);
            }
            self.run(pattern, text.as_bytes(), reach.until);
            if !decided(pattern, text, self.at + 1, ended) {
                return Known::Until(self.hold());
            }
            self.step(pattern, text);
        }
        match (self.settled, self.never) {
            (true, _) => Known::Match,
            (_, true) => Known::Never,
            _ if self.at >= text.len() => self.at_end(ended),
            _ => Known::Until(self.hold()),
        }
    }

    /// Looks for a text that is a marker as it stands, from the first place on where it can begin. A step's answer
    /// outside of the text counts as none.
    fn literal(&mut self, literal: &Literal, text: &str, ended: bool) -> Known {
        let Literal { text: literal, steps } = literal;
        self.at += begin_of(literal, text.get(self.at..).unwrap_or_default());
        let rest = text.get(self.at..).unwrap_or_default();
        let place = if rest.is_empty() { Find::Pending(0) } else { steps.chat().find(rest, literal) };
        match place {
            Find::Found(place) if text.get(self.at + place..self.at + place + literal.len()).is_some() => {
                let start = self.at + place;
                self.best = Found { start, end: start + literal.len(), slots: Vec::new() };
                self.at = start;
                (self.has_best, self.settled) = (true, true);
            }
            Find::Pending(place) if text.get(self.at + place..).is_some() => {
                self.at += place;
                self.never = ended;
            }
            _ => self.never = ended,
        }
        match (self.settled, self.never) {
            (true, _) => Known::Match,
            (_, true) => Known::Never,
            _ => Known::Until(self.at),
        }
    }

    /// Goes to the next place where a match can begin, or to the end of the text.
    fn skip(&mut self, pattern: &Pattern, text: &str) {
        let bytes = &text.as_bytes()[self.at..];
        let begins = |&byte: &u8| pattern.first[usize::from(byte)];
        self.at += match &pattern.prefix {
            Some(prefix) => prefix.begin(bytes),
            None => bytes.iter().position(begins).unwrap_or(bytes.len()),
        };
    }

    fn at_end(&mut self, ended: bool) -> Known {
        if !ended {
            return Known::Until(self.hold());
        }
        self.settled = self.has_best;
        self.never = !self.has_best;
        if self.settled { Known::Match } else { Known::Never }
    }

    /// Opens the ways of a match that begins here, after those that began before; false if all is known, or if what
    /// comes decides.
    fn open(&mut self, pattern: &Pattern, text: &str, ended: bool) -> bool {
        if !self.live && !self.has_best && !self.anchored {
            self.skip(pattern, text);
        }
        if !decided(pattern, text, self.at, ended) {
            return false;
        }
        let next = text.as_bytes().get(self.at);
        let Some(begins) =
            next.map(|&byte| pattern.first[usize::from(byte)]).or(pattern.at_end.then_some(true))
        else {
            return false;
        };
        let allowed = !self.has_best && (!self.anchored || self.at == self.from);
        if begins && allowed && text.is_char_boundary(self.at) {
            self.go(pattern, text, Move::Begin);
        }
        self.opened = true;
        self.never = self.anchored && !self.has_best && !self.live;
        !self.settled && !self.never
    }

    /// Takes bytes as long as all is known of them: no match begins or ends, and no place changes.
    fn run(&mut self, pattern: &Pattern, bytes: &[u8], until: usize) {
        let begins = !self.has_best && !self.anchored;
        let (mut state, mut at) = (self.state, self.at);
        while self.live && at + 2 < bytes.len() && at < until {
            let Some(to) = self.dfa.self_loop(state, bytes[at]) else { break };
            if begins && pattern.first[usize::from(bytes[at + 1])] && !self.dfa.begins_nothing(to) {
                break;
            }
            state = to;
            at += 1;
        }
        (self.state, self.at) = (state, at);
    }

    /// All ways take the next byte.
    fn step(&mut self, pattern: &Pattern, text: &str) {
        let byte = text.as_bytes()[self.at];
        self.at += 1;
        self.opened = false;
        if self.live {
            self.go(pattern, text, Move::Byte(byte));
        }
        self.never = self.anchored && !self.has_best && !self.live;
    }

    /// Moves all ways, and takes the most preferred that has come to its end; those after it are gone.
    fn go(&mut self, pattern: &Pattern, text: &str, how: Move) {
        let index = self.dfa.go(pattern, text, self.at, self.state, how);
        let step = self.dfa.step(index);
        let from = if let Move::Byte(_) = how { self.at - 1 } else { self.at };
        if let Some(row) = &step.matched {
            row.write(&self.rows, self.width, from, self.at, &mut self.best.slots);
            let marked = pattern.ends.iter().map(|&slot| self.best.slots[slot]).find(|&end| end != NONE);
            self.best.start = self.best.slots[0];
            self.best.end = marked.unwrap_or(self.at);
            self.has_best = true;
        }
        if !step.same_rows {
            step.fill(&mut self.rows, self.width, from, &mut self.spare);
        }
        self.live = !step.rows.is_empty();
        self.state = step.to;
        self.settled = self.has_best && !self.live;
    }
}

/// Where the first byte of `literal` stands first: nothing before it can be a part of one.
fn begin_of(literal: &str, text: &str) -> usize {
    let first = literal.as_bytes().first();
    first.and_then(|&first| memchr::memchr(first, text.as_bytes())).unwrap_or(text.len())
}

/// Whether all that an assertion at `at` asks for is known.
fn decided(pattern: &Pattern, text: &str, at: usize, ended: bool) -> bool {
    !pattern.peeks || ended || !matches!(text.as_bytes().get(at..), None | Some(b"" | b"\n"))
}
