//! The memory of one thread: slices that begin with a cache line, and where in them the lanes of a value are.

#![allow(clippy::mut_mut)] // a slice of scratch that shrinks from its front
#![allow(unsafe_code)] // values are written to bytes before there is a reference to them

use crate::buffer::cast_mut;

/// Bytes of a cache line: what memory is aligned to.
pub(super) const LINE: usize = 64;

/// Where the lanes of a value are.
#[derive(Clone, Copy)]
pub(super) enum Spot {
    /// It is one number, in `row`.
    Row,
    /// A tile, from this address on.
    Tile(*const f32),
    /// In the row that is kept.
    Kept(usize),
}

/// The first `count` values of a thread's memory, each `value`; what is left begins with a cache line.
pub(in crate::cpu) fn filled<'a, T: Copy>(rest: &mut &'a mut [u8], count: usize, value: T) -> &'a mut [T] {
    const { assert!(align_of::<T>() <= LINE) };
    let part = take(rest, count * size_of::<T>());
    assert!(part.as_ptr().addr().is_multiple_of(align_of::<T>()), "scratch begins with a cache line");
    let at = part.as_mut_ptr().cast::<T>();
    // SAFETY: as many bytes as the values have, aligned; each is written before there is a reference to it.
    unsafe {
        (0..count).for_each(|i| at.add(i).write(value));
        std::slice::from_raw_parts_mut(at, count)
    }
}

/// The first `count` f32 of a thread's memory, with whatever is in them; what is left begins with a cache line.
pub(in crate::cpu) fn floats<'a>(rest: &mut &'a mut [u8], count: usize) -> &'a mut [f32] {
    cast_mut(take(rest, count * size_of::<f32>()))
}

/// The first bytes of a thread's memory, in whole cache lines.
fn take<'a>(rest: &mut &'a mut [u8], bytes: usize) -> &'a mut [u8] {
    let all = std::mem::take(rest);
    let (part, after) = all.split_at_mut(aligned_bytes(bytes).min(all.len()));
    *rest = after;
    &mut part[..bytes]
}

/// Bytes, rounded up to whole cache lines.
pub(in crate::cpu) fn aligned_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(LINE)
}
