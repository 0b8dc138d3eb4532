//! (B) `fsdp`: QLoRA over many ranks, with the loss of one.
//!
//! The weights of a 70B model take 39.5 GB, with its layers in NF4 and its embedding and head in bf16: more than a card
//! of 24 GB holds, and all that its ranks do with them is to read them, layer by layer. So each rank holds 1/n of every
//! weight, and a layer's weights are put together - still in 4 bits - right before the layer computes, and are gone
//! right after. What is trained, the adapter, lies in shards, too, with its moments; each rank computes the gradients
//! of its own micro-batches, and their sum is handed out in shards.
//!
//! ```text
//! each layer, forward     gather its shards in 4 bits -> dequantise -> compute           -> free
//! each layer, backward    gather its shards in 4 bits -> dequantise -> compute gradients -> reduce-scatter -> free
//! the end of a step       norm over all shards -> AdamW on the own shards
//! ```
//!
//! **What is given.** Parameters: names, shapes, how they are stored ([`reference::fsdp`]); graphs of the model's
//! pieces ([`reference::llama::Piece`]), which know nothing of ranks. **What comes out.** Values: a placement of every
//! parameter, what is written around a piece's graph. Each is checked before any rank runs it. **What it means.** The
//! losses, norms and adapters of one rank that does all micro-batches.
//!
//! Sources: Rajbhandari et al., "`ZeRO`" (2020), stage 3; torch's FSDP2 (`fully_shard`); Dettmers et al., "`QLoRA`"
//! (2023).

use reference::fsdp::{Cut, Parameter, Placement, Shards};
use reference::graph::ranks::Mesh;
use reference::graph::{Group, Tape, Tensor};
use reference::llama::Spec;
use reference::llama::train::Recipe;
use reference::schedule::{self, Schedule, Shape, Workload};

use crate::{graph, nf4};
use linked::{Linked, counted, linked};

pub use runtime::shard::{
    Activations, Error, Event, EventKind, FSDP, Fsdp, Gradient, Host, Interval, LayerBytes, PP, Pipeline,
    Rank, Room, Semaphore, Sharding, Slice, Store, TP, Team, Trace, Traffic, recomputed,
};
pub use runtime::shard::{flat, forecast, programs, rank};

linked!(warpbook_fsdp -> Linked<dyn Fsdp>);

counted! {
    Fsdp, warpbook_fsdp;

    fn place(&self, parameter: &Parameter, ranks: usize) -> Placement;
    fn gather(&self, shard: &Tensor, shards: &Shards, group: &Group) -> Tensor;
    fn keep(&self, bytes: &[usize], room: usize) -> Vec<bool>;
    fn reduce(&self, gradient: &Tensor, shards: &Shards, group: &Group) -> Tensor;
    fn norm(&self, tape: &Tape, gradients: &[Gradient], groups: &[Group]) -> Tensor;
    fn prefetch(&self, bytes: &[usize], room: usize) -> Vec<bool>;
    fn activations(&self, layers: &[LayerBytes], room: usize, host: Host) -> Vec<Activations>;
    fn cut(&self, parameter: &str) -> Cut;
    fn join(&self, module: &str, y: &Tensor, group: &Group) -> Tensor;
    fn total(&self, gradient: &Tensor, cut: Cut, group: &Group) -> Tensor;
    fn schedule(&self, shape: Shape, workload: &Workload) -> Result<Schedule, schedule::Error>;
}

/// A planned run with the solutions' steps, compiler and dequantiser, 1F1B where there are stages, no room beyond what
/// a rank needs, and a thread a rank.
pub fn planned_by_solutions<'a>(
    spec: &'a Spec,
    recipe: &'a Recipe,
    mesh: &'a Mesh,
    store: &'a Store,
) -> forecast::Planned<'a> {
    let (passes, dequantizer, attempt) = (&graph::Solution, &nf4::DEQUANTIZER, &Solution);
    let (pipeline, room, threads) = (None, Room::default(), 1);
    let loss = None;
    forecast::Planned {
        passes,
        dequantizer,
        attempt,
        spec,
        recipe,
        mesh,
        pipeline,
        room,
        loss,
        threads,
        store,
    }
}

/// The solution's text: what an exercise is derived from, and the last page of the lesson.
pub fn solution_text() -> &'static str {
    warpbook_fsdp().text
}

/// Hints from small to large, chosen by the step that failed.
pub const HINTS: &str = include_str!("hints.toml");
