//! An operation between ranks: a part that starts it and a part that waits for it.
//!
//! Both touch the memory of both sides, so whatever plans memory - lives and places, buffers that share bytes, tensors
//! that are updated in place - sees an operation in flight from the one to the other, and knows of it nothing else.
//!
//! **Starts** stand in the graph's order, on every rank alike, and nothing changes it: ranks meet by count.
//!
//! **Waits.** An operation that all ranks take part in is waited for right after its start, and so is a message that
//! is received. A message that is sent is waited for at the very end: until its receiver asks for it, which may be
//! after something that this rank does later, nobody may wait ("a send never waits"). Its memory lives as long.
//!
//! What a rank gives has to lie side by side. A view of a buffer that does is read there; every other one is written
//! into a buffer of its own first.

use kernels::plan::contiguous;
use reference::graph::{Collective, Id, Op};

use super::emit::{Layout, LowerError};
use super::producer::{Producer, seen};
use super::{Fused, Part, strides};
use crate::ir::sized::Sized;

/// An operation between ranks with its memory.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The node.
    pub node: Id,
    /// What this rank gives, side by side; `None` if it receives a message.
    pub input: Option<Layout>,
    /// What this rank gets, side by side; `None` if it sends a message.
    pub output: Option<Layout>,
}

impl Transfer {
    /// What it has of memory.
    pub fn layouts(&mut self) -> impl Iterator<Item = &mut Layout> {
        self.input.iter_mut().chain(&mut self.output)
    }
}

/// What a node does between ranks; `None` if nothing.
fn kind(sized: &Sized, id: Id) -> Option<Collective> {
    let Op::Collective { kind, .. } = &sized.graph.node(id).op else { return None };
    Some(*kind)
}

/// The tensor that a node gives to other ranks; `None` if it gives none.
fn given(sized: &Sized, id: Id) -> Option<Id> {
    let gives = !matches!(kind(sized, id)?, Collective::Receive { .. });
    gives.then(|| sized.graph.node(id).inputs[0])
}

/// The node that has to have a buffer so that another rank gets something of it: what the given tensor is a view of, if
/// it lies there side by side, else itself.
pub fn must_have(sized: &Sized, id: Id) -> Option<Id> {
    let tensor = given(sized, id)?;
    let producer = seen(sized, tensor).filter(|producer| {
        let whole = Layout { buffer: 0, offset: 0, strides: strides(sized, producer.node) };
        flat(sized, tensor, producer, &whole).is_some()
    });
    Some(producer.map_or(tensor, |producer| producer.node))
}

/// A view of a buffer as one row of elements; `None` if they do not lie side by side.
fn flat(sized: &Sized, tensor: Id, producer: &Producer, layout: &Layout) -> Option<Layout> {
    let shape = sized.shape(tensor);
    let Layout { buffer, offset, strides } = producer.place(layout, shape);
    let mut dims = shape.iter().zip(strides.iter().zip(contiguous(shape)));
    let is_flat = dims.all(|(size, (own, flat))| *size == 1 || *own == flat);
    is_flat.then(|| Layout { buffer, offset, strides: vec![1] })
}

/// Where a tensor's elements lie side by side.
fn row(sized: &Sized, fused: &Fused, tensor: Id) -> Option<Layout> {
    let is_own = fused.layouts.contains_key(&tensor);
    let producer = if is_own { Producer::itself(sized, tensor) } else { seen(sized, tensor)? };
    flat(sized, tensor, &producer, fused.layouts.get(&producer.node)?)
}

/// The memory of a node that ranks do together.
///
/// Fails where a tensor has no buffer in which it lies side by side.
pub fn transfer(sized: &Sized, fused: &Fused, id: Id) -> Result<Transfer, (Id, LowerError)> {
    let lying = |tensor: Id| row(sized, fused, tensor).ok_or((id, LowerError::NeedsBuffer(tensor)));
    let gets = !matches!(kind(sized, id), Some(Collective::Send { .. }));
    let input = given(sized, id).map(lying).transpose()?;
    let output = gets.then(|| lying(id)).transpose()?;
    Ok(Transfer { node: id, input, output })
}

/// Whether a node is waited for at the end of all.
pub fn waits_at_the_end(sized: &Sized, id: Id) -> bool {
    matches!(kind(sized, id), Some(Collective::Send { .. }))
}

/// The waits for all that is in flight when everything else is done, in the order of the starts.
pub fn last_waits(sized: &Sized, parts: &[Part]) -> Vec<Part> {
    let sent = parts.iter().filter_map(|part| match part {
        Part::Start(transfer) if waits_at_the_end(sized, transfer.node) => Some(transfer.clone()),
        _ => None,
    });
    sent.map(Part::Wait).collect()
}
