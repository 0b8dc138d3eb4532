//! Whether a placement is one.

use std::fmt;
use std::ops::Range;

use super::{Parameter, Part, Placement, Shards};

/// What is wrong with a placement.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It does not have one entry for each part.
    Parts {
        /// The parameter.
        name: String,
        /// Entries.
        found: usize,
        /// Parts.
        expected: usize,
    },
    /// A part is not cut for every rank.
    Ranks {
        /// The part.
        name: String,
        /// Ranges.
        found: usize,
        /// Ranks.
        expected: usize,
    },
    /// A range ends before it begins, beyond the part, or is longer than its shard.
    Range {
        /// The part.
        name: String,
        /// The rank.
        rank: usize,
        /// Its elements.
        found: Range<usize>,
        /// Elements of the part.
        elements: usize,
        /// Elements of a shard.
        len: usize,
    },
    /// An element is on no rank, or comes before one of a rank before.
    Order {
        /// The part.
        name: String,
        /// The rank whose range is out of order.
        rank: usize,
        /// Its elements.
        found: Range<usize>,
        /// How many elements the ranks before it hold.
        covered: usize,
    },
    /// Elements at the end are on no rank.
    Missing {
        /// The part.
        name: String,
        /// Elements that are on some rank.
        covered: usize,
        /// Elements of the part.
        expected: usize,
    },
    /// A rank begins in the middle of a row or of a block, so that it cannot decode what it holds.
    Cut {
        /// The parameter.
        name: String,
        /// The rank.
        rank: usize,
        /// Its first element.
        found: usize,
        /// What the first element has to be a multiple of.
        multiple: usize,
    },
    /// A rank lacks what its elements are decoded with.
    Lacks {
        /// The part.
        name: String,
        /// The rank.
        rank: usize,
        /// Its elements.
        found: Range<usize>,
        /// Those that it needs.
        expected: Range<usize>,
    },
    /// A rank holds more than its share.
    Share {
        /// The part.
        name: String,
        /// Elements of a shard.
        found: usize,
        /// The most that it may have.
        most: usize,
    },
}

/// Refuses a placement on `ranks` ranks that is incomplete, that leaves a rank unable to decode what it holds, or in
/// which a shard is larger than a rank's share: 1/n of the rows, rounded up to whole blocks, and of every part what
/// those rows need.
pub fn check(parameter: &Parameter, placement: &Placement, ranks: usize) -> Result<(), Fault> {
    let parts = parameter.parts();
    if placement.parts.len() != parts.len() {
        let (found, expected) = (placement.parts.len(), parts.len());
        return Err(Fault::Parts { name: parameter.name.clone(), found, expected });
    }
    for (part, shards) in parts.iter().zip(&placement.parts) {
        check_ranges(part, shards, ranks)?;
    }
    let (Some(first), Some(codes)) = (parts.first(), placement.parts.first()) else { return Ok(()) };
    for rank in 0..ranks {
        let held = elements(parameter, first, &codes.ranges[rank]);
        check_cut(parameter, rank, &held)?;
        parts.iter().zip(&placement.parts).try_for_each(|(part, shards)| lacks(part, shards, rank, &held))?;
    }
    parts
        .iter()
        .zip(&placement.parts)
        .try_for_each(|(part, shards)| check_share(parameter, part, shards, ranks))
}

/// The parameter's elements that a range of its first part stands for.
fn elements(parameter: &Parameter, first: &Part, range: &Range<usize>) -> Range<usize> {
    let covers = first.covers.unwrap_or(1);
    let end = |element: usize| (element * covers).min(parameter.elements());
    if range.is_empty() { 0..0 } else { end(range.start)..end(range.end) }
}

fn check_ranges(part: &Part, shards: &Shards, ranks: usize) -> Result<(), Fault> {
    let (name, elements, len) = (|| part.name.clone(), part.elements(), shards.len);
    if shards.ranks() != ranks {
        return Err(Fault::Ranks { name: name(), found: shards.ranks(), expected: ranks });
    }
    let mut covered = 0;
    for (rank, range) in shards.ranges.iter().enumerate() {
        let found = range.clone();
        if range.start > range.end || range.end > elements || range.len() > len {
            return Err(Fault::Range { name: name(), rank, found, elements, len });
        }
        if !range.is_empty() && (range.start > covered || range.end < covered) {
            return Err(Fault::Order { name: name(), rank, found, covered });
        }
        covered = covered.max(range.end);
    }
    if covered == elements {
        Ok(())
    } else {
        Err(Fault::Missing { name: name(), covered, expected: elements })
    }
}

fn check_cut(parameter: &Parameter, rank: usize, held: &Range<usize>) -> Result<(), Fault> {
    let multiple = parameter.fewest_rows() * parameter.row();
    if held.is_empty() || multiple == 0 || held.start.is_multiple_of(multiple) {
        return Ok(());
    }
    Err(Fault::Cut { name: parameter.name.clone(), rank, found: held.start, multiple })
}

fn lacks(part: &Part, shards: &Shards, rank: usize, held: &Range<usize>) -> Result<(), Fault> {
    let (found, expected) = (shards.ranges[rank].clone(), part.standing_for(held));
    let is_there = held.is_empty() || (found.start <= expected.start && found.end >= expected.end);
    if is_there { Ok(()) } else { Err(Fault::Lacks { name: part.name.clone(), rank, found, expected }) }
}

fn check_share(parameter: &Parameter, part: &Part, shards: &Shards, ranks: usize) -> Result<(), Fault> {
    let Some(covers) = part.covers else { return Ok(()) };
    let fewest = parameter.fewest_rows().max(1);
    let rows = parameter.rows().div_ceil(fewest).div_ceil(ranks.max(1)) * fewest;
    let most = (rows * parameter.row()).div_ceil(covers);
    let straddling = usize::from(covers > parameter.block()); // a scale of blocks on two ranks is on both
    let most = (most + straddling).min(part.elements().max(1));
    if shards.len <= most {
        Ok(())
    } else {
        Err(Fault::Share { name: part.name.clone(), found: shards.len, most })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parts { name, found, expected } => {
                write!(f, "`{name}`: expected shards of {expected} parts, found {found}")
            }
            Self::Ranks { name, found, expected } => {
                write!(f, "`{name}`: expected a range for each of {expected} ranks, found {found}")
            }
            Self::Range { name, rank, found, elements, .. }
                if found.start > found.end || found.end > *elements =>
            {
                write!(
                    f,
                    "`{name}`, rank {rank}: expected a range within its {elements} elements, found {found:?}"
                )
            }
            Self::Range { name, rank, found, len, .. } => write!(
                f,
                "`{name}`: rank {rank} has {} elements ({found:?}), and `len` says that a shard has {len}",
                found.len()
            ),
            Self::Order { name, rank, found, covered } => write!(
                f,
                "`{name}`, rank {rank}: expected elements that go on from the {covered} of the ranks before, found \
                 {found:?}"
            ),
            Self::Missing { name, covered, expected } => {
                write!(f, "`{name}`: expected all {expected} elements on some rank, found {covered}")
            }
            Self::Cut { name, rank, found, multiple } => write!(
                f,
                "`{name}`, rank {rank}: expected a first element that is a multiple of {multiple} (whole rows of \
                 whole blocks), found {found}"
            ),
            Self::Lacks { name, rank, found, expected } => write!(
                f,
                "`{name}`, rank {rank}: expected elements {expected:?}, with which its codes are decoded, found \
                 {found:?}"
            ),
            Self::Share { name, found, most } => {
                write!(f, "`{name}`: expected shards of at most {most} elements, found {found}")
            }
        }
    }
}

impl std::error::Error for Fault {}
