//! A lazy DFA with captures: the ways that a match can go, and a cache of where they went before.
//!
//! A state is a list of ways, preferred ones first: for each the automaton's state, and a row of places where groups
//! began and ended. Where a byte leads depends on the list alone, not on the places; so it is worked out once, with the
//! orders that fill the new rows, and kept. Near assertions that depend on the text it is worked out anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use regex_automata::nfa::thompson::State;
use regex_automata::util::primitives::StateID;

use super::pattern::{Pattern, holds};

/// No place yet.
pub(super) const NONE: usize = usize::MAX;

/// The state without a way.
pub(super) const IDLE: u32 = 0;

/// How many states are kept, of 2 KiB each, before the cache is cleared.
const MOST_STATES: usize = 1024;

/// How many steps are kept.
const MOST_STEPS: usize = 1 << 16;

/// How many ways and rows are kept, of some 80 bytes each, before the cache is cleared.
const MOST_ENTRIES: usize = 1 << 17;

/// Rows up to so many are searched one by one.
const SCANNED: usize = 16;

/// Columns of the table: one a byte, and one for a match that begins.
const COLUMNS: usize = 257;

/// How ways are moved.
#[derive(Clone, Copy, Debug)]
pub(super) enum Move {
    /// A match begins here, after all others.
    Begin,
    /// All take a byte.
    Byte(u8),
}

/// How a row is filled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CaptureRow {
    /// The row before, if there is one.
    from: Option<usize>,
    /// A bit for each slot that is where the move began.
    before: u64,
    /// A bit for each slot that is where the move ends. It is written down only if the way goes on from there: most
    /// ways that a group's end opens do not.
    here: u64,
}

impl CaptureRow {
    /// All places of a way that ends at `at`; the move began at `from`.
    pub(super) fn write(&self, rows: &[usize], width: usize, from: usize, at: usize, out: &mut Vec<usize>) {
        out.clear();
        self.append(rows, width, from, out);
        mark(out, self.here, at);
    }

    fn fill(&self, rows: &mut [usize], place: usize, width: usize, from: usize) {
        match self.from {
            Some(old) if old == place => {}
            Some(old) => (0..width).for_each(|slot| rows[place * width + slot] = rows[old * width + slot]),
            None => rows[place * width..(place + 1) * width].fill(NONE),
        }
        mark(&mut rows[place * width..], self.before, from);
    }

    fn append(&self, rows: &[usize], width: usize, from: usize, out: &mut Vec<usize>) {
        let base = out.len();
        match self.from {
            Some(old) => out.extend_from_slice(&rows[old * width..(old + 1) * width]),
            None => out.resize(base + width, NONE),
        }
        mark(&mut out[base..], self.before, from);
    }
}

fn mark(row: &mut [usize], mut slots: u64, at: usize) {
    while slots != 0 {
        row[slots.trailing_zeros() as usize] = at;
        slots &= slots - 1;
    }
}

impl Step {
    /// Fills the rows of the new state, for a move that began at `from`; `spare` is any room.
    pub(super) fn fill(&self, rows: &mut Vec<usize>, width: usize, from: usize, spare: &mut Vec<usize>) {
        if self.in_place {
            rows.resize(self.rows.len() * width, NONE);
            for (place, row) in self.rows.iter().enumerate().rev() {
                row.fill(rows, place, width, from);
            }
        } else {
            spare.clear();
            for row in &self.rows {
                row.append(rows, width, from, spare);
            }
            std::mem::swap(rows, spare);
        }
    }
}

/// Where a move leads.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) to: u32,
    /// How each row of the new state is filled.
    pub(super) rows: Vec<CaptureRow>,
    /// Whether that changes nothing.
    pub(super) same_rows: bool,
    /// Whether each row comes from one that is not after it, so that rows can be filled where they are, the last
    /// first.
    pub(super) in_place: bool,
    /// The row of the way that has come to its end.
    pub(super) matched: Option<CaptureRow>,
}

/// For each way the automaton's state, its row, and a bit for each slot that is here and not in the row.
type List = Vec<(StateID, usize, u64)>;

/// States, and the steps between them that are known.
#[derive(Debug, Default)]
struct Cache {
    lists: Vec<List>,
    index: HashMap<List, u32>,
    /// For each state and column the index of a step; 0: not known.
    table: Vec<u32>,
    /// The same for steps that change no place: one more than the state they lead to.
    self_loop: Vec<u32>,
    steps: Vec<Step>,
    /// How long all lists are together, and the rows of all steps.
    entries: usize,
    seen: Vec<u64>,
    round: u64,
    cleared: u64,
}

/// The caches that a pattern's searches leave to the next.
pub(super) type Pool = Arc<Mutex<Vec<Kept>>>;

/// A cache in a pool.
#[derive(Debug)]
pub(super) struct Kept(Cache);

/// A cache on loan from its pattern.
#[derive(Debug)]
pub(super) struct LazyDfa {
    cache: Cache,
    pool: Pool,
}

impl Drop for LazyDfa {
    fn drop(&mut self) {
        if let Ok(mut pool) = self.pool.lock() {
            pool.push(Kept(std::mem::take(&mut self.cache)));
        }
    }
}

impl LazyDfa {
    /// A cache that another search has filled, or a new one.
    pub(super) fn take(pattern: &Pattern) -> Self {
        let kept = pattern.pool.lock().ok().and_then(|mut pool| pool.pop());
        let cache = kept.map_or_else(|| Cache::new(pattern.nfa.states().len()), |kept| kept.0);
        Self { cache, pool: Arc::clone(&pattern.pool) }
    }

    pub(super) fn step(&self, index: u32) -> &Step {
        &self.cache.steps[index as usize]
    }

    /// Where a byte leads, if that is known and changes no place.
    pub(super) fn self_loop(&self, state: u32, byte: u8) -> Option<u32> {
        self.cache.self_loop[state as usize * COLUMNS + usize::from(byte)].checked_sub(1)
    }

    /// Whether it is known that a match that begins adds no way.
    pub(super) fn begins_nothing(&self, state: u32) -> bool {
        self.cache.self_loop[state as usize * COLUMNS + COLUMNS - 1] == state + 1
    }

    /// The index of the step from `state`; `at` is the place after it.
    pub(super) fn go(&mut self, pattern: &Pattern, text: &str, at: usize, state: u32, how: Move) -> u32 {
        let column = if let Move::Byte(byte) = how { usize::from(byte) } else { COLUMNS - 1 };
        let cell = state as usize * COLUMNS + column;
        let plain = !pattern.peeks || pattern.only_ends && !matches!(&text.as_bytes()[at..], b"" | b"\n");
        let known = self.cache.table[cell];
        if plain && known != 0 {
            return known;
        }
        let cleared = self.cache.cleared;
        let index = self.cache.work_out(pattern, text, at, state, how);
        if plain && cleared == self.cache.cleared {
            self.cache.keep(cell, index);
        }
        index
    }
}

impl Cache {
    fn new(states: usize) -> Self {
        let mut cache = Self { seen: vec![0; states], ..Self::default() };
        cache.clear();
        cache
    }

    fn keep(&mut self, cell: usize, index: u32) {
        self.table[cell] = index;
        let step = &self.steps[index as usize];
        self.self_loop[cell] = if step.same_rows && step.matched.is_none() { step.to + 1 } else { 0 };
    }

    fn clear(&mut self) {
        self.lists.clear();
        self.index.clear();
        self.table.clear();
        self.self_loop.clear();
        self.steps.clear();
        self.entries = 0;
        self.steps.push(Step { to: IDLE, rows: Vec::new(), same_rows: true, in_place: true, matched: None });
        self.cleared += 1;
        self.number(Vec::new());
    }

    /// The state's number.
    fn number(&mut self, list: List) -> u32 {
        if let Some(&number) = self.index.get(&list) {
            return number;
        }
        let number = self.lists.len() as u32;
        self.table.resize(self.table.len() + COLUMNS, 0);
        self.self_loop.resize(self.self_loop.len() + COLUMNS, 0);
        self.entries += list.len();
        self.lists.push(list.clone());
        self.index.insert(list, number);
        number
    }

    fn work_out(&mut self, pattern: &Pattern, text: &str, at: usize, state: u32, how: Move) -> u32 {
        let old = self.lists[state as usize].clone();
        let is_full = self.lists.len() >= MOST_STATES || self.steps.len() >= MOST_STEPS;
        if is_full || self.entries >= MOST_ENTRIES {
            self.clear();
        }
        self.round += 1;
        let round = self.round;
        let mut new = New {
            pattern,
            text,
            at,
            seen: &mut self.seen,
            round,
            list: Vec::new(),
            rows: Vec::new(),
            places: HashMap::new(),
            matched: None,
        };
        new.fill(&old, how);
        let New { list, rows, matched, .. } = new;
        let same = |(place, row): (usize, &CaptureRow)| row.from == Some(place) && row.before == 0;
        let before = old.iter().map(|(_, row, _)| row + 1).max().unwrap_or(0);
        let same_rows = rows.len() == before && rows.iter().enumerate().all(same);
        let in_place = rows.iter().enumerate().all(|(place, row)| row.from.is_none_or(|from| from <= place));
        let to = self.number(list);
        self.entries += rows.len();
        self.steps.push(Step { to, rows, same_rows, in_place, matched });
        (self.steps.len() - 1) as u32
    }
}

/// A state that is being worked out.
struct New<'a> {
    pattern: &'a Pattern,
    text: &'a str,
    at: usize,
    seen: &'a mut [u64],
    round: u64,
    list: List,
    rows: Vec<CaptureRow>,
    /// Where each row is, once there are more than a few.
    places: HashMap<CaptureRow, usize>,
    matched: Option<CaptureRow>,
}

impl New<'_> {
    fn fill(&mut self, old: &List, how: Move) {
        for &(id, from, slots) in old {
            let from = Some(from);
            match how {
                Move::Begin => self.push(id, &CaptureRow { from, before: 0, here: slots }),
                Move::Byte(byte) => {
                    if let Some(target) = target(self.pattern.nfa.state(id), byte) {
                        self.follow(target, CaptureRow { from, before: slots, here: 0 });
                    }
                }
            }
            if self.matched.is_some() {
                return;
            }
        }
        if let Move::Begin = how {
            self.follow(self.pattern.nfa.start_anchored(), CaptureRow { from: None, before: 1, here: 0 });
        }
    }

    fn push(&mut self, id: StateID, row: &CaptureRow) {
        self.seen[id.as_usize()] = self.round;
        let here = row.here;
        let row = CaptureRow { here: 0, ..row.clone() };
        let place = self.place(row);
        self.list.push((id, place, here));
    }

    /// The place of a row, which is a new one if there is none like it.
    fn place(&mut self, row: CaptureRow) -> usize {
        let few = self.rows.len().min(SCANNED);
        if let Some(place) = self.rows[..few].iter().position(|old| *old == row) {
            return place;
        }
        let next = self.rows.len();
        let place = if next < SCANNED { next } else { *self.places.entry(row.clone()).or_insert(next) };
        if place == next {
            self.rows.push(row);
        }
        place
    }

    /// Opens a way and all that it leads to without a byte, preferred ones first, up to one that has come to its end.
    fn follow(&mut self, id: StateID, row: CaptureRow) {
        let mut todo = vec![(id, row)];
        while let Some((id, mut row)) = todo.pop() {
            if std::mem::replace(&mut self.seen[id.as_usize()], self.round) == self.round {
                continue;
            }
            match self.pattern.nfa.state(id) {
                State::Union { alternates } => {
                    todo.extend(alternates.iter().rev().map(|&id| (id, row.clone())));
                }
                State::BinaryUnion { alt1, alt2 } => todo.extend([(*alt2, row.clone()), (*alt1, row)]),
                State::Capture { next, slot, .. } => {
                    row.here |= if slot.as_usize() < 2 { 0 } else { 1 << slot.as_usize() };
                    todo.push((*next, row));
                }
                State::Look { look, next } if holds(&self.pattern.nfa, *look, self.text, self.at) => {
                    todo.push((*next, row));
                }
                State::Look { .. } | State::Fail => {}
                State::Match { .. } => {
                    self.matched = Some(row);
                    return;
                }
                _ => self.push(id, &row),
            }
        }
    }
}

/// Where a byte leads.
fn target(state: &State, byte: u8) -> Option<StateID> {
    match state {
        State::ByteRange { trans } => trans.matches_byte(byte).then_some(trans.next),
        State::Sparse(sparse) => sparse.matches_byte(byte),
        State::Dense(dense) => dense.matches_byte(byte),
        _ => None,
    }
}
