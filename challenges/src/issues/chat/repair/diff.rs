//! Two texts as a unified diff.
//!
//! The shortest list of lines to delete and to insert, by E. W. Myers, "An O(ND) difference algorithm and its variations"
//! (1986): for each number of changes the furthest place on each diagonal. Texts that differ by more lines than
//! [`MOST`] are shown as one change of all that is between their common beginning and their common end.

use std::fmt::Write;

/// Lines around a change.
const CONTEXT: usize = 3;
/// How many deleted and inserted lines are told apart; the work grows with its square.
const MOST: usize = 1000;

/// A line that is kept, deleted or inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line<'a> {
    Kept(&'a str),
    Old(&'a str),
    New(&'a str),
}

/// What makes `new` out of `old`, with the lines around it; nothing if they are the same.
pub fn unified(old: &str, new: &str, name: &str) -> String {
    let lines = compared(&lines(old), &lines(new));
    let mut out = String::new();
    for (first, last) in hunks(&lines) {
        if out.is_empty() {
            let _ = writeln!(out, "--- {name}\n+++ {name} (repaired)"); // a String takes all text
        }
        hunk(&mut out, &lines, first, last);
    }
    out
}

fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// The ranges of lines to show: changes that are near each other are one.
fn hunks(lines: &[Line]) -> Vec<(usize, usize)> {
    let mut out: Vec<(usize, usize)> = Vec::new();
    for (at, _) in lines.iter().enumerate().filter(|(_, line)| !matches!(line, Line::Kept(_))) {
        let (from, to) = (at.saturating_sub(CONTEXT), (at + 1 + CONTEXT).min(lines.len()));
        match out.last_mut() {
            Some((_, end)) if *end >= from => *end = to,
            _ => out.push((from, to)),
        }
    }
    out
}

fn hunk(out: &mut String, lines: &[Line], first: usize, last: usize) {
    let (before, inside) = (&lines[..first], &lines[first..last]);
    let count = |lines: &[Line], new: bool| {
        let other =
            |line: &&Line| if new { matches!(line, Line::Old(_)) } else { matches!(line, Line::New(_)) };
        lines.len() - lines.iter().filter(other).count()
    };
    let place = |new| {
        let length = count(inside, new);
        format!("{},{length}", count(before, new) + usize::from(length > 0))
    };
    let _ = writeln!(out, "@@ -{} +{} @@", place(false), place(true));
    for line in inside {
        let (sign, text) = match line {
            Line::Kept(text) => (' ', text),
            Line::Old(text) => ('-', text),
            Line::New(text) => ('+', text),
        };
        let _ = write!(out, "{sign}{text}");
        if !text.ends_with('\n') {
            out.push_str("\n\\ No newline at end of file\n");
        }
    }
}

fn compared<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    let same = |(a, b): &(&&str, &&str)| a == b;
    let head = old.iter().zip(new).take_while(same).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(same).count();
    let (olds, news) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let mut out: Vec<Line> = old[..head].iter().map(|line| Line::Kept(line)).collect();
    if let Some(trace) = reached(olds, news) {
        out.extend(walked(olds, news, &trace));
    } else {
        out.extend(olds.iter().map(|line| Line::Old(line)));
        out.extend(news.iter().map(|line| Line::New(line)));
    }
    out.extend(old[old.len() - tail..].iter().map(|line| Line::Kept(line)));
    out
}

/// For each number of changes the furthest old line on each diagonal, up to the number that suffices.
///
/// Diagonal `k` (old line minus new line) of `d` changes stands at `k + d` of row `d`.
fn reached(old: &[&str], new: &[&str]) -> Option<Vec<Vec<usize>>> {
    let mut trace: Vec<Vec<usize>> = Vec::new();
    for changes in 0..=MOST.min(old.len() + new.len()) {
        let mut row = vec![0; 2 * changes + 1];
        for slot in (0..row.len()).step_by(2) {
            let mut x = trace.last().map_or(0, |before| start(before, slot));
            let mut y = new_line(x, slot, changes);
            while x < old.len() && y < new.len() && old[x] == new[y] {
                (x, y) = (x + 1, y + 1);
            }
            row[slot] = x;
            if x >= old.len() && y >= new.len() {
                trace.push(row);
                return Some(trace);
            }
        }
        trace.push(row);
    }
    None
}

/// Where diagonal `slot` begins, given the row of one change less: after an inserted line or after a deleted one,
/// whichever is further.
fn start(before: &[usize], slot: usize) -> usize {
    let inserted = before.get(slot).copied(); // from the diagonal above, whose slot in its row is the same
    let deleted = slot.checked_sub(2).and_then(|slot| before.get(slot)).map(|x| x + 1);
    inserted.max(deleted).unwrap_or(0)
}

/// The new line of an old one on diagonal `slot` of a row of `changes`.
fn new_line(x: usize, slot: usize, changes: usize) -> usize {
    (x + changes).saturating_sub(slot)
}

/// The lines along the shortest way, which the rows are followed back for.
fn walked<'a>(old: &[&'a str], new: &[&'a str], trace: &[Vec<usize>]) -> Vec<Line<'a>> {
    let mut out = Vec::new();
    let (mut x, mut y) = (old.len(), new.len());
    for changes in (0..trace.len()).rev() {
        let slot = (x + changes).saturating_sub(y);
        let before = changes.checked_sub(1).and_then(|row| trace.get(row));
        let from = before.map_or(0, |row| start(row, slot));
        while x > from && y > 0 {
            (x, y) = (x - 1, y - 1);
            out.push(Line::Kept(old[x]));
        }
        let Some(before) = before else { break };
        if slot
            .checked_sub(2)
            .and_then(|slot| before.get(slot))
            .is_some_and(|furthest| furthest + 1 == from && x > 0)
        {
            x -= 1;
            out.push(Line::Old(old[x]));
        } else if y > 0 {
            y -= 1;
            out.push(Line::New(new[y]));
        }
    }
    out.reverse();
    out
}
