//! A pattern looked for in a text that grows.
//!
//! All ways a match can go are followed at once, one byte at a time, the preferred ones first (Thompson's simulation in
//! the order that Pike gave it): so the first answer that nothing preferred can overtake is the match that a
//! backtracking matcher finds, at a cost of at most the text's length times the pattern's. Between two texts the ways
//! stay where they are. The earliest beginning among them is what has to be held back.

use regex_automata::nfa::thompson::State;
use regex_automata::util::primitives::StateID;

use super::pattern::{Ahead, Pattern, holds};

/// No place yet.
const NONE: usize = usize::MAX;

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
    /// The text of the group whose first slot is `slot`, if the group took part.
    pub fn group<'t>(&self, text: &'t str, slot: usize) -> Option<&'t str> {
        text.get(*self.slots.get(slot)?..*self.slots.get(slot + 1)?)
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
    ahead: Option<Scan>,
    from: usize,
    known: Option<Known>,
}

impl Search {
    /// A search from the beginning of a text.
    pub fn new(pattern: &Pattern) -> Self {
        let ahead = pattern.ahead.as_ref().map(|ahead| Scan::new(&ahead.pattern));
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
        let known = match (&pattern.ahead, &mut self.ahead) {
            (Some(ahead), Some(scan)) => both(pattern, &mut self.main, ahead, scan, self.from, text, ended, reach),
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

/// The ways that a match can go, preferred ones first.
#[derive(Debug, Default)]
struct Ways {
    order: Vec<StateID>,
    slots: Vec<usize>,
    seen: Vec<u64>,
    round: u64,
}

impl Ways {
    fn new(states: usize) -> Self {
        Self { order: Vec::new(), slots: Vec::new(), seen: vec![0; states], round: 1 }
    }

    /// Whether a state is seen for the first time in this round.
    fn visit(&mut self, id: StateID) -> bool {
        std::mem::replace(&mut self.seen[id.as_usize()], self.round) != self.round
    }

    fn clear(&mut self) {
        self.order.clear();
        self.slots.clear();
        self.round += 1;
    }
}

/// What is left to do while ways are opened.
#[derive(Debug)]
enum Todo {
    Open(StateID),
    Restore(usize, usize),
}

/// A search for a pattern without what has to follow it.
#[derive(Debug)]
struct Scan {
    from: usize,
    at: usize,
    opened: bool,
    ways: Ways,
    next: Ways,
    width: usize,
    live: bool,
    best: Found,
    has_best: bool,
    settled: bool,
    never: bool,
    anchored: bool,
    scratch: Vec<usize>,
    todo: Vec<Todo>,
}

impl Scan {
    fn new(pattern: &Pattern) -> Self {
        let states = pattern.nfa.states().len();
        let width = pattern.nfa.group_info().slot_len().max(2);
        Self {
            from: 0,
            at: 0,
            opened: false,
            ways: Ways::new(states),
            next: Ways::new(states),
            width,
            live: false,
            best: Found::default(),
            has_best: false,
            settled: false,
            never: false,
            anchored: false,
            scratch: Vec::new(),
            todo: Vec::new(),
        }
    }

    /// What was found stays found if it begins late enough, and so does what is on its way.
    fn seek(&mut self, from: usize) {
        let begun = if self.live { self.ways.slots.first().copied().unwrap_or(NONE) } else { NONE };
        let best = if self.has_best || self.settled { self.best.start } else { NONE };
        let earliest = begun.min(best);
        let kept = !self.anchored && from >= self.from && earliest >= from && (self.settled || self.at >= from);
        if kept || self.never && !self.anchored {
            return;
        }
        self.from = from;
        self.at = from;
        self.opened = false;
        self.ways.clear();
        self.live = false;
        (self.has_best, self.settled, self.never) = (false, false, false);
    }

    /// The earliest place where a match may still begin.
    fn hold(&self) -> usize {
        let begun = self.ways.slots.first().copied().filter(|_| self.live).unwrap_or(self.at);
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

    /// Goes to the next place where a match can begin, or to the end of the text.
    fn skip(&mut self, pattern: &Pattern, text: &str) {
        let bytes = &text.as_bytes()[self.at..];
        let found = match pattern.only {
            Some(only) => memchr::memchr(only, bytes),
            None => bytes.iter().position(|&byte| pattern.first[usize::from(byte)]),
        };
        self.at += found.unwrap_or(bytes.len());
    }

    fn at_end(&mut self, ended: bool) -> Known {
        if !ended {
            return Known::Until(self.hold());
        }
        self.settled = self.has_best;
        self.never = !self.has_best;
        if self.settled { Known::Match } else { Known::Never }
    }

    /// Opens the ways of a match that begins here, behind those that began before; false if all is known, or if what
    /// comes decides.
    fn open(&mut self, pattern: &Pattern, text: &str, ended: bool) -> bool {
        if !self.live && !self.has_best && !self.anchored {
            self.skip(pattern, text);
        }
        if !decided(pattern, text, self.at, ended) {
            return false;
        }
        self.settle(pattern);
        if self.settled || self.never {
            return false;
        }
        let next = text.as_bytes().get(self.at);
        let Some(begins) = next.map(|&byte| pattern.first[usize::from(byte)]).or(pattern.at_end.then_some(true))
        else {
            return false;
        };
        let allowed = !self.has_best && (!self.anchored || self.at == self.from);
        if begins && allowed && text.is_char_boundary(self.at) {
            self.begin(pattern, text);
            self.settle(pattern);
        }
        self.opened = true;
        self.never = self.anchored && !self.has_best && !self.live;
        !self.settled && !self.never
    }

    fn begin(&mut self, pattern: &Pattern, text: &str) {
        self.scratch.clear();
        self.scratch.resize(self.width, NONE);
        self.scratch[0] = self.at;
        let way = Way { pattern, text, at: self.at, width: self.width };
        way.follow(pattern.nfa.start_anchored(), &mut self.scratch, &mut self.ways, &mut self.todo);
    }

    /// Takes the most preferred way that has come to its end, and drops those behind it.
    fn settle(&mut self, pattern: &Pattern) {
        let ends = |id: &StateID| matches!(pattern.nfa.state(*id), State::Match { .. });
        if let Some(place) = self.ways.order.iter().position(ends) {
            let slots = &self.ways.slots[place * self.width..(place + 1) * self.width];
            let marked = pattern.ends.iter().map(|&slot| slots[slot]).find(|&end| end != NONE);
            self.best.start = slots[0];
            self.best.end = marked.unwrap_or(self.at);
            self.best.slots.clear();
            self.best.slots.extend_from_slice(slots);
            self.has_best = true;
            self.ways.order.truncate(place);
            self.ways.slots.truncate(place * self.width);
        }
        self.live = !self.ways.order.is_empty();
        self.settled = self.has_best && !self.live;
    }

    /// All ways take the next byte.
    fn step(&mut self, pattern: &Pattern, text: &str) {
        let byte = text.as_bytes()[self.at];
        let way = Way { pattern, text, at: self.at + 1, width: self.width };
        self.next.clear();
        for (place, &id) in self.ways.order.iter().enumerate() {
            let target = match pattern.nfa.state(id) {
                State::ByteRange { trans } => trans.matches_byte(byte).then_some(trans.next),
                State::Sparse(sparse) => sparse.matches_byte(byte),
                State::Dense(dense) => dense.matches_byte(byte),
                _ => None,
            };
            if let Some(target) = target {
                self.scratch.clear();
                self.scratch.extend_from_slice(&self.ways.slots[place * self.width..(place + 1) * self.width]);
                way.follow(target, &mut self.scratch, &mut self.next, &mut self.todo);
            }
        }
        std::mem::swap(&mut self.ways, &mut self.next);
        self.at += 1;
        self.live = !self.ways.order.is_empty();
        self.opened = false;
    }
}

/// Whether all that an assertion at `at` asks for is known.
fn decided(pattern: &Pattern, text: &str, at: usize, ended: bool) -> bool {
    !pattern.peeks || ended || !matches!(text.as_bytes().get(at..), None | Some(b"" | b"\n"))
}

/// What a way is followed in.
struct Way<'a> {
    pattern: &'a Pattern,
    text: &'a str,
    at: usize,
    width: usize,
}

impl Way<'_> {
    /// Opens a way and all that it leads to without a byte, preferred ones first.
    fn follow(&self, id: StateID, slots: &mut [usize], ways: &mut Ways, todo: &mut Vec<Todo>) {
        todo.push(Todo::Open(id));
        while let Some(next) = todo.pop() {
            match next {
                Todo::Restore(slot, old) => slots[slot] = old,
                Todo::Open(id) => self.follow_one(id, slots, ways, todo),
            }
        }
    }

    fn follow_one(&self, mut id: StateID, slots: &mut [usize], ways: &mut Ways, todo: &mut Vec<Todo>) {
        let nfa = &self.pattern.nfa;
        while ways.visit(id) {
            match nfa.state(id) {
                State::Union { alternates } => {
                    todo.extend(alternates.iter().rev().map(|&id| Todo::Open(id)));
                    return;
                }
                State::BinaryUnion { alt1, alt2 } => {
                    todo.push(Todo::Open(*alt2));
                    id = *alt1;
                }
                State::Capture { next, slot, .. } => {
                    let slot = slot.as_usize();
                    if slot != 0 {
                        todo.push(Todo::Restore(slot, slots[slot]));
                        slots[slot] = self.at;
                    }
                    id = *next;
                }
                State::Look { look, next } if holds(nfa, *look, self.text, self.at) => id = *next,
                State::Look { .. } | State::Fail => return,
                _ => {
                    ways.order.push(id);
                    ways.slots.extend_from_slice(&slots[..self.width]);
                    return;
                }
            }
        }
    }
}
