//! A schedule: for each rank its operations in their order, and how the stages of the model lie on the ranks.

use std::fmt;

use super::{Error, Operation, Site};

/// A rank, and a position in its line.
pub(super) type Place = (usize, usize);

/// Largest number of ranks, and of chunks a rank.
pub(super) const MOST_RANKS: usize = 10_000;
/// Largest number of micro-batches.
pub(super) const MOST_MICRO_BATCHES: usize = 1_000_000;

/// Which stage a rank's chunk is. Stages are numbered along the forward, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Chunk `c` of rank `r` is stage `c * ranks + r`: the forward goes around the ranks once a chunk. (Narayanan et
    /// al., arXiv 2104.04473, section 2.2.2.)
    Looped,
    /// Odd chunks lie in reverse: the forward goes down the ranks and comes back up, so that with two chunks rank 0 has
    /// both the first stage and the last. (Qi et al., arXiv 2405.15362, whose V-shape has two chunks.)
    V,
}

impl Placement {
    /// Its word in a grid.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Looped => "looped",
            Self::V => "v",
        }
    }
}

/// How large a pipeline is, and how its stages lie on the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    ranks: usize,
    chunks: usize,
    micro_batches: usize,
    placement: Placement,
}

impl Shape {
    /// So many ranks, stages on each of them, and micro-batches in a step.
    ///
    /// Fails if a number is 0, or larger than 10,000 ranks, 10,000 chunks or 1,000,000 micro-batches.
    pub fn new(
        ranks: usize,
        chunks: usize,
        micro_batches: usize,
        placement: Placement,
    ) -> Result<Self, Error> {
        in_range("ranks", ranks, MOST_RANKS)?;
        in_range("chunks", chunks, MOST_RANKS)?;
        in_range("micro_batches", micro_batches, MOST_MICRO_BATCHES)?;
        Ok(Self { ranks, chunks, micro_batches, placement })
    }

    /// One stage a rank.
    ///
    /// Fails as [`new`](Self::new) does.
    pub fn line(ranks: usize, micro_batches: usize) -> Result<Self, Error> {
        Self::new(ranks, 1, micro_batches, Placement::Looped)
    }

    /// Number of ranks.
    pub fn ranks(self) -> usize {
        self.ranks
    }

    /// Number of stages on each rank.
    pub fn chunks(self) -> usize {
        self.chunks
    }

    /// Number of micro-batches in a step.
    pub fn micro_batches(self) -> usize {
        self.micro_batches
    }

    /// How the stages lie on the ranks.
    pub fn placement(self) -> Placement {
        self.placement
    }

    /// Number of stages.
    pub fn stages(self) -> usize {
        self.ranks * self.chunks
    }

    /// Which stage a rank's chunk is.
    pub fn stage(self, rank: usize, chunk: usize) -> usize {
        chunk * self.ranks + self.across(rank, chunk)
    }

    /// The rank and chunk of a stage.
    pub fn home(self, stage: usize) -> (usize, usize) {
        let chunk = stage / self.ranks;
        (self.across(stage % self.ranks, chunk), chunk)
    }

    /// A rank, or its mirror image where a chunk lies in reverse.
    fn across(self, rank: usize, chunk: usize) -> usize {
        match self.placement {
            Placement::V if chunk % 2 == 1 => self.ranks - 1 - rank,
            Placement::V | Placement::Looped => rank,
        }
    }
}

fn in_range(what: &'static str, found: usize, most: usize) -> Result<(), Error> {
    if found == 0 || found > most {
        return Err(Error::setting(what, found, format!("a number from 1 to {most}")));
    }
    Ok(())
}

/// For each rank its operations, in their order.
///
/// A schedule has a line for each rank, and its operations name micro-batches and chunks that exist; whether it can be
/// run is what [`check`](super::check()) says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    shape: Shape,
    ranks: Vec<Vec<Operation>>,
}

impl Schedule {
    /// A schedule of these operations for each rank.
    ///
    /// Fails if there is not one list a rank, an operation does nothing, or its micro-batch or chunk does not exist.
    pub fn new(shape: Shape, ranks: Vec<Vec<Operation>>) -> Result<Self, Error> {
        if ranks.len() != shape.ranks {
            return Err(Error::setting("ranks", ranks.len(), format!("operations of {} ranks", shape.ranks)));
        }
        let schedule = Self { shape, ranks };
        schedule.sites().try_for_each(|at| exists(at, shape))?;
        Ok(schedule)
    }

    /// Its shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The operations of each rank.
    pub fn ranks(&self) -> &[Vec<Operation>] {
        &self.ranks
    }

    /// Every operation with its rank and position.
    pub(super) fn sites(&self) -> impl Iterator<Item = Site> {
        (0..self.ranks.len()).flat_map(|rank| self.sites_of(rank))
    }

    /// The same of one rank.
    pub(super) fn sites_of(&self, rank: usize) -> impl Iterator<Item = Site> {
        let line = self.ranks[rank].iter().enumerate();
        line.map(move |(position, &operation)| Site { rank, position, operation })
    }

    /// The operation that stands there.
    pub(super) fn site(&self, (rank, position): Place) -> Site {
        Site { rank, position, operation: self.ranks[rank][position] }
    }
}

fn exists(at: Site, shape: Shape) -> Result<(), Error> {
    let Operation { kinds, micro_batch, chunk } = at.operation;
    let outside = |what, found: usize, limit: usize| Error::Outside { at, what, found, limit };
    if kinds.is_empty() {
        return Err(Error::Empty { at });
    }
    if chunk >= shape.chunks {
        return Err(outside("chunk", chunk, shape.chunks));
    }
    let limit = if at.operation.has_micro_batch() { shape.micro_batches } else { 1 };
    if micro_batch >= limit {
        return Err(outside("micro-batch", micro_batch, limit));
    }
    Ok(())
}

/// The header of a grid.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, chunks, micro_batches, placement } = self;
        write!(f, "schedule ranks {ranks} chunks {chunks} micro_batches {micro_batches} ")?;
        write!(f, "placement {}", placement.word())
    }
}

/// The text of a schedule, which [`Schedule::parse`] reads back.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.shape)?;
        for (rank, line) in self.ranks.iter().enumerate() {
            write!(f, "{rank}:")?;
            line.iter().try_for_each(|operation| write!(f, " {operation}"))?;
            writeln!(f)?;
        }
        Ok(())
    }
}
