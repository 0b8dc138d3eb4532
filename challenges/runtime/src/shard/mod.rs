//! Many ranks: the programs around each piece of the model, the layout of parameters, and what runs a schedule.
//!
//! An attempt makes each rank's decisions: the steps of [`Fsdp`], challenge B's contract.
//!
//! Sources: Rajbhandari et al., "`ZeRO`" (2020), stage 3; torch's FSDP2 (`fully_shard`); Dettmers et al., "`QLoRA`"
//! (2023).

mod contract;
mod error;
pub mod flat;
pub mod forecast;
mod load;
pub mod programs;
pub mod rank;
mod tasks;

pub use compiler::store::Store;
pub use contract::{Activations, FSDP, Fsdp, Gradient, Host, LayerBytes, PP, Sharding, TP};
pub use error::Error;
pub use rank::{
    Event, EventKind, Interval, Pipeline, Rank, Room, Semaphore, Slice, Team, Trace, Traffic, recomputed,
};
