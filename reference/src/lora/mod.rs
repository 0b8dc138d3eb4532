//! Low-rank adapters in the layout of the `peft` library.
//!
//! ```text
//! adapter_config.json            rank, alpha, targets
//! adapter_model.safetensors      base_model.model.MODULE.lora_A.weight    (r, in)
//!                                base_model.model.MODULE.lora_B.weight    (out, r)
//! y = x W^T + scale (x A^T) B^T  scale = alpha / r, or alpha / sqrt r (rank-stabilised)
//! ```
//!
//! Beside the low-rank pairs an adapter may hold the embedding or the output layer, trained as a whole, or some of
//! their rows: see [`Modules`].
//!
//! Sources: Hu et al., "LoRA" (2021), section 4.1; Kalajdzievski, "A Rank Stabilization Scaling Factor for Fine-Tuning
//! with LoRA" (2023), for the root.

mod adapter;
mod config;
mod fresh;
mod modules;
mod write;

pub use adapter::Adapter;
pub use config::{Config, Targets};
pub use modules::{Module, Modules, TrainedTensor};
pub use write::serialize;

/// The names of a module's A and B, in files and in graphs.
pub fn keys(module: &str) -> [String; 2] {
    crate::oracles::ADAPTERS.count();
    ["A", "B"].map(|part| format!("base_model.model.{module}.lora_{part}.weight"))
}
