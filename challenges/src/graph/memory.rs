//! Where each buffer lies in the one arena.
//!
//! A buffer lives from the part that first writes it to the part that last reads it; two buffers whose lives do not meet
//! may share bytes. The largest are placed first, each at the lowest place that is free for its whole life.

use std::ops::RangeInclusive;

/// A buffer's size in bytes, and the numbers of the first and the last part that touch it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// Size in bytes.
    pub bytes: usize,
    /// From the first part to the last one.
    pub parts: RangeInclusive<usize>,
}

/// The arena: where each buffer begins, and how large it all is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arena {
    /// First byte of each buffer, a multiple of 64; nothing for those that are given.
    pub places: Vec<Option<usize>>,
    /// Size in bytes.
    pub bytes: usize,
}

/// Bytes that places are a multiple of: a cache line.
pub const LINE: usize = 64;

/// Places every buffer that has a life.
pub fn place(lives: &[Option<Life>]) -> Arena {
    let mut order: Vec<(usize, &Life)> =
        lives.iter().enumerate().filter_map(|(i, life)| Some((i, life.as_ref()?))).collect();
    order.sort_by_key(|(i, life)| (std::cmp::Reverse(life.bytes), *i));
    let mut arena = Arena { places: vec![None; lives.len()], bytes: 0 };
    let mut placed: Vec<(usize, &Life)> = Vec::new(); // first byte, by it
    for (buffer, life) in order {
        let at = lowest(&placed, life);
        arena.places[buffer] = Some(at);
        arena.bytes = arena.bytes.max(at + room(life));
        let index = placed.partition_point(|(other, _)| *other <= at);
        placed.insert(index, (at, life));
    }
    arena
}

fn room(life: &Life) -> usize {
    life.bytes.div_ceil(LINE).max(1) * LINE
}

/// The lowest place that is free for the whole life.
fn lowest(placed: &[(usize, &Life)], life: &Life) -> usize {
    let mut at = 0;
    for (start, other) in placed {
        let meets = life.parts.start() <= other.parts.end() && other.parts.start() <= life.parts.end();
        if !meets {
            continue;
        }
        if at + room(life) <= *start {
            break;
        }
        at = at.max(start + room(other));
    }
    at
}

/// The most bytes alive during any part: what no arena can be smaller than.
pub fn floor(lives: &[Option<Life>]) -> usize {
    let last = lives.iter().flatten().map(|life| *life.parts.end()).max().unwrap_or(0);
    let alive =
        |part: usize| lives.iter().flatten().filter(|life| life.parts.contains(&part)).map(room).sum();
    (0..=last).map(alive).max().unwrap_or(0)
}
