//! A view: which elements of which memory a step touches, and whether two views touch the same ones.

use std::fmt;
use std::ops::Range;

/// What a plan writes and reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Memory {
    /// Bytes of the arena from this one on, a multiple of 64.
    Arena(usize),
    /// One of the inputs, by its number: only read.
    Input(usize),
    /// One of the donated buffers, by its number: read and written.
    InOut(usize),
}

impl Memory {
    /// Whether a step may write it.
    pub(crate) fn is_written(self) -> bool {
        !matches!(self, Memory::Input(_))
    }
}

/// Elements somewhere in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Where.
    pub memory: Memory,
    /// Bytes that belong to it.
    pub bytes: usize,
    /// Elements before the first one.
    pub offset: usize,
    /// Elements between neighbours along each dimension of the step's space.
    pub strides: Vec<usize>,
}

impl View {
    /// The elements that it touches over a space, from the first to the one after the last; an empty space touches
    /// none. `None` if a dimension has no stride of its own, or a number does not fit.
    pub fn span(&self, space: &[usize]) -> Option<Range<usize>> {
        let fits = |stride: &usize| isize::try_from(*stride).is_ok();
        if self.strides.len() != space.len() || !self.strides.iter().all(fits) {
            return None;
        }
        if space.contains(&0) {
            return Some(self.offset..self.offset);
        }
        let mut last = self.offset;
        for (size, stride) in space.iter().zip(&self.strides) {
            last = last.checked_add((size - 1).checked_mul(*stride)?)?;
        }
        Some(self.offset..last.checked_add(1)?)
    }

    /// All bytes that belong to it, as a view of bytes with its space.
    pub(super) fn all(&self) -> (View, [usize; 1]) {
        (View { offset: 0, strides: vec![1], ..self.clone() }, [self.bytes])
    }

    /// The bytes of its span, counted in its memory.
    pub(super) fn range(&self, space: &[usize], element: usize) -> Option<Range<usize>> {
        let base = if let Memory::Arena(at) = self.memory { at } else { 0 };
        let byte = |number: usize| number.checked_mul(element)?.checked_add(base);
        let span = self.span(space)?;
        Some(byte(span.start)?..byte(span.end)?)
    }

    /// Whether bytes that belong to both may be one's.
    pub(crate) fn may_meet(&self, other: &View) -> bool {
        let ((mine, my_space), (theirs, their_space)) = (self.all(), other.all());
        mine.meets(&my_space, 1, &theirs, &their_space, 1)
    }

    /// Whether two views are in one memory, and their ranges meet. A range that cannot be counted meets every other.
    pub(super) fn meets(
        &self,
        space: &[usize],
        element: usize,
        other: &View,
        other_space: &[usize],
        other_element: usize,
    ) -> bool {
        let one_memory = match (self.memory, other.memory) {
            (Memory::Arena(_), Memory::Arena(_)) => true,
            (a, b) => a == b,
        };
        let ranges = (self.range(space, element), other.range(other_space, other_element));
        let (Some(a), Some(b)) = ranges else { return one_memory };
        one_memory && !a.is_empty() && !b.is_empty() && a.start < b.end && b.start < a.end
    }

    /// Whether no two lanes of a space have one element: each stride passes over everything that the smaller ones
    /// reach.
    pub(super) fn is_injective(&self, space: &[usize]) -> bool {
        if space.contains(&0) {
            return true;
        }
        let mut dims: Vec<(usize, usize)> =
            self.strides.iter().copied().zip(space.iter().copied()).filter(|(_, size)| *size > 1).collect();
        dims.sort_unstable();
        let mut reach: usize = 0; // the largest distance between two elements so far
        for (stride, size) in dims {
            if stride <= reach {
                return false;
            }
            reach = reach.saturating_add(stride.saturating_mul(size - 1));
        }
        true
    }

    /// Whether two injective views with the same strides have no element in common although their ranges meet: their
    /// distance is no sum of steps. A dimension along which only one of them moves has that one's stride. What takes
    /// too long to tell counts as common.
    pub(super) fn interleaves(
        &self,
        space: &[usize],
        other: &View,
        other_space: &[usize],
        element: usize,
    ) -> bool {
        let ranges = (self.range(space, element), other.range(other_space, element));
        let (Some(mine), Some(theirs)) = ranges else { return false };
        let distance = mine.start as i128 - theirs.start as i128;
        let mut dims = Vec::new();
        for dim in 0..space.len().min(other_space.len()) {
            let (mine, theirs) = (space[dim] > 1, other_space[dim] > 1);
            if mine && theirs && self.strides[dim] != other.strides[dim] {
                return false;
            }
            let stride = if mine { self.strides[dim] } else { other.strides[dim] } as i128;
            dims.push(Steps { stride, least: 1 - space[dim] as i128, most: other_space[dim] as i128 - 1 });
        }
        dims.sort_unstable_by_key(|steps| std::cmp::Reverse(steps.stride));
        let (one_rank, element) = (space.len() == other_space.len(), element as i128);
        one_rank && distance % element == 0 && !may_be_sum_of_steps(distance / element, &dims, &mut { TRIES })
    }
}

/// How often a stride may be taken.
struct Steps {
    stride: i128,
    least: i128,
    most: i128,
}

/// Sums of steps that are tried: one a dimension, or two, for views whose strides are apart.
const TRIES: u32 = 1 << 16;

/// Whether `distance` is a sum of steps, as far as so many tries tell. Strides are falling.
fn may_be_sum_of_steps(distance: i128, dims: &[Steps], tries: &mut u32) -> bool {
    let Some((Steps { stride, least, most }, rest)) = dims.split_first() else { return distance == 0 };
    if *stride == 0 {
        return may_be_sum_of_steps(distance, rest, tries);
    }
    let low: i128 = rest.iter().map(|steps| steps.stride * steps.least).sum();
    let high: i128 = rest.iter().map(|steps| steps.stride * steps.most).sum();
    let first = (distance - high).div_euclid(*stride).max(*least);
    let last = (distance - low).div_euclid(*stride).min(*most);
    (first..=last).any(|steps| {
        *tries = tries.saturating_sub(1);
        *tries == 0 || may_be_sum_of_steps(distance - steps * stride, rest, tries)
    })
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.memory {
            Memory::Arena(at) => write!(f, "@{at}")?,
            Memory::Input(number) => write!(f, "input {number}")?,
            Memory::InOut(number) => write!(f, "inout {number}")?,
        }
        if self.offset > 0 {
            write!(f, "+{}", self.offset)?;
        }
        write!(f, "{:?}", self.strides)
    }
}

/// The strides of a row-major shape. One that does not fit is `usize::MAX`, which no memory has.
pub fn contiguous(shape: &[usize]) -> Vec<usize> {
    let mut strides: Vec<usize> = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim].saturating_mul(shape[dim]);
    }
    strides
}
