//! What each rank is about to do, as text that is checked before anything runs.
//!
//! Ranks need not do the same: in a pipeline one sends what the next receives, and in a mesh each has groups of its
//! own. What has to hold is that all ends of a *channel* - a group, or a sender, a receiver and a tag - list the same
//! operations in the same order; and that no rank waits for an operation that another starts only after a wait of its
//! own that cannot end. Both are decided here, from all ranks' lists:
//!
//! ```text
//! rank 0                                     rank 1
//! start [0, 1]: all-gather of 8 f32          start [0, 1]: all-gather of 8 f32
//! send 0 -> 1 of [0, 1]: 4 bf16              wait 0
//! wait 0                                     receive 0 -> 1 of [0, 1]: 4 bf16
//! wait 1                                     wait 1
//! ```
//!
//! Ranks are numbered as the world does, waits by the line that started, counted from 0 without the waits. A second
//! group of the same ranks is `[0, 1] #1`. A send counts as received when the receive is started, as in every transport
//! here; so a list that passes hangs on none of them.

use std::collections::HashMap;
use std::fmt::Write;

use super::{Collective, Comm, CommError, Kind, hash};

/// A rank's list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    text: String,
}

impl Sequence {
    /// Notes that the rank starts an operation in a group. `label` is what its ends have to say alike beside `what`;
    /// `instance` tells groups of the same ranks apart, from 0.
    pub fn start(&mut self, what: &Collective, label: &str, comm: &dyn Comm, instance: usize) {
        let (ranks, rank) = (comm.ranks(), comm.rank());
        let group = if instance == 0 { format!("{ranks:?}") } else { format!("{ranks:?} #{instance}") };
        let Collective { kind, element, count, tag } = *what;
        let label = label.replace(['\n', '\r'], " "); // an operation is one line
        let label = if label.is_empty() { label } else { format!(", {label}") };
        let named = |peer: usize| ranks.get(peer).copied().unwrap_or(peer);
        let mut message = |verb: &str, from: usize, to: usize| {
            let tag = if tag == 0 { String::new() } else { format!(", tag {tag}") };
            let (from, to) = (named(from), named(to));
            writeln!(self.text, "{verb} {from} -> {to} of {group}{tag}: {count} {element}{label}")
        };
        let written = match kind {
            Kind::Send { to } => message("send", rank, to),
            Kind::Receive { from } => message("receive", from, rank),
            Kind::AllGather | Kind::ReduceScatter | Kind::AllReduce => {
                writeln!(self.text, "start {group}: {what}{label}")
            }
        };
        written.expect("a string takes what is written");
    }

    /// Notes that the rank waits for what it started, by its number among the starts.
    pub fn wait(&mut self, start: usize) {
        writeln!(self.text, "wait {start}").expect("a string takes what is written");
    }

    /// One line for each start and wait.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Refuses lists that do not fit together, on every member of a group of which all groups in the lists are parts.
    /// Only hashes are exchanged where all lists are the same.
    ///
    /// # Errors
    /// The first operation in which two ranks differ, or what each rank would wait for without end; the same on every
    /// rank.
    pub fn agree(&self, comm: &dyn Comm) -> Result<(), CommError> {
        let hashes = comm.exchange(&hash(&self.text))?;
        let is_same = hashes.iter().all(|hash| *hash == hashes[0]);
        let texts = if is_same { vec![self.text.clone(); hashes.len()] } else { comm.exchange(&self.text)? };
        check(comm.ranks(), &texts).map_err(|error| comm.fail(error))
    }
}

/// A line of a list.
enum Action<'a> {
    Start(Start<'a>),
    Wait(usize),
}

#[derive(Clone)]
struct Start<'a> {
    channel: &'a str,
    what: &'a str,
    members: Vec<usize>, // the ranks at the channel's ends, by part
    part: usize,
}

/// One end of a channel: its name and the part.
type End<'a> = (&'a str, usize);

impl<'a> Action<'a> {
    /// A line of a rank's list; `None` if it is none.
    fn parse(line: &'a str, rank: usize) -> Option<Self> {
        if let Some(start) = line.strip_prefix("wait ") {
            return start.parse().ok().map(Self::Wait);
        }
        let (end, what) = line.split_once(": ")?;
        let (verb, channel) = end.split_once(' ')?;
        let named = if verb == "start" { channel.split_once(']')?.0 } else { channel.split_once(" of ")?.0 };
        let numbers =
            named.split(|letter: char| !letter.is_ascii_digit()).filter(|number| !number.is_empty());
        let members: Vec<usize> = numbers.map(|number| number.parse().ok()).collect::<Option<_>>()?;
        let part = match verb {
            "start" => members.iter().position(|member| *member == rank)?,
            "send" => 0,
            "receive" => 1,
            _ => return None,
        };
        (members.get(part) == Some(&rank)).then_some(Self::Start(Start { channel, what, members, part }))
    }
}

/// Refuses the lists of a world's ranks if they do not fit together.
fn check(ranks: &[usize], texts: &[String]) -> Result<(), CommError> {
    let mut lists = Vec::new();
    for (rank, text) in ranks.iter().zip(texts) {
        let parsed =
            text.lines().map(|line| Action::parse(line, *rank).ok_or_else(|| unreadable(*rank, line)));
        lists.push(parsed.collect::<Result<Vec<Action<'_>>, CommError>>()?);
    }
    check_channels(&lists)?;
    check_order(ranks, &lists)
}

fn unreadable(rank: usize, line: &str) -> CommError {
    CommError::Aborted { rank, why: format!("its list has a line that is no operation: {line:?}") }
}

/// Whether all ends of each channel list the same operations.
fn check_channels(lists: &[Vec<Action<'_>>]) -> Result<(), CommError> {
    let mut ends: HashMap<End<'_>, Vec<&str>> = HashMap::new();
    let starts = || {
        lists.iter().flatten().filter_map(|action| match action {
            Action::Start(start) => Some(start),
            Action::Wait(_) => None,
        })
    };
    for start in starts() {
        ends.entry((start.channel, start.part)).or_default().push(start.what);
    }
    for Start { channel, members, .. } in starts() {
        let list = |part: usize| ends.get(&(*channel, part)).map_or(&[][..], |list| list);
        let Some(part) = (1..members.len()).find(|part| list(*part) != list(0)) else { continue };
        let (first, second) = (list(0), list(part));
        let at = first.iter().zip(second).take_while(|(a, b)| a == b).count();
        let found = [first, second].map(|list| list.get(at).map(|what| (*what).to_owned()));
        let place = format!("operation {} of {channel}", at + 1);
        return Err(CommError::Disagree { ranks: [members[0], members[part]], place, found });
    }
    Ok(())
}

/// Whether all lists can be gone through to their ends: goes through them, each rank as far as it gets.
fn check_order(ranks: &[usize], lists: &[Vec<Action<'_>>]) -> Result<(), CommError> {
    let mut begun: HashMap<End<'_>, usize> = HashMap::new(); // how many operations of each end are started
    let mut waiting: Vec<Progress<'_>> = lists.iter().map(|_| Progress::default()).collect();
    let mut moved = true;
    while moved {
        moved = false;
        for (list, progress) in lists.iter().zip(&mut waiting) {
            while let Some(action) = list.get(progress.at).filter(|action| progress.may_do(action, &begun)) {
                if let Action::Start(start) = action {
                    let number = begun.entry((start.channel, start.part)).or_default();
                    *number += 1;
                    progress.started.push((start, *number));
                }
                progress.at += 1;
                moved = true;
            }
        }
    }
    let stuck = ranks.iter().zip(lists).zip(&waiting).filter_map(|((rank, list), progress)| {
        let Action::Wait(start) = list.get(progress.at)? else { return None };
        let message = progress.started.get(*start).map_or_else(
            || format!("start {start}, which comes later"),
            |(start, number)| format!("{} (operation {number} of {})", start.what, start.channel),
        );
        Some((*rank, message))
    });
    let waits: Vec<(usize, String)> = stuck.collect();
    if waits.is_empty() { Ok(()) } else { Err(CommError::Deadlock { waits }) }
}

/// How far a rank gets.
#[derive(Default)]
struct Progress<'a> {
    at: usize,
    started: Vec<(&'a Start<'a>, usize)>, // with its number at its end of the channel
}

impl Progress<'_> {
    /// A start can always be done, a wait once all ends have started.
    fn may_do(&self, action: &Action<'_>, begun: &HashMap<End<'_>, usize>) -> bool {
        let Action::Wait(start) = action else { return true };
        self.started.get(*start).is_some_and(|(start, number)| {
            (0..start.members.len()).all(|part| begun.get(&(start.channel, part)) >= Some(number))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(texts: &[&str]) -> String {
        let ranks: Vec<usize> = (0..texts.len()).collect();
        let texts: Vec<String> = texts.iter().map(|text| text.replace("; ", "\n")).collect();
        check(&ranks, &texts).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn ends_that_list_the_same_agree() {
        let both = "start [0, 1]: all-gather of 8 f32; wait 0";
        assert_eq!(describe(&[both, both]), "");
        assert_eq!(
            describe(&[
                "start [0, 1]: all-gather of 8 f32; send 0 -> 1 of [0, 1]: 4 bf16; wait 0; wait 1",
                "start [0, 1]: all-gather of 8 f32; wait 0; receive 0 -> 1 of [0, 1]: 4 bf16; wait 1",
            ]),
            ""
        );
        assert_eq!(describe(&["send 0 -> 0 of [0]: 4 u8; receive 0 -> 0 of [0]: 4 u8; wait 0; wait 1"]), "");
        assert_eq!(describe(&["", ""]), "");
    }

    #[test]
    fn the_first_operation_that_differs_is_named() {
        let same = "start [0, 1]: all-gather of 8 f32; ";
        assert_eq!(
            describe(&[&format!("{same}start [0, 1]: all-reduce of 8 f32"), same]),
            "ranks disagree at operation 2 of [0, 1]: rank 0 has `all-reduce of 8 f32`, rank 1 has nothing there"
        );
        assert_eq!(
            describe(&["send 0 -> 1 of [0, 1], tag 2: 4 bf16", "receive 0 -> 1 of [0, 1], tag 2: 8 bf16"]),
            "ranks disagree at operation 1 of 0 -> 1 of [0, 1], tag 2: rank 0 has `4 bf16`, rank 1 has `8 bf16`"
        );
        assert_eq!(
            describe(&["", "receive 0 -> 1 of [0, 1]: 8 bf16"]),
            "ranks disagree at operation 1 of 0 -> 1 of [0, 1]: rank 0 has nothing there, rank 1 has `8 bf16`"
        );
    }

    #[test]
    fn waits_in_a_circle_are_refused() {
        assert_eq!(
            describe(&[
                "send 0 -> 1 of [0, 1]: 4 u8; wait 0; receive 1 -> 0 of [0, 1]: 4 u8; wait 1",
                "send 1 -> 0 of [0, 1]: 4 u8; wait 0; receive 0 -> 1 of [0, 1]: 4 u8; wait 1",
            ]),
            "ranks would wait for each other: rank 0 for 4 u8 (operation 1 of 0 -> 1 of [0, 1]), rank 1 for 4 u8 \
             (operation 1 of 1 -> 0 of [0, 1])"
        );
        let (a, b) = ("start [0, 1]: all-reduce of 1 f32", "start [0, 1] #1: all-reduce of 1 f32");
        let crossed = [format!("{a}; wait 0; {b}; wait 1"), format!("{b}; wait 0; {a}; wait 1")];
        assert!(describe(&[&crossed[0], &crossed[1]]).starts_with("ranks would wait for each other"));
        let late = [format!("{a}; {b}; wait 0; wait 1"), format!("{b}; {a}; wait 0; wait 1")];
        assert_eq!(describe(&[&late[0], &late[1]]), "");
    }

    #[test]
    fn a_line_that_is_no_operation_is_refused() {
        for line in [
            "wait x",
            "start",
            "start [1]: all-gather of 1 f32",
            "send 1 -> 0 of [0, 1]: 1 u8",
            "stop [0]: x",
        ] {
            assert!(describe(&[line]).contains("its list has a line that is no operation"), "{line}");
        }
        assert!(describe(&["wait 0"]).contains("start 0, which comes later"));
    }
}
