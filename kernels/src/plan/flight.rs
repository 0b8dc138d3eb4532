//! Operations between ranks as steps of a plan: [`Step::Start`] and [`Step::Wait`].
//!
//! From its start to its wait an operation is *in flight*, under a ticket: a number of the plan's own. Meanwhile its
//! output belongs to it alone, and its input may be read but not written, since a card reads and writes them at any
//! moment of the flight. So a schedule that overlaps communication with computation is a plan like any other, printed
//! and checked before it runs; *prefetching* is a plan whose start was moved up:
//!
//! ```text
//! 0: start 0: all-gather of 512 f32 in group 0: input 0 -> @0       0: start 0: ..
//! 1: wait 0                                                         1: wait 0
//! 2: product 4x64x32 .. @0                                          2: start 1: ..      <- moved up
//! 3: start 1: all-gather of 512 f32 in group 0: input 1 -> @8192    3: product 4x64x32 .. @0
//! 4: wait 1                                                         4: wait 1
//! 5: product 4x64x32 .. @8192                                       5: product 4x64x32 .. @8192
//! ```
//!
//! The second needs both weights' memory at once, where the first could have used one memory twice: moved up over a
//! step that reads what it writes, a start is refused.
//!
//! When ranks prepare their plans, these are held against each other before any of them runs: see [`Sequence`].

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use super::touched::Touched;
use super::{Plan, Step, View};
use crate::comm::{Collective, Comm, Kind, Sequence};
use crate::error::DeviceError;

/// The start of an operation between ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// What a wait calls it: a number of this start alone.
    pub ticket: usize,
    /// The group, by its number among those that are linked when the plan is prepared.
    pub group: usize,
    /// How many ranks the group has.
    pub world: usize,
    /// What is done.
    pub what: Collective,
    /// What this rank gives, side by side; `None` if it receives a message.
    pub input: Option<View>,
    /// What this rank gets, side by side; `None` if it sends a message. An all-reduce may write what it reads.
    pub output: Option<View>,
    /// What the numbers are, in one line: ranks whose starts meet have to say the same, such as a shape and the
    /// dimension that is gathered. Empty if `what` says it all.
    pub label: String,
}

impl Start {
    /// Elements of a side that has so many bytes.
    fn elements(&self, bytes: Option<usize>) -> Option<[usize; 1]> {
        bytes.map(|bytes| [bytes / self.what.element.bytes()])
    }

    /// Its input and output, with how many elements each has; `None` if they cannot be counted.
    fn sides(&self) -> Option<[(Option<&View>, [usize; 1]); 2]> {
        let input = self.elements(self.what.input_bytes(self.world))?;
        let output = self.elements(self.what.output_bytes(self.world))?;
        Some([(self.input.as_ref(), input), (self.output.as_ref(), output)])
    }

    /// Bytes of the input, and of the output; 0 where there is none.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let [input, output] = [self.what.input_bytes(self.world), self.what.output_bytes(self.world)];
        (input.unwrap_or(0), output.unwrap_or(0))
    }

    /// What an operation in flight reads and writes.
    pub(super) fn touched(&self) -> Vec<Touched> {
        let bytes = self.what.element.bytes();
        let sides = self.sides().into_iter().flatten().zip([false, true]);
        let touched = |((view, space), is_written): ((Option<&View>, [usize; 1]), bool)| {
            Some(Touched::new(view?, &space, bytes, is_written))
        };
        sides.filter_map(touched).collect()
    }

    /// Whether it writes what it reads, element by element.
    fn is_in_place(&self) -> bool {
        self.what.kind == Kind::AllReduce
            && self
                .input
                .as_ref()
                .zip(self.output.as_ref())
                .is_some_and(|(input, output)| (input.memory, input.offset) == (output.memory, output.offset))
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "start {}: {} in group {}", self.ticket, self.what, self.group)?;
        f.write_str(if self.label.is_empty() { "" } else { ", " })?;
        write!(f, "{}:", self.label)?;
        self.input.iter().try_for_each(|input| write!(f, " {input}"))?;
        self.output.iter().try_for_each(|output| write!(f, " -> {output}"))
    }
}

impl Plan {
    /// What a start lacks.
    pub(super) fn check_start(&self, start: &Start) -> Option<&'static str> {
        if start.what.peer().is_some_and(|peer| peer >= start.world) {
            return Some("a peer in its group");
        }
        let Some([(input, read), (output, written)]) = start.sides() else {
            return Some("elements that can be counted");
        };
        let (gives, gets) =
            (!matches!(start.what.kind, Kind::Receive { .. }), !matches!(start.what.kind, Kind::Send { .. }));
        if input.is_some() != gives || output.is_some() != gets {
            return Some("an input unless it receives, and an output unless it sends");
        }
        let bytes = start.what.element.bytes();
        let lies =
            |(view, space): (&View, [usize; 1])| view.strides == [1] && self.inside(view, &space, bytes);
        if !input.map(|view| (view, read)).is_none_or(lies) {
            return Some("an input that lies in its memory, side by side");
        }
        if !output.map(|view| (view, written)).is_none_or(lies) {
            return Some("an output that lies in its memory, side by side");
        }
        if output.is_some_and(|view| !view.memory.is_written()) {
            return Some("an output in the arena: what is given is only read");
        }
        let meets = input.zip(output).is_some_and(|(a, b)| a.meets(&read, bytes, b, &written, bytes));
        (meets && !start.is_in_place()).then_some("an output apart from its input")
    }

    /// Whether each ticket is started and waited for once, in this order, and no step touches what is in flight.
    pub(super) fn check_flights(&self) -> Result<(), DeviceError> {
        let mut flights: Vec<Flight> = Vec::new();
        let mut tickets = HashSet::new();
        for (number, step) in self.steps.iter().enumerate() {
            if let Step::Wait { ticket } = step {
                let at = flights.iter().position(|flight| flight.ticket == *ticket);
                flights.remove(at.ok_or_else(|| self.refused(number, "a ticket in flight"))?);
                continue;
            }
            let mut touched = if flights.is_empty() { vec![] } else { step.touched() };
            if touched.iter().any(|one| flights.iter().any(|flight| flight.forbids(one))) {
                return Err(self.refused(number, "memory that no operation in flight reads or writes"));
            }
            let Step::Start(start) = step else { continue };
            if !tickets.insert(start.ticket) {
                return Err(self.refused(number, "a ticket of its own"));
            }
            touched = start.touched();
            flights.push(Flight { step: number, ticket: start.ticket, touched });
        }
        flights
            .first()
            .map_or(Ok(()), |flight| Err(self.refused(flight.step, "a step that waits for its ticket")))
    }
}

/// An operation that was started and not waited for.
struct Flight {
    step: usize,
    ticket: usize,
    touched: Vec<Touched>,
}

impl Flight {
    /// Whether a step may not touch a place: what is in flight may be read by several and is written by none or one.
    fn forbids(&self, other: &Touched) -> bool {
        self.touched.iter().any(|own| (own.is_written || other.is_written) && own.meets(other))
    }
}

/// What a device has made of a plan, once the plans of all ranks fit together. A rank that could make nothing of its
/// plan tells the others.
///
/// All ranks of the first group call this at the same time, also those whose plan has no operation between ranks.
pub(crate) fn prepare_together<T>(
    plan: &Plan,
    groups: &[Arc<dyn Comm>],
    made: impl FnOnce() -> Result<T, DeviceError>,
) -> Result<T, DeviceError> {
    let made = plan.check().and_then(|()| plan.check_groups(groups)).and_then(|()| made());
    let Some(all) = groups.first() else { return made };
    let made = made.inspect_err(|error| all.abort(&error.to_string()))?;
    plan.sequence(groups).agree(&**all)?;
    Ok(made)
}

impl Plan {
    /// Whether every group that a step names is linked, and has the ranks that the step counts on.
    fn check_groups(&self, groups: &[Arc<dyn Comm>]) -> Result<(), DeviceError> {
        let is_known =
            |group: &Arc<dyn Comm>| group.ranks().iter().all(|rank| groups[0].ranks().contains(rank));
        for (number, step) in self.steps.iter().enumerate() {
            let Step::Start(start) = step else { continue };
            let fault = match groups.get(start.group) {
                None => Some("a group that is linked"),
                Some(group) if group.world() != start.world => Some("a group of as many ranks"),
                Some(group) if !is_known(group) => Some("a group whose ranks the first group has"),
                Some(_) => None,
            };
            fault.map_or(Ok(()), |needed| Err(self.refused(number, needed)))?;
        }
        Ok(())
    }

    /// What it starts and waits for, in groups that were checked.
    fn sequence(&self, groups: &[Arc<dyn Comm>]) -> Sequence {
        let (mut sequence, mut tickets) = (Sequence::default(), Vec::new());
        for step in &self.steps {
            match step {
                Step::Start(start) => {
                    let (group, instance) = (&*groups[start.group], instance(groups, start.group));
                    sequence.start(&start.what, &start.label, group, instance);
                    tickets.push(start.ticket);
                }
                Step::Wait { ticket } => {
                    sequence.wait(tickets.iter().position(|other| other == ticket).unwrap_or(tickets.len()));
                }
                Step::Pass { .. }
                | Step::Product(_)
                | Step::Attention { .. }
                | Step::AttentionGrad(_)
                | Step::Scatter { .. }
                | Step::Call { .. } => {}
            }
        }
        sequence
    }
}

/// How many other groups of the same ranks come before one; a group that is linked twice is one group.
fn instance(groups: &[Arc<dyn Comm>], number: usize) -> usize {
    let first = |number: usize| groups.iter().position(|other| Arc::ptr_eq(other, &groups[number]));
    let is_other =
        |other: &usize| first(*other) == Some(*other) && groups[*other].ranks() == groups[number].ranks();
    (0..first(number).unwrap_or(number)).filter(is_other).count()
}

#[cfg(test)]
mod tests;
