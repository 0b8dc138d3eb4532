//! Why communication ended: each error names the rank and the operation. Ranks are numbered as the whole world does.

use std::fmt;
use std::time::Duration;

/// Why communication ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommError {
    /// Two ranks started different operations in the same place.
    Mismatch {
        /// Who was first, and what it started.
        first: (usize, String),
        /// Who came then, and what it started.
        second: (usize, String),
        /// Which operation, of which ranks.
        place: String,
    },
    /// Two ranks are about to do different things.
    Disagree {
        /// The two.
        ranks: [usize; 2],
        /// The first line, or the first operation of a group, that differs, counted from 1.
        place: String,
        /// What each has there; `None` if it ends before.
        found: [Option<String>; 2],
    },
    /// Ranks are about to wait for each other without end.
    Deadlock {
        /// Each rank that would, and what for.
        waits: Vec<(usize, String)>,
    },
    /// A rank ended, or left the group, without its part of an operation.
    Left {
        /// Who.
        rank: usize,
        /// What it did not start.
        operation: String,
        /// Who did.
        started_by: usize,
    },
    /// A rank's thread panicked.
    Panicked {
        /// Who.
        rank: usize,
        /// With which message; empty if nobody saw it.
        message: String,
    },
    /// A rank's thread could not be made.
    Spawn {
        /// Whose.
        rank: usize,
        /// The system's reason.
        reason: String,
    },
    /// Ranks did not start an operation within the time limit.
    Timeout {
        /// Who waited.
        rank: usize,
        /// For which operation.
        operation: String,
        /// Who did not start it.
        missing: Vec<usize>,
        /// How long was waited.
        limit: Duration,
    },
    /// A rank ended the communication on purpose.
    Aborted {
        /// Who.
        rank: usize,
        /// Why.
        why: String,
    },
    /// An operation's memory has another size than the operation.
    Size {
        /// Whose.
        rank: usize,
        /// Which operation.
        operation: String,
        /// `input` or `output`.
        side: &'static str,
        /// Bytes of the operation; `None` if they are more than can be counted.
        expected: Option<usize>,
        /// Bytes of the memory.
        found: usize,
    },
    /// A message to or from a rank that is no member.
    Peer {
        /// Whose message.
        rank: usize,
        /// Which operation, with the peer as the group numbers it.
        operation: String,
        /// The peer's number in the group.
        peer: usize,
        /// How many members there are.
        world: usize,
    },
    /// A rank was given a ticket of another group or another rank.
    ForeignTicket {
        /// Who.
        rank: usize,
        /// The group's members.
        group: Vec<usize>,
    },
    /// A rank dropped a ticket without waiting for it.
    NeverWaited {
        /// Who.
        rank: usize,
        /// For which operation.
        operation: String,
    },
    /// A list of ranks is no group.
    Group {
        /// Who asked for it.
        rank: usize,
        /// The list, as its parent numbers them.
        ranks: Vec<usize>,
        /// What is expected of it.
        expected: String,
    },
}

impl fmt::Display for CommError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch { first, second, place } => write!(
                f,
                "ranks {} and {} differ in {place}: rank {} started {}, rank {} started {}",
                first.0, second.0, first.0, first.1, second.0, second.1
            ),
            Self::Disagree { ranks, place, found } => {
                let [a, b] = found.each_ref().map(|found| match found {
                    Some(text) => format!("has `{text}`"),
                    None => "has nothing there".to_owned(),
                });
                let [first, second] = ranks;
                write!(f, "ranks disagree at {place}: rank {first} {a}, rank {second} {b}")
            }
            Self::Deadlock { waits } => {
                let each = waits.iter().map(|(rank, what)| format!("rank {rank} for {what}"));
                write!(f, "ranks would wait for each other: {}", each.collect::<Vec<_>>().join(", "))
            }
            Self::Left { rank, operation, started_by } => {
                write!(f, "rank {rank} left without {operation}, which rank {started_by} has started")
            }
            Self::Panicked { rank, message } if message.is_empty() => write!(f, "rank {rank} panicked"),
            Self::Panicked { rank, message } => write!(f, "rank {rank} panicked: {message}"),
            Self::Spawn { rank, reason } => write!(f, "rank {rank} has no thread: {reason}"),
            Self::Timeout { rank, operation, missing, limit } => {
                write!(f, "rank {rank} waited {limit:?} for ranks {missing:?} to start {operation}")
            }
            Self::Aborted { rank, why } => write!(f, "rank {rank} aborted: {why}"),
            Self::Size { rank, operation, side, expected: Some(expected), found } => {
                write!(f, "{operation} on rank {rank}: expected an {side} of {expected} bytes, found {found}")
            }
            Self::Size { rank, operation, side, expected: None, found } => write!(
                f,
                "{operation} on rank {rank}: its {side} has more bytes than can be counted, found {found}"
            ),
            Self::Peer { rank, operation, peer, world } => {
                write!(f, "{operation}, started by rank {rank}: expected a peer below {world}, found {peer}")
            }
            Self::ForeignTicket { rank, group } => {
                write!(f, "rank {rank} waits in group {group:?} for a ticket that is not its own there")
            }
            Self::NeverWaited { rank, operation } => {
                write!(f, "rank {rank} dropped the ticket of {operation} and never waited for it")
            }
            Self::Group { rank, ranks, expected } => {
                write!(f, "rank {rank} asked for the group {ranks:?}: expected {expected}")
            }
        }
    }
}

impl std::error::Error for CommError {}

/// The first line in which a member's text differs from the first member's; `None` if all are equal.
pub(super) fn first_difference(ranks: &[usize], texts: &[String]) -> Option<CommError> {
    let (first, others) = texts.split_first()?;
    let at = others.iter().position(|text| text != first)?;
    let [mut mine, mut theirs] = [first, &others[at]].map(|text| text.split('\n'));
    let mut line = 0;
    loop {
        line += 1;
        let found = [mine.next(), theirs.next()];
        if found[0] != found[1] {
            let found = found.map(|text| text.map(str::to_owned));
            let place = format!("line {line}");
            return Some(CommError::Disagree { ranks: [ranks[0], ranks[at + 1]], place, found });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_named() {
        let describe = |texts: [&str; 3]| {
            first_difference(&[0, 3, 5], &texts.map(str::to_owned)).map(|error| error.to_string())
        };
        assert_eq!(describe(["a\nb", "a\nb", "a\nb"]), None);
        assert_eq!(
            describe(["a\nb\nc", "a\nb\nc", "a\nx\ny"]).expect("differs"),
            "ranks disagree at line 2: rank 0 has `b`, rank 5 has `x`"
        );
        assert_eq!(
            describe(["a", "a\nb", "a"]).expect("differs"),
            "ranks disagree at line 2: rank 0 has nothing there, rank 3 has `b`"
        );
        assert_eq!(
            describe(["a\n", "a", "a\n"]).expect("differs"),
            "ranks disagree at line 2: rank 0 has ``, rank 3 has nothing there"
        );
    }
}
