//! Communication while others compute: starts that stand earlier and waits that stand later than they have to.
//!
//! ```text
//! start 0; wait 0; layer 0; start 1; wait 1; layer 1          none ahead
//! start 0; wait 0; start 1; layer 0; wait 1; layer 1          one in flight: the next weight while a layer computes
//! ```
//!
//! A start moves up to where its input is ready, a wait down to where its result is read, past parts that touch none of
//! their memory. How far is a matter of memory: what is in flight is alive, and a shard's whole weight is as large as
//! the weight. So only so many operations are in flight at a time; prefetching one weight takes one.
//!
//! **The order of starts stays**, and with it what every rank meets. Where there is more than one way, starts come
//! first: somebody waits for what is gathered, and what is scattered is usually read last.
//!
//! Nobody waits longer for it: a rank only ever needs that others have *started*, which they do no later than before.
//!
//! Reading: Zhao et al., "`PyTorch` FSDP" (2023), for prefetching under a limit.

use super::Part;
use super::collective::waits_at_the_end;
use crate::ir::sized::Sized;

/// Moves starts and waits apart, with at most so many operations in flight. Messages that are sent count for nothing:
/// they are in flight to the end anyway.
pub fn overlap(sized: &Sized, parts: &mut [Part], most: usize) {
    if most > 0 {
        start_early(sized, parts, most);
        wait_late(sized, parts, most);
    }
}

/// What a part is to operations in flight.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Start,
    Wait,
    Message, // the start or the wait of one that is sent
    Work,
}

fn role(sized: &Sized, part: &Part) -> Role {
    match part {
        Part::Start(transfer) | Part::Wait(transfer) if waits_at_the_end(sized, transfer.node) => {
            Role::Message
        }
        Part::Start(_) => Role::Start,
        Part::Wait(_) => Role::Wait,
        Part::Kernel(_) | Part::Product { .. } | Part::Dequantize { .. } | Part::Scatter { .. } => Role::Work,
        Part::Attention(_) | Part::AttentionGrad { .. } => Role::Work,
    }
}

fn start_early(sized: &Sized, parts: &mut [Part], most: usize) {
    let mut open = 0; // in flight before a part
    for at in 0..parts.len() {
        match role(sized, &parts[at]) {
            Role::Start => {
                let to = earliest(sized, &parts[..=at], open, most);
                parts[to..=at].rotate_right(1);
                open += 1;
            }
            Role::Wait => open -= 1,
            Role::Message | Role::Work => {}
        }
    }
}

/// Where the last of some parts may stand, which is a start.
fn earliest(sized: &Sized, parts: &[Part], mut open: usize, most: usize) -> usize {
    let Some((start, before)) = parts.split_last() else { return 0 };
    for (at, part) in before.iter().enumerate().rev() {
        let role = role(sized, part);
        open += usize::from(role == Role::Wait);
        let is_passed = matches!(role, Role::Work | Role::Wait) && is_apart(part, start);
        if !is_passed || open >= most {
            return at + 1;
        }
    }
    0
}

fn wait_late(sized: &Sized, parts: &mut [Part], most: usize) {
    let mut open = 0; // in flight after a part
    for at in (0..parts.len()).rev() {
        match role(sized, &parts[at]) {
            Role::Wait => {
                let to = at + latest(sized, &parts[at..], open, most);
                parts[at..=to].rotate_left(1);
                open += 1;
            }
            Role::Start => open -= 1,
            Role::Message | Role::Work => {}
        }
    }
}

/// Where the first of some parts may stand, which is a wait.
fn latest(sized: &Sized, parts: &[Part], mut open: usize, most: usize) -> usize {
    let Some((wait, producer)) = parts.split_first() else { return 0 };
    for (at, part) in producer.iter().enumerate() {
        let role = role(sized, part);
        open += usize::from(role == Role::Start);
        if role == Role::Message || open >= most || !is_apart(part, wait) {
            return at;
        }
        open -= usize::from(role == Role::Wait);
    }
    producer.len()
}

/// Whether two parts may change places: neither writes what the other touches.
fn is_apart(a: &Part, b: &Part) -> bool {
    let meets = |written: &Part, other: &Part| {
        let (reads, writes) = (other.reads(), other.writes());
        written.writes().iter().any(|buffer| reads.contains(buffer) || writes.contains(buffer))
    };
    !meets(a, b) && !meets(b, a)
}
