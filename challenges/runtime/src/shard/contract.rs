//! The steps of QLoRA over many ranks: challenge B's contract.

use reference::fsdp::{Cut, Parameter, Placement, Shards};
use reference::graph::{Group, Tape, Tensor};
use reference::schedule::{self, Schedule, Shape, Workload};

/// The axis of a mesh along which parameters lie in shards, and micro-batches are dealt out.
pub const FSDP: &str = "fsdp";
/// The axis of a mesh along which ranks share each layer.
pub const TP: &str = "tp";
/// The axis of a mesh along which the stages of a pipeline lie.
pub const PP: &str = "pp";

/// A gradient of which this rank has a shard.
#[derive(Clone)]
pub struct Gradient {
    /// The shard, f32 ([`Shards::len`]).
    pub shard: Tensor,
    /// The number of ranks that have this shard.
    pub copies: usize,
}

// ANCHOR: fsdp-trait
/// The steps of challenge B, from small to large.
pub trait Fsdp: Sync {
    /// B.1 - where each part of a parameter lies on `ranks` ranks: some rows of the first dimension on each, at whole
    /// blocks, so that a rank can decode what it holds; of every part what those rows need, of tables everything. No
    /// shard is larger than a rank's share, rounded up to whole blocks: see [`reference::fsdp::check`].
    fn place(&self, parameter: &Parameter, ranks: usize) -> Placement;

    /// B.2 - a whole part, (elements), from this rank's shard of it, ([`Shards::len`]), of any type. What everyone
    /// holds is whole already, and not gathered.
    fn gather(&self, shard: &Tensor, shards: &Shards, group: &Group) -> Tensor;

    /// B.3 - whose whole parts stay between forward and backward, in `room` bytes: for each piece of the model, in the
    /// order of the forward, which take so many `bytes`. From the last to the first, each stays that still fits; what
    /// does not stay is gathered again. `bytes` leaves out the model's last piece, whose backward follows its forward.
    fn keep(&self, bytes: &[usize], room: usize) -> Vec<bool>;

    /// B.4 - this rank's shard, f32 ([`Shards::len`]), of the sum of everyone's gradients, each f32 and as large as the
    /// whole parameter. The padding is zeros. Of what everyone holds everyone has the whole sum.
    fn reduce(&self, gradient: &Tensor, shards: &Shards, group: &Group) -> Tensor;

    /// B.4 - the norm, f32 (), of the gradient of which this rank has some shards, and the other ranks of the groups
    /// have the others.
    fn norm(&self, tape: &Tape, gradients: &[Gradient], groups: &[Group]) -> Tensor;

    /// B.5 - which gathers start while the work before them is done, in `room` bytes: for each gather of a micro-batch,
    /// in their order, which make so many `bytes`. What one has gathered is freed when its work is done; the first has
    /// nothing before it.
    fn prefetch(&self, bytes: &[usize], room: usize) -> Vec<bool>;

    /// B.6 - what stays of each layer between forward and backward, and where, in `room` bytes of the device. Every x
    /// comes first. If there is no room for all of them, as few layers as can be go to the host, the first ones; if the
    /// host is not to be used, every x stays on the device all the same, and nothing else. In the room that is left
    /// whole layers are kept, from the last to the first, each that still fits.
    fn activations(&self, layers: &[LayerBytes], room: usize, host: Host) -> Vec<Activations>;

    /// B.7 - how the ranks that share a layer share one of its parameters, by its full name, such as
    /// `model.layers.0.self_attn.q_proj.weight`, or of its adapter's A (r, in) and B (out, r)
    /// `base_model.model.model.layers.0.mlp.down_proj.lora_A.weight`. Everything else is everyone's.
    fn cut(&self, parameter: &str) -> Cut;

    /// B.7 - what follows a projection, by its name in the layer, such as `self_attn.o_proj` or `mlp.up_proj`: `y`
    /// (B, T, out) is what this rank's part of its weight and its adapter make.
    fn join(&self, module: &str, y: &Tensor, group: &Group) -> Tensor;

    /// B.7 - the gradient, f32, of a trained parameter that ranks share in this way, from what this rank makes of it.
    fn total(&self, gradient: &Tensor, cut: Cut, group: &Group) -> Tensor;

    /// B.8 - what each rank of a pipeline does, in which order: a schedule that can be run
    /// ([`check`](reference::schedule::check())), within the workload's cap, with bubbles as small as the workload lets
    /// them be; where all stages are alike, no slower than 1F1B.
    ///
    /// Fails where the workload makes no sense, or its cap has no room for a micro-batch.
    fn schedule(&self, shape: Shape, workload: &Workload) -> Result<Schedule, schedule::Error>;
}
// ANCHOR_END: fsdp-trait

/// The tensors that are cut into shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharding {
    /// Each parameter by itself, as in FSDP 2.
    #[default]
    Parameters,
    /// Rows of everything frozen that a piece reads, as in FSDP 1: see [`flat`](super::flat).
    Flat,
}

/// Bytes of a layer's activations for a micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerBytes {
    /// The bytes of its input, from which the rest can be computed again.
    pub x: usize,
    /// The bytes that its backward pass reads in addition to x.
    pub kept: usize,
}

/// The tensors that stay of a layer between forward and backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activations {
    /// Whether everything stays that its backward pass reads; else its x alone stays, from which the rest is computed
    /// again. The kept tensors of a layer on the host are there, too.
    pub is_kept: bool,
    /// In the memory of the host; else in that of the device.
    pub is_on_host: bool,
}

/// Whether activations may be moved to the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Host {
    /// They may not.
    #[default]
    Unused,
    /// They may.
    Used,
}
