//! Where each buffer lies in the one arena.
//!
//! A buffer lives from the part that first writes it to the part that last reads it; two buffers whose lives do not
//! meet may share bytes.

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

/// Bytes that a buffer takes in the arena: its size, rounded up to whole cache lines.
pub fn aligned_bytes(life: &Life) -> usize {
    life.bytes.div_ceil(LINE).max(1) * LINE
}

/// The former name of [`aligned_bytes`], which exercises written for it still import.
#[doc(hidden)]
#[deprecated(note = "renamed to `aligned_bytes`")]
pub fn room(life: &Life) -> usize {
    aligned_bytes(life)
}

/// Every buffer in bytes of its own, alive or not.
pub fn without_reuse(lives: &[Option<Life>]) -> Arena {
    let mut bytes = 0;
    let mut after = |life: &Life| {
        bytes += aligned_bytes(life);
        bytes - aligned_bytes(life)
    };
    let places = lives.iter().map(|life| life.as_ref().map(&mut after)).collect();
    Arena { places, bytes }
}

/// How long bytes rest after a buffer's life in [`apart`], in parts: those of small buffers, and of all others. The
/// first that fits is taken.
const RESTS: [[usize; 2]; 6] = [[64, 8], [32, 8], [32, 4], [32, 0], [8, 0], [4, 0]];

/// The part of an arena up to which a buffer is small.
const SMALL_PART: usize = 128;

/// An arena for a device that runs neighbouring parts side by side: bytes that a buffer leaves rest for a while before
/// another one has them. Parts wait for each other where they share bytes, needed or not, and a packed arena has them
/// share as many as it can. Resting takes at most an eighth more than packing does, and no more than a cap.
pub fn apart(lives: &[Option<Life>], cap: Option<usize>, place: impl Fn(&[Option<Life>]) -> Arena) -> Arena {
    let packed = place(lives);
    let most = cap.unwrap_or(usize::MAX).min(packed.bytes + packed.bytes / 8);
    let resting = |[small, large]: [usize; 2]| -> Vec<Option<Life>> {
        let is_small = |life: &Life| life.bytes <= packed.bytes / SMALL_PART;
        let rest = |life: &Life| if is_small(life) { small } else { large };
        let longer = |life: &Life| Life {
            bytes: life.bytes,
            parts: *life.parts.start()..=life.parts.end() + rest(life),
        };
        lives.iter().map(|life| life.as_ref().map(longer)).collect()
    };
    let mut arenas = RESTS.into_iter().map(|rests| place(&resting(rests)));
    arenas.find(|arena| arena.bytes <= most).unwrap_or(packed)
}

/// What is wrong with an arena: a buffer without a place, one that does not fit, or two that meet while both live.
pub fn fault(lives: &[Option<Life>], arena: &Arena) -> Option<String> {
    let mut placed: Vec<(usize, usize, &Life)> = Vec::new();
    for (buffer, life) in lives.iter().enumerate() {
        let Some(life) = life else { continue };
        let Some(at) = arena.places.get(buffer).copied().flatten() else {
            return Some(format!("buffer {buffer} of {} bytes has no place", life.bytes));
        };
        if at % LINE != 0 || at.checked_add(life.bytes).is_none_or(|end| end > arena.bytes) {
            let (bytes, all) = (life.bytes, arena.bytes);
            return Some(format!(
                "buffer {buffer} of {bytes} bytes at {at} does not fit an arena of {all} by lines of {LINE}"
            ));
        }
        placed.push((at, buffer, life));
    }
    placed.sort_unstable_by_key(|(at, buffer, _)| (*at, *buffer));
    for (i, (at, buffer, life)) in placed.iter().enumerate() {
        let following = placed[i + 1..].iter().take_while(|(next, ..)| *next < at + life.bytes);
        let meets = |other: &&(usize, usize, &Life)| {
            other.2.bytes > 0
                && life.parts.start() <= other.2.parts.end()
                && other.2.parts.start() <= life.parts.end()
        };
        if let Some((next, other, _)) = following.into_iter().find(meets) {
            let (first, second) =
                (described(*buffer, *at, life), described(*other, *next, lives[*other].as_ref()?));
            return Some(format!("expected bytes apart while both live, found {first}, and {second}"));
        }
    }
    None
}

/// A buffer with its bytes and its life.
fn described(buffer: usize, at: usize, life: &Life) -> String {
    let (start, end) = (life.parts.start(), life.parts.end());
    format!(
        "buffer {buffer} at bytes {at}..{}, alive in parts {start} to {end}",
        at.saturating_add(life.bytes)
    )
}

/// The most bytes alive during any part: what no arena can be smaller than.
pub fn floor(lives: &[Option<Life>]) -> usize {
    let last = lives.iter().flatten().map(|life| *life.parts.end()).max().unwrap_or(0);
    let alive = |part: usize| {
        lives.iter().flatten().filter(|life| life.parts.contains(&part)).map(aligned_bytes).sum()
    };
    (0..=last).map(alive).max().unwrap_or(0)
}
