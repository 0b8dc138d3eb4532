//! What can be wrong with a schedule: its text, its settings, its operations, their order.
//!
//! Ranks, chunks, micro-batches and the operations of a rank are counted from 0, lines and columns of a text from 1.

use std::{error, fmt};

use super::{Kind, Operation, Sends};

/// Operations of a circle that its message names.
const LONGEST: usize = 8;

/// An operation and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// On which rank, from 0.
    pub rank: usize,
    /// The how-manieth of the rank's operations, from 0.
    pub position: usize,
    /// The operation.
    pub operation: Operation,
}

/// Why a schedule cannot be read, made or run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// The text goes on otherwise than the grammar allows.
    Text {
        /// Which line, from 1.
        line: usize,
        /// Which character of it, from 1.
        column: usize,
        /// What stands there.
        found: String,
        /// What is needed.
        expected: String,
    },
    /// A number that describes the pipeline or its costs.
    Setting {
        /// Which.
        what: &'static str,
        /// Its value.
        found: String,
        /// What is needed.
        expected: String,
    },

    // One operation.
    /// The operation does nothing.
    Empty {
        /// The operation.
        at: Site,
    },
    /// The operation's micro-batch or chunk does not exist.
    Outside {
        /// The operation.
        at: Site,
        /// Which number of it.
        what: &'static str,
        /// Its value.
        found: usize,
        /// How many there are.
        limit: usize,
    },
    /// The operation has a part that the workload does not ask for.
    NotAsked {
        /// The operation.
        at: Site,
        /// The part.
        kind: Kind,
    },

    // All operations together.
    /// The same is done twice.
    Twice {
        /// The second operation.
        at: Site,
        /// What is done again.
        kind: Kind,
        /// The first operation.
        first: Site,
    },
    /// Something is never done.
    Missing {
        /// The rank that has to do it.
        rank: usize,
        /// What it has to do.
        operation: Operation,
    },
    /// An operation stands before what it needs, on the same rank.
    TooEarly {
        /// The operation.
        at: Site,
        /// What it needs.
        needs: Site,
    },
    /// An operation reads weights that are not in the rank's buffer.
    NotDequantized {
        /// The operation.
        at: Site,
    },
    /// A rank holds more than the cap.
    Memory {
        /// The operation during which it does.
        at: Site,
        /// What is held while it runs.
        units: u64,
        /// The cap.
        cap: u64,
    },
    /// Ranks wait for each other in a circle.
    Deadlock {
        /// How messages are sent.
        sends: Sends,
        /// The circle, each waiting for the next, the last for the first: where ranks wait for each other.
        cycle: Vec<Site>,
    },

    // Search.
    /// The search did not end within its limit.
    Unfinished {
        /// States that were looked at.
        states: usize,
    },
}

impl Error {
    /// A setting that is not what it has to be.
    pub(super) fn setting(what: &'static str, found: impl fmt::Display, expected: impl Into<String>) -> Self {
        Self::Setting { what, found: found.to_string(), expected: expected.into() }
    }
}

impl error::Error for Error {}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}, operation {} (`{}`)", self.rank, self.position, self.operation)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { line, column, found, expected } => {
                write!(f, "line {line}, column {column}: expected {expected}, found {found}")
            }
            Self::Setting { what, found, expected } => {
                write!(f, "{what}: expected {expected}, found {found}")
            }
            Self::Empty { at } => write!(f, "{at}: expected at least one of D, F, R, B, W, found none"),
            Self::Outside { at, what, found, limit } => {
                write!(f, "{at}: expected a {what} from 0 to {}, found {found}", limit - 1)
            }
            Self::NotAsked { at, kind } => {
                write!(f, "{at}: expected no {}, because {}", kind.letter(), not_asked(*kind))
            }
            Self::Twice { at, kind, first } => {
                write!(f, "{at}: expected each {} once, found it before at {first}", kind.letter())
            }
            Self::Missing { rank, operation } => write!(f, "rank {rank}: missing `{operation}`"),
            Self::TooEarly { at, needs } => write!(f, "{at}: expected after {needs}, found before it"),
            Self::NotDequantized { at } => {
                let load = Operation::dequantize(at.operation.chunk);
                write!(f, "{at}: missing `{load}` before it: the weights of its chunk are not in the buffer")
            }
            Self::Memory { at, units, cap } => {
                write!(f, "{at}: expected at most {cap} units held, found {units}")
            }
            Self::Deadlock { sends, cycle } => deadlock(f, *sends, cycle),
            Self::Unfinished { states } => write!(f, "the search did not end within {states} states"),
        }
    }
}

/// Why a part is not asked for.
fn not_asked(kind: Kind) -> &'static str {
    match kind {
        Kind::Dequantize => "the workload has no buffer for dequantised weights",
        Kind::Recompute => "nothing of its stage is recomputed",
        Kind::Weight => "no weight of its stage is trained",
        Kind::Forward | Kind::Backward => "there is none",
    }
}

fn deadlock(f: &mut fmt::Formatter<'_>, sends: Sends, cycle: &[Site]) -> fmt::Result {
    write!(f, "deadlock with {sends} sends: ")?;
    for site in cycle.iter().take(LONGEST) {
        write!(f, "{site} waits for ")?;
    }
    match cycle.len().saturating_sub(LONGEST) {
        0 => write!(f, "the first"),
        more => write!(f, "{more} others that wait for the first"),
    }
}
