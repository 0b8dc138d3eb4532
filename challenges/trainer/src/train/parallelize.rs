//! Where a run's model goes: which devices hold which part of it.
//!
//! ```text
//! one rank             the whole model on one device, as one graph; its loss whole or in chunks
//! mesh fsdp = N        parameters in shards, gathered piece by piece; N micro-batches at a time
//!      tp = N          each layer on N ranks, cut by heads and by columns of the MLP
//!      pp = N          N stages of layers, run by pipeline_parallel_schedule
//! ```
//!
//! Every rank builds the same [`Engine`] from the same config. An axis of one rank is a no-op.

use std::sync::Arc;

use challenges::fsdp::{self, Pipeline, Rank, Sharding, Store, Team};
use challenges::train::chunks::InChunks;
use challenges::train::{self, Engine, Machine, Replica};
use challenges::weights;
use kernels::Cpu;
use kernels::comm::Comm;
use reference::graph::interpret::Values;
use reference::graph::ranks::Mesh;
use reference::llama::Spec;

use super::run::Job;
use crate::output::Failure;

/// The engine of a run on one rank.
pub fn alone<'a>(
    job: &'a Job<'_>,
    on: Machine<'a>,
    state: &Values<f32>,
    loss: Option<&InChunks<'a>>,
) -> Result<Engine<'a>, Failure> {
    let (config, model) = (job.config, job.model);
    let (storages, weights) = if config.load_in_4bit {
        let nested = config.use_bnb_nested_quant;
        weights::load_quantized(on.device, model, nested, Cpu::new().threads()).map_err(Failure::usage)?
    } else {
        (model.storages().clone(), weights::load(on.device, model).map_err(Failure::usage)?)
    };
    let spec = Spec { storages, ..job.spec.clone() };
    let replica = Replica::new(on, weights, spec, &config.recipe(), state, loss, config.activations());
    replica.map(Engine::alone).map_err(Failure::usage)
}

/// The inputs that all ranks of a run share.
pub struct Sharing<'a> {
    /// The axes along which they lie.
    pub mesh: &'a Mesh,
    /// The schedule of stages, where the mesh has some.
    pub pipeline: &'a Pipeline<'a>,
    /// The compiled programs, each compiled once for all ranks.
    pub store: &'a Store,
}

/// The engine of a run on one of several ranks.
pub fn on_ranks<'a>(
    job: &'a Job<'_>,
    on: Machine<'a>,
    sharing: &Sharing<'a>,
    world: Arc<dyn Comm>,
    state: &Values<f32>,
    loss: Option<InChunks<'a>>,
) -> Result<Engine<'a>, Failure> {
    let (config, model) = (job.config, job.model);
    let storages = if config.load_in_4bit {
        weights::storages(model, config.use_bnb_nested_quant)
    } else {
        model.storages().clone()
    };
    let spec = Spec { storages, ..job.spec.clone() };
    let number = world.rank();
    let team = Team {
        world,
        mesh: sharing.mesh,
        pipeline: Some(sharing.pipeline),
        room: config.room(),
        sharding: Sharding::Parameters,
        loss,
        store: sharing.store.clone(),
    };
    let rank = Rank::new(on, team, &fsdp::Solution, model, spec, &config.recipe(), state);
    rank.map(Engine::on_ranks).map_err(|error| Failure::usage(train::Error::of_rank(number, error)))
}
