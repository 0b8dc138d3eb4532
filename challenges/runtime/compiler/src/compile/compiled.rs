//! What a compiled graph says of itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kernels::comm::{Collective, Kind};
use kernels::plan::{Memory, Plan, Step};
use kernels::{Device, DeviceError};
use reference::graph::{Id, Symbol};

use super::{Axis, Compiled, Port, WORLD};
use crate::contract::Compile;
use crate::memory::profile::{self, MemoryProfile};
use crate::tune::Tuned;

/// The rank that a message goes to or comes from.
fn peer_of(what: &Collective) -> Option<usize> {
    if let Kind::Send { to: peer } | Kind::Receive { from: peer } = what.kind { Some(peer) } else { None }
}

fn place_peers(steps: &mut [Step], ranks: &[usize]) {
    for step in steps {
        let Step::Start(start) = step else { continue };
        let rank = ranks.get(start.group - WORLD - 1).copied().unwrap_or(0);
        if let Kind::Send { to: peer } | Kind::Receive { from: peer } = &mut start.what.kind {
            *peer = (*peer + rank) % start.world;
        }
    }
}

impl Compiled {
    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The groups of ranks that it works with. Linked to its plan are first a group of all ranks, then these, in order.
    ///
    /// A message goes to a rank that is so much further along its axis: the [plan](Self::plan) is that of the first
    /// rank along each of them.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The plan of one rank, whose number along each of [`axes`](Self::axes) is given. Without messages it is the same
    /// on every rank.
    pub(crate) fn plan_on_rank(&self, ranks: &[usize]) -> Arc<Plan> {
        let mut plan = self.plan.clone();
        if plan.steps.iter().any(|step| matches!(step, Step::Start(start) if peer_of(&start.what).is_some()))
        {
            place_peers(&mut Arc::make_mut(&mut plan).steps, ranks);
        }
        plan
    }

    /// The sizes that it was compiled for.
    pub fn sizes(&self) -> &BTreeMap<Symbol, i64> {
        &self.sizes
    }

    /// Computes each product as it is fastest on a device, as far as `tuned` knows or finds out.
    ///
    /// # Errors
    /// What the device says of a product that it tries.
    pub fn tune(
        &mut self,
        passes: &dyn Compile,
        device: &dyn Device,
        tuned: &mut Tuned,
    ) -> Result<(), DeviceError> {
        for step in &mut Arc::make_mut(&mut self.plan).steps {
            if let Step::Product(product) = step {
                product.choice = tuned.choice(passes, device, product)?;
            }
        }
        Ok(())
    }

    /// The parts of the model that a step belongs to, such as `layers.3.mlp`.
    pub fn scopes(&self, step: usize) -> BTreeSet<&str> {
        let nodes = self.nodes.get(step).into_iter().flatten();
        nodes.map(|id| self.graph.node(*id).scope.as_str()).filter(|scope| !scope.is_empty()).collect()
    }

    /// The bytes alive during each step, at any size.
    pub fn memory_profile(&self) -> MemoryProfile {
        let scope = |nodes: &BTreeSet<Id>| {
            nodes.last().map(|id| self.graph.node(*id).scope.clone()).unwrap_or_default()
        };
        let steps = self.plan().steps.iter().zip(&self.nodes);
        let parts = steps.map(|(step, nodes)| (step.name(), scope(nodes))).collect();
        profile::profile(parts, &self.lives, &self.bytes)
    }

    /// What has to be given.
    pub fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    /// What comes out.
    pub fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    /// The names of the inputs that a run reads, in the plan's order.
    pub fn given(&self) -> impl Iterator<Item = &str> {
        (0..self.plan.inputs.len()).map(|number| self.name_of(Memory::Input(number)))
    }

    /// The names of the inputs that a run updates, in the plan's order: see [`Options::donate`].
    pub fn donated(&self) -> Vec<&str> {
        (0..self.plan.donated.len()).map(|number| self.name_of(Memory::InOut(number))).collect()
    }

    /// The name of the input in a memory.
    pub(crate) fn name_of(&self, memory: Memory) -> &str {
        self.inputs.iter().find(|port| port.memory == memory).map_or("", |port| &port.name)
    }
}
