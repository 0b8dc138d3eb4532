//! From a graph in the machine's terms to parts with places in an arena.

use std::sync::Arc;

use reference::graph::Id;

use super::Compiled;
use super::emit::{Planned, axes};
use super::error::Error;
use super::options::Options;
use crate::contract::Compile;
use crate::fuse::{self, Fused, Part, overlap};
use crate::ir::arena::{self, Arena, Life};
use crate::ir::sized::Sized;
use crate::memory::{donate, profile, reuse};
use crate::rewrite::remat::Rematerialised;

/// What is compiled so far.
pub(super) struct MemoryPlan<'a> {
    pub(super) sized: &'a Sized<'a>,
    pub(super) labels: &'a [String],
    pub(super) fused: Fused,
    pub(super) lives: Vec<Option<Life>>,
    pub(super) arena: Arena,
}

/// Fuses a graph and plans its memory.
pub(super) fn plan_memory<'a>(
    passes: &dyn Compile,
    sized: &'a Sized<'a>,
    labels: &'a [String],
    options: Options,
) -> Result<MemoryPlan<'a>, Error> {
    let donated = if options.donate { donate::pairs(sized.graph) } else { Vec::new() };
    let mut fused = fuse::fuse(passes, sized, !options.fuse, &donated).map_err(|missing| {
        let node = sized.graph.node(missing.node);
        Error::NoKernel {
            node: format!("%{} {} {}", missing.node.0, node.op.name(), node.scope).trim_end().to_owned(),
            stop: missing.stop,
        }
    })?;
    overlap::overlap(sized, &mut fused.parts, options.in_flight);
    donate::alias_outputs(sized, &mut fused, &donated, options.fuse);
    if options.fuse {
        reuse::in_place(sized, &mut fused);
    }
    let lives = lives(sized, &fused);
    let arena = match options {
        Options { place: false, .. } => arena::without_reuse(&lives),
        Options { side_by_side: true, remat_layers: false, cap, .. } => {
            arena::apart(&lives, cap, |lives| passes.place(lives))
        }
        Options { .. } => passes.place(&lives),
    };
    match arena::fault(&lives, &arena) {
        Some(fault) => Err(Error::Arena { fault }),
        None => Ok(MemoryPlan { sized, labels, fused, lives, arena }),
    }
}

impl MemoryPlan<'_> {
    pub(super) fn finish(self, rematerialised: Rematerialised) -> Result<Compiled, Error> {
        let Self { sized, labels, fused, lives, arena } = self;
        let graph = sized.graph;
        let axes = axes(sized)?;
        let lowered = Planned { sized, axes: &axes, labels, fused: &fused, arena: &arena };
        let plan = lowered.plan()?;
        let inputs = graph.inputs().map(|(name, id)| lowered.port(name, id, None));
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let outputs = graph.outputs().iter().map(|(name, id)| lowered.port(name, *id, lowered.donated(*id)));
        let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        let nodes = fused.parts.iter().map(Part::nodes).collect();
        plan.check().map_err(Error::Device)?;
        let (graph, bytes, plan) = (graph.clone(), profile::sizes(sized, &fused), Arc::new(plan));
        Ok(Compiled {
            graph,
            sizes: sized.sizes().clone(),
            plan,
            inputs,
            outputs,
            arena,
            lives,
            bytes,
            nodes,
            rematerialised,
            axes,
        })
    }

    /// That its arena is larger than a cap, and why.
    pub(super) fn misses(&self, cap: usize) -> Error {
        let alive = |part: usize| {
            let lives = self.lives.iter().enumerate().filter_map(|(i, life)| Some((i, life.as_ref()?)));
            lives.filter(move |(_, life)| life.parts.contains(&part))
        };
        let bytes = |part: &usize| alive(*part).map(|(_, life)| life.bytes).sum::<usize>();
        let peak = (0..=self.fused.parts.len()).max_by_key(bytes).unwrap_or(0);
        let part = self.fused.parts.get(peak).and_then(|part| part.nodes().last().copied());
        let part = part.map_or_else(|| "results".to_owned(), |id| self.describe(id));
        let named = |buffer: usize| {
            let id = self.fused.layouts.iter().find(|(_, layout)| layout.buffer == buffer);
            id.map_or_else(|| "of an attention".to_owned(), |(id, _)| self.describe(*id))
        };
        let mut largest: Vec<(usize, usize)> = alive(peak).map(|(i, life)| (i, life.bytes)).collect();
        largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let alive = largest.into_iter().take(SHOWN).map(|(buffer, bytes)| (named(buffer), bytes)).collect();
        Error::Cap { cap, least: self.arena.bytes, part, alive }
    }

    /// A node for a message.
    fn describe(&self, id: Id) -> String {
        let node = self.sized.graph.node(id);
        format!("%{} {} {}", id.0, node.op.name(), node.scope).trim_end().to_owned()
    }
}

/// How many buffers a refusal names.
const SHOWN: usize = 8;

/// From the first part that writes a buffer to the last that reads it; outputs live to the end, but for those that end
/// in a donated buffer.
pub(super) fn lives(sized: &Sized, fused: &Fused) -> Vec<Option<Life>> {
    let mut lives: Vec<Option<Life>> = vec![None; fused.bytes.len()];
    let mut touch = |buffer: usize, part: usize| {
        if fused.given.contains_key(&buffer) {
            return;
        }
        let bytes = fused.bytes[buffer];
        let life = lives[buffer].get_or_insert(Life { bytes, parts: part..=part });
        life.parts = *life.parts.start().min(&part)..=*life.parts.end().max(&part);
    };
    for (number, part) in fused.parts.iter().enumerate() {
        part.reads().into_iter().chain(part.writes()).for_each(|buffer| touch(buffer, number));
    }
    let outputs = sized.graph.outputs().iter().filter(|(_, id)| !fused.donated.values().any(|out| out == id));
    for (_, id) in outputs {
        touch(fused.layouts[id].buffer, fused.parts.len());
    }
    lives
}
